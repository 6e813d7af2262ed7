"""Faults that change no result, so that no test can find them: {reason: their keys}.

A key names the function and the change, not the line. The command says when a key
names nothing any more.
"""

EQUIVALENT: dict[str, tuple[str, ...]] = {
    "what is asked of one operand is the same for the others": (
        "tiled.tiled_attention: _worth_tiling(q, k, v, bias) → "
        "_worth_tiling(k, q, v, bias)",
        "tiled.tiled_attention: _worth_tiling(q, k, v, bias) → "
        "_worth_tiling(q, v, k, bias)",
        "tiled._worth_tiling: q → k",
        "tiled._worth_tiling: k → v",
        "tiled._worth_tiling: (q, k, v) → (k, q, v)",
        "tiled._worth_tiling: (q, k, v) → (q, v, k)",
        "tiled._Weights.__init__: q → k #3",
        "_inputs.resolve_inputs: 0 → 1 #2",
        "_inputs.resolve_inputs: query → key #3",
        "builtin.BuiltinMHA.forward: key → value #3",
    ),
    "under this condition the two are one object": (
        "fused.FusedMHA._project: query → key #2",
        "fused.FusedMHA._project: key → value",
    ),
    "how the work is cut in pieces: it costs time or memory and changes no number": (
        "tiled._worth_tiling: q → k #3",
        "tiled._worth_tiling: q.shape[:-1].numel() * k.shape[-2] > TILE → "
        "q.shape[:-1].numel() * k.shape[-2] >= TILE",
        "tiled._Weights.__init__: mask.reshape(-1, *mask.shape[-2:]) → "
        "mask.reshape(-1)",
        "tiled._Weights.__init__: -2 → -1 #2",
        "tiled._Weights.__init__: 0 → 1 #2",
        "tiled._Weights.tiles: min(T, max(1, TILE // S), T if self.seen is None else "
        "MASKED_ROWS) → T",
        "tiled._Weights.tiles: min(T, max(1, TILE // S), T if self.seen is None else "
        "MASKED_ROWS) → min(T, max(1, TILE // S))",
        "tiled._Weights.tiles: min → max",
        "builtin.BuiltinMHA.forward: self.training and self.dropout → self.training",
    ),
    "the weights do not depend on the values": (
        "builtin.BuiltinMHA.forward: value → key #4",
    ),
    "a tensor of one number does what the number does": (
        "masks.padding_mask: int(lengths.max()) → lengths.max()",
        "masks.padding_mask: int(lengths.min()) → lengths.min()",
    ),
    "a mask beside itself is itself": ("masks.combine_masks: 1 → 0",),
    "zip stops after three": ("fused.FusedMHA._project: 3 → 4 #3",),
}
