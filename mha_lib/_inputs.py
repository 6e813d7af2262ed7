"""What every layer asks of its arguments, asked once and in the same words."""

from collections.abc import Iterable, Sequence
from numbers import Integral

import torch
from torch import Tensor
from torch.nn import functional as F


def check_sizes(**sizes: int) -> None:
    """Raise unless each is an integer, and at least 1. A bool is none."""
    names, came = _listed(sizes), _listed(map(repr, sizes.values()))
    if any(not isinstance(x, Integral) or isinstance(x, bool) for x in sizes.values()):
        raise TypeError(f"{names} must be integers; got {came}")
    if any(x < 1 for x in sizes.values()):
        raise ValueError(f"{names} must be at least 1; got {came}")


def check_dropout(dropout: float) -> float:
    """Return ``dropout`` if it is a probability."""
    if not isinstance(dropout, int | float) or isinstance(dropout, bool):
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
    key = query if key is None else key
    value = key if value is None else value
    widths = [("embed_dim", weight.shape[0])] * 3
    check_inputs((query, key, value), widths, weight.dtype, batch_axis=batch_axis)
    return query, key, value


def check_inputs(
    inputs: tuple[Tensor, Tensor, Tensor],
    widths: Sequence[tuple[str, int]],
    dtype: torch.dtype,
    *,
    batch_axis: int,
    unbatched: bool = False,
) -> None:
    """Raise unless query, key and value fit the layer and one another.

    ``widths`` are their names and sizes, ``dtype`` is that of the layer. With
    ``unbatched`` all three may be 2-D: one sequence, without B.
    """
    names = ("query", "key", "value")
    for name, x in zip(names, inputs):
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(x).__name__}")
    single = unbatched and inputs[0].dim() == 2
    before = "length" if single else ("B, length", "length, B")[batch_axis]
    for name, x, (wide, width) in zip(names, inputs, widths):
        if x.dim() != 3 - single:
            required = f"({before}, {wide})"
            raise ValueError(f"{name} must have shape {required}; got {tuple(x.shape)}")
        if x.shape[-1] != width:
            raise ValueError(f"{name} must be {wide} = {width} wide; got {x.shape[-1]}")
    dtypes = [x.dtype for x in inputs]
    if dtypes != [dtype] * 3 and not _autocasts(inputs[0]):
        if len(set(dtypes)) > 1:
            came = _listed(dtypes)
            raise TypeError(f"query, key and value must share one dtype; got {came}")
        raise TypeError(
            "the inputs must have the dtype of the layer; "
            f"got {dtypes[0]} for a layer of {dtype}"
        )
    # Compared by ==, for under torch.jit.trace a size is a tensor.
    batches = (0, 0, 0) if single else [x.shape[batch_axis] for x in inputs]
    if not batches[0] == batches[1] == batches[2]:
        raise ValueError(
            f"query, key and value must share B in ({before}, width); "
            f"got {_listed(map(int, batches))}"
        )
    axis = 0 if single else 1 - batch_axis
    of_key, of_value = (x.shape[axis] for x in inputs[1:])
    if of_key != of_value:
        raise ValueError(
            "key and value must share their length S; "
            f"got {int(of_key)} and {int(of_value)}"
        )


def project(
    inputs: Sequence[Tensor], weights: Sequence[Tensor], bias: Tensor | None
) -> tuple[Tensor, ...]:
    """Linear for each input, by its own weight and its own third of the bias."""
    biases = (None,) * 3 if bias is None else bias.chunk(3)
    return tuple(map(F.linear, inputs, weights, biases))


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
