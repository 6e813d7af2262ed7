"""Mistakes that people have made in their own attention, put into ours by hand.

Each is met again and again in public issue threads and commits; a line gives the
module, a text that occurs there once, and what stands in its place.
"""

from collections.abc import Callable, Iterator

from mutants.operators import Mutant

SOFTMAX = "torch.where(mask, scores, fill).softmax(dim)"
SCALE = "scale = 1.0 / math.sqrt(q.shape[-1])"
SCORES = "(q * scale) @ k.transpose(-2, -1)"
WEIGHTS = "return _softmax(scores, mask)"
WEIGHED = "weights = weigh(q, k, mask, bias=bias, scale=scale, is_causal=is_causal)"
CONTEXT = "F.dropout(weights, dropout_p) @ v"
D = "head_size(x.shape[-1], num_heads)"
SPLIT = f"return x.unflatten(-1, (num_heads, {D})).transpose(\n        1, 2\n    )"
MERGE = "return x.transpose(1, 2).flatten(2)"

Row = tuple[str, str, str]
MISTAKES: dict[str, dict[str, Row]] = {
    "softmax": {
        "over the queries": ("attention", SOFTMAX, SOFTMAX.replace("dim", "dim - 1")),
        "over the heads": ("attention", SOFTMAX, SOFTMAX.replace("dim", "1")),
        "over the batch": ("attention", SOFTMAX, SOFTMAX.replace("dim", "0")),
        "over the whole map": (
            "attention",
            SOFTMAX,
            "torch.where(mask, scores, fill).flatten(-2).softmax(-1).view_as(scores)",
        ),
        "twice": ("attention", SOFTMAX, f"{SOFTMAX}.softmax(dim)"),
        "twice, unmasked": (
            "attention",
            "return scores.softmax(dim)",
            "return scores.softmax(dim).softmax(dim)",
        ),
        "its logarithm": ("attention", SOFTMAX, SOFTMAX.replace("soft", "log_soft")),
        "none": ("attention", WEIGHTS, "return scores"),
    },
    "scale": {
        "missing": ("attention", SCALE, "scale = 1.0"),
        "√E": ("attention", SCALE, "scale = (q.shape[-1] * q.shape[-3]) ** -0.5"),
        "√H": ("attention", SCALE, "scale = q.shape[-3] ** -0.5"),
        "√T": ("attention", SCALE, "scale = q.shape[-2] ** -0.5"),
        "√S": ("attention", SCALE, "scale = k.shape[-2] ** -0.5"),
        "twice": ("attention", SCALE, "scale = 1.0 / q.shape[-1]"),
        "multiplied": ("attention", SCALE, "scale = math.sqrt(q.shape[-1])"),
        "a constant": ("attention", SCALE, "scale = 1.0 / 8.0"),
        "after the softmax": (
            "attention",
            f"scores = {SCORES}  # (..., T, S)",
            "scores = q @ k.transpose(-2, -1) / scale",
        ),
        "on the products, in half precision": (
            "attention",
            SCORES,
            "(q @ k.transpose(-2, -1)) * scale",
        ),
        "missing in the tiles": (
            "_tiles",
            "self.scale = q.shape[-1] ** -0.5",
            "self.scale = 1.0",
        ),
        "missing in einsum": ("styles.einsum", "q * self.scale", "q"),
    },
    "scores": {
        "keys times queries": (
            "attention",
            SCORES,
            "(k @ (q * scale).mT).reshape(*q.shape[:-1], k.shape[-2])",
        ),
        "cosine": (
            "attention",
            SCORES,
            "F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT",
        ),
        "weights transposed": (
            "attention",
            CONTEXT,
            "F.dropout(weights, dropout_p).mT.reshape(weights.shape) @ v",
        ),
        "keys turned by view": (
            "attention",
            "k.transpose(-2, -1)  #",
            "k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])  #",
        ),
    },
    "splitting heads": {
        "view without transpose": (
            "layouts",
            SPLIT,
            f"return x.reshape(len(x), num_heads, -1, {D})",
        ),
        "view on the batch axis": (
            "layouts",
            "return torch.cat(x.split(D, dim=-1), dim=0)",
            "return x.reshape(x.shape[0] * num_heads, -1, D)",
        ),
        "interleaved": (
            "layouts",
            SPLIT,
            f"return x.unflatten(-1, ({D}, num_heads)).permute(0, 3, 1, 2)",
        ),
        "heads of one token attend": (
            "layouts",
            SPLIT,
            f"return x.unflatten(-1, (num_heads, {D})).transpose(1, 2)"
            f".reshape(len(x), -1, num_heads, {D}).transpose(1, 2)",
        ),
        "the number of heads ignored": (
            "styles.batched",
            "q = split_heads(self.q_proj(query), self.num_heads)",
            "q = self.q_proj(query)[:, None].expand(-1, self.num_heads, -1, -1)",
        ),
        "sequence first, interleaved": (
            "layouts",
            "return x.unflatten(-1, (num_heads, head_size(x.shape[-1], num_heads)))\n",
            f"return x.unflatten(-1, ({D}, num_heads)).mT\n",
        ),
    },
    "merging heads": {
        "no transpose": ("layouts", MERGE, "return x.reshape(len(x), x.shape[2], -1)"),
        "interleaved": ("layouts", MERGE, "return x.permute(0, 2, 3, 1).flatten(2)"),
        "averaged": (
            "layouts",
            MERGE,
            "return x.mean(1, keepdim=True).expand_as(x).transpose(1, 2).flatten(2)",
        ),
        "the first head alone": (
            "layouts",
            MERGE,
            "return x[:, :1].expand_as(x).transpose(1, 2).flatten(2)",
        ),
        "in reverse order": (
            "layouts",
            MERGE,
            "return x.flip(1).transpose(1, 2).flatten(2)",
        ),
        "stacked by heads, cut by sequences": (
            "layouts",
            "return torch.cat(x.chunk(num_heads, dim=0), dim=-1)",
            "return x.unflatten(0, (-1, num_heads)).transpose(1, 2).flatten(2)",
        ),
        "heads in the loop, reversed": (
            "styles.per_head",
            "torch.cat(contexts, dim=-1)",
            "torch.cat(contexts[::-1], dim=-1)",
        ),
    },
    "projections": {
        "keys and values from the query": (
            "styles.fused",
            "project((query, key, value), weights, bias)",
            "project((query, query, query), weights, bias)",
        ),
        "queries from the key": (
            "styles.batched",
            "self.q_proj(query)",
            "self.q_proj(key)",
        ),
        "values from the key": (
            "styles.batched",
            "self.v_proj(value)",
            "self.v_proj(key)",
        ),
        "values from the key, einsum": (
            "styles.einsum",
            "self.v_proj(value)",
            "self.v_proj(key)",
        ),
        "keys and values exchanged": (
            "styles.batched",
            "attention(q, k, v",
            "attention(q, v, k",
        ),
        "W^Q and W^K exchanged": (
            "styles.einsum",
            "self.q_proj(query), self.num_heads)\n"
            "        k = split_heads_sequence_first(self.k_proj(key)",
            "self.k_proj(query), self.num_heads)\n"
            "        k = split_heads_sequence_first(self.q_proj(key)",
        ),
        "one matrix for queries and keys": (
            "styles.batched",
            "self.k_proj(key)",
            "self.q_proj(key)",
        ),
        "W^K for the values": (
            "styles.split_concat",
            "self.v_proj(value)",
            "self.k_proj(value)",
        ),
        "none for the values": ("styles.batched", "self.v_proj(value)", "value"),
        "x W instead of x Wᵀ": (
            "_inputs",
            "map(F.linear, inputs, weights, biases)",
            "map(F.linear, inputs, [w.T for w in weights], biases)",
        ),
        "an activation after them": (
            "styles.batched",
            "self.q_proj(query)",
            "self.q_proj(query).relu()",
        ),
        "no bias for the queries": (
            "_inputs",
            "map(F.linear, inputs, weights, biases)",
            "map(F.linear, inputs, weights, [None, *biases[1:]])",
        ),
        "no bias for the values": (
            "_inputs",
            "map(F.linear, inputs, weights, biases)",
            "map(F.linear, inputs, weights, [*biases[:2], None])",
        ),
        "no output projection": (
            "styles.batched",
            "self.out_proj(merge_heads(context))",
            "merge_heads(context)",
        ),
        "output projection twice": (
            "styles.batched",
            "self.out_proj(merge_heads(context))",
            "self.out_proj(self.out_proj(merge_heads(context)))",
        ),
        "a residual inside": (
            "styles.batched",
            "self.out_proj(merge_heads(context))",
            "query + self.out_proj(merge_heads(context))",
        ),
    },
    "mask values": {
        "filled with +1e10": ("attention", SOFTMAX, SOFTMAX.replace("fill", "1e10")),
        "filled with −1": ("attention", SOFTMAX, SOFTMAX.replace("fill", "-1.0")),
        "filled with 0": ("attention", SOFTMAX, SOFTMAX.replace("fill", "0.0")),
        "filled with 1e−9": ("attention", SOFTMAX, SOFTMAX.replace("fill", "1e-9")),
        "filled with −1e9 in half precision": (
            "attention",
            SOFTMAX,
            SOFTMAX.replace("fill", "-1e9"),
        ),
        "filled with −∞": (
            "attention",
            SOFTMAX,
            SOFTMAX.replace("fill", "-math.inf"),
        ),
        "added as 0 and 1": ("attention", SOFTMAX, "(scores + mask).softmax(dim)"),
        "after the softmax alone": ("attention", SOFTMAX, "scores.softmax(dim)"),
        "the result thrown away": (
            "attention",
            f"weights = {SOFTMAX}",
            "torch.where(mask, scores, fill); weights = scores.softmax(dim)",
        ),
        "scores of 0 hidden": (
            "attention",
            "return scores.softmax(dim)",
            "return scores.masked_fill(scores == 0, -1e9).softmax(dim)",
        ),
        "−1e9 in the tiles": (
            "_tiles",
            "added.masked_fill(~mask, -math.inf)",
            "added.masked_fill(~mask, -1e9)",
        ),
    },
    "mask meaning": {
        "inverted": ("attention", SOFTMAX, SOFTMAX.replace("mask", "~mask")),
        "inverted for torch": (
            "masks.conventions",
            "return ~aligned.expand(B, H, T, S).reshape(B * H, T, S)",
            "return aligned.expand(B, H, T, S).reshape(B * H, T, S)",
        ),
        "causal, transposed": ("masks.making", ".tril(diagonal)", ".triu(diagonal)"),
        "causal, without the diagonal": (
            "masks.making",
            ".tril(diagonal)",
            ".tril(diagonal - 1)",
        ),
        "causal, one step ahead": (
            "masks.making",
            ".tril(diagonal)",
            ".tril(diagonal + 1)",
        ),
        "causal, the diagonal alone": (
            "masks.making",
            ".tril(diagonal)",
            ".tril(diagonal).triu(diagonal)",
        ),
        "causal, ignored": ("masks.making", ".tril(diagonal)", ""),
        "causal, bottom-right": (
            "masks.making",
            'diagonal = 0 if align == "top-left" else S - T',
            "diagonal = S - T",
        ),
        "causal, top-left always": (
            "masks.making",
            'diagonal = 0 if align == "top-left" else S - T',
            "diagonal = 0",
        ),
        "padding on the queries": (
            "masks.making",
            "(positions < lengths[:, None])[:, None, :]",
            "(positions < lengths[:, None])[:, :, None]",
        ),
        "padding inverted": (
            "masks.making",
            "positions < lengths",
            "positions >= lengths",
        ),
        "of the first sequence for all": (
            "masks.checking",
            "aligned = mask[:, None]",
            "aligned = mask[:1, None]",
        ),
        "its batch read as heads": (
            "masks.checking",
            "aligned = mask[:, None]",
            "aligned = mask[None]",
        ),
        "tiled where heads are side by side": (
            "masks.conventions",
            "return aligned.transpose(0, 1).reshape(H * B, T, S)",
            "return aligned.reshape(H * B, T, S)",
        ),
        "side by side where heads are tiled": (
            "masks.conventions",
            "~aligned.expand(B, H, T, S).reshape",
            "~aligned.expand(B, H, T, S).transpose(0, 1).reshape",
        ),
        "joined by or": (
            "masks.making",
            "combined = combined & mask",
            "combined = combined | mask",
        ),
        "the second overwrites the first": (
            "masks.making",
            "combined = combined & mask",
            "combined = mask",
        ),
        "padding of torch not inverted": (
            "masks.conventions",
            "mask = ~given if mask is None else mask & ~given",
            "mask = given if mask is None else mask & given",
        ),
        "is_causal over another mask": (
            "attention",
            "return causal if mask is None else mask & causal",
            "return causal",
        ),
        "a hint that overrides padding": (
            "dropin",
            "hint = is_causal and key_padding_mask is None and not",
            "hint = is_causal and not",
        ),
        "what is appended is hidden": (
            "dropin",
            "F.pad(mask, (0, appended), value=True)",
            "F.pad(mask, (0, appended), value=False)",
        ),
    },
    "dropout": {
        "on in evaluation": (
            "styles.batched",
            "self.dropout if self.training else 0.0",
            "self.dropout",
        ),
        "on in evaluation, einsum": (
            "styles.einsum",
            "F.dropout(weights, self.dropout, self.training)",
            "F.dropout(weights, self.dropout)",
        ),
        "on the scores": (
            "attention",
            WEIGHED,
            "s = (q * (scale or q.shape[-1] ** -0.5)) @ k.mT; "
            "s = F.dropout(s, dropout_p) - s + (0.0 if bias is None else bias); "
            + WEIGHED.replace("bias=bias", "bias=s"),
        ),
        "on the context": (
            "attention",
            CONTEXT,
            "F.dropout(weights @ v, dropout_p)",
        ),
        "without 1/(1−p)": (
            "attention",
            CONTEXT,
            "(F.dropout(weights, dropout_p) * (1 - dropout_p)) @ v",
        ),
        "in the returned weights": (
            "attention",
            WEIGHED,
            f"{WEIGHED}; weights = F.dropout(weights, dropout_p)",
        ),
    },
    "engineering": {
        "inputs changed": (
            "attention",
            SCORES,
            "q.detach().mul_(scale) @ k.transpose(-2, -1)",
        ),
        "mask changed": (
            "attention",
            "return weights.masked_fill(~mask, 0.0)",
            "return weights.masked_fill(mask.logical_not_(), 0.0)",
        ),
        "weights always in float32": (
            "attention",
            "return weights.masked_fill(~mask, 0.0)",
            "return weights.masked_fill(~mask, 0.0).float()",
        ),
        "the graph cut": (
            "attention",
            CONTEXT,
            "F.dropout(weights.detach(), dropout_p) @ v",
        ),
        "a row of torch's NaN": (
            "styles.builtin",
            "opened = to_torch_mask(aligned | empty, shape)",
            "opened = to_torch_mask(aligned, shape)",
        ),
    },
}


def mistakes(source: Callable[[str], str]) -> Iterator[Mutant]:
    """All of them, as faults."""
    for group, rows in MISTAKES.items():
        for name, (module, old, new) in rows.items():
            text = source(module)
            if text.count(old) != 1:
                raise SystemExit(
                    "mutants/mistakes.py must name a text that occurs once in "
                    f"mha_lib.{module}; {old!r} occurs {text.count(old)} times"
                )
            first = text[: text.index(old)].count("\n") + 1
            lines = range(first, first + old.count("\n") + 1)
            changed = text.replace(old, new)
            yield Mutant(module, "", f"mistake, {group}: {name}", True, lines, changed)
