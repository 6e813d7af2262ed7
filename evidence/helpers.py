"""What book and tests compute with: sizes, layers with biases, one way to call."""

import torch
from torch import Tensor, nn

from mha_lib import EinsumMHA
from mha_lib.masks import to_sequence_first_mask
from mha_lib.styles import STYLES as STYLES

# All different, so that a swapped axis cannot pass unseen.
B, T, S, H, D = 3, 5, 7, 2, 11
E = H * D


def seed(number: int) -> None:
    """`torch.manual_seed` on the processor alone: for a GPU it formats the stack."""
    torch.default_generator.manual_seed(number)


def make(style: type[nn.Module], dtype: torch.dtype = torch.float64, **options):
    """A layer whose biases are not zero, in evaluation mode."""
    seed(0)
    module = style(E, H, **options).double()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() == 1:
                parameter.normal_()
    return module.to(dtype).eval()


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Three different inputs of different lengths, ready for gradients."""
    generator = torch.Generator().manual_seed(1)
    return tuple(
        torch.randn(B, length, E, dtype=torch.float64, generator=generator)
        .to(dtype)
        .requires_grad_()
        for length in (T, S, S)
    )


def call(
    module: nn.Module,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Call any style batch first; the sequence-first one is turned round and back."""
    if not isinstance(module, EinsumMHA):
        return module(query, key, value, mask)
    source = query if key is None else key
    if mask is not None:
        sizes = (query.shape[0], module.num_heads, query.shape[1], source.shape[1])
        mask = to_sequence_first_mask(mask, sizes)
    turned = [None if x is None else x.transpose(0, 1) for x in (query, key, value)]
    output, weights = module(*turned, mask)
    return output.transpose(0, 1), weights


def random_mask(*shape: int, seed: int = 2) -> Tensor:
    """A random boolean mask; its last row of queries is allowed nothing."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(*shape, generator=generator) < 0.6
    if shape[-2] > 1:
        mask[..., -1, :] = False
    return mask
