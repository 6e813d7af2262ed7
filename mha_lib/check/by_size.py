"""At which sizes an answer is right and at which it is wrong, if a size tells it."""

from collections.abc import Iterable

from mha_lib.check.search import Case, fitting_policies
from mha_lib.check.words import Fact

__all__ = ["BY_SIZE", "told_by_size"]

BY_SIZE = ("wrong-at-one", "wrong-from")  # codes of such facts
LETTERS = "TSBHDVE"
APART = 2  # one call alone tells a limit if it is so many times larger
MOST = 2  # sizes that grow together; of more nothing is said
Try = tuple[dict[str, int], bool, bool]  # sizes, masked?, right?


def told_by_size(cases: Iterable[Case]) -> Fact | None:
    """The smallest statement about sizes that is true of all calls; None if none is.

    Args:
        cases: what each call asked and got, right or wrong.

    Returns:
        That it is wrong where a size is 1 and nowhere else, or right up to a size and
        wrong from another on; of all calls, else of those with a mask or without, if
        the rest is right. Sizes that go together are all named.
    """
    tries = [
        (case.problem.sizes, case.problem.masked, bool(fitting_policies([case], ())))
        for case in cases
        if case.name != "empty row"
    ]
    for kind in (None, True, False):
        some = [x for x in tries if kind in (None, x[1])]
        rest = [right for _, masked, right in tries if kind not in (None, masked)]
        if all(rest) and not all(right for *_, right in some):
            if letters := _at_one(some):
                return Fact("wrong-at-one", {"masked": kind, "letters": letters})
            if 1 <= len(limits := _limits(some)) <= MOST:
                return Fact("wrong-from", {"masked": kind, "limits": limits})
    return None


def _at_one(tries: list[Try]) -> list[str]:
    """Of which letters one has to be 1, no matter which, where it is wrong."""

    def wrong_at_one(letter: str) -> bool:
        found = [right for sizes, _, right in tries if sizes.get(letter) == 1]
        return bool(found) and not any(found)

    letters = [x for x in LETTERS if wrong_at_one(x)]
    wrong = (sizes for sizes, _, right in tries if not right)
    return letters if all(1 in map(sizes.get, letters) for sizes in wrong) else []


def _limits(tries: list[Try]) -> list[tuple[str, int, int]]:
    """A letter, the largest size that is right and the smallest that is wrong."""
    found = []
    for letter in LETTERS:
        known = [(x[letter], right) for x, _, right in tries if letter in x]
        right = max((n for n, holds in known if holds), default=0)
        wrong = [n for n, holds in known if not holds]
        least = min(wrong, default=0)
        sure = len(wrong) > 1 or APART * right <= least
        if 1 < right < least and sure:  # right at 1 alone is no limit
            found.append((letter, right, least))
    letters = {letter for letter, *_ in found}
    return [x for x in found if x[0] != "E" or not letters & {*"HD"}]
