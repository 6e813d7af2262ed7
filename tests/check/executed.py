"""Outcomes of submissions that make the mistakes of a route, and what is said."""

import torch

from mha_lib.check import LANGUAGE, TASKS
from mha_lib.check.catalogue import SAME_FUNCTION
from mha_lib.check.reference import Problem, compute
from mha_lib.check.seen import SPECIAL

SEARCHED = [task for task in TASKS if task not in LANGUAGE]  # by stages of attention


def one_name(name):
    """The first of the names of a function."""
    return next((same[0] for same in SAME_FUNCTION if name in same), name)


def executed(task, path, seed=0, dtype=torch.float32, policy="nan"):
    """Probes, and the outcomes of a submission that makes the mistakes of a path."""
    probes = TASKS[task].probes(seed, dtype)
    outcomes = []
    for probe in probes:
        computed = compute(Problem.of(probe, dtype=dtype), path, policy)
        if SPECIAL & probe["options"].keys() or computed is None:
            outcomes.append({"skipped": "not computed"})
        elif not computed:
            outcomes.append({"error": "RuntimeError: shapes"})
        else:
            outcomes.append({"outputs": {"output": computed["output"]}})
    return probes, outcomes


def said(diagnosis):
    """The sets of names between which the verdict leaves the choice."""
    sets = diagnosis.candidates or [diagnosis.mistakes]
    return {frozenset(map(one_name, names_)) for names_ in sets}
