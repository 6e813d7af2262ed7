"""Typical mistakes in a layer of another layout."""

from tests.check.stress.typical_layers import RETURN, SOFTMAX

SEQUENCE = [
    (
        "mask not permuted",
        "mask.permute(2, 0, 1)[:, None]",
        "mask[:, None]",
        "line: masked_fill",
    ),
    (
        "mask permuted the wrong way",
        "mask.permute(2, 0, 1)",
        "mask.permute(2, 1, 0)",
        "mask-transposed | needs-equal-sizes",
    ),
    (
        "mask as heads",
        "mask.permute(2, 0, 1)[:, None]",
        "mask.permute(2, 0, 1)",
        "batch-axis-as-heads | needs-equal-sizes",
    ),
    (
        "B and T exchanged",
        "T, B, E = query.shape",
        "B, T, E = query.shape",
        "line: k_proj | layout-exchanged",
    ),
    ("over heads", SOFTMAX, "torch.softmax(scores, dim=1)", "softmax-over-heads"),
    ("over queries", SOFTMAX, "torch.softmax(scores, dim=2)", "softmax-over-queries"),
    (
        "weights turned",
        "bhts,sbhd->tbhd",
        "bhst,sbhd->tbhd",
        "line: weights | weights-transposed needs-equal-sizes",
    ),
    ("letters of the batch first", "tbhd,sbhd->bhts", "bthd,bshd->bhts", "line: bthd"),
    ("d not summed", "tbhd,sbhd->bhts", "tbhd,sbhe->bhts", "unknown"),
    ("s summed away", "bhts,sbhd->tbhd", "bhts,kbhd->tbhd", "unknown"),
    (
        "output turned",
        "context.reshape(T, B, E)",
        "context.transpose(0, 1).reshape(B, T, E)",
        "unknown | layout-exchanged",
    ),
    (
        "output reshaped",
        "context.reshape(T, B, E)",
        "context.transpose(0, 1).reshape(T, B, E)",
        "output-reshaped",
    ),
    ("scale of E", "scores / D**0.5", "scores / E**0.5", "scale-embed-dim"),
    ("no scale", "scores / D**0.5", "scores", "no-scale"),
    (
        "heads last",
        "self.q_proj(query).view(T, B, H, D)",
        "self.q_proj(query).view(T, B, D, H).transpose(2, 3)",
        "unknown",
    ),
    (
        "maps with T first",
        RETURN.replace("context", "context.reshape(T, B, E)"),
        "return self.out_proj(context.reshape(T, B, E)), weights.transpose(0, 2)",
        "weights-returned-wrong",
    ),
]
STYLE_Q = 'torch.relu(F.linear(queries, weights["W_q"], weights["b_q"]))'
STYLE_V = 'torch.relu(F.linear(keys, weights["W_v"], weights["b_v"]))'
PADDING = "(keys != 0).any(dim=-1)"
STYLE = [
    (
        "no relu on q",
        STYLE_Q,
        'F.linear(queries, weights["W_q"], weights["b_q"])',
        "unknown",
    ),
    (
        "values from queries",
        STYLE_V,
        STYLE_V.replace("keys", "queries"),
        "v-from-query needs-equal-sizes",
    ),
    (
        "values with W_k",
        STYLE_V,
        STYLE_V.replace('"W_v"', '"W_k"').replace('"b_v"', '"b_k"'),
        "wk-for-v",
    ),
    ("sum of the features", PADDING, "(keys.sum(-1) != 0)", "key-mask-from-sum"),
    (
        "padding not used",
        "scores = scores.masked_fill(~padding",
        "scores.masked_fill(~padding",
        "padding-ignored",
    ),
    (
        "padding inverted",
        "masked_fill(~padding",
        "masked_fill(padding",
        "padding-inverted",
    ),
    (
        "padding interleaved",
        ".repeat(num_heads, 1)",
        ".repeat_interleave(num_heads, 0)",
        "mask-interleaved",
    ),
    (
        "padding of queries",
        PADDING,
        "(queries != 0).any(dim=-1)",
        "line: padding | padding-on-queries needs-equal-sizes",
    ),
    ("triu", ".tril()", ".triu()", "causal-transposed"),
    ("tril(-1)", ".tril()", ".tril(-1)", "causal-blocks-diagonal"),
    ("tril(1)", ".tril()", ".tril(1)", "causal-sees-next"),
    ("causality forgotten", "if causality:", "if not causality:", "unknown"),
    (
        "causal inverted",
        "masked_fill(~causal",
        "masked_fill(causal",
        "unknown | mask-inverted",
    ),
    ("scale of E", "q.shape[-1] ** 0.5", "queries.shape[-1] ** 0.5", "scale-embed-dim"),
    ("no scale", " / q.shape[-1] ** 0.5", "", "no-scale"),
    (
        "over queries",
        "torch.softmax(scores, dim=-1)",
        "torch.softmax(scores, dim=1)",
        "softmax-over-queries",
    ),
    (
        "heads on the batch kept",
        "torch.cat(context.chunk(num_heads, dim=0), dim=-1)",
        "context",
        "line: return F.linear",
    ),
    (
        "heads joined by reshape",
        "torch.cat(context.chunk(num_heads, dim=0), dim=-1)",
        "context.reshape(len(queries), T, -1)",
        "unknown | merge-batch-major merge-no-transpose",
    ),
    (
        "residual",
        'return F.linear(context, weights["W_o"], weights["b_o"])',
        'return queries + F.linear(context, weights["W_o"], weights["b_o"])',
        "residual",
    ),
    (
        "no W_o",
        'return F.linear(context, weights["W_o"], weights["b_o"])',
        "return context",
        "no-output-projection",
    ),
]
ROWS = {"sequence": SEQUENCE, "style": STYLE}
