"""What comes beside the output: returned weights, and dropout in training."""

from collections.abc import Callable

import torch
from torch import Tensor

from mha_lib.check.catalogue import GIVEN, WEIGHTED
from mha_lib.check.equal import matches
from mha_lib.check.reference import Problem, compute, posed
from mha_lib.check.search import Case, Explanation, names
from mha_lib.check.seen import Loading, Seen
from mha_lib.check.words import Fact

__all__ = [
    "dropout",
    "empty_rows",
    "is_no_consequence",
    "returned_after_dropout",
    "returned_instead",
    "returned_weights",
    "right_otherwise",
    "weights_fault",
]


def right_otherwise(seen: Seen, loading: Loading, cases: list[Case]) -> Fact | None:
    """In which other way a call is right that is wrong in evaluation mode.

    Each probe has a layer made anew. One that is repeated is called with other inputs
    first; who is right in both other calls keeps something from those.
    """
    wrong = {c.name: c for c in cases if not c.right}
    right = set()
    for probe, outcome in seen.pairs:
        case = wrong.get(probe["name"].partition(": ")[2])
        outputs = loading.of(outcome).get("outputs")
        if case and outputs:
            output = seen.cast(outputs["output"])
            if matches(output, compute(case.problem)["output"]):
                right.add(probe["options"].get("conduct"))
    if "training" not in right:
        return None
    kept = "double_precision" in right
    return Fact("right-at-first" if kept else "right-in-training")


def returned_weights(
    seen: Seen, explained: Explanation, cases: list[Case]
) -> tuple[bool, str]:
    """Whether other weights came than a known output is made of; what they lack.

    Returns:
        The latter as a code: "averaged" over the heads, or "no-head-axis" where one
        head comes without one, which is an average, too; "" where every head has a map.
    """
    lacks = ""
    if seen.task not in GIVEN:
        return False, lacks
    policy = (explained.policies or ("nan",))[0]
    for case in cases:
        ours = compute(case.problem, explained.route, policy)
        unknown = case.problem.masked and not explained.masks
        if case.weights is None or not ours or case.name == "empty row" or unknown:
            continue
        expected = ours["weights"]
        theirs = seen.cast(case.weights)
        flat = theirs.dim() == 3 and expected.dim() == 4
        expected = expected.mean(1) if flat else expected
        peaks = max(1.0, expected.shape[-1] / 8) ** 0.5  # above the mean, of many keys
        if not matches(theirs, expected, 2.0 * peaks):
            return True, ""
        if flat:
            several = case.problem.H > 1 or lacks == "averaged"
            lacks = "averaged" if several else "no-head-axis"
    return False, lacks


LAID = {  # how maps (B, T, S), one for each head, are put together otherwise
    "(H, B, T, S)": lambda maps: maps.transpose(0, 1),
    "(B, T, H, S)": lambda maps: maps.transpose(1, 2),
    "(B, T, S, H)": lambda maps: maps.movedim(1, -1),
    "(B·H, T, S)": lambda maps: maps.flatten(0, 1),
    "(H·B, T, S)": lambda maps: maps.transpose(0, 1).flatten(0, 1),
    "(B, H·T, S)": lambda maps: maps.flatten(1, 2),
    "(B, T, H·S)": lambda maps: maps.transpose(1, 2).flatten(2),
}
OTHER_MAPS = {
    "the map of the last head": lambda maps: maps[:, -1],
    "the map of the first head": lambda maps: maps[:, 0],
    "the maps turned, with a row for each key": lambda maps: maps.mT,
    "the key of the largest weight of each row, as argmax gives it": (
        lambda maps: maps.argmax(-1).double()
    ),
}


def returned_instead(explained: Explanation, cases: list[Case]) -> list[Fact]:
    """What came in place of the weights (B, H, T, S), if that can be told."""
    policy = (explained.policies or ("nan",))[0]
    pairs = [
        (case.weights, compute(case.problem, explained.route, policy)["weights"])
        for case in cases
        if case.weights is not None
        and case.name != "empty row"
        and not case.problem.masked
    ]

    def all_are(form: Callable[[Tensor], Tensor]) -> bool:
        return all(matches(x, form(y), 4.0) for x, y in pairs)

    for axes, form in LAID.items():
        if all_are(form):
            return [Fact("weights-laid", {"axes": axes})]
    for what, form in OTHER_MAPS.items():
        if all_are(form):
            return [Fact("weights-are", {"what": what})]
    scores = all(
        x.is_floating_point() and x.shape == y.shape and matches(x.softmax(-1), y, 4.0)
        for x, y in pairs
    )
    what = "the scores, from before the softmax"
    return [Fact("weights-are", {"what": what})] if scores else []


