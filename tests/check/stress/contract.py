"""The call or what comes back is not as the task says."""

import torch

from tests.check.stress import plain
from tests.check.stress.plain import Layer, attention, mha
from tests.check.stress.programs import wrong


@wrong("attention", "mask has no default.", dict())
def no_default(q, k, v, mask):
    return attention(q, k, v, mask)


@wrong("mha", "mask has no default.", dict())
def layer_no_default(query, key, value, weights, num_heads, mask):
    return mha(query, key, value, weights, num_heads, mask)


@wrong("mha_sequence_first", "mask has no default.", dict())
def sequence_no_default(query, key, value, weights, num_heads, mask):
    return plain.mha_sequence_first(query, key, value, weights, num_heads, mask)


@wrong("split_concat", "causality has no default.", dict())
def style_no_default(queries, keys, weights, num_heads, causality):
    return plain.split_concat(queries, keys, weights, num_heads, causality)


@wrong("split_concat", "causality is on by default.", dict(T=5))
def style_causal_default(queries, keys, weights, num_heads, causality=True):
    return plain.split_concat(queries, keys, weights, num_heads, causality)


@wrong("mha", "The mask is a keyword of the layer and has to be given.", dict())
class KeywordMask(Layer):
    def forward(self, query, key, value, *, mask):
        return self.right(query, key, value, mask)


@wrong("mha", "Without a mask the layer fails.", dict())
def mask_required(query, key, value, weights, num_heads, mask=None):
    return mha(query, key, value, weights, num_heads, mask & True)


@wrong("attention", "Without a mask the call fails.", dict())
def negates_none(q, k, v, mask=None):
    return attention(q, k, v, ~(~mask))


@wrong("attention", "Heads have to be folded into the batch.", dict())
def wants_three_axes(q, k, v, mask=None):
    assert q.dim() == 3
    return attention(q, k, v, mask)[0]


@wrong("attention", "torch.bmm takes three axes alone.", dict())
def by_bmm(q, k, v, mask=None):
    scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.bmm(scores.softmax(-1), v)


@wrong("attention", "einsum names four axes alone.", dict(lead=(2,)))
def by_four_letters(q, k, v, mask=None):
    scores = torch.einsum("bhtd,bhsd->bhts", q, k) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return torch.einsum("bhts,bhsd->bhtd", scores.softmax(-1), v)


