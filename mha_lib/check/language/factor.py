"""Whether losses are the right ones times one number, or divided by one size."""

import math
from collections.abc import Mapping, Sequence

__all__ = ["told"]

NEAR = 1e-3  # of a quotient; what a float32 loses is less


def told(
    yours: Sequence[float], right: Sequence[float], sizes: Mapping[str, Sequence[int]]
) -> str:
    """What every loss is times or divided by; "" if that is not one and the same.

    Args:
        yours: a loss of each case.
        right: the right one.
        sizes: by their names, those of each case.

    Example:
        >>> told([0.5, 1.0], [1.0, 2.0], {"B": [3, 5]})
        'Every loss is 0.5 times the right one: such a factor does not belong in it.'
        >>> told([3.0, 10.0], [1.0, 2.0], {"B": [3, 5]})
        'Every loss is B times the right one: such a factor does not belong in it.'
        >>> told([1.0, 4.0], [1.0, 2.0], {"B": [3, 5]})
        ''
    """
    if not all(map(math.isfinite, yours)) or not all(right):
        return ""
    quotients = [one / other for one, other in zip(yours, right)]
    for name, numbers in {"1": [1] * len(right), **sizes}.items():
        for times in (1, -1):
            left = [q / n**times for q, n in zip(quotients, numbers)]
            if not left[0] or any(abs(x / left[0] - 1) > NEAR for x in left):
                continue
            by = "" if name == "1" else name if times > 0 else f"1/{name}"
            if abs(left[0] - 1) > NEAR:
                by = f"{left[0]:.3g}" + (f" · {by}" if by else "")
            return by and (
                f"Every loss is {by} times the right one: such a factor does not "
                "belong in it."
            )
    return ""
