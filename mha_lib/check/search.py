"""Which stages, if they are replaced, give the answers of a submission.

Without a mask the masks do not act. So the other stages are found first, on probes
without one: tiers by the number of mistakes before the scores, and in each tier every
product of scores, scale, softmax, mix, merge and output at once, in batches that share
what stands before. The masks come second, on top of what was found. The shortest
explanations win.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product

import torch
from torch import Tensor

from mha_lib.check.catalogue import stages_for
from mha_lib.check.equal import matches
from mha_lib.check.reference import (
    LAYERS,
    POLICIES,
    Problem,
    Route,
    compute,
)
from mha_lib.check.screen import screen

__all__ = [
    "Case",
    "Explanation",
    "explain",
    "explain_by",
    "fitting_policies",
    "names",
    "shortest",
    "without_mistake",
]

MOST = 6  # mistakes at once
MASKS = 3  # of them, what masks may add
PREFIX = ("inputs", "project", "bias", "split")
MASKING = ("mask", "causal", "padding", "combine", "polarity", "fill")


@dataclass
class Case:
    """A problem and what the submission answered; None if it failed."""

    problem: Problem
    output: Tensor | None
    name: str = ""
    weights: Tensor | None = None

    @cached_property
    def right(self) -> bool:
        """Whether the answer is the right one, whatever an empty row becomes."""
        return bool(fitting_policies([self], ()))


@dataclass(frozen=True)
class Explanation:
    """Stages that reproduce every answer.

    Attributes:
        route: the stages.
        policies: what rows may be where every key is hidden; empty if none fits.
        masks: whether the masked probes are explained too.
    """

    route: Route
    policies: tuple[str, ...] = ()
    masks: bool = True


def names(route: Route) -> tuple[str, ...]:
    """The mistakes on a route, each once, in the order of the stages."""
    return tuple(dict.fromkeys(name for stage in route for name in stage.names))


def explain(
    call: str, cases: list[Case], tier: int = 0, best: list[Explanation] | None = None
) -> list[Explanation]:
    """Explanations of all cases with ``tier`` mistakes before the scores.

    Args:
        call: the task.
        cases: of the submission.
        tier: 0 for tasks that are not a whole layer.
        best: explanations of lower tiers; a longer one counts only if it explains the
            masks too, and these do not.

    Returns:
        The shortest; none if the catalogue has none in this tier.
    """
    stages = stages_for(call)
    if call not in ("attention", *LAYERS):
        return (
            [Explanation(route) for route in _parts(stages, cases)] if not tier else []
        )
    masked = [case for case in cases if case.problem.masked]
    plain = [case for case in cases if not case.problem.masked]
    if call == "split_concat" and tier == 0:  # its masks act always: all may be hidden
        found = _with_masks(stages, (), cases, most=1)
        if found:
            return shortest(found)
    most = len(names(best[0].route)) if best else MOST
    right = tier == 0 and _all_fit(_fits(case, ()) for case in plain)
    routes = [()] if right else _unmasked(stages, plain, tier, most)
    least = min((len(names(route)) for route in routes), default=0)
    fewest = [route for route in routes if len(names(route)) == least]
    found = [e for route in fewest for e in _with_masks(stages, route, masked)]
    for route in routes:  # more mistakes in front may leave fewer to the masks
        length = min((len(names(e.route)) for e in found), default=least + MASKS + 1)
        if least < len(names(route)) < length:
            left = length - 1 - len(names(route))
            found += _with_masks(stages, route, masked, left)
    short = best and best[0].masks and most < 2
    if not found and call == "split_concat" and tier == 1 and not short:
        found = _everywhere(stages, cases)
    return shortest(found or [Explanation(route, masks=False) for route in fewest])


def without_mistake(call: str, cases: list[Case]) -> list[Explanation]:
    """The explanation by the reference itself, if it is one; nothing is looked for."""
    return _by(call, cases, (), {}, most=0)


def explain_by(call: str, cases: list[Case], route: Route) -> list[Explanation]:
    """The explanation by a route, if it is one: only what masks add is looked for."""
    return shortest(_by(call, cases, route, stages_for(call), most=MASKS))


def _by(
    call: str, cases: list[Case], route: Route, stages: dict, most: int
) -> list[Explanation]:
    masked = [case for case in cases if case.problem.masked]
    plain = [case for case in cases if not case.problem.masked]
    if call not in ("attention", *LAYERS):
        masked, plain = [], cases
    if not _all_fit(_fits(case, route) for case in plain):
        return []
    found = _with_masks(stages, route, masked, most)
    return found or [Explanation(route, masks=False)]


def shortest(found: list[Explanation]) -> list[Explanation]:
    """Of each set of mistakes one, and of these the smallest; masks count first."""
    found = [e for e in found if e.masks] or found
    least = min((len(names(e.route)) for e in found), default=0)
    unique = {names(e.route): e for e in reversed(found)}
    return [e for key, e in reversed(unique.items()) if len(key) == least]


def _wrong(stages: dict, among: Iterable[str], count: int) -> Iterator[Route]:
    """All ways to replace ``count`` of the stages."""
    for chosen_stages in combinations([s for s in among if s in stages], count):
        yield from product(*(stages[s][1:] for s in chosen_stages))


def _fits(case: Case, route: Route, policy: str = "nan") -> bool | None:
    """Whether the route gives the answer; None where it may give any."""
    return _agrees(case, compute(case.problem, route, policy))


def _agrees(case: Case, computed: dict[str, Tensor] | None) -> bool | None:
    if computed is None or (not computed and _stretched(case)):
        return None
    if case.output is None or not computed:
        return case.output is None and not computed
    return matches(case.output, computed["output"])


def _stretched(case: Case) -> bool:
    """Whether torch has stretched the axis of a single query, read as that of B."""
    T, B = case.problem.T, case.problem.B
    if T != 1 or case.output is None:
        return False
    return tuple(case.output.shape[:2]) not in {(T, B), (B, T)}


def _parts(stages: dict, cases: list[Case]) -> list[Route]:
    for count in range(len(stages) + 1):
        found = [
            route
            for route in _wrong(stages, stages, count)
            if _all_fit(_fits(case, route) for case in cases)
        ]
        if found:
            return found
    return []


def _all_fit(verdicts: Iterable[bool | None]) -> bool:
    """None is neutral, but something has to fit."""
    some = False
    for verdict in verdicts:
        if verdict is False:
            return False
        some = some or verdict is True
    return some


# --- without masks ------------------------------------------------------------------


def _unmasked(stages: dict, cases: list[Case], tier: int, most: int) -> list[Route]:
    answered = [case for case in cases if case.output is not None]
    if not answered or not all(case.output.isfinite().all() for case in answered):
        return []  # nothing is hidden, so no stage makes NaN or infinity
    found: list[Route] = []
    prefixes = list(_wrong(stages, PREFIX, tier))
    # Nothing may be added to a prefix that is as long as an explanation may be.
    screened = {x: [x] for x in prefixes if len(names(x)) >= most}
    left = [prefix for prefix in prefixes if prefix not in screened]
    first = answered[0]
    screened |= screen(stages, first.problem, first.output, left)
    for prefix in prefixes:
        for route in screened.get(prefix, ()):
            for layout in stages.get("layout", [None]):
                whole = route + ((layout,) if layout and layout.names else ())
                if len(names(whole)) <= MOST and _all_fit(
                    _fits(c, whole) for c in cases
                ):
                    found.append(whole)
    return sorted(found, key=lambda route: len(names(route)))


# --- with masks ---------------------------------------------------------------------


def _with_masks(
    stages: dict, route: Route, cases: list[Case], most: int = MASKS
) -> list[Explanation]:
    """What the masks add to a route, for each policy that fits."""
    if not cases:
        return [Explanation(route, POLICIES)]
    others = [case for case in cases if case.name != "empty row"]
    for judged in (cases, others):  # without it where the row is like no policy
        for count in range(min(most, MOST - len(names(route))) + 1):
            found = []
            for added in _wrong(stages, MASKING, count):
                policies = fitting_policies(judged, route + added)
                if (
                    policies
                    and judged is others
                    and not _elsewhere(cases, route + added)
                ):
                    continue
                if policies:
                    known = policies if judged is cases else ()
                    found.append(Explanation(route + added, known))
            if found:
                return found
    return []


def _everywhere(stages: dict, cases: list[Case]) -> list[Explanation]:
    """Two mistakes, one of a mask that changes answers even where nothing is hidden."""
    routes = [
        route
        for route in _wrong(stages, stages, 2)
        if any(stage.stage in MASKING for stage in route)
    ]
    judged = ((route, fitting_policies(cases, route)) for route in routes)
    return [
        Explanation(route, policies)
        for route, policies in judged
        if policies and _says_enough(cases, route)
    ]


def _says_enough(cases: list[Case], route: Route) -> bool:
    """Whether a route says what half of the answers have to be, or more."""
    silent = sum(compute(case.problem, route) is None for case in cases)
    return 2 * silent <= len(cases)


def _elsewhere(cases: list[Case], route: Route) -> bool:
    """Whether the rows beside an empty one are right."""
    for case in cases:
        ours = compute(case.problem, route)
        if case.name == "empty row" and case.output is not None and ours:
            known, nan = ours["output"].isfinite(), case.output.new_tensor(float("nan"))
            if case.output.shape != known.shape:
                return False
            if not matches(torch.where(known, case.output, nan), ours["output"]):
                return False
    return True


def fitting_policies(cases: list[Case], route: Route) -> tuple[str, ...]:
    """Those under which the route gives all answers."""
    left = POLICIES
    some = False
    for case in cases:
        computed = compute(case.problem, route)
        if computed and not math.isfinite(computed["output"].sum().item()):
            # A row is empty.
            verdicts = {policy: _fits(case, route, policy) for policy in left}
        else:
            verdicts = dict.fromkeys(left, _agrees(case, computed))
        left = tuple(p for p in left if verdicts[p] is not False)
        some = some or True in verdicts.values()
        if not left:
            return ()
    return left if some else ()
