"""At which sizes an answer is right and at which it is wrong, if a size tells it."""

from collections.abc import Iterable
from itertools import combinations
from math import prod

from mha_lib.check.equal import matches
from mha_lib.check.reference import compute
from mha_lib.check.search import Case
from mha_lib.check.words import Fact

__all__ = ["BY_SIZE", "told_by_size"]

BY_SIZE = ("wrong-at-one", "wrong-alike", "wrong-from")  # codes of such facts
LETTERS = "TSBHDVE"
APART = 2  # one size alone tells a limit if it is so many times larger
FAR = 100.0  # and its answer is off by more than what rounding adds up to
MOST = 2  # sizes that grow together; of more nothing is said
Limit = tuple[str, int, int]  # a letter, a size that is right and one that is wrong
Try = tuple[dict[str, int], bool, bool, bool]  # sizes, masked?, right?, nearly?


def told_by_size(cases: Iterable[Case]) -> Fact | None:
    """The smallest statement about sizes that is true of all calls; None if none is.

    Args:
        cases: what each call asked and got, right or wrong.

    Returns:
        That it is wrong where a size is 1 and nowhere else, or where sizes are equal,
        or right up to a size and wrong from another on; of all calls, else of those
        with a mask or without, if the rest is right. Sizes that go together are all
        named.
    """
    tries = [
        (
            case.problem.sizes,
            case.problem.masked,
            case.right,
            case.output is not None
            and matches(case.output, compute(case.problem)["output"], FAR),
        )
        for case in cases
        if case.name != "empty row"
    ]
    for kind in (None, True, False):
        some = [x for x in tries if kind in (None, x[1])]
        rest = [x[2] for x in tries if kind not in (None, x[1])]
        if all(rest) and not all(x[2] for x in some):
            if letters := _at_one(some):
                return Fact("wrong-at-one", {"masked": kind, "letters": letters})
            if letters := _at_alike(some):
                return Fact("wrong-alike", {"masked": kind, "letters": letters})
            if 1 <= len(limits := _together(_limits(some), some)) <= MOST:
                return Fact("wrong-from", {"masked": kind, "limits": limits})
    return None


def _at_one(tries: list[Try]) -> list[str]:
    """Of which letters one has to be 1, no matter which, where it is wrong."""

    def wrong_at_one(letter: str) -> bool:
        found = [x[2] for x in tries if x[0].get(letter) == 1]
        return bool(found) and not any(found)

    letters = [x for x in LETTERS if wrong_at_one(x)]
    wrong = (x[0] for x in tries if not x[2])
    return letters if all(1 in map(sizes.get, letters) for sizes in wrong) else []


def _at_alike(tries: list[Try]) -> list[str]:
    """Of which letters the sizes have to be equal, and not 1, where it is wrong."""

    def alike(sizes: dict[str, int], pair: tuple[str, str]) -> bool:
        one, other = map(sizes.get, pair)
        return one == other and one not in (None, 1)

    wrong, right = ([x[0] for x in tries if x[2] is holds] for holds in (False, True))
    pairs = [
        pair
        for pair in combinations(LETTERS, 2)
        if all(alike(x, pair) for x in wrong) and not any(alike(x, pair) for x in right)
    ]
    letters = [x for x in LETTERS if any(x in pair for pair in pairs)]
    together = all(alike(x, pair) for x in wrong for pair in combinations(letters, 2))
    return letters if together else []


def _together(limits: list[Limit], tries: list[Try]) -> list[Limit]:
    """Of several letters the sizes of one call that is wrong, that with the fewest."""
    if len(limits) < 2:
        return limits
    letters = [letter for letter, *_ in limits]
    wrong = [[x[0][letter] for letter in letters] for x in tries if not x[2]]
    least = min(wrong, key=prod)
    return [(*known[:2], size) for known, size in zip(limits, least)]


def _limits(tries: list[Try]) -> list[Limit]:
    """A letter, the largest size that is right and the smallest that is wrong."""
    found = []
    for letter in LETTERS:
        known = [(x[0][letter], *x[2:]) for x in tries if letter in x[0]]
        right = {n for n, holds, _ in known if holds and n > 1}  # 1 fits what it meets
        wrong = {n for n, holds, _ in known if not holds}
        if len(right) < 2 or not wrong or max(right) >= min(wrong):
            continue
        far = not any(nearly for _, holds, nearly in known if not holds)
        if len(wrong) > 1 or (far and APART * max(right) <= min(wrong)):
            found.append((letter, max(right), min(wrong)))
    letters = {letter for letter, *_ in found}
    return [x for x in found if x[0] != "E" or not letters & {*"HD"}]
