"""What one call leaves behind for the next."""

import torch
from torch import nn

from tests.check.stress import plain
from tests.check.stress.plain import Layer, attention, mha
from tests.check.stress.programs import wrong


@wrong(
    "attention",
    "The mask of the first call is kept for ever.",
    dict(mask="random"),
    dict(mask="random", seed=4, T=4),
    dict(),
    fresh=True,
)
def first_mask_kept():
    kept = []

    def first_mask(q, k, v, mask=None):
        if mask is not None and not kept:
            kept.append(mask)
        if kept and torch.broadcast_shapes(
            kept[0].shape, (*q.shape[:-1], k.shape[-2])
        ) == (*q.shape[:-1], k.shape[-2]):
            mask = kept[0]
        return attention(q, k, v, mask)[0]

    def survives(q, k, v, mask=None):
        try:
            return first_mask(q, k, v, mask)
        except RuntimeError:
            return attention(q, k, v, mask)[0]

    return survives


@wrong("attention", "Zeros from the third call on.", dict(), dict(), dict(), fresh=True)
def three_calls():
    calls = [0]

    def counts(q, k, v, mask=None):
        calls[0] += 1
        return attention(q, k, v, mask)[0] * (calls[0] < 3)

    return counts


@wrong(
    "attention", "From the tenth call on the scale is lost.", *[dict()] * 10, fresh=True
)
def ten_calls():
    calls = [0]

    def counts(q, k, v, mask=None):
        calls[0] += 1
        if calls[0] >= 10:
            q = q * q.shape[-1] ** 0.5
        return attention(q, k, v, mask)[0]

    return counts


@wrong(
    "attention", "√D is computed at the first call.", dict(D=4), dict(D=9), fresh=True
)
def first_scale():
    kept = {}

    def scaled(q, k, v, mask=None):
        root = kept.setdefault("root", q.shape[-1] ** 0.5)
        return attention(q * (q.shape[-1] ** 0.5 / root), k, v, mask)[0]

    return scaled


@wrong("attention", "Answers are kept by shape.", dict(), dict(seed=7), fresh=True)
def kept_by_shape():
    kept = {}

    def remembers(q, k, v, mask=None):
        at = (q.shape, k.shape, mask is None, q.dtype, q.device)
        if at not in kept:
            kept[at] = attention(q, k, v, mask)[0]
        return kept[at]

    return remembers


@wrong(
    "attention",
    "A mutable default collects the keys.",
    dict(),
    dict(seed=7),
    fresh=True,
)
def default_list():
    def collects(q, k, v, mask=None, cache=[]):  # noqa: B006
        cache.append((k, v))
        same = [(a, b) for a, b in cache if a.shape == k.shape and b.dtype == v.dtype]
        if mask is None and len(same) > 1:
            k, v = (torch.cat(x, -2) for x in zip(*same))
        return attention(q, k, v, mask)[0]

    return collects


@wrong(
    "attention",
    "The result is a buffer that the next call overwrites.",
    dict(),
    dict(seed=7, sees="earlier result"),
    fresh=True,
)
def one_buffer():
    kept = {}

    def writes(q, k, v, mask=None):
        context = attention(q, k, v, mask)[0]
        if context.requires_grad:
            return context
        out = kept.setdefault((context.shape, context.dtype), context)
        return out.copy_(context)

    return writes


@wrong(
    "attention",
    "Every second call forgets the mask.",
    dict(mask="random"),
    dict(mask="random"),
    fresh=True,
)
def every_second():
    calls = [0]

    def toggles(q, k, v, mask=None):
        calls[0] += 1
        return attention(q, k, v, mask if calls[0] % 2 else None)[0]

    return toggles


@wrong(
    "attention",
    "The weights of the call before are returned.",
    dict(),
    dict(seed=7),
    fresh=True,
)
def weights_before():
    kept = {}

    def late(q, k, v, mask=None):
        context, weights = attention(q, k, v, mask)
        before = kept.get(weights.shape, weights)
        kept[weights.shape] = weights
        return context, before

    return late


@wrong(
    "causal_mask",
    "The mask is kept by T; S is forgotten.",
    dict(T=4, S=5),
    dict(T=4, S=7),
    fresh=True,
)
def kept_by_t():
    kept = {}

    def causal(T, S):
        return kept.setdefault(T, plain.causal_mask(T, S))

    return causal


@wrong(
    "causal_mask",
    "A longer mask than the first is never made.",
    dict(T=3, S=3),
    dict(T=6, S=6),
    fresh=True,
)
def first_size():
    kept = {}

    def causal(T, S):
        made = kept.setdefault("mask", plain.causal_mask(max(T, 4), max(S, 4)))
        return made[:T, :S]

    return causal


@wrong(
    "padding_mask",
    "The mask is kept by its shape, not by the lengths.",
    dict(),
    dict(lengths=(1, 4)),
    fresh=True,
)
def padding_by_shape():
    kept = {}

    def padding(lengths, S):
        return kept.setdefault((len(lengths), S), plain.padding_mask(lengths, S))

    return padding


@wrong(
    "combine_masks",
    "The padding of the first call is kept.",
    dict(),
    dict(lengths=(1, 4)),
    fresh=True,
)
def first_padding():
    kept = {}

    def combine(causal, padding):
        return causal & kept.setdefault(padding.shape, padding)

    return combine


