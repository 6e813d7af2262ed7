"""What is wrong with the order of the axes: batch and sequence."""

from mha_lib.check.catalogue.mistake import TORCH_LAYERS, Mistake

MISTAKES = (
    Mistake(
        "layout-exchanged",
        "A sequence sees the other sequences of the batch, and none of its own tokens",
        "batch and sequence are exchanged: (T, B, E) is read as (B, T, E), or the "
        "reverse",
        "06_einsum_sequence_first#batch-and-sequence-exchanged",
        "om-ai-lab/OmDet#19",
        stages={
            "inputs": lambda p: [
                p.x[name].transpose(0, 1) for name in ("query", "key", "value")
            ]
        },
        tasks=TORCH_LAYERS,
        undo=lambda output: output.transpose(-3, -2),
    ),
    Mistake(
        "output-reshaped",
        "Tokens land in other sequences of the batch",
        "the output went from (B, T, E) to (T, B, E) by reshape, not by "
        "transpose(0, 1)",
        "06_einsum_sequence_first#back-to-batch-first-by-reshape",
        stages={"layout": lambda output: output.reshape(*output.shape[1::-1], -1)},
        tasks=("mha_sequence_first",),
    ),
)
