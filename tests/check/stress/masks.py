"""Right for the masks that the author thought of."""

import torch

from tests.check.stress import plain
from tests.check.stress.plain import Layer, attention, mha
from tests.check.stress.programs import wrong


def scored(q, k):
    return q @ k.mT / q.shape[-1] ** 0.5


@wrong("attention", "1 - mask is no operation of a boolean mask.", dict(mask="random"))
def one_minus_mask(q, k, v, mask=None):
    scores = scored(q, k)
    if mask is not None:
        scores = scores - 1e9 * (1 - mask)
    return scores.softmax(-1) @ v


@wrong(
    "attention", "scores[~mask] = … needs a mask of the full shape.", dict(mask=(4, 5))
)
def assigned_by_mask(q, k, v, mask=None):
    scores = scored(q, k)
    if mask is not None:
        scores[~mask] = -torch.inf
    return scores.softmax(-1) @ v


@wrong(
    "attention",
    "mask[:T, :S] cuts the sequences of a full mask.",
    dict(B=6, T=4, mask="random"),
)
def crops_the_front(q, k, v, mask=None):
    if mask is not None and mask.dim() > 1:
        mask = mask[: q.shape[-2], : k.shape[-2]]
    return attention(q, k, v, mask)[0]


@wrong("attention", "The mask of head 0 is used for all heads.", dict(mask="random"))
def mask_of_first_head(q, k, v, mask=None):
    if mask is not None and mask.dim() == 4:
        mask = mask[:, :1]
    return attention(q, k, v, mask)[0]


@wrong("attention", "mask.unsqueeze(1) meets a mask of four axes.", dict(mask="random"))
def always_an_axis_more(q, k, v, mask=None):
    mask = None if mask is None else mask.unsqueeze(1)
    return attention(q, k, v, mask)[0]


@wrong("attention", "A mask (S,) has no second axis.", dict(mask=(5,)))
def needs_a_row_axis(q, k, v, mask=None):
    if mask is not None:
        T, S = mask.shape[-2:]
        mask = mask[..., :T, :S]
    return attention(q, k, v, mask)[0]


@wrong("attention", "The mask has to be (T, S).", dict(mask=(2, 1, 1, 5)))
def mask_of_two_axes(q, k, v, mask=None):
    if mask is not None:
        assert mask.shape == (q.shape[-2], k.shape[-2])
    return attention(q, k, v, mask)[0]


@wrong("attention", "A mask has to have B in front.", dict(mask=(4, 5)))
def mask_with_batch(q, k, v, mask=None):
    if mask is not None:
        assert mask.shape[0] in (1, q.shape[0])
        assert mask.dim() == q.dim()
    return attention(q, k, v, mask)[0]


@wrong(
    "attention",
    "A mask that is shared by the queries is refused.",
    dict(mask=(2, 1, 1, 5)),
)
def no_shared_rows(q, k, v, mask=None):
    scores = scored(q, k)
    if mask is not None:
        scores = scores.masked_fill(
            ~mask.view(*mask.shape[:-2], *scores.shape[-2:]), -torch.inf
        )
    return scores.softmax(-1) @ v


@wrong(
    "attention",
    "The count of visible keys is taken for their places.",
    dict(mask="random"),
)
def mask_is_a_length(q, k, v, mask=None):
    if mask is not None:
        count = mask.sum(-1, keepdim=True)
        mask = torch.arange(mask.shape[-1], device=mask.device) < count
    return attention(q, k, v, mask)[0]


@wrong(
    "attention",
    "With T = S any mask becomes the causal one.",
    dict(T=5, S=5, mask="random"),
)
def square_mask_is_causal(q, k, v, mask=None):
    T, S = q.shape[-2], k.shape[-2]
    if mask is not None and T == S:
        mask = torch.ones(T, S, dtype=torch.bool, device=q.device).tril()
    return attention(q, k, v, mask)[0]


@wrong(
    "attention", "One empty row makes the call ignore the mask.", dict(mask="empty row")
)
def empty_row_ignores(q, k, v, mask=None):
    if mask is not None and not mask.any(-1).all():
        mask = None
    return attention(q, k, v, mask)[0]


@wrong("attention", "The diagonal is always visible.", dict(T=5, S=5, mask="random"))
def sees_itself(q, k, v, mask=None):
    if mask is not None:
        T, S = q.shape[-2], k.shape[-2]
        mask = mask | torch.eye(T, S, dtype=torch.bool, device=mask.device)
    return attention(q, k, v, mask)[0]


