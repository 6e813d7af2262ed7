"""What every style asks of its arguments, asked once and in the same words."""

from collections.abc import Iterable

import torch
from torch import Tensor


def check_dropout(dropout: float) -> float:
    """Return ``dropout`` if it is a probability."""
    if not isinstance(dropout, int | float):
        raise TypeError(f"dropout must be a number; got {type(dropout).__name__}")
    if not 0.0 <= dropout <= 1.0:
        raise ValueError(f"dropout must be a probability in 0…1; got {dropout}")
    return dropout


def resolve_inputs(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    weight: Tensor,
    *,
    batch_axis: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Fill in the defaults (key = query, value = key) and check that all three fit.

    ``weight`` is the layer's (E, E) output projection: it knows E and the dtype.
    """
    embed_dim = weight.shape[0]
    key = query if key is None else key
    value = key if value is None else value
    length_axis = 1 - batch_axis
    axes = "(B, length, E)" if batch_axis == 0 else "(length, B, E)"
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(x).__name__}")
        if x.dim() != 3:
            raise ValueError(f"{name} must have shape {axes}; got {tuple(x.shape)}")
        if x.shape[-1] != embed_dim:
            raise ValueError(
                f"{name} must be embed_dim = {embed_dim} wide; got {x.shape[-1]}"
            )
    if not query.dtype == key.dtype == value.dtype:
        raise TypeError(
            "query, key and value must share one dtype; "
            f"got {query.dtype}, {key.dtype} and {value.dtype}"
        )
    if query.dtype != weight.dtype and not _autocasts(query):
        raise TypeError(
            "the inputs must have the dtype of the layer; "
            f"got {query.dtype} for a layer of {weight.dtype}"
        )
    batches = [x.shape[batch_axis] for x in (query, key, value)]
    if len(set(batches)) > 1:
        raise ValueError(
            "query, key and value must share B; "
            f"got {batches[0]}, {batches[1]} and {batches[2]}"
        )
    if key.shape[length_axis] != value.shape[length_axis]:
        raise ValueError(
            "key and value must share their length S; "
            f"got {key.shape[length_axis]} and {value.shape[length_axis]}"
        )
    return query, key, value


def check_operands(*operands: Tensor) -> None:
    """Raise unless q (…, T, D), k (…, S, D) and, if it comes too, v (…, S, V) fit."""
    for name, x in zip("qkv", operands):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            came = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{name} must be a floating tensor; got {came}")
    q, k, last = operands[0], operands[1], operands[-1]
    names = _listed("qkv"[: len(operands)])
    if any(x.dtype != q.dtype for x in operands):
        came = _listed(x.dtype for x in operands)
        raise TypeError(f"{names} must share one dtype; got {came}")
    if any(x.dim() < 2 for x in operands):
        came = _listed(tuple(x.shape) for x in operands)
        raise ValueError(
            f"{names} need at least the axes (length, size); got shapes {came}"
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must share D; got {q.shape[-1]} and {k.shape[-1]}")
    if q.shape[-1] == 0:
        raise ValueError("D must be at least 1; got 0")
    if k.shape[-2] != last.shape[-2]:  # k itself, where no values came
        came = _listed((k.shape[-2], last.shape[-2]))
        raise ValueError(f"k and v must share S; got {came}")
    if any(x.shape[:-2] != q.shape[:-2] for x in operands):
        came = _listed(tuple(x.shape[:-2]) for x in operands)
        raise ValueError(f"{names} must share their leading axes; got {came}")


def _listed(items: Iterable[object]) -> str:
    """'a and b', 'a, b and c'."""
    *first, last = map(str, items)
    return f"{', '.join(first)} and {last}"


def _autocasts(x: Tensor) -> bool:
    """Whether autocast will bring ``x`` to the dtype of the layer."""
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
