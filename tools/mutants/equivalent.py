"""Faults that change no result, so that no test can find them: {reason: their keys}.

A key names the function and the change, not the line. The command says when a key
names nothing any more.
"""

EQUIVALENT: dict[str, tuple[str, ...]] = {
    "what is asked of one operand is the same for the others": (
        "dropin.MultiheadAttention.forward: query → key #6",
        "dropin.MultiheadAttention.forward: k → v #4",
        "dropin.MultiheadAttention.forward: v → k #4",
        "dropin.MultiheadAttention._check: q → k",
        "dropin.MultiheadAttention._check: q → k #4",
        "dropin.MultiheadAttention._check: k → v #4",
        "dropin.MultiheadAttention._project: 0 → 1",
        "tiled.tiled_attention: _worth_tiling(q, k, v, bias) → "
        "_worth_tiling(k, q, v, bias)",
        "tiled.tiled_attention: _worth_tiling(q, k, v, bias) → "
        "_worth_tiling(q, v, k, bias)",
        "tiled._worth_tiling: q → k",
        "tiled._worth_tiling: k → v",
        "tiled._worth_tiling: (q, k, v) → (k, q, v)",
        "tiled._worth_tiling: (q, k, v) → (q, v, k)",
        "tiled._Weights.__init__: _finite_products(q, k) → _finite_products(k, q)",
        "tiled._Weights.__init__: q → k #3",
        "tiled._Weights.__init__: q → k #5",
        "_inputs.resolve_inputs: 0 → 1 #2",
        "_inputs.resolve_inputs: query → key #3",
        "builtin.BuiltinMHA.forward: key → value #3",
        "tiled._Tiled.forward: q → k #2",
        "tiled._Tiled.forward: q → k #3",
        "tiled._Tiled.forward: q → k #4",
        "tiled._Tiled.forward: q → k #5",
        "tiled._Tiled.backward: v → k #2",
        "tiled._Tiled.backward: q → k #4",
        "tiled._Tiled.backward: k → v #3",
        "tiled._Tiled.backward: v → k #4",
        "split_concat.SplitConcatMHA.forward: key → value #2",
        "dropin.MultiheadAttention.forward: q → k #4",
    ),
    "no dropout is asked for twice: by its probability and by training=False": (
        "builtin.BuiltinMHA._weights_before_dropout: 0.0 → 1.0",
        "builtin.BuiltinMHA._weights_before_dropout: False → True #2",
        "builtin.BuiltinMHA._weights_before_dropout: "
        "out_proj_weight=self.mha.out_proj.weight, "
        "out_proj_bias=self.mha.out_proj.bias, … → "
        "out_proj_weight=self.mha.out_proj.weight, "
        "out_proj_bias=self.mha.out_proj.bias, …",
    ),
    "it says what torch takes unasked": (
        "builtin.BuiltinMHA._weights_before_dropout: training=False, "
        "attn_mask=hidden, need_weights=True, average_attn_weights=False) → "
        "training=False, attn_mask=hidden, average_attn_weights=False)",
    ),
    "an empty tensor that is thrown away": (
        "dropin.MultiheadAttention.__init__.parameter: 0 → 1",
    ),
    "with no mask there is no empty row, and a bias of zero changes nothing": (
        "dropin.MultiheadAttention.forward: "
        "self.torch_empty_rows and mask is not None → self.torch_empty_rows",
    ),
    "under this condition the two are one object": (
        "dropin.MultiheadAttention._project: key → value #2",
        "dropin.MultiheadAttention._project: query → key #3",
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
        "tiled._Weights.tiles: T → S",
        "tiled._Weights.tiles: 1 → 2",
        "tiled._Weights.tiles: TILE // S → TILE * S",
        "tiled._Weights.tiles: TILE // S → S // TILE",
        "tiled._Weights.tiles: S → T",
        "tiled._Weights.tiles: T → S #2",
        "tiled._Weights.tiles: 1 → 2 #2",
        "tiled._Weights.tiles: TILE // (rows * S) → TILE * (rows * S)",
        "tiled._Weights.tiles: TILE // (rows * S) → rows * S // TILE",
        "tiled._Weights.tiles: S → T #2",
        "tiled._Weights.tiles: 1 → 2 #3",
        "tiled._Weights.tiles: 0 → 1 #3",
        "tiled._Weights.tiles: self.seen is None → self.seen is not None",
        "tiled._Weights.tiles: T if self.seen is None else MASKED_ROWS → "
        "MASKED_ROWS if self.seen is None else T",
        "tiled._Tiled.forward: 1 → 0",
        "tiled._finite_products: * k_max < torch.finfo(q.dtype).max → * k_max <= "
        "torch.finfo(q.dtype).max",
        "dropin.MultiheadAttention._project: joint is not None → joint is None",
        "dropin.MultiheadAttention.forward: 0 → 1 #14",
    ),
    "the weights do not depend on the values": (
        "builtin.BuiltinMHA.forward: value → key #4",
        "builtin.BuiltinMHA.forward: value → key #5",
        "builtin.BuiltinMHA._weights_before_dropout: value → key",
        "dropin.MultiheadAttention.forward: v → k #8",
    ),
    "a tensor of one number does what the number does": (
        "masks.padding_mask: int(lengths.max()) → lengths.max()",
        "masks.padding_mask: int(lengths.min()) → lengths.min()",
        "tiled._Weights.tiles: int(keys[-1]) → keys[-1]",
        "tiled._finite_products: float(x.abs().amax()) → x.abs().amax()",
    ),
    "a mask beside itself is itself": ("masks.combine_masks: 1 → 0",),
    "zip stops after three": (
        "fused.FusedMHA._project: 3 → 4 #3",
        "dropin.MultiheadAttention._project: 3 → 4 #4",
    ),
    "autograd brings a gradient to the dtype of its input": (
        "tiled._Tiled.backward: grad_k.to(k.dtype) → grad_k",
        "tiled._Tiled.backward: grad_v.to(v.dtype) → grad_v",
    ),
    "a nested tensor is the iterable of its parts": (
        "dropin.MultiheadAttention.forward: query.unbind() → query",
        "dropin.MultiheadAttention.forward: key.unbind() → key",
        "dropin.MultiheadAttention.forward: value.unbind() → value",
    ),
    "the weights that are asked for are thrown away": (
        "dropin.MultiheadAttention.forward: self.forward(*x, need_weights=False) → "
        "self.forward(*x)",
        "dropin.MultiheadAttention.forward: False → True #2",
    ),
    "the softmax does not see what is added to all scores of a query": (
        "dropin.MultiheadAttention.forward: q.new_zeros → q.new_ones",
        "tiled._Weights.__init__: q.new_zeros → q.new_ones",
    ),
    "−inf is added to whatever stood there": ("tiled._Weights.tile: 0.0 → 1.0",),
    "one tensor in all three places has one width, so the projections are joint": (
        "dropin.MultiheadAttention._project: joint is not None and query is key and "
        "(key is value) → query is key and key is value",
        "dropin.MultiheadAttention._load_from_state_dict: self.in_proj_weight is not "
        "None and joint not in state_dict → joint not in state_dict",
    ),
}
