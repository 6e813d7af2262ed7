"""Which explanations fit what a submission answered, also where it failed elsewhere."""

from mha_lib.check.example import divisor
from mha_lib.check.failures import of_sizes
from mha_lib.check.reference import Stage
from mha_lib.check.search import (
    MOST,
    Case,
    Explanation,
    explain,
    explain_by,
    names,
    shortest,
    without_mistake,
)
from mha_lib.check.seen import Loading, Seen

__all__ = ["ALL_TIERS", "compared_alone", "searched", "where_it_answers", "worthwhile"]

ALL_TIERS = 4  # the most mistakes before the scores is one less
TIERS_OF_A_PART = range(2)  # mistakes before the scores, where not all is answered


def worthwhile(seen: Seen) -> int:
    """In how many tiers to search, as some calls failed.

    Hardly a mistake of the catalogue fails. If few explain the answers that there are,
    more of them explain the failures as well only if something fails by its nature.
    """
    answered = [x for x in seen.cases(Loading()) if x.output is not None]
    for tier in TIERS_OF_A_PART:
        if found := explain(seen.task, answered, tier):
            return 1 + max(1, len(names(found[0].route)))
    return ALL_TIERS


def searched(seen: Seen, tiers: int) -> tuple[list[Explanation], Loading]:
    """The shortest, over the ways in which the weights of a layer may lie."""
    if found := _by_a_constant(seen):
        return found, Loading()
    best: list[Explanation] = []
    best_loading = Loading()
    cases = {loading: seen.cases(loading) for loading in seen.loadings}
    sizes = seen.compared[0][0]["sizes"]
    # A wide layer takes too long.
    for tier in range(tiers if sizes.get("E", 0) < 64 else min(tiers, 2)):
        for loading in seen.loadings_of(tier):
            found = shortest(best + explain(seen.task, cases[loading], tier, best))
            if found and (not best or found[0] is not best[0]):
                best_loading = loading
            best = found
        if best and len(names(best[0].route)) <= tier:
            break
    return best, best_loading


def _by_a_constant(seen: Seen) -> list[Explanation]:
    """Scores that one number divides in every call, whatever D is."""
    cases = seen.cases(Loading())
    number = divisor(seen, cases)
    if number is None or len({case.problem.D for case in cases}) == 1:
        return []
    stage = Stage("scale", ("scale-hard-coded",), lambda p, width: (1 / number, 1.0))
    return explain_by(seen.task, cases, (stage,)) if number != 1 else []


def compared_alone(seen: Seen) -> tuple[list[Explanation], Loading]:
    """The reference itself if it gives the answers; no other route is tried."""
    best: list[Explanation] = []
    best_loading = Loading()
    for loading in seen.loadings:
        found = without_mistake(seen.task, seen.cases(loading))
        if found and (not best or (found[0].masks and not best[0].masks)):
            best, best_loading = found, loading
    return best, best_loading


def where_it_answers(
    task: str, cases: list[Case], explanations: list[Explanation], search: bool
) -> list[Explanation]:
    """Explanations of the answers alone, if failures make others much longer."""
    whole = bool(explanations) and explanations[0].masks
    length = len(names(explanations[0].route)) if whole else MOST + 1
    answered = [case for case in cases if case.output is not None]
    if len(answered) == len(cases) or length <= 1:
        return []
    if of_sizes(cases):  # one query or key, and a turned mask spreads: a chance answer
        answered = [
            case
            for case in answered
            if not (case.problem.masked and 1 in map(case.problem.sizes.get, "TS"))
        ]
    found = [] if search else without_mistake(task, answered)
    for tier in TIERS_OF_A_PART if search else ():
        found = found or explain(task, answered, tier)
    count = len(names(found[0].route)) if found else length
    # Several that explain a part of the answers are a guess.
    return found if len(found) == 1 and count + 1 < length else []
