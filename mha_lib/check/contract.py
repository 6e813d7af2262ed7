"""What a task asks of a submission, name by name, and what was seen of each.

The names are properties, so that one list says what is judged, what a rubric may give
points for and what an assignment may ask for: `judged` has those that every submission
owes, and any other name of `property_names` may be required too.
"""

from collections.abc import Iterable
from functools import lru_cache

import torch
from torch import Tensor

from mha_lib.check.beside import RAN_WITH, REORDERED, RETURNED
from mha_lib.check.catalogue import MASKS, TORCH_LAYERS, WEIGHTED
from mha_lib.check.equal import TOLERANCE, matches
from mha_lib.check.failures import heads_in_front, hint
from mha_lib.check.reference import Problem, compute, posed
from mha_lib.check.seen import Loading, Seen
from mha_lib.check.tasks import TASKS, Task
from mha_lib.check.words import Fact

__all__ = ["adaptations", "faults", "judged", "property_names", "single_precision"]

Faults = dict[str, Fact | None]  # of each property that was looked at; None: it holds

ALWAYS = ("runs", "output_shape", "inputs_unchanged", "deterministic", "right")
OF_OWN = ("runs", "inputs_unchanged", "right")
OF_PARTS = ("gradients", "double_precision")
OF_WEIGHTED = (
    *("right_without_mask", "right_with_mask", "mask_as_given", "output_dtype"),
    *("same_tensor", "other_sizes", "training", "without_gradients", *OF_PARTS),
)
OF_STRIDED = ("split_heads", "merge_heads", "attention", *TORCH_LAYERS)
OF_MASKED = ("large_scores", "loud_hidden_keys", "mask_optional")
OF_ATTENTION = ("leading_axes", "mask_broadcasts")
ON_REQUEST = (
    *("weights", "weights_gradients", "rows_sum_to_one", "zeros_for_empty_rows"),
    *("no_dropout", "dropout", "half_precision", "any_device", "call_by_place"),
)
OF_LAYERS = ("biases", "mask_broadcasts")
INSTEAD = {"three_axes": {"leading_axes", "mask_broadcasts"}}  # of other axes
FULL = 3e-8  # of float64: above an ε of 1e-9 here and there, below float32
SLACK = 4  # a probe of conduct is compared with less zeal than one that names a mistake


def judged(task: str, requires: Iterable[str] = ()) -> set[str]:
    """The properties without which a submission is not right.

    Args:
        task: a name of `TASKS`.
        requires: what an assignment asks for beside what the task says.

    Raises:
        ValueError: a name that no property of the task has.

    Example:
        >>> from mha_lib.check.contract import judged
        >>> sorted(judged("mha", ["weights"]) - judged("mha"))
        ['weights']
    """
    requires = {requires} if isinstance(requires, str) else set(requires)
    known = property_names(task)
    if unknown := sorted(requires - known):
        raise ValueError(
            f"{task} may require {', '.join(sorted(known))}; got {', '.join(unknown)}"
        )
    given_up = set().union(*(INSTEAD.get(name, set()) for name in requires))
    return (_owed(task) - given_up) | requires


def property_names(task: str) -> set[str]:
    """Every property that a diagnosis of this task may have.

    Example:
        >>> from mha_lib.check import own_task, property_names, registered
        >>> def double(x):
        ...     return 2 * x
        >>> task = own_task("double", double, lambda generator: {"three": {"x": 3}})
        >>> with registered(task):
        ...     sorted_names = sorted(property_names("double"))
        >>> sorted_names
        ['inputs_unchanged', 'right', 'right: three', 'runs']
    """
    names = _owed(task)
    if task in WEIGHTED:
        names |= {*ON_REQUEST}
    if task == "attention":
        names |= {"three_axes"}
    elif task in WEIGHTED:
        names |= {*OF_LAYERS} if task != "split_concat" else {"biases"}
    return names | ({"mask_for_all", "projection_names"} if task == "mha" else set())


