"""One place to look at, and what the probe that shows the map tells."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from mha_lib.check.equal import matches
from mha_lib.check.reference import LAYERS, back, compute, front
from mha_lib.check.search import Case, Explanation, fitting_policies
from mha_lib.check.seen import Loading, Seen, shape_fits
from mha_lib.check.words import Fact, in_words

__all__ = ["Example", "difference", "divisor", "example_of", "largest", "revealed"]


@dataclass
class Example:
    """One place where theirs and ours differ, and the two tensors around it.

    Attributes:
        probe: its name.
        kind: "map", "output" or "mask".
        theirs: the tensor of the submission.
        expected: what is right.
        fact: what is seen there.
        place: the indices of which the fact speaks; of a map, sequence and head first.
        sizes: of the probe, by letter.
    """

    probe: str
    kind: str
    theirs: Tensor
    expected: Tensor
    fact: Fact | str
    place: tuple[int, ...] = ()
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """The fact in words."""
        return in_words(self.fact)


def example_of(cases: list[Case], explained: Explanation | None) -> Example | None:
    """A difference to look at, of the smallest probe; in the map if it is known."""
    for case in sorted(cases, key=_size):
        ours = compute(case.problem)
        if case.output is None or matches(case.output, ours["output"]):
            continue
        if case.name == "empty row":
            continue
        if "weights" in ours:
            theirs = case.weights
            if explained is not None:
                own = fitting_policies([case], explained.route)  # where rows differ
                policy = (explained.policies or own or ("nan",))[0]
                found = compute(case.problem, explained.route, policy) or {}
                theirs = found.get("weights", theirs)
                if _others(case.weights, theirs):
                    theirs = None  # the named map is not the one that they return
            if theirs is not None and theirs.shape == ours["weights"].shape:
                both = theirs.double(), ours["weights"]
                if found := _of_map(*both, case.problem.masked):
                    return Example(case.name, "map", *both, *found, case.problem.sizes)
        both = case.output, ours["output"]
        kind = "mask" if case.output.dtype == torch.bool else "output"
        found = difference(*both, case.problem.sizes)
        return Example(case.name, kind, *both, *found, case.problem.sizes)
    return None


def _others(returned: Tensor | None, named: Tensor | None) -> bool:
    """Whether a map came back that is not the one of what is named."""
    if returned is None or named is None or returned.shape != named.shape:
        return False
    return not torch.allclose(
        *(x.double().nan_to_num(0.0) for x in (returned, named)), atol=1e-2
    )


def _size(case: Case) -> tuple[bool, int]:
    """The fewest numbers come first, but those last of which a size is 1."""
    numbers = sum(x.numel() for x in compute(case.problem).values())
    return 1 in case.problem.sizes.values(), numbers


Found = tuple[Fact, tuple[int, ...]]  # and the place of which it speaks


def _of_map(theirs: Tensor, ours: Tensor, masked: bool = True) -> Found | None:
    """A row by its sum, else a hidden key, a visible key, or the largest gap."""
    empty = theirs.isnan().all(-1)
    theirs = theirs.nan_to_num(0.0)
    ours = ours.nan_to_num(0.0)
    if torch.allclose(theirs, ours, atol=1e-3):
        return None

    def fact(code: str, yours: Tensor, right: Tensor, *place: int) -> Found:
        names = ("sequence", "head", "row" if len(place) == 3 else "query", "key")
        values = {"yours": yours.item(), "right": right.item()}
        return Fact(code, values | dict(zip(names, place))), place

    sums, expected = theirs.sum(-1), ours.sum(-1)
    off = ((sums - expected).abs() > 0.01).nonzero()
    if len(off):
        place = tuple(off[0].tolist())
        told = sums.masked_fill(empty, math.nan)
        said, where = fact("row-sum", told[place], expected[place], *place)
        return Fact(said.code, said.values | {"masked": masked}), where
    seen = ((ours == 0) & (theirs > 0.01)).nonzero()
    if len(seen):
        place = tuple(seen[0].tolist())
        return fact("hidden-weight", theirs[place], ours[place], *place)
    place = largest(theirs - ours)
    return fact("other-weight", theirs[place], ours[place], *place)


def difference(
    theirs: Tensor, ours: Tensor, sizes: dict[str, int] | None = None
) -> Found:
    """Where two outputs differ most, or that their shapes do."""
    if theirs.shape != ours.shape:
        shapes = {"yours": tuple(theirs.shape), "right": tuple(ours.shape)}
        shapes |= {"sizes": sizes} if sizes else {}
        return Fact("other-shape", shapes), ()
    if theirs.dtype == torch.bool:
        code, place = "other-mask", tuple((theirs != ours).nonzero()[0].tolist())
    else:
        code, place = "other-number", largest(theirs.double() - ours)
    both = {"yours": theirs[place].item(), "right": ours[place].item()}
    return Fact(code, {"place": list(place)} | both), place


def largest(difference: Tensor) -> tuple[int, ...]:
    """The place of the number that is farthest from 0; NaN is farther than any."""
    flat = difference.nan_to_num(float("inf")).abs().argmax()
    return tuple(int(i) for i in torch.unravel_index(flat, difference.shape))


def revealed(seen: Seen, loading: Loading) -> list[Fact]:
    """What the answers tell where no mistake is known that gives them."""
    cases = [case for case in seen.cases(loading) if case.output is not None]
    if not all(map(shape_fits, cases)):
        return []
    if seen.task in ("split_heads", "merge_heads"):
        moved = all(_same_numbers(case) for case in cases)
        return [Fact("numbers-moved")] if moved else []
    case = next((case for case in cases if case.name == "reveal"), None)
    facts = [] if case is None else _shown(seen, case, cases)
    if facts and _weights_right(cases):
        facts = [Fact("weights-right")]
    if seen.task in LAYERS and all(map(_normalised, cases)):
        facts.append(Fact("normalised"))
    return facts


def _normalised(case: Case) -> bool:
    """Whether every token has the mean 0 and the deviation 1, or holds NaN."""
    x = case.output.double()
    variances, means = x.var(-1, unbiased=False), x.mean(-1).nan_to_num(0.0)
    known = variances[variances.isfinite()]
    no_spread = x.shape[-1] == 1
    ones = no_spread or torch.allclose(known, torch.ones_like(known), atol=1e-2)
    return ones and bool((means.abs() < 1e-3).all())


def _same_numbers(case: Case) -> bool:
    x = case.problem.x["x"].double()
    return torch.equal(x.flatten().sort()[0], case.output.double().flatten().sort()[0])


def _weights_right(cases: list[Case]) -> bool:
    """Whether right weights were returned wherever a query sees a key."""
    return all(
        case.weights is not None
        and matches(case.weights, compute(case.problem)["weights"])
        for case in cases
        if case.name != "empty row"
    )


def _weighs_its_values(case: Case) -> bool:
    """Whether the output is what the returned weights make of the right values."""
    p, weights = case.problem, case.weights
    shape = compute(p)["weights"].shape
    if p.masked or weights is None or weights.shape != shape:
        return True  # nothing tells
    _, _, v, query = front(p, ())
    context = weights.double() @ v
    if p.call != "attention":
        context = back(p, context, query, ())
    if p.call == "mha_sequence_first":
        context = context.transpose(0, 1)
    return matches(case.output, context, 4.0)


def _shown(seen: Seen, case: Case, cases: list[Case]) -> list[Fact]:
    """What the map tells, read off the output where W_v = W_o = 1, values one-hot."""
    p, theirs, first = case.problem, _map_of(seen.task, case), []
    if theirs is None:
        return [Fact("no-mix")]
    ours, weights = compute(p)["weights"], case.weights
    if weights is not None and weights.shape == ours.shape:
        if not torch.allclose(theirs, weights.double(), atol=1e-3):
            return [Fact("not-times-values")]
        if not matches(weights, ours):
            own = all(map(_weighs_its_values, cases))
            first = [Fact("weights-first" if own else "values-of-others")]
    first += _unseen(theirs, ours)
    sums = theirs.sum(-1)
    ends = {"low": sums.min().item(), "high": sums.max().item()}
    facts = [*first, Fact("map-sums", ends)]
    if theirs.min() < -1e-3:
        facts.append(Fact("map-negative"))
    order = [
        [h for h in range(p.H) if matches(theirs[:, g].float(), ours[:, h])]
        for g in range(p.H)
    ]
    right = [h for h in range(p.H) if h in order[h]]
    if right and len(right) < p.H:
        wrong = [h for h in range(p.H) if h not in right]
        facts.append(Fact("heads-right", {"right": right, "wrong": wrong}))
    if all(order) and [o[0] for o in order] != list(range(p.H)):
        facts.append(Fact("heads-in-order", {"order": [o[0] for o in order]}))
    if (factor := _factor(theirs, ours)) is None:
        return facts
    if abs(factor - 1) >= 1e-3:
        values = {"factor": factor, "scale": p.D**0.5}
        letters = _divisor(p.D**0.5 / factor, p.sizes) if factor > 0 else ""
        facts.append(Fact("scores-times", values | {"letters": letters}))
    elif (sums - 1).abs().max() < 1e-5:
        facts.append(Fact("map-right", {"T": p.T, "S": p.S}))
    else:
        facts.append(Fact("sums-alone"))
    return facts


def _map_of(task: str, case: Case) -> Tensor | None:
    """The map that one-hot values show in the output; None if it shows none."""
    p, theirs = case.problem, case.output.double()
    if task == "mha_sequence_first":
        theirs = theirs.transpose(0, 1)
    if task != "attention":
        theirs = theirs.unflatten(-1, (p.H, p.D)).transpose(1, 2)
    theirs, rest = theirs[..., : p.S], theirs[..., p.S :]
    twin = rest[..., : p.S] if rest.shape[-1] >= p.S else theirs
    rest = rest[..., p.S :] if rest.shape[-1] >= p.S else rest
    if not torch.allclose(theirs, twin, atol=1e-3) or (rest.abs() > 1e-3).any():
        return None
    return theirs


def _factor(theirs: Tensor, ours: Tensor) -> float | None:
    """How many times the right ones their scores are, up to a sum in each row."""
    if theirs.min() <= 0:
        return None
    a, b = (x.log() - x.log().mean(-1, keepdim=True) for x in (theirs, ours))
    factor = ((a * b).sum() / (b * b).sum()).item()
    return factor if torch.allclose(a, factor * b, rtol=1e-2, atol=1e-2) else None


def divisor(seen: Seen, cases: list[Case]) -> float | None:
    """What the scores are divided by in the probe that shows the map; None if unknown.

    A root of a whole number is that root, without what was lost in rounding.
    """
    case = next((case for case in cases if case.name == "reveal"), None)
    if case is None or case.output is None or not shape_fits(case):
        return None
    theirs = _map_of(seen.task, case)
    ours = compute(case.problem)["weights"]
    factor = None if theirs is None else _factor(theirs, ours)
    if factor is None or factor <= 0:
        return None
    found = case.problem.D**0.5 / factor
    square = round(found**2)
    return square**0.5 if abs(found**2 - square) < 1e-4 * square else found


def _unseen(theirs: Tensor, ours: Tensor) -> list[Fact]:
    """What gets no weight though nothing is hidden."""
    none = (theirs.abs() < 1e-6) & (ours > 1e-3)
    T, S = none.shape[-2:]
    later = torch.ones(T, S, dtype=torch.bool).triu(1)
    if not none.any():
        return []
    if not none[..., ~later].any() and none[..., later].float().mean() > 0.9:
        return [Fact("later-unseen")]
    names = ("sequence", "head", "query", "key")
    return [Fact("some-unseen", dict(zip(names, none.nonzero()[0].tolist())))]


def _divisor(number: float, sizes: dict[str, int]) -> str:
    """Simple expressions of a size that have this value; "" if none or many.

    As near as a scale has to be to count as right; 1 is no size.
    """
    found = [
        f"{times}{root}{letter}{over}"
        for letter in ("D", "E", "H", "T", "S", "B")
        for root, power in (("", 1.0), ("√", 0.5))
        for times, over, factor in (("", "", 1.0), ("2", "", 2.0), ("", "/2", 0.5))
        if abs(factor * sizes[letter] ** power / number - 1) < 1e-3
    ]
    few = len(found) < 3 and abs(number - 1) >= 1e-3
    return " = ".join(found) if few else ""
