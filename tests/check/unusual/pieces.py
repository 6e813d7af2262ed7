"""Heads split and merged, and masks made, in ways that differ."""

import functools
import itertools
import operator

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from tests.check.unusual.registry import unusual

# --- split --------------------------------------------------------------------------


@unusual("split_heads", "unflatten and movedim.")
def moved(features, h):
    return features.unflatten(-1, (h, -1)).movedim(2, 1)


@unusual("split_heads", "A window of D slides over the features in steps of D.")
def windows(x, num_heads):
    size = x.size(-1) // num_heads
    return x.unfold(-1, size, size).transpose(1, 2)


@unusual("split_heads", "Strides alone, no shape is computed by torch.")
def strided(x, num_heads):
    x = x.contiguous()
    B, T, E = x.shape
    D = E // num_heads
    return x.as_strided((B, num_heads, T, D), (T * E, D, E, 1))


@unusual("split_heads", "Advanced indexing with a table of the features of each head.")
def indexed(x, num_heads):
    table = torch.arange(x.shape[-1]).view(num_heads, 1, -1)
    steps = torch.arange(x.shape[1]).view(1, -1, 1)
    return x[:, steps, table]


@unusual("split_heads", "A product with the identity, cut into heads.")
def by_identity(tensor, n):
    E = tensor.shape[-1]
    eye = torch.eye(E, dtype=tensor.dtype).view(E, n, E // n)
    return torch.einsum("bte,ehd->bhtd", tensor, eye)


@unusual("split_heads", "One sequence at a time, by vmap.")
def split_vmapped(x, num_heads):
    return torch.vmap(lambda one: torch.stack(one.tensor_split(num_heads, dim=1)))(x)


@unusual("split_heads", "Takes the first head off and calls itself for the others.")
def one_after_the_other(x, heads):
    first, rest = x.split(
        [x.shape[-1] // heads, x.shape[-1] * (heads - 1) // heads], -1
    )
    if heads == 1:
        return first[:, None]
    return torch.cat([first[:, None], one_after_the_other(rest, heads - 1)], dim=1)


@unusual("split_heads", "torch's own layer for it.")
def unflattened(x, num_heads):
    heads = nn.Unflatten(dim=2, unflattened_size=(num_heads, x.shape[2] // num_heads))
    return torch.einsum("bthd->bhtd", heads(x)).clone()


# --- merge --------------------------------------------------------------------------


@unusual("merge_heads", "movedim and flatten.")
def moved_back(heads):
    return heads.movedim(1, 2).flatten(start_dim=-2)


@unusual("merge_heads", "Slices of an empty tensor are filled.")
def filled(x):
    B, H, T, D = x.shape
    out = x.new_empty(B, T, H * D)
    for h in range(H):
        out[..., h * D : (h + 1) * D] = x[:, h]
    return out


@unusual("merge_heads", "A product with the identity, cut into heads.")
def merged_by_identity(x):
    _, H, _, D = x.shape
    eye = torch.eye(H * D, dtype=x.dtype).view(H, D, -1)
    return torch.einsum("bhtd,hde->bte", x, eye)


@unusual("merge_heads", "hstack for each sequence, by vmap.")
def merge_vmapped(x):
    return torch.vmap(lambda one: torch.hstack(one.unbind(0)))(x)


@unusual("merge_heads", "Two heads are joined, then the next one.")
def reduced(x):
    return functools.reduce(lambda a, b: torch.cat((a, b), -1), x.unbind(dim=1))


@unusual("merge_heads", "Three transpositions of two axes, and a view.")
def swapped(x):
    B, H, T, D = x.shape
    turned = x.swapaxes(2, 3).reshape(B, H * D, T)
    return turned.swapaxes(1, 2).contiguous().view(B, T, -1)


@unusual("merge_heads", "fold puts the heads where they were cut from.")
def folded(x):
    B, H, T, D = x.shape
    blocks = x.permute(0, 3, 2, 1).reshape(B, D * T, H)
    out = F.fold(
        blocks, output_size=(1, T * H), kernel_size=(1, T), stride=(1, T)
    ).view(B, D, H, T)
    return out.permute(0, 3, 2, 1).reshape(B, T, H * D)


# --- causal -------------------------------------------------------------------------


@unusual("causal_mask", "The upper triangle, inverted.")
def inverted_triangle(rows, columns):
    return ~torch.ones(rows, columns).triu(diagonal=1).bool()


@unusual("causal_mask", "The identity, summed downwards.")
def summed_identity(T, S):
    return torch.eye(T, S).cumsum(dim=0) > 0


@unusual("causal_mask", "Lists of Python's own truth values.")
def lists(n, m):
    return torch.tensor([[s <= t for s in range(m)] for t in range(n)])


@unusual("causal_mask", "NumPy's tri.")
def numpys(T, S):
    return torch.from_numpy(np.tri(T, S, dtype=bool))


@unusual("causal_mask", "A row more for each query.")
def filled_rows(T, S):
    mask = torch.zeros((T, S), dtype=torch.bool)
    for t, row in enumerate(mask):
        row[: t + 1] = True
    return mask


@unusual("causal_mask", "Only the places of the lower triangle are written.")
def by_places(T, S):
    mask = torch.full((T, S), False)
    mask[tuple(torch.tril_indices(T, S))] = True
    return mask


@unusual("causal_mask", "A grid of places compared with itself.")
def grid(query_length, key_length):
    t, s = torch.meshgrid(
        torch.arange(query_length), torch.arange(key_length), indexing="ij"
    )
    return torch.le(s, t)


@unusual("causal_mask", "The differences t − s have no sign.")
def differences(T, S):
    steps = torch.arange(T)[:, None] - torch.arange(S)[None, :]
    return torch.signbit(steps.float()).logical_not()


# --- padding ------------------------------------------------------------------------


@unusual("padding_mask", "One comparison, with the lengths along the first axis.")
def compared(lens, size):
    lens = torch.as_tensor(lens)
    return torch.arange(size) < lens[:, None, None]


@unusual("padding_mask", "A mark at the end of each sequence, summed along it.")
def marked_ends(lengths, S):
    ends = F.one_hot(torch.as_tensor(lengths).long(), S + 1)[:, None, :S]
    return ends.cumsum(-1) == 0


@unusual("padding_mask", "Sequences of ones, padded by torch.")
def padded_ones(lengths, S):
    rows = [torch.ones(int(n), dtype=torch.bool) for n in lengths]
    mask = pad_sequence(rows, batch_first=True)
    return F.pad(mask, (0, S - mask.shape[1])).unsqueeze(1)


@unusual("padding_mask", "Lists of Python's own truth values.")
def listed(lengths, S):
    return torch.tensor([[[True] * int(n) + [False] * (S - int(n))] for n in lengths])


@unusual("padding_mask", "NumPy compares all pairs.")
def outer(lengths, S):
    mask = np.greater.outer(np.asarray(lengths), np.arange(S))
    return torch.as_tensor(mask)[:, np.newaxis]


@unusual("padding_mask", "One row written for one length; vmap does the others.")
def padding_vmapped(lengths, S):
    places = torch.arange(S)
    return torch.vmap(lambda n: places.lt(n).unsqueeze(0))(torch.as_tensor(lengths))


@unusual("padding_mask", "Rows of a table of all possible masks.")
def looked_up(lengths, S):
    table = torch.ones(S + 1, S, dtype=torch.bool).tril(-1)
    return table[torch.as_tensor(lengths).long()].view(-1, 1, S)


# --- combination --------------------------------------------------------------------


@unusual("combine_masks", "What is hidden by one or by the other, inverted.")
def de_morgan(a, b):
    return torch.logical_not(torch.logical_or(~a, ~b))


@unusual("combine_masks", "A product of truth values.")
def product(causal, padding):
    return torch.mul(causal[None], padding)


@unusual("combine_masks", "The one where the other allows it.")
def chosen(causal, padding):
    return torch.where(padding, causal, torch.tensor(False))


@unusual("combine_masks", "All of a stack of two.")
def stacked(causal, padding):
    return torch.stack(torch.broadcast_tensors(causal, padding)).all(dim=0)


@unusual("combine_masks", "An outer product for each sequence, in numbers.")
def in_numbers(triangle, lengths):
    both = torch.einsum("ts,bs->bts", triangle.int(), lengths.squeeze(1).int())
    return both.bool()


@unusual("combine_masks", "Python's & over all masks that there are.")
def any_number(*masks):
    return functools.reduce(operator.and_, masks)


@unusual("combine_masks", "Columns of padding are switched off in copies.")
def switched_off(causal, padding):
    copies = [causal.clone() for _ in padding]
    for copy, row in zip(copies, itertools.chain.from_iterable(padding)):
        copy[:, ~row] = False
    return torch.stack(copies)
