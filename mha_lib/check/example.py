"""One place to look at, and what the probe that shows the map tells."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lib.check.reference import compute
from mha_lib.check.search import Case, Explanation, matches
from mha_lib.check.seen import Loading, Seen, shape_fits
from mha_lib.check.words import Fact, in_words

__all__ = ["Example", "example_of", "revealed"]


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
    """

    probe: str
    kind: str
    theirs: Tensor
    expected: Tensor
    fact: Fact | str
    place: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        """The fact in words."""
        return in_words(self.fact)


def example_of(cases: list[Case], explained: Explanation | None) -> Example | None:
    """The smallest difference to look at: in the map if it is known."""
    policy = "nan"
    for case in cases:
        ours = compute(case.problem)
        if case.output is None or matches(case.output, ours["output"]):
            continue
        if case.name == "empty row":
            continue
        if "weights" in ours:
            theirs = case.weights
            if explained is not None:
                policy = (explained.policies or ("nan",))[0]
                theirs = (compute(case.problem, explained.route, policy) or {}).get(
                    "weights", theirs
                )
            if theirs is not None and theirs.shape == ours["weights"].shape:
                both = theirs.double(), ours["weights"]
                if found := _of_map(*both):
                    return Example(case.name, "map", *both, *found)
        both = case.output, ours["output"]
        kind = "mask" if case.output.dtype == torch.bool else "output"
        return Example(case.name, kind, *both, *_of_output(*both))
    return None


Found = tuple[Fact, tuple[int, ...]]  # and the place of which it speaks


def _of_map(theirs: Tensor, ours: Tensor) -> Found | None:
    """A row by its sum, else a hidden key, a visible key, or the largest gap."""
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
        return fact("row-sum", sums[place], expected[place], *place)
    seen = ((ours == 0) & (theirs > 0.01)).nonzero()
    if len(seen):
        place = tuple(seen[0].tolist())
        return fact("hidden-weight", theirs[place], ours[place], *place)
    place = _largest(theirs - ours)
    return fact("other-weight", theirs[place], ours[place], *place)


def _of_output(theirs: Tensor, ours: Tensor) -> Found:
    if theirs.shape != ours.shape:
        shapes = {"yours": tuple(theirs.shape), "right": tuple(ours.shape)}
        return Fact("other-shape", shapes), ()
    if theirs.dtype == torch.bool:
        code, place = "other-mask", tuple((theirs != ours).nonzero()[0].tolist())
    else:
        code, place = "other-number", _largest(theirs.double() - ours)
    both = {"yours": theirs[place].item(), "right": ours[place].item()}
    return Fact(code, {"place": list(place)} | both), place


def _largest(difference: Tensor) -> tuple[int, ...]:
    flat = difference.nan_to_num(float("inf")).abs().argmax()
    return tuple(int(i) for i in torch.unravel_index(flat, difference.shape))


def revealed(seen: Seen, loading: Loading) -> list[Fact]:
    """What the map tells, read off the output where W_v = W_o = 1, values one-hot."""
    case = next((c for c in seen.cases(loading) if c.name == "reveal"), None)
    if case is None or case.output is None or not shape_fits(case):
        return []
    p, theirs = case.problem, case.output.double()
    if seen.task == "mha_sequence_first":
        theirs = theirs.transpose(0, 1)
    if seen.task != "attention":
        theirs = theirs.unflatten(-1, (p.H, p.D)).transpose(1, 2)
    theirs, ours = theirs[..., : p.S], compute(p)["weights"]
    sums = theirs.sum(-1)
    ends = {"low": sums.min().item(), "high": sums.max().item()}
    facts = [Fact("map-sums", ends)]
    if theirs.min() < -1e-3:
        facts.append(Fact("map-negative"))
    order = [
        [h for h in range(p.H) if matches(theirs[:, g].float(), ours[:, h])]
        for g in range(p.H)
    ]
    if all(order) and [o[0] for o in order] != list(range(p.H)):
        facts.append(Fact("heads-in-order", {"order": [o[0] for o in order]}))
    if theirs.min() > 0:
        a, b = theirs.log(), ours.log()
        a, b = (x - x.mean(-1, keepdim=True) for x in (a, b))
        factor = ((a * b).sum() / (b * b).sum()).item()
        if torch.allclose(a, factor * b, rtol=1e-2, atol=1e-2):
            facts.append(Fact("scores-times", {"factor": factor}))
    return facts