def _owed(task: str) -> set[str]:
    if task not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}; got {task!r}")
    if TASKS[task].conclude:  # one that is not ours
        return {*OF_OWN, *_cases(TASKS[task])}
    if task in WEIGHTED:
        names = {*ALWAYS, *OF_WEIGHTED}
        names |= {*OF_MASKED} if task != "split_concat" else {"causality_optional"}
        names |= {*OF_ATTENTION} if task == "attention" else set()
        return names | ({"strided"} if task in OF_STRIDED else set())
    names = {*ALWAYS, *_cases(TASKS[task])}
    names |= {"output_dtype", "other_sizes"} if task in MASKS else {*OF_PARTS}
    return names | ({"strided"} if task in OF_STRIDED else set())


@lru_cache
def _cases(task: Task) -> tuple[str, ...]:
    """The properties that its cases have, which are the same for every seed."""
    probes = (p for p in task.probes() if "conduct" not in p["options"])
    return tuple(f"right: {probe['name']}" for probe in probes)


# --- what was seen -------------------------------------------------------------------


def adaptations(seen: Seen) -> dict[bool, dict[str, Fact]]:
    """What had to be adapted, with a mask (True) and without, by the property it costs.

    A way that was found with the first masked probe serves all of them.
    """
    found: dict[bool, dict[str, Fact]] = {False: {}, True: {}}
    for probe, outcome in seen.compared:
        for note in outcome.get("notes", ()):
            if note.get("code") != RAN_WITH:
                continue
            values = {key: value for key, value in note.items() if key != "code"}
            said = values.get("error", ""), values.get("line", "")
            values["hint"] = hint(*said, probe["sizes"])
            fact = Fact(RAN_WITH, values)
            there = found["mask" in probe["inputs"]]
            if note.get("folded"):
                there["leading_axes"] = fact
            if note.get("added"):
                there["mask_optional"] = fact
            elif note.get("mask") or note.get("numbers"):
                there["mask_as_given"] = fact
    return found


def faults(seen: Seen, loading: Loading, right: bool) -> Faults:
    """What the probes of conduct show.

    Args:
        seen: probes and outcomes.
        loading: the way in which the weights lie.
        right: whether the ordinary answers are; else no gradient can be compared.
    """
    found: Faults = {}
    for probe, outcome in seen.pairs:
        name = probe["options"].get("conduct")
        if name not in (None, "gradients") and not found.get(name):
            found[name] = _fault(name, seen, loading, probe, loading.of(outcome))
    for probe, _ in seen.skipped:
        if probe["options"].get("conduct") == "no_dropout":
            found["no_dropout"] = None  # a function has no training mode
    if found.get("three_axes"):
        found["leading_axes"] = found["leading_axes"] or found["three_axes"]
    if seen.task not in MASKS:
        found |= _gradients(seen, loading, right)
    if seen.no_pair:
        pair = seen.task in WEIGHTED
        fact = Fact(RETURNED, {"got": seen.no_pair, "pair": pair})
        found |= dict.fromkeys(
            ("output_shape", "weights") if pair else ("output_shape",), fact
        )
    if seen.task in WEIGHTED:
        found |= _asked_for(seen)
    elif any(seen.maps):
        found["output_shape"] = Fact("one-tensor")
    elif seen.needless:
        found["output_shape"] = Fact("wrong-axes", seen.needless)
    return found


