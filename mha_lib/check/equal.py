"""Whether two answers are equal, up to the rounding of their dtype."""

import math

import torch
from torch import Tensor

__all__ = ["TOLERANCE", "matches"]

TOLERANCE = {  # of the largest deviation, in units of the root mean square
    torch.float64: 1e-5,
    torch.float32: 5e-4,
    torch.float16: 3e-2,
    torch.bfloat16: 2e-1,
}


def matches(theirs: Tensor, ours: Tensor, slack: float = 1.0) -> bool:
    """Equal up to the rounding of their dtype; NaN equals NaN."""
    if theirs.shape != ours.shape:
        return False
    if theirs.dtype == torch.bool or ours.dtype == torch.bool:
        return theirs.dtype == ours.dtype and torch.equal(theirs, ours)
    tolerance = slack * TOLERANCE.get(theirs.dtype, 0.0)
    theirs = (theirs.real if theirs.is_complex() else theirs).to(ours.dtype)
    gap = (theirs - ours).abs().max().item() if ours.numel() else math.nan
    if math.isfinite(gap):  # so are both
        return gap <= tolerance * _size(ours)
    if not torch.equal(theirs.isfinite(), ours.isfinite()):
        return False
    finite = ours.isfinite()
    size = _size(ours[finite]) if finite.any() else 0.0
    return bool(((theirs - ours)[finite].abs() <= tolerance * size).all())


def _size(numbers: Tensor) -> float:
    """The root of their mean square; as floats, for most tensors here are tiny."""
    return torch.linalg.vector_norm(numbers).item() / numbers.numel() ** 0.5