def empty_rows(seen: Seen, policy: str, cases: list[Case]) -> str:
    """What stands in returned rows without a key that the output is not made of.

    Returns:
        In words, "NaN" or "other numbers"; "" where output and weights agree.
    """
    if seen.task not in WEIGHTED or policy == "other":
        return ""
    for case in cases:
        free = compute(case.problem)
        if not free or case.weights is None:
            continue
        empty = free["weights"].isnan().any(-1)
        wanted, theirs = compute(case.problem, (), policy)["weights"], case.weights
        if not empty.any() or theirs.shape != wanted.shape:
            continue
        rows, ours = seen.cast(theirs)[empty], wanted[empty]
        if not matches(rows, ours, 2.0):
            odd = rows.isnan().any() and not ours.isnan().any()
            return "NaN" if odd else "other numbers"
    return ""


def is_no_consequence(explained: Explanation, cases: list[Case]) -> bool:
    """Whether wrong weights are a mistake of their own, beside what is named.

    A map may be right where the output is not, or hold the heads in another order.
    """
    if not names(explained.route):
        return True
    plain = [x.weights for x in cases if x.weights is not None and not x.problem.masked]
    return any(
        bool((x < 0).any()) or not _close(x.sum(-1), torch.ones_like(x.sum(-1)))
        for x in plain
    )


def weights_fault(seen: Seen, wrong: bool, lacks: str) -> Fact | None:
    """Why the returned weights are not (B, H, T, S) in every call; None if they are."""
    if not all(seen.maps):
        return Fact("weights", {"some": any(seen.maps)})
    if wrong or lacks:
        return Fact("weights", {"kind": lacks or "others"})
    return None


def dropout(seen: Seen, loading: Loading) -> tuple[list[str], bool | None]:
    """What dropout does wrong, read off the probe that shows the map.

    Returns:
        Names of mistakes; whether the output is like a dropout that we know, None
        where nothing tells.
    """
    p, outputs = _trained(seen, loading)
    if p is None:
        return [], None
    expected = compute(p)
    output, weights = outputs["output"].double(), expected["weights"]
    if p.D < 2 * p.S or output.shape != expected["output"].shape:
        return [], None
    if _close(output, expected["output"]):
        return ["dropout-unused"], True
    if seen.task == "mha_sequence_first":
        output = output.transpose(0, 1)
    columns = output.unflatten(-1, (p.H, p.D)).transpose(1, 2)
    one, two = columns[..., : p.S], columns[..., p.S : 2 * p.S]
    ratio = one / weights
    kept = ratio[ratio.abs() > 1e-3]
    if not _close(one, two):
        both = bool((ratio > 3).any())  # 1/(1-p) twice: on weights and output
        return [] if both else ["dropout-on-output"], True
    if _close(kept, torch.full_like(kept, 2.0)):
        return [], True
    if _close(kept, torch.ones_like(kept)):
        return ["dropout-not-rescaled"], True
    if _close(one.sum(-1), torch.ones_like(one.sum(-1))) and _from_scores(one, weights):
        return ["dropout-on-scores"], True
    return [], False


def returned_after_dropout(seen: Seen, loading: Loading) -> list[str]:
    """The advice that, in training, returned weights are those which dropout left.

    Both are right, with dropout and without: nn.MultiheadAttention returns the former.
    """
    p, outputs = _trained(seen, loading)
    if p is None or "weights" not in outputs:
        return []
    weights, returned = compute(p)["weights"], outputs["weights"].double()
    if returned.shape != weights.shape:
        return []
    dropped = returned == 0
    kept = weights.masked_fill(dropped, 0.0)
    after = dropped.any() and (_close(returned, kept) or _close(returned, 2 * kept))
    return ["weights-after-dropout"] if after else []


def _trained(seen: Seen, loading: Loading) -> tuple[Problem | None, dict]:
    """What the probe in training asked and what came; nothing where it failed."""
    probe, outcome = seen.probe("training") or ({}, {})
    outcome = loading.of(outcome)
    if "outputs" not in outcome:
        return None, {}
    return posed(probe, seen.missing), outcome["outputs"]


def _close(a: Tensor, b: Tensor) -> bool:
    return torch.allclose(a, b, rtol=1e-3, atol=1e-4)


def _from_scores(theirs: Tensor, weights: Tensor) -> bool:
    """Whether each row is a softmax of scores that are doubled or 0 (p = 0.5).

    ``weights`` give the scores up to a number for each row: what was kept is the
    square of a weight times one factor, what was dropped is all equal.
    """
    factors = theirs / weights.square()
    for row, factor in zip(theirs.flatten(0, -2), factors.flatten(0, -2)):
        ways = [row[~torch.isclose(factor, one, rtol=1e-3)] for one in factor]
        if not any(len(out) < 2 or _close(out, out[:1].expand_as(out)) for out in ways):
            return False
    return True
