"""The same weights in every style.

Each style has one reader (its parameters → four plain projections) and one writer
(four plain projections → a new module). Converting is reading, then writing.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mha_lib.batched import BatchedMHA
from mha_lib.builtin import BuiltinMHA
from mha_lib.einsum import EinsumMHA
from mha_lib.fused import FusedMHA
from mha_lib.per_head import PerHeadMHA
from mha_lib.split_concat import SplitConcatMHA

__all__ = ["Projection", "Weights", "convert"]


@dataclass(frozen=True)
class Projection:
    """x → x weightᵀ + bias, as in ``nn.Linear``: weight (out, in), bias or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Weights:
    """What a multi-head attention layer is, whatever its style: four projections."""

    q: Projection
    k: Projection
    v: Projection
    out: Projection
    num_heads: int
    dropout: float

    @property
    def embed_dim(self) -> int:
        """E, the width of the output."""
        return self.out.weight.shape[0]

    @property
    def biases(self) -> tuple[Tensor | None, ...]:
        """The biases of q, k, v and out."""
        return (self.q.bias, self.k.bias, self.v.bias, self.out.bias)


def convert(module: nn.Module, target: type[nn.Module]) -> nn.Module:
    """A new ``target`` that computes the same function as ``module``.

    Args:
        module: an instance of one of the six styles.
        target: the class of another style, or of the same one.

    Returns:
        A new module with copies of the parameters, on the same device, with the
        same dtype, dropout and training mode; all of them trainable, without hooks
        or loggers (to the same class: a deep copy). Converting there and back gives
        the same numbers bit by bit. No random number is drawn.

    Raises:
        TypeError: a source or target that is not one of the six styles. A subclass
            counts as another class: it may compute something else.
        ValueError: the source has an extra that the target lacks (activation,
            causality, residual, norm, dropout on the output), so that no target
            could compute the same function.

    Note:
        Where only some projections have a bias, the new module gets zeros for the
        others: the function is the same, the parameter count is not.

    Example:
        >>> import torch
        >>> from mha_lib import FusedMHA, PerHeadMHA, convert
        >>> per_head = PerHeadMHA(embed_dim=6, num_heads=3)
        >>> fused = convert(per_head, FusedMHA)
        >>> x = torch.randn(2, 5, 6)
        >>> torch.allclose(per_head(x)[0], fused(x)[0], atol=1e-6)
        True
    """
    if type(module) not in _READERS:
        raise TypeError(
            f"can convert from {_names(_READERS)}; got {type(module).__name__}"
        )
    if not isinstance(target, type) or target not in _WRITERS:
        came = target.__name__ if isinstance(target, type) else repr(target)
        raise TypeError(f"can convert to {_names(_WRITERS)}; got {came}")
    if target is type(module):
        return copy.deepcopy(module)
    extras = _extras(module)
    if extras:
        raise ValueError(
            f"{target.__name__} cannot compute the same function: "
            f"the {type(module).__name__} uses {', '.join(extras)}"
        )
    with torch.no_grad():
        converted = _WRITERS[target](_READERS[type(module)](module))
    return converted.train(module.training)


def _names(registry: dict[type, Callable]) -> str:
    return ", ".join(style.__name__ for style in registry)


def _extras(module: nn.Module) -> list[str]:
    """The things that only this module's style has and that are switched on."""
    names = ("activation", "causal", "residual", "norm", "output_dropout")
    return [name for name in names if getattr(module, name, None)]


# --- reading ------------------------------------------------------------------


def _chunk(bias: Tensor | None, parts: int) -> tuple[Tensor | None, ...]:
    """The bias cut into parts; no bias gives parts without one."""
    return (None,) * parts if bias is None else bias.chunk(parts)


def _projection(linear: nn.Linear) -> Projection:
    return Projection(linear.weight, linear.bias)


def _split(weight: Tensor, bias: Tensor | None) -> list[Projection]:
    return [Projection(w, b) for w, b in zip(weight.chunk(3), _chunk(bias, 3))]


def _read_separate(module: BatchedMHA | EinsumMHA | SplitConcatMHA) -> Weights:
    linears = (module.q_proj, module.k_proj, module.v_proj, module.out_proj)
    return Weights(*map(_projection, linears), module.num_heads, module.dropout)


