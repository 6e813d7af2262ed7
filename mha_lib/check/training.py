"""What comes beside the output: returned weights, and dropout in training."""

import torch
from torch import Tensor

from mha_lib.check.reference import Problem, compute
from mha_lib.check.search import Case, Explanation, matches
from mha_lib.check.seen import Loading, Seen

__all__ = ["dropout", "returned_weights"]


def returned_weights(
    seen: Seen, explained: Explanation, cases: list[Case]
) -> tuple[list[str], bool]:
    """Mistakes in the weights that came with a known output; whether an average."""
    averaged = False
    if seen.task == "split_concat":
        return [], averaged
    policy = (explained.policies or ("nan",))[0]
    for case in cases:
        ours = compute(case.problem, explained.route, policy)
        if case.weights is None or not ours or case.name == "empty row":
            continue
        expected = ours["weights"]
        theirs = case.weights.to(seen.dtype)
        if theirs.dim() == 3 and expected.dim() == 4:
            expected, averaged = expected.mean(1), True
        if not matches(theirs, expected):
            return ["weights-returned-wrong"], averaged
    return [], averaged


def dropout(seen: Seen, loading: Loading) -> tuple[list[str], bool | None]:
    """What dropout does wrong, read off the probe that shows the map.

    Returns:
        Names of mistakes; whether the output is like a dropout that we know, None
        where nothing tells.
    """
    probe, outcome = seen.probe("training") or ({}, {})
    outcome = loading.of(outcome)
    if "outputs" not in outcome:
        return [], None
    p = Problem.of(probe, seen.missing)
    expected = compute(p)
    output = outcome["outputs"]["output"].double()
    weights = expected["weights"]
    mistakes = []
    returned = outcome["outputs"].get("weights", torch.zeros(())).double()
    if returned.shape == weights.shape:
        dropped = returned == 0
        kept = weights.masked_fill(dropped, 0.0)
        if dropped.any() and (_close(returned, kept) or _close(returned, 2 * kept)):
            mistakes.append("weights-after-dropout")
    if p.D < 2 * p.S or output.shape != expected["output"].shape:
        return mistakes, None
    if _close(output, expected["output"]):
        return [*mistakes, "dropout-unused"], True
    if seen.task == "mha_sequence_first":
        output = output.transpose(0, 1)
    columns = output.unflatten(-1, (p.H, p.D)).transpose(1, 2)
    one, two = columns[..., : p.S], columns[..., p.S : 2 * p.S]
    ratio = one / weights
    kept = ratio[ratio.abs() > 1e-3]
    if not _close(one, two):
        both = bool((ratio > 3).any())  # 1/(1-p) twice: on weights and output
        return mistakes + ([] if both else ["dropout-on-output"]), True
    if _close(kept, torch.full_like(kept, 2.0)):
        return mistakes, True
    if _close(kept, torch.ones_like(kept)):
        return [*mistakes, "dropout-not-rescaled"], True
    if _close(one.sum(-1), torch.ones_like(one.sum(-1))) and _from_scores(one, weights):
        return [*mistakes, "dropout-on-scores"], True
    return mistakes, False


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
