"""Two mistakes in one program: which pairs to try, and how to make them."""

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from itertools import combinations

import torch
from torch import Tensor

__all__ = ["both", "pairs"]

LIKELY = 43  # so many of a catalogue, which has its likeliest first
MOVED, OFF = 1e-6, 1e-3  # of a number: what one of two does, what none of them can


@lru_cache(maxsize=1 << 14)  # the same again: what it answers is remembered
def both(one: object, other: object) -> object | None:
    """A version that does all otherwise that either does; None if they share a part.

    A wrong function is the right one with ways to do parts of it, by name; a wrong
    class is a class below the right one with other members.

    Example:
        >>> def power(x, base=2, sign=1):
        ...     return sign * base**x
        >>> both(partial(power, base=3), partial(power, sign=-1))(2)
        -9
        >>> both(partial(power, base=3), partial(power, base=5))
    """
    if isinstance(one, type) and isinstance(other, type):
        if _members(one) & _members(other):
            return None
        return type(one.__name__, (one, other), {})
    if not (isinstance(one, partial) and isinstance(other, partial)):
        return None
    if one.func is not other.func or one.keywords.keys() & other.keywords.keys():
        return None
    return partial(one.func, **one.keywords, **other.keywords)


def pairs(
    mistakes: Mapping[str, object],
    alone: Mapping[str, Tensor | None],
    theirs: Tensor | None,
    right: Tensor,
) -> Iterator[tuple[tuple[str, str], object]]:
    """Those that may give ``theirs``, by what each of them gives alone in this case.

    A number that one of the two leaves as it is comes from the other; one that both
    leave is right. Where both act on a number, only the pair itself can tell.
    """
    moved = {name: _apart(answer, right, MOVED) for name, answer in alone.items()}
    for one, other in combinations(list(mistakes)[:LIKELY], 2):
        found = both(mistakes[one], mistakes[other])
        if found is None:
            continue
        seen = [moved[one], moved[other], _apart(theirs, right, OFF)]
        if not any(x is None for x in seen):
            expected = torch.where(moved[one], alone[one], alone[other])
            free = moved[one] & moved[other]
            if (_apart(theirs, expected, OFF) & ~free).any():
                continue
        yield (one, other), found


def _apart(one: Tensor | None, other: Tensor, by: float) -> Tensor | None:
    """Which numbers differ; None if the shapes do, or there is no answer."""
    if one is None or one.shape != other.shape:
        return None
    one, other = one.double(), other.double()
    size = other[other.isfinite()].abs().mean().nan_to_num().item()
    return ~torch.isclose(one, other, rtol=by, atol=by * size, equal_nan=True)


def _members(version: type) -> set[str]:
    return {name for name in vars(version) if not name.startswith("__")}
