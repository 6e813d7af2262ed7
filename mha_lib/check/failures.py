"""What failures give away: of one call its message, of several the sizes they had."""

import re
from itertools import combinations

from mha_lib.check.beside import SQUARE_MASK
from mha_lib.check.search import Case
from mha_lib.check.words import Fact

OF_TORCH = {  # what its messages give away
    "fill-overflows-half": r"without overflow",
    "constant-device": r"same device|expected device",
    "constant-dtype": r"same dtype|expected scalar type",
}
HINTS = {  # and what they ask for in words of their own
    r"view size is not compatible": " What a transpose returns has its numbers in "
    "another order than memory has: reshape copies them where view cannot.",
    r"for first two dimensions of batch2 tensor": " In a product the last axis of the "
    "left tensor meets the last but one of the right: should one be turned, with "
    "transpose(-2, -1)?",
}
OF_CODE = {SQUARE_MASK: "causal-square"}  # and what we have noted ourselves


def of_error(outcome: dict) -> list[str]:
    """The mistake that an error gives away: ours by its code, torch's by its words."""
    if outcome.get("code") in OF_CODE:
        return [OF_CODE[outcome["code"]]]
    if outcome.get("raised_by") != "torch":
        return []
    text = outcome.get("error", "")
    found = [name for name, pattern in OF_TORCH.items() if re.search(pattern, text)]
    return found[:1]


def hint(error: str) -> str:
    """What to do about an error of torch that has no name here."""
    return "".join(said for pattern, said in HINTS.items() if re.search(pattern, error))


def of_sizes(cases: list[Case]) -> list[str]:
    """Whether it failed where two sizes differ, and there alone."""
    if all(case.problem.masked for case in cases if case.output is None):
        cases = [case for case in cases if case.problem.masked]

    def needs(a: str, b: str) -> bool:
        ran = False
        for case in cases:
            one, two = case.problem.sizes[a], case.problem.sizes[b]
            fails = case.output is None
            broadcast = not fails and 1 in (one, two)  # fits whatever comes
            if fails != (one != two) and not broadcast:
                return False
            ran = ran or (not fails and one == two != 1)
        return ran

    found = any(needs(*pair) for pair in combinations("BTSHD", 2))
    return ["needs-equal-sizes"] if found else []


def failed_at(fact: Fact) -> object:
    """The line of theirs where it failed; the message where none is known."""
    return fact.values.get("line") or fact.values.get("error")
