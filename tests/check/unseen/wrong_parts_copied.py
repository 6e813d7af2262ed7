"""The fourth round, attention and its parts: what students write, and those who copy.

Boundary sizes, something kept between calls, numbers of few digits, flags of a default:
all wrong as the task is written, most of them right for a first look.
"""

import math

import torch
import torch.nn.functional as F

from tests.check.unseen.usual import programs

WRONG, wrong = programs()
NEVER = float("-inf")


# --- attention ------------------------------------------------------------------------


@wrong("attention")
def attention_in_blocks_of_keys(q, k, v, mask=None):
    """Of 512 keys each; what was summed up before is not scaled to the new maximum."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, NEVER)
    total = top = 0.0
    for part, values in zip(scores.split(512, -1), v.split(512, -2)):
        largest = part.amax(-1, keepdim=True).clamp(min=-1e30)
        e = (part - largest).exp()
        total = total + e.sum(-1, keepdim=True)
        top = top + e @ values
    return top / total.clamp(min=1e-30)


@wrong("attention")
def attention_of_flat_views(q, k, v, mask=None):
    """A view of all leading axes as one: heads that were turned have none."""
    *lead, T, D = q.shape
    S = k.shape[-2]
    scores = q.view(-1, T, D) @ k.view(-1, S, D).mT / math.sqrt(D)
    if mask is not None:
        scores = scores.masked_fill(~mask.expand(*lead, T, S).reshape(-1, T, S), NEVER)
    weights = scores.softmax(-1)
    context = weights @ v.view(-1, S, v.shape[-1])
    return context.view(*lead, T, -1), weights.view(*lead, T, S)


@wrong("attention")
def attention_with_rounded_weights(q, k, v, mask=None):
    """Rounded for the eye, and returned so: they have no gradient any more."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, NEVER)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights.round(decimals=4)


@wrong("attention")
def attention_of_batched_masks(q, k, v, mask=None):
    """A mask of two axes is passed by."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None and mask.dim() > 2:
        scores = scores.masked_fill(~mask, NEVER)
    weights = scores.softmax(-1)
    return weights @ v, weights


KEPT = {}


@wrong("attention")
def attention_that_keeps_a_mask(q, k, v, mask=None):
    """The numbers to add are made once for each shape of a mask."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        if mask.shape not in KEPT:
            KEPT[mask.shape] = torch.zeros(mask.shape).masked_fill(~mask, NEVER)
        scores = scores + KEPT[mask.shape].to(scores)
    weights = scores.softmax(-1)
    return weights @ v, weights


@wrong("attention")
def attention_with_half_the_digits(q, k, v, mask=None):
    """The scores are computed in bfloat16, which is fast."""
    scores = (q.bfloat16() @ k.bfloat16().mT).to(q.dtype) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, NEVER)
    weights = scores.softmax(-1)
    return weights @ v, weights


@wrong("attention")
def attention_of_clamped_scores(q, k, v, mask=None):
    """No exponential is too large: every score above 50 counts as 50."""
    scores = (q @ k.mT / q.shape[-1] ** 0.5).clamp(-50, 50)
    if mask is not None:
        scores = scores.masked_fill(~mask, NEVER)
    e = scores.exp()
    weights = e / e.sum(-1, keepdim=True)
    return weights @ v, weights


# --- parts ----------------------------------------------------------------------------


@wrong("split_heads")
def split_by_strides(x, num_heads):
    """Right for what lies in one block of memory."""
    B, T, E = x.shape
    D = E // num_heads
    return x.as_strided((B, num_heads, T, D), (T * E, D, E, 1))


@wrong("split_heads")
def split_into_zeros(x, num_heads):
    """A new tensor, of torch's usual dtype."""
    B, T, E = x.shape
    D = E // num_heads
    out = torch.zeros(B, num_heads, T, D)
    for h in range(num_heads):
        out[:, h] = x[..., h * D : (h + 1) * D]
    return out


@wrong("merge_heads")
def merge_into_zeros(x):
    """The same of a merge."""
    B, H, T, D = x.shape
    out = torch.zeros(B, T, H * D)
    for h in range(H):
        out[..., h * D : (h + 1) * D] = x[:, h]
    return out


@wrong("merge_heads")
def merge_that_turns_its_input(x):
    """An underscore too many: the caller's tensor has other axes now."""
    return x.transpose_(1, 2).flatten(2)


BIG = torch.ones(2048, 2048, dtype=torch.bool).tril()


@wrong("causal_mask")
def causal_out_of_a_table(T, S):
    """A table of 2048 places, as a model has it."""
    return BIG[:T, :S]


TABLES = {}


@wrong("causal_mask")
def causal_kept_by_queries(T, S):
    """Kept for each T, whatever S was."""
    if T not in TABLES:
        TABLES[T] = torch.ones(T, S, dtype=torch.bool).tril()
    return TABLES[T][:, :S]


@wrong("padding_mask")
def padding_from_the_end(lengths, S):
    """Hides the last S - n; of a full sequence all, as -0 is 0."""
    mask = torch.ones(len(lengths), 1, S, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        mask[b, 0, -(S - n) :] = False
    return mask


@wrong("padding_mask")
def padding_of_the_longest(lengths, S):
    """As wide as the longest sequence; filled up with True."""
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    return F.pad(mask, (0, S - mask.shape[1]), value=True)[:, None]


@wrong("combine_masks")
def combine_that_hides_queries(causal, padding):
    """Where T = S, queries that are padding see nothing, either."""
    both = causal & padding
    if both.shape[1] == both.shape[2]:
        both = both & padding.mT
    return both