def _fault(
    name: str, seen: Seen, loading: Loading, probe: dict, outcome: dict
) -> Fact | None:
    """What is not as it has to be in one probe; None if all is."""
    if "outputs" not in outcome:
        return Fact(name, _failure(outcome, probe, seen))
    theirs, ours = outcome["outputs"], compute(_asked(seen, loading, probe))
    if seen.task in MASKS:
        mask = seen.boolean(theirs["output"], ours["output"], probe["sizes"])
        return None if matches(mask, ours["output"]) else Fact(name)
    wanted, dtype = probe["options"].get("dtype"), str(theirs["output"].dtype)
    if wanted and dtype != f"torch.{wanted}":  # one fault, whatever the scores
        return Fact("double_precision", {"dtype": dtype})
    beside = str(theirs["weights"].dtype) if "weights" in theirs else dtype
    if wanted and beside != dtype:
        return Fact("double_precision", {"weights": f"are {beside}"})
    if not _fits(theirs["output"], ours["output"], seen):
        finite = bool(theirs["output"].isfinite().all())
        drawn = {"draws": True} if name == "training" and outcome.get("draws") else {}
        return Fact(name, {"finite": finite, **drawn})
    if seen.task not in WEIGHTED:
        return None
    returned = theirs.get("weights")
    if returned is None and all(seen.maps):
        return Fact(name, {"weights": "are None"})
    # An average over the heads has an axis less, and is told elsewhere.
    asked = returned is not None and returned.dim() == ours["weights"].dim()
    if asked and not _fits(returned, ours["weights"], seen):
        return Fact(name, {"weights": "are wrong"})
    return None


def _failure(outcome: dict, probe: dict, seen: Seen) -> dict[str, object]:
    """What was raised, and whether the ordinary call fails as well (``anyway``)."""
    ordinary = seen.probe(probe["name"].partition(": ")[2]) or seen.compared[0]
    anyway = {"anyway": True} if "error" in ordinary[1] else {}
    said = {key: outcome[key] for key in ("error", "line") if key in outcome}
    sizes = probe["sizes"] if outcome.get("raised_by") == "torch" else {}
    advice = heads_in_front(said.get("error", ""), said.get("line", ""), sizes)
    if advice:  # told nowhere else
        return {"sizes": sizes, **said, "advice": advice}
    return {"error": "it did not answer", "sizes": sizes, **said, **anyway}


def _fits(theirs: Tensor, ours: Tensor, seen: Seen) -> bool:
    theirs = theirs.real if theirs.is_complex() else theirs
    if seen.task not in WEIGHTED:  # the same numbers at other places, to the last bit
        return torch.equal(theirs.to(ours.dtype), ours)
    dtype = torch.float32 if seen.dtype == torch.float64 else seen.dtype
    return matches(theirs.to(dtype), ours, SLACK)  # computed in float32 will do


def single_precision(seen: Seen, loading: Loading) -> bool:
    """Whether float64 comes back with the digits of float32.

    Told where D is 1: a root of it that is kept in float32 has lost none.
    """
    for probe, outcome in seen.pairs:
        told = probe["options"].get("conduct") == "double_precision"
        if told and seen.task in WEIGHTED and probe["sizes"]["D"] == 1:
            theirs = loading.of(outcome).get("outputs", {}).get("output")
            ours = compute(_asked(seen, loading, probe))["output"]
            full = FULL / TOLERANCE[torch.float64]
            return theirs is not None and not matches(theirs, ours, full)
    return False


def _asked(seen: Seen, loading: Loading, probe: dict) -> Problem:
    """The problem of a probe whose mask may have any shape that broadcasts."""
    return posed(probe, seen.missing, loading.turned, _expanded)


def _expanded(probe: dict) -> dict:
    """With a mask of the full shape."""
    inputs, mask = dict(probe["inputs"]), probe["inputs"].get("mask")
    if mask is not None and probe["call"] == "attention":
        *lead, T, _ = inputs["q"].shape
        inputs["mask"] = mask.expand(*lead, T, inputs["k"].shape[-2])
    elif mask is not None:
        sizes = probe["sizes"]
        letters = "TSB" if probe["call"] == "mha_sequence_first" else "BTS"
        inputs["mask"] = mask.expand([sizes[letter] for letter in letters])
    return probe | {"inputs": inputs}


