"""Parts of a layer that are right at some sizes alone."""

import torch
import torch.nn.functional as F

from tests.check.stress import plain
from tests.check.stress.programs import wrong


@wrong("split_heads", "With one head the axis H is missing.", dict(H=1))
def split_needs_no_head(x, num_heads):
    return x if num_heads == 1 else plain.split_heads(x, num_heads)


@wrong("split_heads", "squeeze() takes the axis of one token away.", dict(T=1))
def split_squeezes(x, num_heads):
    return plain.split_heads(x, num_heads).squeeze(2)


@wrong("split_heads", "x is cut into pieces of num_heads features.", dict(H=2, D=6))
def split_by_pieces(x, num_heads):
    return torch.stack(x.split(num_heads, -1), 1)


@wrong("split_heads", "D is a literal 5.", dict(H=2, D=10))
def split_by_five(x, num_heads):
    return plain.split_heads(x, x.shape[-1] // 5)


@wrong("split_heads", "view(-1, H, D) needs one block of memory.", dict(strided=True))
def split_needs_memory(x, num_heads):
    B, T, E = x.shape
    x = x.view(B * T, num_heads, E // num_heads)
    return x.view(B, T, num_heads, -1).transpose(1, 2)


@wrong("split_heads", "Above 32 tokens the rest is cut off.", dict(T=40))
def split_of_32(x, num_heads):
    return plain.split_heads(x[:, :32], num_heads)


@wrong("split_heads", "D = 1 loses its axis.", dict(D=1))
def split_of_one_feature(x, num_heads):
    heads = plain.split_heads(x, num_heads)
    return heads.squeeze(-1)


@wrong(
    "merge_heads",
    "More tokens than heads are expected; else no transpose.",
    dict(H=5, T=4),
)
def merge_guesses(x):
    return plain.merge_heads(x) if x.shape[1] < x.shape[2] else x.flatten(2)


@wrong("merge_heads", "squeeze() takes a batch of one away.", dict(B=1))
def merge_squeezes(x):
    return plain.merge_heads(x).squeeze(0)


@wrong("merge_heads", "view without contiguous() fits split heads alone.", dict())
def merge_by_view(x):
    B, H, T, D = x.shape
    return x.transpose(1, 2).view(B, T, H * D)


@wrong("merge_heads", "Heads above the eighth are dropped.", dict(H=10, D=2))
def merge_of_eight(x):
    return torch.cat([x[:, h] for h in range(min(8, x.shape[1]))], -1)


@wrong("merge_heads", "The width is a literal 15.", dict(H=2, D=6))
def merge_to_fifteen(x):
    return x.transpose(1, 2).reshape(x.shape[0], -1, 15)


@wrong("merge_heads", "Memory of the merged order is required.", dict())
def merge_needs_strides(x):
    B, H, T, D = x.shape
    x = x.transpose(1, 2)
    assert x.is_contiguous() or H == 1
    return x.view(B, T, H * D)


TABLE = torch.ones(8, 8, dtype=torch.bool).tril()


@wrong("causal_mask", "A table of 8 × 8 is cut.", dict(T=9, S=12))
def causal_table(T, S):
    return TABLE[:T, :S]


@wrong("causal_mask", "A table of 64 × 64 is cut.", dict(T=65, S=70))
def causal_of_64(T, S):
    return torch.ones(64, 64, dtype=torch.bool).tril()[:T, :S]


@wrong("causal_mask", "The rows of an S × S triangle do not reach T.", dict(T=6, S=3))
def causal_of_keys(T, S):
    return torch.ones(S, S).tril().bool()[:T]


@wrong("causal_mask", "A single query sees all keys.", dict(T=1, S=5))
def causal_decoding(T, S):
    return plain.causal_mask(T, S) | (T == 1)


@wrong("causal_mask", "T > S shifts the triangle.", dict(T=6, S=3))
def causal_shifted(T, S):
    return torch.ones(T, S, dtype=torch.bool).tril(min(S - T, 0))


@wrong("causal_mask", "From place 16 on all is visible.", dict(T=20, S=20))
def causal_up_to_16(T, S):
    return plain.causal_mask(T, S) | (torch.arange(S) >= 16)


@wrong(
    "padding_mask", "The longest sequence decides the width.", dict(S=7, lengths=(3, 5))
)
def padding_to_longest(lengths, S):
    return plain.padding_mask(lengths, int(lengths.max()))


@wrong("padding_mask", "A length of 0 counts as no padding.", dict(lengths=(0, 3)))
def padding_zero_is_all(lengths, S):
    return plain.padding_mask(torch.where(lengths == 0, S, lengths), S)


@wrong("padding_mask", "A batch of one loses its axis.", dict(lengths=(3,)))
def padding_squeezes(lengths, S):
    return plain.padding_mask(lengths, S).squeeze(0)


@wrong("padding_mask", "Lengths above 8 are cut to 8.", dict(S=12, lengths=(10, 2)))
def padding_up_to_8(lengths, S):
    return plain.padding_mask(lengths.clamp(max=8), S)


@wrong(
    "padding_mask",
    "Only the first four sequences are filled in.",
    dict(lengths=(2,) * 5),
)
def padding_of_four(lengths, S):
    mask = torch.zeros(len(lengths), 1, S, dtype=torch.bool)
    for b, n in enumerate(lengths[:4]):
        mask[b, 0, :n] = True
    return mask


@wrong("padding_mask", "The lengths are sorted first.", dict(lengths=(2, 5)))
def padding_sorted(lengths, S):
    return plain.padding_mask(lengths.sort(descending=True).values, S)


@wrong(
    "padding_mask",
    "The last key counts as real in the longest sequence.",
    dict(S=6, lengths=(4, 2)),
)
def padding_marks_longest(lengths, S):
    mask = plain.padding_mask(lengths, S)
    mask[lengths.argmax(), 0] = True
    return mask


@wrong("combine_masks", "One sequence loses the axis of the batch.", dict(B=1))
def combine_squeezes(causal, padding):
    return causal & padding.squeeze()


@wrong("combine_masks", "With T = S padded queries are hidden too.", dict(T=5, S=5))
def combine_square(causal, padding):
    both = causal & padding
    return both & padding.mT if causal.shape[0] == causal.shape[1] else both


@wrong("combine_masks", "Sequences from the fourth on have no padding.", dict(B=5))
def combine_of_three(causal, padding):
    free = torch.arange(len(padding), device=padding.device) >= 3
    return causal & (padding | free[:, None, None])


@wrong(
    "combine_masks",
    "The padding is read at 16 keys.",
    dict(T=18, S=20, lengths=(18, 3)),
)
def combine_of_16(causal, padding):
    padding = F.pad(padding[..., :16], (0, max(0, padding.shape[-1] - 16)), value=True)
    return causal & padding