def _read_per_head(module: PerHeadMHA) -> Weights:
    def stack(name: str) -> Projection:
        linears = [getattr(head, name) for head in module.heads]
        weight = torch.cat([linear.weight for linear in linears])
        biases = [linear.bias for linear in linears if linear.bias is not None]
        return Projection(weight, torch.cat(biases) if biases else None)

    q, k, v = stack("q_proj"), stack("k_proj"), stack("v_proj")
    out = _projection(module.out_proj)
    return Weights(q, k, v, out, module.num_heads, module.dropout)


def _read_fused(module: FusedMHA) -> Weights:
    q, k, v = _split(module.in_proj.weight, module.in_proj.bias)
    out = _projection(module.out_proj)
    return Weights(q, k, v, out, module.num_heads, module.dropout)


def _read_builtin(module: BuiltinMHA) -> Weights:
    q, k, v = _split(module.mha.in_proj_weight, module.mha.in_proj_bias)
    out = _projection(module.mha.out_proj)
    return Weights(q, k, v, out, module.num_heads, module.dropout)


# --- writing ------------------------------------------------------------------


def _new(target: type[nn.Module], weights: Weights) -> nn.Module:
    """An empty target of the right sizes, biases, dtype and device."""
    bias = any(b is not None for b in weights.biases)
    like = weights.out.weight
    with torch.device("meta"):  # draws no random numbers; all will be overwritten
        module = target(weights.embed_dim, weights.num_heads, weights.dropout, bias)
    return module.to(like.dtype).to_empty(device=like.device)


def _copy(weight: Tensor, bias: Tensor | None, source: Projection) -> None:
    weight.copy_(source.weight)
    if bias is not None:
        bias.zero_() if source.bias is None else bias.copy_(source.bias)


def _write_separate(target: type[nn.Module]) -> Callable[[Weights], nn.Module]:
    def write(weights: Weights) -> nn.Module:
        module = _new(target, weights)
        for name in ("q", "k", "v", "out"):
            linear = getattr(module, f"{name}_proj")
            _copy(linear.weight, linear.bias, getattr(weights, name))
        return module

    return write


def _write_per_head(weights: Weights) -> PerHeadMHA:
    module = _new(PerHeadMHA, weights)
    for name in ("q", "k", "v"):
        source = getattr(weights, name)
        blocks = source.weight.chunk(weights.num_heads)
        biases = _chunk(source.bias, weights.num_heads)
        for head, block, bias in zip(module.heads, blocks, biases):
            linear = getattr(head, f"{name}_proj")
            _copy(linear.weight, linear.bias, Projection(block, bias))
    _copy(module.out_proj.weight, module.out_proj.bias, weights.out)
    return module


def _write_joint(
    weight: Tensor, bias: Tensor | None, out_proj: nn.Linear, weights: Weights
) -> None:
    sources = (weights.q, weights.k, weights.v)
    for block, block_bias, source in zip(weight.chunk(3), _chunk(bias, 3), sources):
        _copy(block, block_bias, source)
    _copy(out_proj.weight, out_proj.bias, weights.out)


def _write_fused(weights: Weights) -> FusedMHA:
    module = _new(FusedMHA, weights)
    in_proj = module.in_proj
    _write_joint(in_proj.weight, in_proj.bias, module.out_proj, weights)
    return module


def _write_builtin(weights: Weights) -> BuiltinMHA:
    module = _new(BuiltinMHA, weights)
    mha = module.mha
    _write_joint(mha.in_proj_weight, mha.in_proj_bias, mha.out_proj, weights)
    return module


_READERS: dict[type, Callable[..., Weights]] = {
    PerHeadMHA: _read_per_head,
    BatchedMHA: _read_separate,
    FusedMHA: _read_fused,
    EinsumMHA: _read_separate,
    BuiltinMHA: _read_builtin,
    SplitConcatMHA: _read_separate,
}
_WRITERS: dict[type, Callable[[Weights], nn.Module]] = {
    PerHeadMHA: _write_per_head,
    BatchedMHA: _write_separate(BatchedMHA),
    FusedMHA: _write_fused,
    EinsumMHA: _write_separate(EinsumMHA),
    BuiltinMHA: _write_builtin,
    SplitConcatMHA: _write_separate(SplitConcatMHA),
}