@wrong("attention", "Key 0 is always visible, as a sink.", dict(mask="random", S=6))
def sink(q, k, v, mask=None):
    if mask is not None:
        first = torch.arange(k.shape[-2], device=mask.device) == 0
        mask = mask | first
    return attention(q, k, v, mask)[0]


@wrong(
    "attention", "The mask is only applied where it has four axes.", dict(mask=(4, 5))
)
def only_four_axes(q, k, v, mask=None):
    if mask is not None and mask.dim() != 4:
        mask = None
    return attention(q, k, v, mask)[0]


@wrong(
    "attention",
    "Hidden keys are left out of the sum, not of the softmax.",
    dict(mask="random"),
)
def hidden_values_zero(q, k, v, mask=None):
    weights = scored(q, k).softmax(-1)
    return (weights if mask is None else weights * mask) @ v


@wrong(
    "attention",
    "The mask is inverted in place and the caller sees it.",
    dict(mask="random", sees="inputs"),
)
def inverts_in_place(q, k, v, mask=None):
    scores = scored(q, k)
    if mask is not None:
        scores = scores.masked_fill(mask.logical_not_(), -torch.inf)
    return scores.softmax(-1) @ v


@wrong(
    "attention",
    "A row that sees nothing is opened in the caller's mask.",
    dict(mask="empty row", sees="inputs"),
)
def opens_empty_rows(q, k, v, mask=None):
    if mask is not None and mask.is_contiguous() and mask.dim() > 1:
        mask[..., 0].logical_or_(~mask.any(-1))
    return attention(q, k, v, mask)[0]


@wrong("mha", "No axis for the heads: B has to be H.", dict(mask="random"))
class NoAxis(Layer):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(query, key, value)
        context = attention(q, k, v, mask)[0]
        return self.out_proj(plain.merge_heads(context))


@wrong("mha", "An expanded mask cannot be seen as (B·T, S).", dict(mask="expanded"))
def views_the_mask(query, key, value, weights, num_heads, mask=None):
    if mask is not None:
        B, T, S = mask.shape
        mask = mask.view(B * T, S).view(B, T, S)
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha", "Additive masks are expected.", dict(mask="random"))
def adds_the_mask(query, key, value, weights, num_heads, mask=None):
    if mask is not None:
        assert mask.dtype.is_floating_point
        mask = mask == 0
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha", "Only a mask (T, S) is taken.", dict(mask="random"))
def mask_without_batch(query, key, value, weights, num_heads, mask=None):
    if mask is not None:
        T, S = mask.shape
        mask = mask.expand(len(query), T, S)
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha", "Only a mask (B, 1, T, S) is taken.", dict(mask="random"))
def mask_with_heads(query, key, value, weights, num_heads, mask=None):
    if mask is not None:
        B, _, T, S = mask.shape
        mask = mask[:, 0]
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong(
    "mha", "A key that any query must not see is hidden from all.", dict(mask="random")
)
def columns_all(query, key, value, weights, num_heads, mask=None):
    if mask is not None:
        mask = mask.all(1, keepdim=True) | mask & ~mask.all(1, keepdim=True).any(
            -1, keepdim=True
        )
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha", "Only the first head is masked.", dict(mask="random"))
class FirstHeadMasked(Layer):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(query, key, value)
        if mask is not None:
            first = torch.arange(self.num_heads, device=mask.device) == 0
            mask = mask[:, None] | ~first[:, None, None]
        return self.out_proj(plain.merge_heads(attention(q, k, v, mask)[0]))


@wrong("mha", "The mask is used in self-attention alone.", dict(mask="random"))
def mask_of_self(query, key, value, weights, num_heads, mask=None):
    mask = mask if query is key else None
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong(
    "mha",
    "With query is key the mask is not used.",
    dict(same=True, T=5, S=5, mask="random"),
)
def no_mask_of_self(query, key, value, weights, num_heads, mask=None):
    mask = None if query is key else mask
    return mha(query, key, value, weights, num_heads, mask)[0]


@wrong("mha_sequence_first", "The mask is read as (B, T, S).", dict(mask="random"))
def mask_batch_first(query, key, value, weights, num_heads, mask=None):
    if mask is not None:
        mask = mask.permute(1, 2, 0)
    return plain.mha_sequence_first(query, key, value, weights, num_heads, mask)


@wrong("combine_masks", "A triangle is made from the shape.", dict(random=True))
def combine_makes_its_own(causal, padding):
    return torch.ones_like(causal).tril() & padding