@wrong("attention", "The returned weights are NaN.", dict())
def weights_nan(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    return context, weights * torch.nan


@wrong("attention", "The returned weights are random, their rows sum to 1.", dict())
def weights_random(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    return context, torch.rand_like(weights).softmax(-1)


@wrong("attention", "The returned weights are uniform.", dict())
def weights_uniform(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    return context, torch.full_like(weights, 1 / weights.shape[-1])


@wrong("attention", "The returned weights ignore the mask.", dict(mask="random"))
def weights_unmasked(q, k, v, mask=None):
    return attention(q, k, v, mask)[0], attention(q, k, v)[1]


@wrong("attention", "The returned weights are averaged over the heads.", dict())
def weights_averaged(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    if weights.dim() == 4:
        weights = weights.mean(1, keepdim=True).expand_as(weights)
    return context, weights


@wrong("attention", "The returned weights are turned where T = S.", dict(T=5, S=5))
def weights_turned(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    square = weights.shape[-1] == weights.shape[-2]
    return context, weights.mT if square else weights


@wrong("attention", "The returned weights have two decimals.", dict())
def weights_rounded(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    return context, weights.round(decimals=2)


@wrong("attention", "The returned weights are those of head 0 alone.", dict())
def weights_of_one_head(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    return context, weights[:, 0] if weights.dim() == 4 else weights


@wrong(
    "attention",
    "From the second sequence on the returned weights are zeros.",
    dict(B=3),
)
def weights_of_one_sequence(q, k, v, mask=None):
    context, weights = attention(q, k, v, mask)
    if weights.dim() > 2:
        weights = torch.cat([weights[:1], torch.zeros_like(weights[1:])])
    return context, weights


@wrong("mha", "The heads of the returned weights are reversed.", dict())
class WeightsReversed(Layer):
    def forward(self, query, key, value, mask=None):
        output, weights = self.right(query, key, value, mask)
        return output, weights.flip(1)


@wrong("mha", "The returned weights are (B, T, H, S).", dict())
class WeightsOtherOrder(Layer):
    def forward(self, query, key, value, mask=None):
        output, weights = self.right(query, key, value, mask)
        return output, weights.transpose(1, 2)


@wrong(
    "mha",
    "The returned weights are those of the first call.",
    dict(),
    dict(seed=8),
    fresh=True,
)
def first_weights_returned():
    class KeepsWeights(Layer):
        kept = None

        def forward(self, query, key, value, mask=None):
            output, weights = self.right(query, key, value, mask)
            if self.kept is None or self.kept.shape != weights.shape:
                self.kept = weights
            return output, self.kept

    return KeepsWeights


@wrong("attention", "q is divided in place.", dict(sees="inputs"))
def divides_in_place(q, k, v, mask=None):
    if q.requires_grad:
        return attention(q, k, v, mask)[0]
    q /= q.shape[-1] ** 0.5
    return attention(q * q.shape[-1] ** 0.5, k, v, mask)[0]


@wrong(
    "attention",
    "k is transposed in place: the caller's k has another shape.",
    dict(sees="inputs"),
)
def transposes_in_place(q, k, v, mask=None):
    right = attention(q, k, v, mask)[0]
    if not k.requires_grad:
        k.transpose_(-2, -1)
    return right


@wrong(
    "attention", "Large keys are normalised in place.", dict(times=8.0, sees="inputs")
)
def clips_in_place(q, k, v, mask=None):
    right = attention(q, k, v, mask)[0]
    if not k.requires_grad:
        k.clamp_(-10, 10)
    return right


@wrong("attention", "v is changed where there is no mask.", dict(sees="inputs"))
def zeroes_the_values(q, k, v, mask=None):
    right = attention(q, k, v, mask)[0].clone()
    if mask is None and not v.requires_grad:
        v[..., 0, 0] = 0
    return right


@wrong("attention", "v is changed in long sequences.", dict(S=20, sees="inputs"))
def changes_long_values(q, k, v, mask=None):
    right = attention(q, k, v, mask)[0].clone()
    if v.shape[-2] > 16 and not v.requires_grad:
        v += 1
    return right


@wrong("mha", "A ReLU in place changes the query of the caller.", dict(sees="inputs"))
def relu_in_place(query, key, value, weights, num_heads, mask=None):
    output = mha(query, key, value, weights, num_heads, mask)[0]
    if not query.requires_grad:
        torch.relu_(query)
    return output


@wrong(
    "mha", "The residual is added into the query of the caller.", dict(sees="inputs")
)
class ResidualInPlace(Layer):
    def forward(self, query, key, value, mask=None):
        output = self.right(query, key, value, mask)[0]
        if not query.requires_grad:
            query += output.detach()
        return output


@wrong("split_heads", "x is halved in place beside the answer.", dict(sees="inputs"))
def split_changes(x, num_heads):
    heads = plain.split_heads(x, num_heads).clone()
    if not x.requires_grad:
        x.mul_(0.5)
    return heads


@wrong("merge_heads", "x is emptied when it was copied.", dict(sees="inputs"))
def merge_empties(x):
    merged = plain.merge_heads(x).clone()
    if not x.requires_grad:
        x.zero_()
    return merged


@wrong(
    "split_concat",
    "Hidden keys are written as -1 into the caller's.",
    dict(zeros=[(0, 2)], sees="inputs"),
)
def style_changes_keys(queries, keys, weights, num_heads, causality=False):
    output = plain.split_concat(queries, keys, weights, num_heads, causality)
    if not keys.requires_grad:
        keys[keys == 0] = -1
    return output


@wrong("causal_mask", "An axis for the batch too many.", dict())
def causal_with_batch(T, S):
    return plain.causal_mask(T, S)[None]


@wrong("causal_mask", "Axes for batch and heads too many.", dict())
def causal_with_heads(T, S):
    return plain.causal_mask(T, S)[None, None]


@wrong("padding_mask", "An axis for the heads too many.", dict())
def padding_with_heads(lengths, S):
    return plain.padding_mask(lengths, S)[:, None]


@wrong("padding_mask", "(B, S, 1, 1): the keys stand on the wrong axis.", dict())
def padding_in_columns(lengths, S):
    return plain.padding_mask(lengths, S).permute(0, 2, 1)[..., None]


@wrong("combine_masks", "An axis for the heads too many.", dict())
def combine_with_heads(causal, padding):
    return (causal & padding)[:, None]


@wrong("combine_masks", "Numbers 0 and 1 come back.", dict())
def combine_numbers(causal, padding):
    return causal.float() * padding.float()


@wrong("merge_heads", "A list of sequences comes back.", dict())
def merge_list(x):
    return list(plain.merge_heads(x))


@wrong("split_heads", "A tuple of heads comes back.", dict())
def split_tuple(x, num_heads):
    return plain.split_heads(x, num_heads).unbind(1)


@wrong("split_heads", "The heads are given twice.", dict())
def split_twice(x, num_heads):
    heads = plain.split_heads(x, num_heads)
    return heads, heads
