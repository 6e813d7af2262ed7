"""What is told of a submission whose answers no mistake with a name gives."""

import torch
from torch import Tensor

from mha_lib.check.beside import ORDERS
from mha_lib.check.catalogue import (
    COMBINED,
    CUTS,
    GIVEN,
    OF_A_HEAD,
    PADDED,
    SPLITS,
)
from mha_lib.check.equal import matches
from mha_lib.check.reference import (
    LAYERS,
    POLICIES,
    Problem,
    Route,
    Stage,
    compute,
)
from mha_lib.check.search import Case, fitting_policies, names, without_mistake
from mha_lib.check.seen import Seen
from mha_lib.check.words import Fact

AS_ONE = {  # functions that several mistakes give only together
    "as-if-exchanged": {"key-value-inputs-swapped", "wk-wv-swapped"},
    "as-if-inverted": {"padding-inverted", "masks-or", "mask-inverted"},
    "as-if-equal": {"mask-inverted", "masks-xor"},
    "as-if-apart": {"mask-inverted", "causal-only-diagonal"},
    "as-if-left": {"split-axis-left", "merge-no-transpose"},
    "as-if-folded": {"merge-no-transpose", "output-reshaped"},
}


def one_of(route: Route) -> Fact | None:
    """What is one mistake without a name, though two or three together equal it."""
    found = set(names(route))
    return next((Fact(code) for code, same in AS_ONE.items() if found == same), None)


def made_otherwise(seen: Seen, cases: list[Case]) -> list[Fact]:
    """A way to cut, or to make a mask, if that is all that is not ours."""
    ways = (_cut_otherwise, _split_otherwise, _masked_otherwise, _hidden_unmasked)
    return next(filter(None, (way(seen, cases) for way in ways)), [])


def _cut_otherwise(seen: Seen, cases: list[Case]) -> list[Fact]:
    """In which order a fused projection is cut, if that is all that is not ours."""
    if not any(x.name in ORDERS for x in seen.loadings):  # nothing is fused
        return []
    rest = [case for case in cases if case.name != "empty row"]
    found = (cut for cut, route in CUTS.items() if fitting_policies(rest, route))
    return [Fact("cut-otherwise", {"cut": cut}) for cut in found]


def _split_otherwise(seen: Seen, cases: list[Case]) -> list[Fact]:
    """How x is cut into heads, if that is all that is wrong."""
    if seen.task not in ("split_heads", *LAYERS):
        return []
    rest = [case for case in cases if case.name != "empty row"]
    found = (
        code
        for code, way in SPLITS.items()
        for route in (way, (*way, OF_A_HEAD))
        if fitting_policies(rest, route)
    )
    return [Fact(code) for code in found][:1]


def _masked_otherwise(seen: Seen, cases: list[Case]) -> list[Fact]:
    """How a mask is made or joined, if a way that is known gives all of it."""
    ways = {"padding_mask": PADDED, "combine_masks": COMBINED}.get(seen.task, {})
    found = (code for code, way in ways.items() if fitting_policies(cases, (way,)))
    return [Fact(code) for code in found]


def _hidden_unmasked(seen: Seen, cases: list[Case]) -> list[Fact]:
    """Whether no mask hides all keys, if that is all that is wrong."""
    plain = [case for case in cases if not case.problem.masked]
    masked = [case for case in cases if case.problem.masked]
    if seen.task not in GIVEN or not plain or not fitting_policies(masked, ()):
        return []

    def hides_all(case: Case, policy: str) -> bool:
        p = case.problem
        heads = (1,) if p.call == "attention" else ()
        mask = torch.zeros(p.B, *heads, p.T, p.S, dtype=torch.bool)
        hidden = Problem(p.call, p.sizes, p.x | {"mask": mask}, p.W)
        ours = compute(hidden, (), policy)["output"]
        return case.output is not None and matches(case.output, ours)

    ways = (all(hides_all(x, policy) for x in plain) for policy in POLICIES[:3])
    return [Fact("hidden-unmasked")] if any(ways) else []


def tokens_as_heads(cases: list[Case]) -> bool:
    """Whether heads were joined as if (B, H, T, D) were (B, T, H, D)."""
    found = []
    for case in cases:
        B, T, H, D = map(case.problem.sizes.get, "BTHD")
        if T is None or H is None or T == H:
            continue
        found.append(case.output.shape == (B, H, T * D))
    return bool(found) and all(found)


def of_masks(task: str, cases: list[Case]) -> Fact:
    """What is seen of the masks, where all is right without one."""
    if wrote := _one_axis_more(task, cases):
        return Fact("mask-in-front", {"wrote": wrote})
    if _nan(cases):
        return Fact("fill-nan")
    if _leaks(task, cases):
        return Fact("fill-leaks")
    return _of_some_heads(cases) or Fact("masks-unknown")


def _one_axis_more(task: str, cases: list[Case]) -> str:
    """How a mask got one more axis, if that is all that is wrong with it; else ""."""
    masked = [case for case in cases if case.problem.masked]

    def have_in_front(letter: str) -> bool:
        return all(
            case.output is not None
            and case.output.shape
            == (
                case.problem.sizes.get(letter, 1),
                *compute(case.problem)["output"].shape,
            )
            for case in masked
        )

    ways = {"mask[None]": "1"}
    if task == "attention":  # of layers the mask lacks that axis
        ways["mask[:, None]"] = "B"
    found = (wrote for wrote, letter in ways.items() if have_in_front(letter))
    return next(found, "") if masked else ""


def _of_some_heads(cases: list[Case]) -> Fact | None:
    """Which heads have right weights where keys are hidden, if others have not."""
    for case in cases:
        ours = compute(case.problem)["weights"]
        if case.name == "empty row" or case.weights is None:
            continue
        if case.weights.shape != ours.shape or ours.dim() != 4:
            continue
        heads = [*zip(case.weights.unbind(1), ours.unbind(1))]
        right = [h for h, both in enumerate(heads) if matches(*both)]
        wrong = [h for h in range(len(heads)) if h not in right]
        if right and wrong:
            return Fact("masks-of-heads", {"right": right, "wrong": wrong})
    return None


def _leaks(task: str, cases: list[Case]) -> bool:
    """Whether hidden keys win where visible scores are low, and all else is right."""
    low = next((case for case in cases if case.name == "low scores"), None)
    if low is None or low.output is None:
        return False

    def zero(scores: Tensor, allowed: Tensor, policy: str) -> Tensor:
        return scores.masked_fill(~allowed, 0.0)

    fill = Stage("fill", (), (zero, lambda weights, _: weights))
    if not matches(low.output, compute(low.problem, (fill,))["output"]):
        return False
    found = without_mistake(task, [case for case in cases if case is not low])
    return bool(found) and found[0].masks


def _nan(cases: list[Case]) -> bool:
    """Whether NaN comes out wherever a key is hidden, though others are seen."""
    hiding = [
        case.output is not None and bool(case.output.isnan().any())
        for case in cases
        if case.name != "empty row" and (compute(case.problem)["weights"] == 0).any()
    ]
    return bool(hiding) and all(hiding)
