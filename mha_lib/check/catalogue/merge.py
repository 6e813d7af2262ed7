"""What is wrong where the heads come together."""

from torch import Tensor

from mha_lib.check.catalogue.mistake import Mistake
from mha_lib.check.reference import LAYERS, merge_plain

_MERGE = ("merge_heads", *LAYERS)
_BACK = "03_all_heads_at_once#heads-merged-without-a-transpose"
_LOOP = "02_heads_in_a_loop#heads-summed"


def _tokens(context: Tensor) -> Tensor:
    """(…, H, T, D) -> (…, T, H, D)."""
    return context.transpose(-3, -2)


def _batch_major(context: Tensor) -> Tensor:
    swapped = context.transpose(-4, -3)  # (…, H, B, T, D), as stacked
    return merge_plain(_tokens(swapped.reshape(context.shape)))


MISTAKES = (
    Mistake(
        "merge-no-transpose",
        "A token of the output holds pieces of several tokens",
        "(B, H, T, D) went to (B, T, E) by view or reshape without the transpose back",
        _BACK,
        "jsbaan/transformer-from-scratch#6",
        stages={"merge": merge_plain},
        tasks=_MERGE,
    ),
    Mistake(
        "merge-interleaved",
        "The features of the heads alternate",
        "the heads were merged as (B, T, D, H): the head is the last axis, not D",
        "03_all_heads_at_once#the-way-back",
        stages={
            "merge": lambda context: merge_plain(_tokens(context).transpose(-2, -1))
        },
        tasks=_MERGE,
    ),
    Mistake(
        "merge-mean",
        "All heads could change places",
        "the heads are averaged, not concatenated",
        _LOOP,
        stages={"merge": lambda context: context.mean(-3)},
        tasks=_MERGE,
    ),
    Mistake(
        "merge-sum",
        "All heads could change places",
        "the heads are summed, not concatenated",
        _LOOP,
        stages={"merge": lambda context: context.sum(-3)},
        tasks=_MERGE,
    ),
    Mistake(
        "merge-first-head",
        "Only head 0 reaches the output",
        "the loop takes heads[0] every time, or the others are dropped",
        "deeper/02_heads_put_to_the_test#only-head-0",
        stages={"merge": lambda context: context[..., 0, :, :]},
        tasks=_MERGE,
    ),
    Mistake(
        "merge-reversed",
        "The last head comes first",
        "the heads are concatenated in reverse order",
        "deeper/02_heads_put_to_the_test#the-heads-joined-in-reverse",
        stages={"merge": lambda context: merge_plain(_tokens(context.flip(-3)))},
        tasks=_MERGE,
    ),
    Mistake(
        "merge-batch-major",
        "Heads land in other sequences of the batch",
        "the rows were stacked head by head (h·B + b) but cut sequence by sequence "
        "(b·H + h)",
        "08_tensorflow_style#the-way-there-the-way-back",
        "jadore801120/attention-is-all-you-need-pytorch#7",
        stages={"merge": _batch_major},
        tasks=_MERGE,
    ),
)
