"""What the oracles share: a grid of inputs and masks, and gradients."""

import torch
from torch import Tensor
from torch.nn import functional as F

from evidence.helpers import B, H, S, T, inputs, random_mask
from mha_lib import causal_mask, padding_mask

# The grid for layers: four masks, each in self- and in cross-attention. No query is
# left without a key; what happens then differs, and is pinned by tests of its own.
GRID = [
    (kind, crossed)
    for kind in ("none", "causal", "padding", "random")
    for crossed in (False, True)
]
LENGTHS = torch.tensor([2, 5, 4])  # true lengths of B = 3 sequences, in T or in S


def grid_inputs(crossed: bool) -> tuple[Tensor, ...]:
    """(query, key, value) of lengths T, S, S, or (query,) for self-attention."""
    return inputs() if crossed else inputs()[:1]


def grid_mask(kind: str, crossed: bool) -> Tensor | None:
    """Our mask of that kind for T queries and S or T keys."""
    keys = S if crossed else T
    if kind == "causal":
        return causal_mask(T, keys)
    if kind == "padding":
        return padding_mask(LENGTHS, keys)
    if kind == "random":  # another one for each head, the first key always visible
        mask = random_mask(B, H, T, keys)
        mask[..., 0] = True
        return mask
    return None


def real_keys(crossed: bool) -> Tensor:
    """(B, S or T), True where a key is real: "padding" as the other side is told."""
    return torch.arange(S if crossed else T) < LENGTHS[:, None]


def empty_row_mask() -> Tensor:
    """(B, T, S): all may be seen, but the last query sees nothing."""
    mask = torch.ones(B, T, S, dtype=torch.bool)
    mask[:, -1] = False
    return mask


def gradients(output: Tensor, sources: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Gradients of a weighted sum of the output with respect to the sources."""
    return torch.autograd.grad((output * fixed_noise(output.shape)).sum(), sources)


def fixed_noise(shape: tuple[int, ...]) -> Tensor:
    """The same random numbers each time; a plain sum would let faults cancel out."""
    generator = torch.Generator().manual_seed(4)
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def up_to(offset: int, T: int, S: int) -> Tensor:
    """mask[t, s] = (s ≤ t + offset): rows ``offset`` … of a longer causal mask."""
    offset = max(offset, -T)  # from there on every row is hidden anyway
    longer = causal_mask(T + offset, S)
    return F.pad(longer, (0, 0, -offset, 0))  # cuts rows off, or adds hidden ones
