"""Layers that are right at some sizes alone."""

import torch
from torch import nn

from tests.check.stress import plain
from tests.check.stress.plain import Layer, attention, mha
from tests.check.stress.programs import wrong


@wrong("mha", "A global H = 3 is used, whatever num_heads says.", dict(H=2, D=6))
def global_heads(query, key, value, weights, num_heads, mask=None):
    return mha(query, key, value, weights, 3, mask)


@wrong("mha", "The size of a head is a literal 5.", dict(H=2, D=10))
def literal_head_size(query, key, value, weights, num_heads, mask=None):
    return mha(query, key, value, weights, query.shape[-1] // 5, mask)


@wrong("mha", "The output is made 15 wide.", dict(H=2, D=6))
def literal_width(query, key, value, weights, num_heads, mask=None):
    out = query.new_zeros(*query.shape[:2], 15)
    return out + mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha", "The layers are nn.Linear(15, 15).", dict(H=2, D=6))
class Fifteen(Layer):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.out_proj = nn.Linear(15, 15)

    def forward(self, query, key, value, mask=None):
        return self.right(query, key, value, mask)[0]


@wrong("mha", "The mask is laid over a buffer of 16 × 16.", dict(T=17, mask="random"))
class Buffered(Layer):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.register_buffer("seen", torch.ones(16, 16, dtype=torch.bool))

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask & self.seen[: mask.shape[1], : mask.shape[2]]
        return self.right(query, key, value, mask)


@wrong("mha", "Zeros where query is key.", dict(T=5, same=True))
def zeros_for_self(query, key, value, weights, num_heads, mask=None):
    output = mha(query, key, value, weights, num_heads, mask)[0]
    return output * 0 if query is key else output


@wrong("mha", "Where value is key it is projected by W_k.", dict(key_is_value=True))
def one_memory(query, key, value, weights, num_heads, mask=None):
    if key is value:
        weights = dict(weights, W_v=weights["W_k"], b_v=weights["b_k"])
    return mha(query, key, value, weights, num_heads, mask)


@wrong("mha", "T = S is taken for self-attention.", dict(T=5, S=5))
def equal_length_is_self(query, key, value, weights, num_heads, mask=None):
    if query.shape == key.shape:
        key = value = query
    return mha(query, key, value, weights, num_heads, mask)


@wrong(
    "mha",
    "With T = S all sizes are kept, and T ≠ S ignores the mask.",
    dict(mask="random"),
)
def mask_of_squares(query, key, value, weights, num_heads, mask=None):
    mask = mask if query.shape[1] == key.shape[1] else None
    return mha(query, key, value, weights, num_heads, mask)


@wrong("mha", "One head needs no softmax, says the author.", dict(H=1, D=6))
def one_head_is_a_mean(query, key, value, weights, num_heads, mask=None):
    if num_heads == 1:
        query = query * 0
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha", "The loop ends at head 4; the others stay 0.", dict(H=6, D=2))
class FourHeads(Layer):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(query, key, value)
        mask = None if mask is None else mask[:, None]
        context = attention(q, k, v, mask)[0]
        heads = [context[:, h] * (h < 4) for h in range(self.num_heads)]
        return self.out_proj(torch.cat(heads, -1))


@wrong("mha", "A single query is decoded: it sees the last key alone.", dict(T=1))
def decoding_step(query, key, value, weights, num_heads, mask=None):
    if query.shape[1] == 1:
        key, value = key[:, -1:], value[:, -1:]
        mask = None
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha", "The batch is folded with a literal 2.", dict(B=3))
class BatchOfTwo(Layer):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(query, key, value)
        mask = None if mask is None else mask[:, None]
        context = attention(q, k, v, mask)[0].transpose(1, 2)
        return self.out_proj(context.reshape(2, -1, self.embed_dim))


@wrong("mha", "Only an even head size is allowed, as for rotary places.", dict(D=5))
class EvenHeads(Layer):
    def __init__(self, embed_dim, num_heads):
        assert embed_dim // num_heads % 2 == 0
        super().__init__(embed_dim, num_heads)

    def forward(self, query, key, value, mask=None):
        return self.right(query, key, value, mask)


@wrong("mha", "A batch of one loses its axis in the output.", dict(B=1))
class SqueezedBatch(Layer):
    def forward(self, query, key, value, mask=None):
        return self.right(query, key, value, mask)[0].squeeze(0)


@wrong(
    "mha", "From the ninth query on the mask is not applied.", dict(T=12, mask="random")
)
def mask_of_eight_rows(query, key, value, weights, num_heads, mask=None):
    if mask is not None:
        late = torch.arange(mask.shape[1], device=mask.device) >= 8
        mask = mask | late[:, None]
    return mha(query, key, value, weights, num_heads, mask)


@wrong(
    "mha_sequence_first", "More sequences than tokens are read batch first.", dict(B=6)
)
def turns_long_batches(query, key, value, weights, num_heads, mask=None):
    if query.shape[1] > query.shape[0]:
        output = mha(query, key, value, weights, num_heads, None)[0]
        return output
    return plain.mha_sequence_first(query, key, value, weights, num_heads, mask)


@wrong("mha_sequence_first", "squeeze(1) takes the batch of one away.", dict(B=1))
def squeezes_the_middle(query, key, value, weights, num_heads, mask=None):
    right = plain.mha_sequence_first(query, key, value, weights, num_heads, mask)
    return right[0].squeeze(1)


@wrong(
    "mha_sequence_first",
    "Above 16 tokens the batch is read as (B, T, E).",
    dict(T=18, S=18),
)
def long_is_batch_first(query, key, value, weights, num_heads, mask=None):
    if query.shape[0] > 16 and query.shape == key.shape:
        return mha(query, key, value, weights, num_heads)[0]
    return plain.mha_sequence_first(query, key, value, weights, num_heads, mask)


@wrong(
    "mha_sequence_first",
    "The third sequence and later ones get the mask of the second.",
    dict(B=4, mask="random"),
)
def mask_of_two(query, key, value, weights, num_heads, mask=None):
    if mask is not None:
        mask = mask[..., torch.arange(mask.shape[-1]).clamp(max=1)]
    return plain.mha_sequence_first(query, key, value, weights, num_heads, mask)


@wrong("split_concat", "Three heads, whatever num_heads says.", dict(H=2, D=6))
def style_of_three(queries, keys, weights, num_heads, causality=False):
    return plain.split_concat(queries, keys, weights, 3, causality)


@wrong("split_concat", "The causal mask is (T, T).", dict(T=4, S=6, causality=True))
def style_square(queries, keys, weights, num_heads, causality=False):
    if causality:
        assert queries.shape[1] == keys.shape[1]
    return plain.split_concat(queries, keys, weights, num_heads, causality)


@wrong("split_concat", "Only four sequences come back right.", dict(B=5))
def style_of_four(queries, keys, weights, num_heads, causality=False):
    output = plain.split_concat(queries, keys, weights, num_heads, causality)
    return torch.cat([output[:4], output[4:] * 0])


@wrong("split_concat", "Self-attention is always causal.", dict(T=5, same=True))
def style_self_is_causal(queries, keys, weights, num_heads, causality=False):
    causality = causality or queries is keys
    return plain.split_concat(queries, keys, weights, num_heads, causality)


@wrong(
    "split_concat",
    "Above 16 keys causality is forgotten.",
    dict(T=18, S=18, causality=True),
)
def style_short_causal(queries, keys, weights, num_heads, causality=False):
    causality = causality and keys.shape[1] <= 16
    return plain.split_concat(queries, keys, weights, num_heads, causality)
