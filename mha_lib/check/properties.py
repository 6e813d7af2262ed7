"""What holds and what does not, each by a name that never changes."""

import torch
from torch import Tensor

from mha_lib.check.catalogue import MASKS, WEIGHTED
from mha_lib.check.contract import Faults
from mha_lib.check.reference import compute
from mha_lib.check.search import Case
from mha_lib.check.seen import Seen, shape_fits

__all__ = ["properties_of"]


def properties_of(
    seen: Seen,
    cases: list[Case],
    faults: Faults,
    adapted: dict[bool, set[str]],
    dropout: bool | None,
) -> dict[str, bool]:
    """What holds, and what does not; what was not looked at is absent.

    Args:
        seen: probes and outcomes.
        cases: what the ordinary probes asked and got.
        faults: what the probes of conduct show.
        adapted: what the call had to be adapted to, with a mask (True) and without.
        dropout: whether it is right; None where it was not judged.
    """
    judged = {case.name: case.right for case in cases}
    holds = {name: fault is None for name, fault in faults.items()}
    holds |= {
        "runs": all(case.output is not None for case in cases)
        and not any(adapted.values()),
        "output_shape": all(map(shape_fits, cases)) and "output_shape" not in faults,
        "inputs_unchanged": not seen.changed,
        "deterministic": not seen.varies,
    }
    if seen.task not in WEIGHTED:
        holds |= {f"right: {name}": value for name, value in judged.items()}
        if seen.task in MASKS:
            holds["output_dtype"] = not seen.numbers
        return holds
    rest = [c for c in cases if c.name != "empty row"]
    masked = [judged[c.name] for c in rest if c.problem.masked]
    plain = [judged[c.name] for c in rest if not c.problem.masked]
    holds |= {
        "right_without_mask": all(plain) and not adapted[False],
        "output_dtype": seen.dtypes == {seen.dtype},
    }
    if masked:  # else masks are still to come
        holds["right_with_mask"] = all(masked) and not adapted[True]
        as_given = "mask_as_given" not in adapted[True]
        holds["mask_as_given"] = all(masked) and as_given
    if sums := [s for c in rest if (s := _row_sums(c)) is not None]:
        holds["rows_sum_to_one"] = bool((torch.cat(sums) - 1).abs().max() < 0.05)
    trained = (pair := seen.probe("training")) and "outputs" in pair[1]
    if trained and dropout is not None:
        holds["dropout"] = dropout
    return holds


def _row_sums(case: Case) -> Tensor | None:
    """Of the returned weights."""
    shape = compute(case.problem)["weights"].shape
    if case.weights is None or case.weights.shape != shape:
        return None
    return case.weights.double().sum(-1).flatten()