@wrong("combine_masks", "The causal argument is cut to a triangle.", dict(random=True))
def combine_cuts(causal, padding):
    return causal.tril() & padding


@wrong(
    "combine_masks",
    "The triangle is taken from the length of the padding.",
    dict(T=3, S=5, random=True),
)
def combine_from_padding(causal, padding):
    T = causal.shape[0]
    t, s = torch.arange(T), torch.arange(padding.shape[-1])
    return (s <= t[:, None]) & padding


@wrong("combine_masks", "Padding at the left is turned to the right.", dict(left=True))
def combine_sorts(causal, padding):
    return causal & padding.sort(-1, descending=True).values


@wrong(
    "combine_masks",
    "The causal mask is only looked at in its last row.",
    dict(random=True),
)
def combine_last_row(causal, padding):
    triangle = torch.ones_like(causal).tril()
    return triangle & causal[-1] & padding


@wrong(
    "combine_masks",
    "The causal mask is written into the caller's.",
    dict(B=1, lengths=(2,), sees="inputs"),
)
def combine_in_place(causal, padding):
    both = causal & padding
    if len(padding) == 1:
        causal &= padding[0]
    return both


@wrong(
    "combine_masks",
    "The causal mask is made all True beside the answer.",
    dict(sees="inputs"),
)
def combine_fills(causal, padding):
    both = causal & padding
    causal.fill_(True)
    return both


@wrong(
    "padding_mask",
    "A length of 0 becomes 1 in place.",
    dict(lengths=(0, 2), sees="inputs"),
)
def padding_clamps(lengths, S):
    mask = plain.padding_mask(lengths, S)
    lengths.clamp_(min=1)
    return mask


@wrong(
    "padding_mask",
    "The lengths are sorted in place.",
    dict(lengths=(5, 2), sees="inputs"),
)
def padding_sorts(lengths, S):
    mask = plain.padding_mask(lengths, S)
    lengths.copy_(lengths.sort().values)
    return mask


@wrong(
    "split_concat", "A key is empty if its first feature is 0.", dict(zeros=[(0, 2, 0)])
)
def style_first_feature(queries, keys, weights, num_heads, causality=False):
    keys = keys * (keys[..., :1] != 0)
    return plain.split_concat(queries, keys, weights, num_heads, causality)


@wrong("split_concat", "A key with any feature 0 is hidden.", dict(zeros=[(0, 2, 1)]))
def style_any_feature(queries, keys, weights, num_heads, causality=False):
    keys = keys * keys.all(-1, keepdim=True)
    return plain.split_concat(queries, keys, weights, num_heads, causality)


@wrong(
    "split_concat",
    "The empty keys are counted and hidden at the end.",
    dict(zeros=[(0, 0), (1, 2)]),
)
def style_empty_at_the_end(queries, keys, weights, num_heads, causality=False):
    W, b = weights["W_k"], weights["b_k"]
    real = (keys != 0).any(-1)
    place = torch.arange(keys.shape[1], device=keys.device) < real.sum(1, keepdim=True)
    q, k, v = (
        plain.split_heads(x.relu(), num_heads)
        for x in (
            plain.projected(queries, weights, "q"),
            keys @ W.mT + b,
            plain.projected(keys, weights, "v"),
        )
    )
    mask = place[:, None, None]
    if causality:
        mask = mask & plain.causal_mask(q.shape[2], k.shape[2])
    context = attention(q, k, v, mask)[0]
    return plain.projected(plain.merge_heads(context), weights, "o")


@wrong("split_concat", "Empty queries get zeros.", dict(blank=[(0, 1)]))
def style_empty_queries(queries, keys, weights, num_heads, causality=False):
    output = plain.split_concat(queries, keys, weights, num_heads, causality)
    return output * (queries != 0).any(-1, keepdim=True)


@wrong(
    "split_concat",
    "Keys are only hidden without causality.",
    dict(T=5, zeros=[(0, 1)], causality=True),
)
def style_one_or_the_other(queries, keys, weights, num_heads, causality=False):
    if causality:
        keys = torch.where(keys == 0, 1e-30, keys)
    return plain.split_concat(queries, keys, weights, num_heads, causality)


@wrong("split_concat", "Only the last key can be empty.", dict(zeros=[(0, 1)]))
def style_last_key(queries, keys, weights, num_heads, causality=False):
    last = torch.arange(keys.shape[1], device=keys.device) == keys.shape[1] - 1
    keys = torch.where((keys == 0) & ~last[:, None], 1e-30, keys)
    return plain.split_concat(queries, keys, weights, num_heads, causality)
