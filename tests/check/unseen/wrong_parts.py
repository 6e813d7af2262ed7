"""Wrong attention, parts and layers, of kinds that no list of mistakes holds."""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import programs

WRONG, wrong = programs()


def plain(q, k, v, mask=None, D=None):
    scores = q @ k.mT / (D or q.shape[-1]) ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1).nan_to_num() @ v


@wrong("attention")
def squeezes_its_mask(q, k, v, mask=None):
    """Axes of size 1 are taken out of the mask: (B, 1, S) becomes (B, S)."""
    if mask is not None and mask.dim() > 2:
        mask = mask.squeeze()
    return plain(q, k, v, mask)


@wrong("attention")
def symmetric_where_square(q, k, v, mask=None):
    """Where T = S the scores are averaged with their transpose."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if scores.shape[-1] == scores.shape[-2]:
        scores = (scores + scores.mT) / 2
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1).nan_to_num() @ v


@wrong("attention")
def clamped_scores(q, k, v, mask=None):
    """Scores beyond 30 are cut off so that nothing overflows."""
    scores = (q @ k.mT / q.shape[-1] ** 0.5).clamp(-30, 30)
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1).nan_to_num() @ v


@wrong("attention")
def one_maximum_for_all(q, k, v, mask=None):
    """The largest of all scores is subtracted: rows far below it become 0/0."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    e = (scores - scores.max()).exp()
    return (e / e.sum(-1, keepdim=True)).nan_to_num() @ v


@wrong("attention")
def integer_root(q, k, v, mask=None):
    """The root of D is rounded to a whole number."""
    return plain(q, k, v, mask, D=round(q.shape[-1] ** 0.5) ** 2)


@wrong("attention")
def hidden_ten_below(q, k, v, mask=None):
    """Hidden scores are ten below the smallest: they keep a little weight."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = torch.where(mask, scores, scores.min() - 10)
    return scores.softmax(dim=-1) @ v


@wrong("attention")
def last_row_of_the_mask(q, k, v, mask=None):
    """All queries get the mask of the last one."""
    return plain(q, k, v, None if mask is None else mask[..., -1:, :])


@wrong("attention")
def rounded_weights(q, k, v, mask=None):
    """Weights are rounded to two decimals before they are used."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    w = scores.softmax(dim=-1).nan_to_num()
    return (w + ((w * 100).round() / 100 - w).detach()) @ v


@wrong("attention")
def thirty_two_at_a_time(q, k, v, mask=None):
    """Queries go in blocks of 32, and a rest that does not fill one is zeros."""
    out = q.new_zeros(*q.shape[:-1], v.shape[-1])
    T = q.shape[-2]
    whole = T if T < 32 else T // 32 * 32
    full = None if mask is None else mask.expand(*mask.shape[:-2], T, k.shape[-2])
    for t in range(0, whole, 32):
        rows = slice(t, min(t + 32, whole))
        part = None if full is None else full[..., rows, :]
        out[..., rows, :] = plain(q[..., rows, :], k, v, part)
    return out


@wrong("attention")
def streaming_without_rescale(q, k, v, mask=None):
    """Keys in blocks of 16; the sums of earlier blocks are not rescaled."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    top, total, out = None, 0, 0
    for s, values in zip(scores.split(16, -1), v.split(16, -2)):
        new = s.amax(-1, keepdim=True)
        new = new.masked_fill(new == float("-inf"), 0.0)
        top = new if top is None else torch.maximum(top, new)
        e = (s - top).exp()
        total, out = total + e.sum(-1, keepdim=True), out + e @ values
    return out / total.clamp_min(1e-30)


@functools.lru_cache
def remembered_root(_):
    return []


@wrong("attention")
def first_root_for_ever(q, k, v, mask=None):
    """The scale of the first call is kept."""
    kept = remembered_root(0)
    kept or kept.append(q.shape[-1])
    return plain(q, k, v, mask, D=kept[0])


@wrong("attention")
def values_as_wide_as_keys(q, k, v, mask=None):
    """Values wider than D are cut."""
    return F.pad(
        plain(q, k, v[..., : q.shape[-1]], mask), (0, max(0, v.shape[-1] - q.shape[-1]))
    )


@wrong("attention")
def keys_without_slope_under_a_mask(q, k, v, mask=None):
    """With a mask the keys get no gradient."""
    return plain(q, k if mask is None else k.detach(), v, mask)


@wrong("attention")
def sixteen_strongest(q, k, v, mask=None):
    """Only the 24 largest scores of a row count."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if scores.shape[-1] > 24:
        least = scores.topk(24).values[..., -1:]
        scores = scores.masked_fill(scores < least, float("-inf"))
    return scores.softmax(dim=-1).nan_to_num() @ v