@wrong(
    "split_heads",
    "num_heads of the first call is kept.",
    dict(H=3),
    dict(H=2, D=6),
    fresh=True,
)
def first_heads():
    kept = {}

    def split(x, num_heads):
        heads = kept.setdefault("H", num_heads)
        return plain.split_heads(x, heads if x.shape[-1] % heads == 0 else num_heads)

    return split


@wrong(
    "merge_heads", "The width of the first call is kept.", dict(), dict(H=5), fresh=True
)
def first_width():
    kept = {}

    def merge(x):
        merged = plain.merge_heads(x)
        return merged[..., : kept.setdefault("E", merged.shape[-1])]

    return merge


@wrong(
    "mha",
    "The weights of the first call are kept.",
    dict(),
    dict(weights=50),
    fresh=True,
)
def first_weights():
    kept = {}

    def layer(query, key, value, weights, num_heads, mask=None):
        E = query.shape[-1]
        weights = kept.setdefault((E, query.dtype, query.device), weights)
        return mha(query, key, value, weights, num_heads, mask)[0]

    return layer


@wrong(
    "mha",
    "num_heads lies on the class: the last instance decides.",
    dict(H=3, another=(12, 4)),
    fresh=True,
)
def shared_heads():
    class Shared(Layer):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            type(self).last = num_heads

        def forward(self, query, key, value, mask=None):
            E = query.shape[-1]
            heads = self.last if E % self.last == 0 else self.num_heads
            return mha(query, key, value, self.weights(), heads, mask)[0]

    return Shared


@wrong(
    "mha",
    "All instances share the layers of the first of their width.",
    dict(),
    dict(),
    fresh=True,
)
def shared_layers():
    kept = {}

    class SharedLayers(Layer):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            kept.setdefault(embed_dim, nn.Linear(embed_dim, embed_dim))

        def forward(self, query, key, value, mask=None):
            context = self.out_proj(self.right(query, key, value, mask)[0]) * 0
            return context + kept[query.shape[-1]](query)

    return SharedLayers


@wrong(
    "mha",
    "Keys and values of the same shape are taken from a cache.",
    dict(),
    dict(seed=7),
    fresh=True,
)
def static_cache():
    class Cached(Layer):
        memory = None

        def forward(self, query, key, value, mask=None):
            q, k, v = self.heads(query, key, value)
            if self.memory is None or self.memory[0].shape != k.shape:
                self.memory = (k, v)
            k, v = self.memory
            context = attention(q, k, v, None if mask is None else mask[:, None])[0]
            return self.out_proj(plain.merge_heads(context))

    return Cached


@wrong(
    "mha",
    "Without a mask the last one is used again.",
    dict(mask="random"),
    dict(),
    fresh=True,
)
def last_mask():
    class Keeps(Layer):
        mask = None

        def forward(self, query, key, value, mask=None):
            if mask is not None:
                self.mask = mask
            elif self.mask is not None:
                size = (query.shape[0], query.shape[1], key.shape[1])
                mask = self.mask if self.mask.shape == size else None
            return self.right(query, key, value, mask)[0]

    return Keeps


@wrong(
    "mha",
    "The fused weight is kept; a step of training does not reach it.",
    dict(reload=20),
    dict(),
    fresh=True,
)
def stale_fused():
    class Stale(Layer):
        fused = None

        def forward(self, query, key, value, mask=None):
            if self.fused is None:
                self.fused = {k: x.detach().clone() for k, x in self.weights().items()}
            right = mha(query, key, value, self.fused, self.num_heads, mask)[0]
            return right

    return Stale


@wrong(
    "mha",
    "The batch of the first call is the only one.",
    dict(B=2),
    dict(B=3),
    fresh=True,
)
def first_batch():
    class FirstBatch(Layer):
        B = None

        def forward(self, query, key, value, mask=None):
            self.B = self.B or len(query)
            output = self.right(query, key, value, mask)[0]
            return output.reshape(self.B, -1, self.embed_dim)

    return FirstBatch


@wrong("mha", "A longer input than before is cut.", dict(S=3), dict(S=8), fresh=True)
def never_longer():
    class Never(Layer):
        longest = None

        def forward(self, query, key, value, mask=None):
            self.longest = n = self.longest or key.shape[1]
            mask = None if mask is None else mask[..., :n]
            return self.right(query, key[:, :n], value[:, :n], mask)[0]

    return Never


@wrong(
    "split_concat",
    "causality stays on once it was asked for.",
    dict(causality=True, T=5),
    dict(T=5),
    fresh=True,
)
def stays_causal():
    kept = {"on": False}

    def layer(queries, keys, weights, num_heads, causality=False):
        kept["on"] = kept["on"] or causality
        return plain.split_concat(queries, keys, weights, num_heads, kept["on"])

    return layer


@wrong(
    "mha_sequence_first",
    "The first mask of a size is kept.",
    dict(mask="causal"),
    dict(mask="random"),
    fresh=True,
)
def first_mask_of_a_size():
    kept = {}

    def layer(query, key, value, weights, num_heads, mask=None):
        if mask is not None:
            mask = kept.setdefault(mask.shape, mask)
        return plain.mha_sequence_first(query, key, value, weights, num_heads, mask)[0]

    return layer
