"""How far apart two tensors are."""

from torch import Tensor


def distance(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest entry, or to 1 if that is less.

    So a gradient that ought to be 0, and is a rounding error on both sides, is near.
    """
    if not ours.numel():
        return 0.0
    ours, theirs = ours.detach().double(), theirs.detach().double()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())  # −inf − (−inf) is NaN
    difference = (ours - theirs).abs().masked_fill(same, 0.0).max()
    largest = theirs.abs().masked_fill(~theirs.isfinite(), 0.0).max()
    return (difference / largest.clamp(min=1.0)).item()
