"""What failures give away: of one call its message, of several the sizes they had."""

import re
from collections.abc import Mapping
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
    r"before Module.__init__\(\) call": " The first line of __init__ has to be "
    "super().__init__().",
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


def hint(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """What to do about an error of torch that has no name here.

    Args:
        error: the message.
        line: of their code, where it was raised; "" if unknown.
        sizes: of the call: B, T, S, H, D, E.
    """
    said = "".join(said for pattern, said in HINTS.items() if re.search(pattern, error))
    by_sizes = _heads_apart, _mask_without_heads, _axes_that_meet, _piece_of_a_token
    return said + "".join(words(error, line, sizes) for words in by_sizes)


def _numbers(pattern: str, error: str) -> list[int]:
    """What the groups of a pattern found; [] where it does not fit."""
    found = re.search(pattern, error)
    return [*map(int, found.groups())] if found else []


def _heads_apart(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """T met S where a product wants B and H."""
    met = _numbers(r"a \((\d+)\) must match .* b \((\d+)\)", error)
    if "H" not in sizes or not re.search(r"@|\b[bm]?matmul|\bbmm", line):
        return ""
    if {*met} != {sizes["T"], sizes["S"]}:
        return ""
    return (
        " A product needs all axes equal but the last two, and T and S are among those "
        "here: is the transpose missing that puts the heads before the tokens?"
    )


def _mask_without_heads(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """An axis of the mask stands where the scores have their heads."""
    met = _numbers(
        r"a \((\d+)\) must match .* b \((\d+)\) at non-singleton dimension 1", error
    )
    if "H" not in sizes or "mask" not in line:
        return ""
    if {*met} not in ({sizes["H"], sizes["B"]}, {sizes["H"], sizes["T"]}):
        return ""
    return (
        " The scores have an axis of heads, and the mask needs one of size 1 at its "
        "place: for scores (B, H, T, S), mask[:, None]."
    )


def _axes_that_meet(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """The two axes of a product that have to be of one size."""
    batches = r"first two dimensions of batch2 tensor to be: \[\d+, (\d+)\] but got: "
    met = _numbers(batches + r"\[\d+, (\d+)\]", error)
    if not met:
        return ""
    said = " In a product the last axis of the left tensor meets the last but one of "
    if met == [sizes.get("T"), sizes.get("S")]:
        return said + "the right: weights (T, S) meet values (S, D) in S."
    return said + "the right: should one be turned, with transpose(-2, -1)?"


def _piece_of_a_token(error: str, line: str, sizes: Mapping[str, int]) -> str:
    """A head's D numbers met a matrix for all E."""
    met = _numbers(r"\(\d+x(\d+) and (\d+)x\d+\)", error)
    if not met or "H" not in sizes:
        return ""
    ours = [letter for letter, size in sizes.items() if size == met[0]]
    if ours != ["D"] or met[1] != sizes["E"]:
        return ""
    return " The matrix takes E = H·D numbers: are the heads joined before it?"


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