def _gradients(seen: Seen, loading: Loading, right: bool) -> Faults:
    """Whether gradients arrive, and are those of the right answer."""
    probes = [(p, loading.of(o)) for p, o in seen.pairs if p["options"].get("grad")]
    for probe, outcome in probes:
        if "outputs" not in outcome:
            return {"gradients": Fact("gradients", _failure(outcome, probe, seen))}
    found: Faults = {"gradients": None}
    lost = [(p, o["without_gradient"]) for p, o in probes if o.get("without_gradient")]
    # b_k adds the same to all scores of a row, which the softmax takes off again.
    lost = [(probe, names) for probe, names in lost if names != ["b_k"]]
    if lost:
        names = list(dict.fromkeys(name for _, names in lost for name in names))
        where = [] if len(lost) == len(probes) else [_where(probe) for probe, _ in lost]
        found["gradients"] = Fact("no-gradient", {"names": names, "where": where})
    for probe, outcome in probes if right and not lost else []:
        if probe["options"].get("train") and (
            other := _fault("training", seen, loading, probe, outcome)
        ):
            found["gradients"] = other  # of another output
            break
        name = probe["options"].get("conduct", "gradients")
        if name != "gradients" and _fault(name, seen, loading, probe, outcome):
            continue  # which is told by that name
        ours = _right_gradients(seen, loading, probe)
        theirs = outcome.get("gradients", {})
        wrong = [k for k, x in theirs.items() if not _fits(x, ours[k], seen)]
        if wrong:
            finite = all(bool(theirs[k].isfinite().all()) for k in wrong)
            values = {"names": wrong, "where": [_where(probe)], "finite": finite}
            found["gradients"] = Fact("other-gradient", values)
            break
    if any("weights" in o["outputs"] for _, o in probes):
        detached = any(  # a loud key leaves too small a slope, whatever is done
            o.get("weights_detached")
            for p, o in probes
            if p["options"].get("conduct") != "loud_hidden_keys"
        )
        fact = Fact("weights_gradients") if detached else None
        found["weights_gradients"] = fact
    return found


def _right_gradients(seen: Seen, loading: Loading, probe: dict) -> dict[str, Tensor]:
    """Those of the sum of the squares of the output, with respect to each input."""
    answers = _asked(seen, loading, probe).answers
    if "gradients" not in answers:
        inputs = {
            name: x.double().requires_grad_()
            for name, x in probe["inputs"].items()
            if isinstance(x, Tensor) and x.is_floating_point()
        }
        changed = _expanded(probe | {"inputs": probe["inputs"] | inputs})
        problem = Problem.of(changed, seen.missing)
        problem = problem.turned() if loading.turned else problem
        total = compute(problem)["output"].square().sum()
        found = torch.autograd.grad(total, list(inputs.values()))
        answers["gradients"] = dict(zip(inputs, found))
    return answers["gradients"]


def _where(probe: dict) -> str:
    """What a probe is like, in letters."""
    given = "mask" in probe["inputs"] or probe["inputs"].get("causality")
    relation = "=" if probe["sizes"]["T"] == probe["sizes"].get("S") else "≠"
    mask = f"{'with' if given else 'without'} a mask, " * probe.get("masks", True)
    return f"{mask}T {relation} S"


def _asked_for(seen: Seen) -> Faults:
    """What an assignment may ask for beside numbers."""
    found: Faults = {"call_by_place": None}
    if seen.task != "split_concat":
        found["mask_optional"] = None  # unless it had to be called with one
    if seen.task != "attention":
        missing = Fact("biases", {"names": seen.missing})
        found["biases"] = missing if seen.missing else None
    if seen.task == "mha":
        fact = Fact("projection_names", {"names": seen.unnamed})
        beside = Fact("learns-more", {"names": seen.beside})
        lacks = fact if seen.unnamed else beside if seen.beside else None
        found["projection_names"] = lacks
    if order := next((n["order"] for n in seen.notes if n["code"] == REORDERED), ""):
        found["call_by_place"] = Fact("call_by_place", {"order": order})
    for name, probe in (("half_precision", "half"), ("any_device", "device")):
        if pair := seen.probe(probe):
            fails = "error" in pair[1]
            failure = _failure(*pair[::-1], seen)
            found[name] = Fact(name, failure) if fails else None
    return found