@wrong("attention")
def mask_skipped_when_it_begins_open(q, k, v, mask=None):
    """A mask whose first row forbids nothing is taken for none."""
    if mask is not None and mask[..., 0, :].all():
        mask = None
    return plain(q, k, v, mask)


@wrong("attention")
def asks_the_shapes(q, k, v, mask=None):
    """Keys count as turned already where S equals D."""
    if k.shape[-2] != q.shape[-1]:
        k = k.mT
    scores = q @ k / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(dim=-1).nan_to_num() @ v


@wrong("split_heads")
def splits_a_single_one_turned(x, num_heads):
    """For one token the heads are interleaved."""
    if x.shape[1] == 1:
        return x.unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2)
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)


@wrong("split_heads")
def splits_even_heads(x, num_heads):
    """For an even number of heads they come in reverse."""
    y = x.unflatten(-1, (num_heads, -1)).transpose(1, 2)
    return y.flip(1) if num_heads % 2 == 0 else y


@wrong("split_heads")
def splits_data(x, num_heads):
    """Through numpy: no slope comes back."""
    B, T, E = x.shape
    y = x.detach().numpy().reshape(B, T, num_heads, E // num_heads)
    return torch.from_numpy(y.transpose(0, 2, 1, 3).copy())


@wrong("merge_heads")
def merges_square_ones_turned(x):
    """Where T equals D, tokens and features are exchanged."""
    if x.shape[2] == x.shape[3]:
        x = x.mT
    return x.transpose(1, 2).flatten(2)


@wrong("merge_heads")
def merges_eight_heads(x):
    """Heads beyond the eighth are zeros."""
    B, H, T, D = x.shape
    if H > 8:
        x = torch.cat([x[:, :8], torch.zeros_like(x[:, 8:])], dim=1)
    return x.transpose(1, 2).flatten(2)


@wrong("causal_mask")
def causal_up_to_256(T, S):
    """A table of 256 places is cut."""
    return torch.ones(256, 256, dtype=torch.bool).tril()[:T, :S]


@wrong("causal_mask")
def causal_for_lists(T, S):
    """A table of lists, no tensor."""
    return [[s <= t for s in range(S)] for t in range(T)]


@wrong("padding_mask")
def padding_of_at_least_one(lengths, S):
    """An empty sequence keeps its first key."""
    return (torch.arange(S) < lengths.clamp(min=1)[:, None])[:, None]


@wrong("padding_mask")
def padding_of_sorted(lengths, S):
    """The sequences are sorted by length first."""
    return (torch.arange(S) < lengths.sort(descending=True).values[:, None])[:, None]


@wrong("padding_mask")
def padding_of_small_numbers(lengths, S):
    """Lengths go through 8 bits: above 127 they are negative."""
    return (torch.arange(S) < lengths.to(torch.int8)[:, None])[:, None]


@wrong("combine_masks")
def combined_in_place(causal, padding):
    """The causal mask of the caller is changed where there is one sequence."""
    if len(padding) == 1:
        causal &= padding[0]
        return causal[None]
    return causal & padding


@wrong("combine_masks")
def combined_by_lengths(causal, padding):
    """The padding is read as a length: holes are filled."""
    S = padding.shape[-1]
    return causal & (torch.arange(S) < padding.sum(-1, keepdim=True))


class Layer(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def mask(self, mask):
        return None if mask is None else mask[:, None]

    def change(self, q, k, v):
        return q, k, v

    def forward(self, query, key, value, mask=None):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = self.change(self.split(q), self.split(k), self.split(v))
        context = plain(q, k, v, self.mask(mask))
        return self.out_proj(context.transpose(1, 2).flatten(2))


@wrong("mha")
class SharesKeysBetweenHeads(Layer):
    """All heads use the keys of the first."""

    def change(self, q, k, v):
        return q, k[:, :1].expand_as(k), v


@wrong("mha")
class RotatesPairs(Layer):
    """Rotary places that nobody asked for."""

    def turn(self, x):
        D = x.shape[-1] // 2 * 2
        angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] / 50
        a, b = x[..., 0:D:2], x[..., 1:D:2]
        y = torch.stack(
            [a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1
        ).flatten(-2)
        return torch.cat([y, x[..., D:]], -1)

    def change(self, q, k, v):
        return self.turn(q), self.turn(k), v


@wrong("mha")
class SkipsForOneQuery(Layer):
    """A single query adds its key to those of the call before, as in a cache."""

    past = None

    def forward(self, query, key, value, mask=None):
        if query.shape[1] == 1 and mask is None:
            if self.past is not None and len(self.past[0]) == len(key):
                key = torch.cat([self.past[0], key], dim=1)
                value = torch.cat([self.past[1], value], dim=1)
            self.past = key.detach(), value.detach()
        return super().forward(query, key, value, mask)


@wrong("mha")
class MaskFromTheFirst(Layer):
    """Beyond four sequences, all get the mask of the first."""

    def mask(self, mask):
        if mask is None:
            return None
        return mask[:1, None] if len(mask) > 4 else mask[:, None]


@wrong("mha")
class CrossesWithAnother(Layer):
    """Where key is not query, queries and keys exchange their matrices."""

    def forward(self, query, key, value, mask=None):
        first, second = self.q_proj, self.k_proj
        if key is not query:
            first, second = second, first
        q, k, v = self.split(first(query)), self.split(second(key)), self.v_proj(value)
        context = plain(q, k, self.split(v), self.mask(mask))
        return self.out_proj(context.transpose(1, 2).flatten(2))


@wrong("mha")
class CentresItsQueries(Layer):
    """The mean of the queries is taken off each of them."""

    def change(self, q, k, v):
        return q - q.mean(2, keepdim=True), k, v


@wrong("mha")
class NoBiasOfValues(Layer):
    """The values' bias is made and not used."""

    def forward(self, query, key, value, mask=None):
        q, k = self.split(self.q_proj(query)), self.split(self.k_proj(key))
        v = self.split(F.linear(value, self.v_proj.weight))
        context = plain(q, k, v, self.mask(mask))
        return self.out_proj(context.transpose(1, 2).flatten(2))


@wrong("mha")
class HeadsOfFour(Layer):
    """Heads are four features wide where four divides E."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, embed_dim // 4 if embed_dim % 4 == 0 else num_heads)


@wrong("mha_sequence_first")
class MaskOfOneSequence(Layer):
    """The mask of sequence 0 for all."""

    def forward(self, query, key, value, mask=None):
        mask = (
            None if mask is None else mask[None, :, :, 0].expand(query.shape[1], -1, -1)
        )
        x = (t.transpose(0, 1) for t in (query, key, value))
        return super().forward(*x, mask).transpose(0, 1)


@wrong("mha_sequence_first")
class MaskCutAnew(Layer):
    """The mask (T, S, B) is cut anew into (B, T, S)."""

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            T, S, B = mask.shape
            mask = mask.reshape(B, T, S)
        x = (t.transpose(0, 1) for t in (query, key, value))
        return super().forward(*x, mask).transpose(0, 1)


def halves(x, H):
    return torch.cat(x.chunk(H, dim=-1), dim=0)


def split_concat(
    queries, keys, weights, H, causality=False, hidden=None, relu=F.relu, diagonal=0
):
    w = weights
    q = relu(F.linear(queries, w["W_q"], w["b_q"]))
    k = relu(F.linear(keys, w["W_k"], w["b_k"]))
    v = relu(F.linear(keys, w["W_v"], w["b_v"]))
    q, k, v = halves(q, H), halves(k, H), halves(v, H)
    hidden = (keys == 0).all(-1) if hidden is None else hidden
    mask = ~hidden.repeat(H, 1)[:, None].expand(-1, q.shape[1], -1)
    if causality:
        T, S = mask.shape[1:]
        mask = mask & torch.ones(T, S, dtype=torch.bool).tril(diagonal)
    out = torch.cat(plain(q, k, v, mask).chunk(H, dim=0), dim=-1)
    return F.linear(out, w["W_o"], w["b_o"])


@wrong("split_concat")
def hides_what_sums_to_zero(queries, keys, weights, num_heads, causality=False):
    """A key whose numbers add up to zero counts as padding."""
    hidden = keys.sum(-1).abs() < 1e-6
    return split_concat(queries, keys, weights, num_heads, causality, hidden)


@wrong("split_concat")
def hides_quiet_keys(queries, keys, weights, num_heads, causality=False):
    """A key that is small but not zero counts as padding."""
    hidden = keys.abs().amax(-1) < 1e-2
    return split_concat(queries, keys, weights, num_heads, causality, hidden)


@wrong("split_concat")
def hides_any_zero(queries, keys, weights, num_heads, causality=False):
    """A key with one zero in it counts as padding."""
    return split_concat(
        queries, keys, weights, num_heads, causality, (keys == 0).any(-1)
    )


@wrong("split_concat")
def hides_from_the_first_zero(queries, keys, weights, num_heads, causality=False):
    """All keys after the first zero key count as padding."""
    hidden = (keys == 0).all(-1).cummax(-1).values
    return split_concat(queries, keys, weights, num_heads, causality, hidden)


@wrong("split_concat")
def leaks_below_zero(queries, keys, weights, num_heads, causality=False):
    """A leaky ReLU."""
    relu = functools.partial(F.leaky_relu, negative_slope=0.01)
    return split_concat(queries, keys, weights, num_heads, causality, relu=relu)
