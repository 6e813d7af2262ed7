"""What holds and what does not, each by a name that never changes."""

import torch
from torch import Tensor

from mha_lib.check.beside import RAN_WITH
from mha_lib.check.catalogue import MASKS, WEIGHTED
from mha_lib.check.reference import compute
from mha_lib.check.search import Case, fitting_policies
from mha_lib.check.seen import Seen, shape_fits
from mha_lib.check.tasks import TASKS

__all__ = ["properties_of", "property_names"]

ALWAYS = ("runs", "output_shape", "inputs_unchanged", "deterministic", "right")
OF_WEIGHTED = (
    *("right_without_mask", "right_with_mask", "mask_as_given", "output_dtype"),
    *("rows_sum_to_one", "half_precision", "any_device", "gradients", "dropout"),
)


def property_names(task: str) -> set[str]:
    """Every property that a diagnosis of this task may have."""
    if task in WEIGHTED:
        return {*ALWAYS, *OF_WEIGHTED}
    names = {f"right: {probe['name']}" for probe in TASKS[task].probes()}
    return {*ALWAYS, *names} | ({"output_dtype"} if task in MASKS else set())


def properties_of(
    seen: Seen, cases: list[Case], verdict: str, dropout: bool | None
) -> dict[str, bool]:
    """What holds, and what does not; what was not looked at is absent."""
    judged = {case.name: bool(fitting_policies([case], ())) for case in cases}
    holds = {
        "runs": all(case.output is not None for case in cases),
        "output_shape": all(map(shape_fits, cases)),
        "inputs_unchanged": not seen.changed,
        "deterministic": not seen.varies,
    }
    if seen.task in WEIGHTED:
        rest = [c for c in cases if c.name != "empty row"]
        masked = [judged[c.name] for c in rest if c.problem.masked]
        plain = [judged[c.name] for c in rest if not c.problem.masked]
        as_given = not any(
            _takes_another_mask(note)
            for case, (_, outcome) in zip(cases, seen.compared)
            for note in outcome.get("notes", ())
            if case.problem.masked
        )
        holds |= {
            "right_without_mask": all(plain),
            "right_with_mask": all(masked),
            "mask_as_given": all(masked) and as_given,
        }
        holds["output_dtype"] = seen.dtypes == {seen.dtype}
        sums = [s for c in rest if (s := _row_sums(c)) is not None]
        if sums:
            ones = torch.cat(sums)
            holds["rows_sum_to_one"] = bool((ones - 1).abs().max() < 0.05)
        for name, probe in (("half_precision", "half"), ("any_device", "device")):
            if pair := seen.probe(probe):
                holds[name] = "error" not in pair[1]
        if (pair := seen.probe("gradient")) and "outputs" in pair[1]:
            holds["gradients"] = not pair[1].get("without_gradient")
        trained = (pair := seen.probe("training")) and "outputs" in pair[1]
        if trained and dropout is not None:
            holds["dropout"] = dropout
    else:
        holds |= {f"right: {name}": value for name, value in judged.items()}
        if seen.task in MASKS:
            holds["output_dtype"] = not seen.numbers
    return holds | {"right": verdict == "right"}


def _takes_another_mask(note: dict) -> bool:
    """Whether it says that a mask had to be given in another form."""
    other = note.get("mask") or note.get("numbers")
    return bool(note.get("code") == RAN_WITH and other and not note.get("folded"))


def _row_sums(case: Case) -> Tensor | None:
    """Of the returned weights."""
    shape = compute(case.problem)["weights"].shape
    if case.weights is None or case.weights.shape != shape:
        return None
    return case.weights.double().sum(-1).flatten()
