"""One multi-head attention to be computed: sizes, parameters, input, mask."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from mha_lib import causal_mask


class Size(NamedTuple):
    """Batch, length, width and heads of a self-attention."""

    B: int
    T: int
    E: int
    H: int

    @property
    def D(self) -> int:
        """The width of a head."""
        return self.E // self.H

    @property
    def flops(self) -> int:
        """Additions and multiplications of one forward pass, as chapter 9 counts."""
        B, T, E, _ = self
        return 2 * (4 * B * T * E**2 + 2 * B * T**2 * E)


@dataclass(frozen=True)
class Workload:
    """What every contestant is given: the same numbers."""

    size: Size
    causal: bool
    in_weight: Tensor  # (3E, E): rows of q, then k, then v
    in_bias: Tensor  # (3E,)
    out_weight: Tensor  # (E, E)
    out_bias: Tensor  # (E,)
    x: Tensor  # (B, T, E)
    gradient: Tensor  # (B, T, E), of the loss with respect to the output

    @property
    def mask(self) -> Tensor | None:
        """The (T, T) mask, True = may attend, for layers that want a tensor."""
        return causal_mask(self.size.T, device=self.x.device) if self.causal else None

    @classmethod
    def draw(
        cls,
        size: Size,
        *,
        causal: bool = False,
        dtype: torch.dtype = torch.float32,
        device: str = "cpu",
    ) -> "Workload":
        """Random numbers; the same ones for the same arguments.

        Scores have a standard deviation of about 1, so that the weights differ, and
        no bias is zero, so that a forgotten one is seen.
        """
        generator = torch.Generator().manual_seed(0)

        def normal(*shape: int, scale: float = 1.0) -> Tensor:
            numbers = torch.randn(*shape, generator=generator) * scale
            return numbers.to(device, dtype)

        B, T, E, _ = size
        return cls(
            size,
            causal,
            in_weight=normal(3 * E, E, scale=E**-0.5),
            in_bias=normal(3 * E, scale=0.5),
            out_weight=normal(E, E, scale=E**-0.5),
            out_bias=normal(E, scale=0.5),
            x=normal(B, T, E),
            gradient=normal(B, T, E),
        )
