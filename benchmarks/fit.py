"""How a cost grows: the exponent of a power law."""

import math
import statistics
from collections.abc import Sequence


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """p of cost ≈ c · sizeᵖ: the slope of a straight line through the logarithms."""
    xs, ys = map(math.log, sizes), map(math.log, costs)
    return statistics.linear_regression(list(xs), list(ys)).slope
