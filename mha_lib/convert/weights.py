"""What every multi-head attention layer holds: four projections and a few settings."""

from dataclasses import dataclass

from torch import Tensor

__all__ = ["Projection", "Weights"]


@dataclass(frozen=True)
class Projection:
    """x → x weightᵀ + bias, as in ``nn.Linear``: weight (out, in), bias or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Weights:
    """What a multi-head attention layer is, whatever its style: four projections.

    Attributes:
        q: weight (H·D, E), bias (H·D) or None.
        k: weight (H·D, K), bias (H·D) or None.
        v: weight (H·V, W), bias (H·V) or None.
        out: weight (O, H·V), bias (O) or None.
        num_heads: H.
        dropout: probability of dropping an attention weight in training.
        output_dropout: probability of dropping a number of the output in training.
        bias_k: (H·D), a learned key appended to the projected keys; or None.
        bias_v: (H·V), the value that belongs to it; or None.
        add_zero_attn: append a key and a value of zeros.
    """

    q: Projection
    k: Projection
    v: Projection
    out: Projection
    num_heads: int
    dropout: float = 0.0
    output_dropout: float = 0.0
    bias_k: Tensor | None = None
    bias_v: Tensor | None = None
    add_zero_attn: bool = False

    @property
    def biases(self) -> tuple[Tensor | None, ...]:
        """The biases of q, k, v and out."""
        return (self.q.bias, self.k.bias, self.v.bias, self.out.bias)

    @property
    def sizes(self) -> dict[str, int]:
        """H, D, V, E, K, W and O."""
        (rows, E), K = self.q.weight.shape, self.k.weight.shape[1]
        W, (out, columns) = self.v.weight.shape[1], self.out.weight.shape
        H = self.num_heads
        D, V = rows // H, columns // H
        return {"H": H, "D": D, "V": V, "E": E, "K": K, "W": W, "O": out}

    @property
    def parts(self) -> dict[str, Tensor | None]:
        """All arrays by the names that a `Format` gives them: Wq, bq, …, bias_v."""
        parts = {}
        for x, projection in zip("qkvo", (self.q, self.k, self.v, self.out)):
            parts |= {f"W{x}": projection.weight, f"b{x}": projection.bias}
        return parts | {"bias_k": self.bias_k, "bias_v": self.bias_v}
