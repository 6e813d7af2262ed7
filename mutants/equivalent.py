"""Faults that change no result, so that no test can find them: {reason: their keys}.

A key names the function and the change, not the line. The command says when a key
names nothing any more.
"""

EQUIVALENT: dict[str, tuple[str, ...]] = {
    "what is asked of one operand is the same for the others": (
        "attention.attention: k → v #2",
        "attention.attend: k → v",
        "tiled.attend_in_tiles: k → v #3",
        "_inputs.check_operands: q → k",
        "dropin.MultiheadAttention.forward: k → v #4",
        "dropin.MultiheadAttention.forward: v → k #4",
        "dropin.MultiheadAttention.forward: query → key #4",
        "dropin.MultiheadAttention.forward: key → value #3",
        "dropin.MultiheadAttention._project: 0 → 1",
        "_inputs.check_inputs: 0 → 1 #2",
        "_inputs.resolve_inputs: 0 → 1 #2",
        "styles.builtin.BuiltinMHA.forward: key → value #3",
        "styles.split_concat.SplitConcatMHA.forward: key → value #2",
        "dropin.MultiheadAttention.forward: q → k #4",
        "tiled.attend_in_tiles: _worth_tiling(q, k, v, mask, bias, is_causal, "
        "need_weights) → _worth_tiling(q, v, k, mask, bias, is_causal, "
        "need_weights)",
        "tiled._worth_tiling: q → k #2",
        "_tiles.Tiles.__init__: q → k #2",
        "_tiles.Weights.__init__: q → k #2",
        "_tiles.Weights.__init__: q → k #3",
        "tiled._Tiled.forward: k → v",
        "tiled._Tiled.forward: q → k #3",
        "tiled._Tiled.forward: q → k #4",
        "tiled._Tiled.forward: q → k #5",
        "tiled._Tiled.backward: k → v #2",
        "tiled._Tiled.backward: q → k #5",
        "tiled._Tiled.backward: k → v #5",
        "tiled._Tiled.backward: v → k #3",
    ),
    "no dropout is asked for twice: by its probability and by training=False": (
        "styles.builtin.BuiltinMHA._weights_before_dropout: 0.0 → 1.0",
        "styles.builtin.BuiltinMHA._weights_before_dropout: False → True #2",
        "styles.builtin.BuiltinMHA._weights_before_dropout: "
        "out_proj_weight=self.mha.out_proj.weight, "
        "out_proj_bias=self.mha.out_proj.bias, … → "
        "out_proj_weight=self.mha.out_proj.weight, "
        "out_proj_bias=self.mha.out_proj.bias, …",
    ),
    "it says what torch takes unasked": (
        "styles.builtin.BuiltinMHA._weights_before_dropout: training=False, "
        "attn_mask=hidden, need_weights=True, average_attn_weights=False) → "
        "training=False, attn_mask=hidden, average_attn_weights=False)",
    ),
    "an empty tensor that is thrown away": (
        "dropin.MultiheadAttention.__init__.parameter: 0 → 1",
    ),
    "with no mask there is no empty row, and a bias of zero changes nothing": (
        "dropin.MultiheadAttention.forward: self.torch_empty_rows and mask is not "
        "None → self.torch_empty_rows",
    ),
    "under this condition the two are one object": (
        "dropin.MultiheadAttention._project: key → value",
        "dropin.MultiheadAttention._project: query → key #2",
        "styles.fused.FusedMHA._project: query → key #2",
        "styles.fused.FusedMHA._project: key → value",
    ),
    "how the work is cut in pieces: it costs time or memory and changes no number": (
        "styles.builtin.BuiltinMHA.forward: self.training and self.dropout → "
        "self.training",
        "dropin.MultiheadAttention.forward: need_weights and dropout_p → need_weights",
        "dropin.MultiheadAttention._project: joint is not None → joint is None",
        "tiled.attend_in_tiles: is_causal and mask is not None → is_causal",
        "_tiles.Tiles.__init__: is_causal or mask is not None → is_causal and mask "
        "is not None",
        "_tiles.Tiles.__init__: is_causal or mask is not None → mask is not None",
        "_tiles.Tiles.__init__: is_causal or mask is not None → is_causal",
        "_tiles.Tiles.__init__: mask is not None → mask is None",
        "_tiles.Tiles.__init__: mask.reshape(-1, *mask.shape[-2:]) → mask.reshape(-1)",
        "_tiles.Tiles.__init__: -2 → -1 #2",
        "_tiles.Tiles.__iter__: 1 → 2",
        "_tiles.Tiles.__iter__: 0 → 1 #3",
        "_tiles.Weights._softmax: torch.softmax(scores, -1, out=scores) → "
        "torch.softmax(scores, -1)",
        "_tiles._scratch: 0 → 1",
        "tiled._Tiled.forward: mask → None",
        "tiled._Tiled.backward: mask → None",
    ),
    "keys beyond the last query are hidden by causality": (
        "_tiles.Tiles.__iter__: S → T #2",
    ),
    "where the numbers lie changes none of them": (
        "_tiles.Tiles.in_one_piece: x.contiguous() if self.batches > 1 or "
        "is_short(x) else x → x if self.batches > 1 or is_short(x) else "
        "x.contiguous()",
        "_tiles.Tiles.in_one_piece: self.batches > 1 or is_short(x) → not "
        "(self.batches > 1 or is_short(x))",
        "_tiles.Tiles.in_one_piece: self.batches > 1 or is_short(x) → self.batches"
        " > 1 and is_short(x)",
        "_tiles.Tiles.in_one_piece: self.batches > 1 or is_short(x) → is_short(x)",
        "_tiles.Tiles.in_one_piece: self.batches > 1 or is_short(x) → self.batches > 1",
        "_tiles.Tiles.in_one_piece: self.batches > 1 → self.batches >= 1",
        "_tiles.Tiles.in_one_piece: self.batches > 1 → 1 > self.batches",
        "_tiles.Tiles.in_one_piece: 1 → 0",
        "_tiles.Tiles.in_one_piece: 1 → 2",
        "_tiles.Tiles.in_one_piece: x.contiguous() → x",
    ),
    "at the bound itself both ways are right": (
        "_tiles.Weights._powers: least >= 2.0 ** (-EXPONENT) → least > 2.0 ** "
        "(-EXPONENT)",
        "_tiles.Weights._powers: largest <= 2.0 ** EXPONENT → largest < 2.0 ** "
        "EXPONENT",
    ),
    "the weights do not depend on the values": (
        "styles.builtin.BuiltinMHA.forward: value → key #4",
        "styles.builtin.BuiltinMHA.forward: value → key #5",
        "styles.builtin.BuiltinMHA._weights_before_dropout: value → key",
    ),
    "a tensor of one number does what the number does": (
        "masks.making.padding_mask: int(lengths.max()) → lengths.max()",
        "masks.making.padding_mask: int(lengths.max()) → lengths.max() #2",
        "masks.making.padding_mask: int(lengths.min()) → lengths.min()",
        "_tiles.Tiles.__iter__: int(keys[-1]) → keys[-1]",
        "_tiles.Weights._powers: float(sum_) → sum_",
    ),
    "a product does not ask in which order": (
        "tiled._worth_tiling: (*q.shape[:-1], k.shape[-2]) → (k.shape[-2], "
        "*q.shape[:-1])",
    ),
    "the sum of one is itself": ("tiled._Tiled.forward: 1 → 0 #3",),
    "a mask beside itself is itself": (
        "masks.making.combine_masks: 1 → 0",
        "tiled.attend_in_tiles: False → True",
    ),
    "zip and map stop after three": (
        "_inputs.resolve_inputs: 3 → 4",
        "_inputs.project: 3 → 4",
    ),
    "a row of equal numbers, whatever they are": (
        "attention._softmax: scores.new_zeros → scores.new_ones",
    ),
    "autograd brings a gradient to the dtype of its input": (
        "tiled._Tiled.backward: (grad_kt * scale).mT.to(k.dtype) → (grad_kt * "
        "scale).mT",
        "tiled._Tiled.backward: grad_vt.mT.to(v.dtype) → grad_vt.mT",
    ),
    "a nested tensor is the iterable of its parts": (
        "dropin.MultiheadAttention.forward: query.unbind() → query",
        "dropin.MultiheadAttention.forward: key.unbind() → key",
        "dropin.MultiheadAttention.forward: value.unbind() → value",
    ),
    "the weights that are asked for are thrown away": (
        "dropin.MultiheadAttention.forward: self.forward(*x, need_weights=False) → "
        "self.forward(*x)",
        "dropin.MultiheadAttention.forward: False → True #3",
    ),
    "the softmax does not see what is added to all scores of a query": (
        "dropin.MultiheadAttention.forward: q.new_zeros → q.new_ones",
        "_tiles.Weights.__init__: q.new_zeros → q.new_ones",
    ),
    "one tensor in all three places has one width, so the projections are joint": (
        "dropin.MultiheadAttention._project: joint is not None and query is key and"
        " (key is value) → query is key and key is value",
        "dropin.MultiheadAttention._load_from_state_dict: self.in_proj_weight is "
        "not None and joint not in state_dict → joint not in state_dict",
    ),
}

# Of the held-out faults that survived the stored run: {key: reason}.
EQUIVALENT_HELD_OUT: dict[str, str] = {
    "attention.weigh: q → k": "a query is as wide as a key",
    "styles.builtin.BuiltinMHA.forward: key → value": "there is a value for each key",
    "styles.builtin.BuiltinMHA.forward: aligned is not None → True": (
        "torch's layer gives the same off its fast path"
    ),
    "styles.fused.FusedMHA._project: query is key → False": (
        "three products give what one gives"
    ),
}
