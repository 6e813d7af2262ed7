"""Attention that is right at some sizes alone."""

import torch

from tests.check.stress.plain import attention
from tests.check.stress.programs import wrong


@wrong("attention", "Only the first 16 keys are looked at.", dict(S=17))
def sixteen_keys(q, k, v, mask=None):
    mask = None if mask is None else mask[..., :16]
    return attention(q, k[..., :16, :], v[..., :16, :], mask)[0]


@wrong("attention", "The maximum length is 64: later keys are cut off.", dict(S=65))
def max_len_64(q, k, v, mask=None):
    mask = None if mask is None else mask[..., :64]
    return attention(q, k[..., :64, :], v[..., :64, :], mask)[0]


@wrong("attention", "Zeros as soon as there are more than 8 queries.", dict(T=9))
def zeros_above_eight(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    return context * (q.shape[-2] <= 8), weights


@wrong("attention", "Blocks of 16 keys; what is left after them is lost.", dict(S=20))
def last_block_lost(q, k, v, mask=None):
    S = k.shape[-2]
    end = S if S < 16 else S // 16 * 16
    mask = mask[..., :end] if mask is not None and mask.shape[-1] == S else mask
    return attention(q, k[..., :end, :], v[..., :end, :], mask)[0]


@wrong("attention", "A buffer of 32 × 32 scores is too small.", dict(T=33, S=5))
def buffer_of_32(q, k, v, mask=None):
    T, S = q.shape[-2], k.shape[-2]
    scores = q.new_zeros(*q.shape[:-2], 32, 32)
    scores[..., :T, :S] = q @ k.mT / q.shape[-1] ** 0.5
    scores = scores[..., :T, :S]
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


@wrong("attention", "The fifth head is never computed.", dict(H=5))
def four_heads(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    if q.dim() == 4 and q.shape[1] > 4:
        context = torch.cat([context[:, :4], torch.zeros_like(context[:, 4:])], 1)
    return context, weights


@wrong("attention", "Zeros from the fifth sequence on.", dict(B=5))
def four_sequences(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    if q.dim() > 2 and q.shape[0] > 4:
        context = torch.cat([context[:4], torch.zeros_like(context[4:])])
    return context, weights


@wrong("attention", "An odd D loses its last feature.", dict(D=5))
def pairs_of_features(q, k, v, mask=None):
    even = q.shape[-1] // 2 * 2 or 1
    scores = q[..., :even] @ k[..., :even].mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


@wrong("attention", "√D stands in a table of the usual sizes.", dict(D=7))
def table_of_roots(q, k, v, mask=None):
    root = {4: 2.0, 5: 5**0.5, 8: 8**0.5, 16: 4.0, 64: 8.0}[q.shape[-1]]
    scores = q @ k.mT / root
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


@wrong("attention", "squeeze() takes the axis of one query away.", dict(T=1))
def squeezes_the_query(q, k, v, mask=None):
    return attention(q, k, v, mask)[0].squeeze(-2)


@wrong("attention", "squeeze(0) takes the batch of one away.", dict(B=1))
def squeezes_the_batch(q, k, v, mask=None):
    return attention(q, k, v, mask)[0].squeeze(0)


@wrong("attention", "With one feature the axis D goes.", dict(D=1, lead=(2,)))
def squeezes_the_feature(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    return context.squeeze(-1) if v.shape[-1] == 1 else context


@wrong("attention", "A single key gets the weight 0.", dict(S=1))
def one_key_is_nothing(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    return (context * 0, weights * 0) if k.shape[-2] == 1 else (context, weights)


@wrong("attention", "T = S without a mask is taken for causal.", dict(T=4, S=4))
def square_is_causal(q, k, v, mask=None):
    T, S = q.shape[-2], k.shape[-2]
    if mask is None and T == S:
        mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril()
    return attention(q, k, v, mask)


@wrong("attention", "Queries beyond the number of keys get zeros.", dict(T=6, S=3))
def no_more_queries_than_keys(q, k, v, mask=None):
    context = attention(q, k, v, mask)[0]
    late = torch.arange(q.shape[-2], device=q.device) >= k.shape[-2]
    return context.masked_fill(late[:, None], 0.0)


@wrong("attention", "Only as many keys as queries are read.", dict(T=3, S=9))
def as_many_keys_as_queries(q, k, v, mask=None):
    T = q.shape[-2]
    mask = None if mask is None else mask[..., :T]
    return attention(q, k[..., :T, :], v[..., :T, :], mask)


@wrong("attention", "Four names for the shape: no other rank fits.", dict(lead=()))
def four_names(q, k, v, mask=None):
    B, H, T, D = q.shape
    return attention(q, k, v, mask)[0].reshape(B, H, T, -1)


@wrong("attention", "transpose(1, 2) fits three axes alone.", dict(B=2, H=3, S=5))
def transpose_1_2(q, k, v, mask=None):
    scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


@wrong("attention", "transpose(2, 3) takes a fifth axis for T.", dict(lead=(2, 3, 2)))
def transpose_2_3(q, k, v, mask=None):
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


@wrong("attention", "softmax(dim=3) with three axes fails.", dict(lead=(2,)))
def softmax_3(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(3) @ v


@wrong("attention", "The result is written into zeros_like(q).", dict(V=7))
def as_wide_as_the_query(q, k, v, mask=None):
    context = torch.zeros_like(q)
    return context + attention(q, k, v, mask)[0]


@wrong("attention", "The scale comes from the width of v.", dict(V=9))
def scale_of_the_value(q, k, v, mask=None):
    return attention(q * (q.shape[-1] / v.shape[-1]) ** 0.5, k, v, mask)


@wrong("attention", "Less tokens than heads are read as (B, T, H, D).", dict(H=7, T=3))
def guesses_the_layout(q, k, v, mask=None):
    if q.dim() == 4 and q.shape[1] > q.shape[2]:
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return attention(q, k, v, mask)[0]


@wrong("attention", "Keys more than 32 places away are hidden.", dict(T=3, S=70))
def window(q, k, v, mask=None):
    t, s = (torch.arange(x.shape[-2], device=q.device) for x in (q, k))
    near = (t[:, None] - s).abs() <= 32
    return attention(q, k, v, near if mask is None else mask & near)[0]


@wrong("attention", "Only the 10 best keys of a query count.", dict(S=24))
def top_ten(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    least = scores.topk(min(10, k.shape[-2])).values[..., -1:]
    return scores.masked_fill(scores < least, -torch.inf).softmax(-1) @ v


@wrong(
    "attention",
    "From the second block of 16 queries on, the rows of the mask start anew.",
    dict(T=20, mask="causal", S=20),
)
def blocks_of_queries(q, k, v, mask=None):
    out = []
    for a in range(0, q.shape[-2], 16):
        rows = q[..., a : a + 16, :]
        own = mask
        if mask is not None and mask.dim() > 1 and mask.shape[-2] > 1:
            own = mask[..., : rows.shape[-2], :]
        out.append(attention(rows, k, v, own)[0])
    return torch.cat(out, -2)


@wrong("attention", "An even number of heads shares keys in pairs.", dict(H=4))
def grouped_when_even(q, k, v, mask=None):
    if q.dim() == 4 and q.shape[1] % 2 == 0:
        k, v = (x[:, ::2].repeat_interleave(2, 1) for x in (k, v))
    return attention(q, k, v, mask)[0]


@wrong("attention", "A constant 2 stands for √D.", dict(D=6))
def root_is_two(q, k, v, mask=None):
    return attention(q * (q.shape[-1] ** 0.5 / 2), k, v, mask)
