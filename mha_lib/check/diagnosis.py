"""From what a submission answered to what is wrong with it: data in, data out.

`conclude` never runs code of a submission, and never guesses. A mistake is named if it
reproduces every answer; where several do, all are given; else there are properties
that hold and others that fail, and what the probe that shows the map reveals.
"""

import re
from dataclasses import asdict, dataclass, field
from itertools import combinations

import torch
from torch import Tensor

from mha_lib.check.beside import RAN_WITH, REMEMBERS
from mha_lib.check.catalogue import MASKS, WEIGHTED
from mha_lib.check.reference import POLICIES, Problem, Stage, compute
from mha_lib.check.search import (
    MOST,
    Case,
    Explanation,
    explain,
    matches,
    names,
    shortest,
)
from mha_lib.check.tasks import TASKS

__all__ = ["Diagnosis", "Example", "conclude"]

SPECIAL = {"grad", "dtype", "device", "train"}  # probes that compare no numbers
CONFIDENCE = {
    "right": "every probe agrees with the reference",
    "named": "this mistake, and no other of the catalogue, gives your answers",
    "stacked": "these mistakes together, and no fewer, give your answers",
    "ambiguous": "your answers are consistent with each of these; they cannot be told "
    "apart from outside",
    "unknown": "no mistake of the catalogue, alone or with others, gives your answers",
    "failed": "there is no answer to compare",
}
LEAK = (
    "Where the scores of all visible keys are far below 0, hidden keys take the "
    "weight: they are filled with a number that is not low enough, such as -20. Use "
    "float('-inf') or torch.finfo(dtype).min."
)
MEMORY = (
    "The same call, with the same seed too, goes another way the second time: "
    "something is kept from one call to the next (a cache of keys and values?), or "
    "random numbers come from a generator of its own. Fix this first."
)


@dataclass
class Example:
    """One place where theirs and ours differ, and the two tensors around it."""

    probe: str
    kind: str  # "map", "output" or "mask"
    theirs: Tensor
    expected: Tensor
    words: str


@dataclass
class Diagnosis:
    """What is known about a submission.

    Attributes:
        task: its name.
        verdict: right, named, stacked, ambiguous, unknown or failed.
        mistakes: names in the catalogue; the first is to be mended first.
        candidates: if ambiguous, the sets of names between which nothing decides.
        confidence: what the verdict rests on.
        evidence: what was seen, in sentences.
        policy: choices that are no mistakes, such as what an empty row becomes.
        properties: what holds (True) and what does not.
        advice: names of mistakes that do no harm in the dtype and on the device used.
        error: why there is no answer, or the first error.
        example: one place where theirs is wrong; not part of `to_dict`.
    """

    task: str
    verdict: str
    mistakes: list[str] = field(default_factory=list)
    candidates: list[list[str]] = field(default_factory=list)
    confidence: str = ""
    evidence: list[str] = field(default_factory=list)
    policy: dict[str, str] = field(default_factory=dict)
    properties: dict[str, bool] = field(default_factory=dict)
    advice: list[str] = field(default_factory=list)
    error: str | None = None
    example: Example | None = None

    def to_dict(self) -> dict:
        """All but the tensors, ready for JSON; the example in words."""
        found = asdict(self)
        found["example"] = None if self.example is None else self.example.words
        return found


def conclude(task: str, probes: list[dict], outcomes: list[dict]) -> Diagnosis:
    """Compare and diagnose.

    Args:
        task: its name.
        probes: as they were sent.
        outcomes: as `mha_lib.check.beside.run` returned them.

    Returns:
        The diagnosis. It depends on nothing but the arguments.
    """
    pairs = [(p, o) for p, o in zip(probes, outcomes) if "skipped" not in o]
    compared = [(p, o) for p, o in pairs if not SPECIAL & p["options"].keys()]
    errors = [o["error"] for _, o in compared if "error" in o]
    found = Diagnosis(task, "failed", error=errors[0] if errors else None)
    if len(errors) == len(compared):
        found.mistakes = _of_error(errors[0]) if errors else []
        found.verdict = "named" if found.mistakes else "failed"
        found.confidence = CONFIDENCE[found.verdict]
        found.properties = {"runs": False}
        return found

    seen = _Seen(task, pairs, compared)
    explanations, loading = [], Loading()
    if not seen.varies:
        explanations, loading = _explanations(seen)
    cases = seen.cases(loading)
    _verdict(found, seen, explanations, cases)
    _beside_the_numbers(found, seen, explanations, cases, loading)
    _properties(found, seen, cases)
    if found.verdict != "right" and explanations:
        found.example = _example(cases, explanations[0])
    elif found.verdict == "unknown":
        found.example = _example(cases, None)
        found.evidence += [] if seen.remembers else _revealed(seen, loading)
    found.confidence = CONFIDENCE[found.verdict]
    return found


@dataclass(frozen=True)
class Loading:
    """One way in which the weights of a layer may lie.

    Attributes:
        name: of the alternative; "" for the first way.
        turned: whether W_o lies the other way round than the rest.
    """

    name: str = ""
    turned: bool = False

    def of(self, outcome: dict) -> dict:
        """What came out of it; nothing where the call failed."""
        if not self.name:
            return outcome
        return outcome.get("alternatives", {}).get(self.name, {})


class _Seen:
    """Probes and outcomes, with the questions that are asked more than once."""

    def __init__(self, task: str, pairs: list, compared: list) -> None:
        self.task, self.pairs, self.compared = task, pairs, compared
        answered = [o for _, o in compared if "outputs" in o]
        self.missing = answered[0].get("missing", [])
        self.notes = dict.fromkeys(n for _, o in compared for n in o.get("notes", []))
        self.remembers = self.notes.pop(REMEMBERS, "") is None
        self.varies = any(o.get("repeat_differs") for o in answered) or self.remembers
        self.changed = sorted(
            {n for _, o in pairs for n in o.get("changed_inputs", ())}
        )
        self.numbers = False  # a mask that holds numbers
        self.dtypes = {o["outputs"]["output"].dtype for o in answered}
        self.dtype = _dtype(compared[0][0])
        alternatives = answered[0].get("alternatives", ())
        self.loadings = [Loading(name) for name in ("", *alternatives)]
        if "transposed" in alternatives:  # nothing says how a bare matrix is kept
            self.loadings += [Loading(x.name, True) for x in self.loadings]

    def loadings_of(self, tier: int) -> list[Loading]:
        """Those that are worth their time, the less the more is wrong."""
        if tier == 3:
            return self.loadings[:1]
        rare = tier * ["feature by feature", "heads last"]
        return [
            x
            for x in self.loadings
            if x.name not in rare and (tier < 2 or not x.turned)
        ]

    def cases(self, loading: Loading) -> list[Case]:
        found = []
        for probe, outcome in self.compared:
            chosen = loading.of(outcome)
            output = chosen.get("outputs", {}).get("output")
            problem = Problem.of(probe, self.missing)
            if loading.turned:
                problem.W["W_o"] = problem.W["W_o"].mT
            if output is not None and self.task in MASKS:
                output = self._boolean(output, compute(problem)["output"])
            elif output is not None and self.dtype is not None:
                real = output.real if output.is_complex() else output
                output = real.to(self.dtype)
            weights = chosen.get("outputs", {}).get("weights")
            found.append(Case(problem, output, probe["name"], weights))
        return found

    def _boolean(self, mask: Tensor, expected: Tensor) -> Tensor:
        """A mask of numbers as the boolean one it stands for; needless axes removed."""
        if mask.dtype != torch.bool:
            self.numbers = True
            mask = mask.real if mask.is_complex() else mask
            additive = bool((mask < 0).any())
            mask = mask == 0 if additive else mask != 0
        if mask.dim() > expected.dim() and mask.numel() == expected.numel():
            return mask.reshape(expected.shape)
        return mask

    def probe(self, name: str) -> tuple[dict, dict] | None:
        return next(((p, o) for p, o in self.pairs if p["name"] == name), None)


def _dtype(probe: dict) -> torch.dtype | None:
    tensors = [x for x in probe["inputs"].values() if isinstance(x, Tensor)]
    floating = [x.dtype for x in tensors if x.is_floating_point()]
    return floating[0] if floating else None


def _explanations(seen: _Seen) -> tuple[list[Explanation], Loading]:
    """The shortest, over the ways in which the weights of a layer may lie."""
    best: list[Explanation] = []
    best_loading = Loading()
    cases = {loading: seen.cases(loading) for loading in seen.loadings}
    sizes = seen.compared[0][0]["sizes"]
    for tier in range(4 if sizes["E"] < 64 else 2):  # a wide layer takes too long
        for loading in seen.loadings_of(tier):
            most = len(names(best[0].path)) if best else MOST
            found = shortest(best + explain(seen.task, cases[loading], tier, most))
            if found and (not best or found[0] is not best[0]):
                best_loading = loading
            best = found
        if best and len(names(best[0].path)) <= tier:
            break
    return best, best_loading


def _verdict(found: Diagnosis, seen: _Seen, explanations: list, cases: list) -> None:
    """Verdict and mistakes, as far as the numbers tell them."""
    failing = [case for case in cases if case.output is None]
    if seen.remembers:
        found.verdict = "unknown"
        found.evidence.append(MEMORY)
        return
    if seen.varies:
        found.verdict, found.mistakes = "named", ["dropout-in-eval"]
        found.evidence.append("Two calls with the same input gave different answers.")
        return
    whole = bool(explanations) and explanations[0].masks
    length = len(names(explanations[0].path)) if whole else MOST + 1
    if failing and length > 1:
        answered = [case for case in cases if case.output is not None]
        simpler = explain(seen.task, answered)
        if simpler and len(names(simpler[0].path)) + 1 < length:
            explanations[:] = simpler
            found.mistakes += _of_error(found.error) or _of_sizes(cases)
    if not explanations:
        wrong = [case for case in cases if not _shape_fits(case)]
        found.verdict = "unknown"
        if wrong:
            found.verdict = "failed"
            required = tuple(compute(wrong[0].problem)["output"].shape)
            got = tuple(wrong[0].output.shape)
            found.error = f"the output must have the shape {required}; got {got}"
        return
    if len(explanations) > 1:
        found.verdict = "ambiguous"
        found.candidates = [list(names(e.path)) for e in explanations]
        return
    explanation = explanations[0]
    found.mistakes = [*names(explanation.path), *found.mistakes]
    if not found.mistakes and found.error and explanation.masks:
        found.verdict = "unknown"
        found.evidence.append("Where it answers, it is right.")
        return
    if found.mistakes:
        found.verdict = "named" if len(found.mistakes) == 1 else "stacked"
        judged = [c for c in cases if explanation.masks or not c.problem.masked]
        count = sum(case.output is not None for case in judged)
        found.evidence.append(
            f"{count} of {len(cases)} answers are reproduced exactly."
        )
    else:
        found.verdict = "right"
    if not explanation.masks:
        found.evidence.append(
            "The masks cannot be judged before that: fix this first."
            if found.mistakes
            else LEAK
            if _leaks(seen.task, cases)
            else "Without a mask all is right; what the mask does is in no catalogue."
        )
        if not found.mistakes:
            found.verdict = "unknown"
    elif set(explanation.policies) != set(POLICIES) and seen.task in WEIGHTED:
        known = " or ".join(explanation.policies)
        found.policy["empty rows"] = known or "other"


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
    found = explain(task, [case for case in cases if case is not low])
    return bool(found) and found[0].masks and not names(found[0].path)


def _of_sizes(cases: list[Case]) -> list[str]:
    """Whether it failed where two sizes differ, and there alone."""
    if all(case.problem.masked for case in cases if case.output is None):
        cases = [case for case in cases if case.problem.masked]

    def needs(a: str, b: str) -> bool:
        ran = False
        for case in cases:
            one, two = case.problem.sizes[a], case.problem.sizes[b]
            fails = case.output is None
            broadcast = not fails and 1 in (one, two)  # fits whatever comes
            if fails != (one != two) and not broadcast:
                return False
            ran = ran or (not fails and one == two)
        return ran

    found = any(needs(*pair) for pair in combinations("BTSHD", 2))
    return ["needs-equal-sizes"] if found else []


def _shape_fits(case: Case) -> bool:
    return (
        case.output is None
        or case.output.shape == compute(case.problem)["output"].shape
    )


def _beside_the_numbers(
    found: Diagnosis, seen: _Seen, explanations: list, cases: list, loading: Loading
) -> None:
    """Mistakes and policies that no stage of the reference shows."""
    extra = []
    if seen.changed:
        extra.append("inputs-changed")
        listed = " and ".join(seen.changed)
        found.evidence.append(f"After the call {listed} held other numbers.")
    if seen.numbers:
        extra.append("mask-not-boolean")
    if seen.dtype is not None and seen.dtypes != {seen.dtype}:
        extra.append("wrong-output-dtype")
        got = ", ".join(str(dtype) for dtype in seen.dtypes - {seen.dtype})
        found.evidence.append(f"{seen.dtype} came in, {got} came out.")
    if found.verdict in ("right", "named", "stacked") and explanations:
        explained = explanations[0]
        extra += _weights(found, seen, explained, cases)
        if not names(explained.path):
            extra += _training(found, seen, loading)
    if found.error:
        extra += _of_error(found.error)
    for name in ("half", "device"):
        _, outcome = seen.probe(name) or (None, {})
        advice = _of_error(outcome.get("error", ""))
        cast = outcome.get("outputs", {}).get("output")
        if cast is not None and cast.dtype != torch.float16 and not extra:
            advice = ["constant-dtype"]
        found.advice += [mistake for mistake in advice if mistake not in extra]
    if extra:
        found.mistakes += [n for n in extra if n not in found.mistakes]
        if found.verdict in ("right", "named", "stacked"):
            found.verdict = "named" if len(found.mistakes) == 1 else "stacked"
        elif found.verdict == "failed":
            found.verdict = "named"
    _, outcome = seen.probe("gradient") or (None, {})
    if lost := outcome.get("without_gradient"):
        listed = ", ".join(lost)
        found.evidence.append(
            f"No gradient reaches {listed}: a detach, .data, a no_grad or NumPy?"
        )
    if seen.missing:
        listed = ", ".join(seen.missing)
        found.policy["biases"] = f"your layer has no {listed}; they count as 0"
    for note in seen.notes:
        found.policy.setdefault("call", note)


def _of_error(text: str) -> list[str]:
    """The mistake that an error message gives away."""
    for pattern, name in (
        (r"takes T alone", "causal-square"),
        (r"without overflow", "fill-overflows-half"),
        (r"same device|expected device", "constant-device"),
        (r"same dtype|expected scalar type|to have the same", "constant-dtype"),
    ):
        if re.search(pattern, text):
            return [name]
    return []


# --- returned weights and dropout ---------------------------------------------------


def _weights(
    found: Diagnosis, seen: _Seen, explained: Explanation, cases: list[Case]
) -> list[str]:
    """Whether the weights that came with a known output belong to it."""
    if seen.task == "split_concat":
        return []
    policy = (explained.policies or ("nan",))[0]
    for case in cases:
        ours = compute(case.problem, explained.path, policy)
        if case.weights is None or not ours or case.name == "empty row":
            continue
        expected = ours["weights"]
        theirs = case.weights.to(seen.dtype)
        if theirs.dim() == 3 and expected.dim() == 4:
            expected = expected.mean(1)
            found.policy["weights"] = "averaged over the heads"
        if not matches(theirs, expected):
            return ["weights-returned-wrong"]
    return []


def _training(found: Diagnosis, seen: _Seen, loading: Loading) -> list[str]:
    """What dropout does, read off the probe that shows the map."""
    probe, outcome = seen.probe("training") or ({}, {})
    outcome = loading.of(outcome)
    if "outputs" not in outcome:
        return []
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
        return mistakes
    if _close(output, expected["output"]):
        return [*mistakes, "dropout-unused"]
    if seen.task == "mha_sequence_first":
        output = output.transpose(0, 1)
    columns = output.unflatten(-1, (p.H, p.D)).transpose(1, 2)
    one, two = columns[..., : p.S], columns[..., p.S : 2 * p.S]
    ratio = one / weights
    kept = ratio[ratio.abs() > 1e-3]
    if not _close(one, two):
        both = bool((ratio > 3).any())  # 1/(1-p) twice: on weights and output
        return mistakes + ([] if both else ["dropout-on-output"])
    if _close(kept, torch.full_like(kept, 2.0)):
        return mistakes
    if _close(kept, torch.ones_like(kept)):
        return [*mistakes, "dropout-not-rescaled"]
    if _close(one.sum(-1), torch.ones_like(one.sum(-1))) and _from_scores(one, weights):
        return [*mistakes, "dropout-on-scores"]
    found.evidence.append("In training the output is like no dropout we know.")
    return mistakes


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


# --- properties ---------------------------------------------------------------------

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


def _properties(found: Diagnosis, seen: _Seen, cases: list[Case]) -> None:
    """What holds and what does not, each by a name that never changes."""
    policies = POLICIES if seen.task in WEIGHTED else ("nan",)

    def right(case: Case) -> bool:
        return case.output is not None and any(
            matches(case.output, compute(case.problem, (), policy)["output"])
            for policy in policies
        )

    judged = {case.name: right(case) for case in cases}
    holds = {
        "runs": all(case.output is not None for case in cases),
        "output_shape": all(map(_shape_fits, cases)),
        "inputs_unchanged": not seen.changed,
        "deterministic": not seen.varies,
    }
    if seen.task in WEIGHTED:
        rest = [c for c in cases if c.name != "empty row"]
        masked = [judged[c.name] for c in rest if c.problem.masked]
        plain = [judged[c.name] for c in rest if not c.problem.masked]
        as_given = not any(
            note.startswith(f"{RAN_WITH} a mask")
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
        if (pair := seen.probe("training")) and "outputs" in pair[1]:
            holds["dropout"] = not any("dropout" in name for name in found.mistakes)
    else:
        holds |= {f"right: {name}": value for name, value in judged.items()}
        if seen.task in MASKS:
            holds["output_dtype"] = not seen.numbers
    holds["right"] = found.verdict == "right"
    found.properties = holds


def _row_sums(case: Case) -> Tensor | None:
    """Of the returned weights."""
    shape = compute(case.problem)["weights"].shape
    if case.weights is None or case.weights.shape != shape:
        return None
    return case.weights.double().sum(-1).flatten()


def _revealed(seen: _Seen, loading: Loading) -> list[str]:
    """What the map tells, read off the output where W_v = W_o = 1, values one-hot."""
    case = next((c for c in seen.cases(loading) if c.name == "reveal"), None)
    if case is None or case.output is None or not _shape_fits(case):
        return []
    p, theirs = case.problem, case.output.double()
    if seen.task == "mha_sequence_first":
        theirs = theirs.transpose(0, 1)
    if seen.task != "attention":
        theirs = theirs.unflatten(-1, (p.H, p.D)).transpose(1, 2)
    theirs, ours = theirs[..., : p.S], compute(p)["weights"]
    sums = theirs.sum(-1)
    low, high = sums.min().item(), sums.max().item()
    said = [f"The rows of your map sum to {low:.2f} … {high:.2f}."]
    if theirs.min() < -1e-3:
        said.append("Some of your weights are negative.")
    order = [
        [h for h in range(p.H) if matches(theirs[:, g].float(), ours[:, h])]
        for g in range(p.H)
    ]
    if all(order) and [o[0] for o in order] != list(range(p.H)):
        listed = ", ".join(str(o[0]) for o in order)
        said.append(f"Its heads are those of the reference in the order {listed}.")
    if theirs.min() > 0:
        a, b = theirs.log(), ours.log()
        a, b = (x - x.mean(-1, keepdim=True) for x in (a, b))
        factor = ((a * b).sum() / (b * b).sum()).item()
        if torch.allclose(a, factor * b, rtol=1e-2, atol=1e-2):
            said.append(f"Its scores are {factor:.3f} times the right ones.")
    return said


# --- one counterexample -------------------------------------------------------------


def _example(cases: list[Case], explained: Explanation | None) -> Example | None:
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
                theirs = (compute(case.problem, explained.path, policy) or {}).get(
                    "weights", theirs
                )
            if theirs is not None and theirs.shape == ours["weights"].shape:
                words = _of_map(theirs.double(), ours["weights"])
                if words:
                    return Example(
                        case.name, "map", theirs.double(), ours["weights"], words
                    )
        kind = "mask" if case.output.dtype == torch.bool else "output"
        expected, words = ours["output"], _of_output(case.output, ours["output"])
        return Example(case.name, kind, case.output, expected, words)
    return None


def _of_map(theirs: Tensor, ours: Tensor) -> str:
    """One row in words: its sum, a hidden key, a visible key, or the largest gap."""
    theirs = theirs.nan_to_num(0.0)
    ours = ours.nan_to_num(0.0)
    if torch.allclose(theirs, ours, atol=1e-3):
        return ""
    b, h, t, s = (int(i) for i in _largest(theirs - ours))
    where = f"sequence {b}, head {h}"
    off = ((theirs.sum(-1) - ours.sum(-1)).abs() > 0.01).nonzero()
    if len(off):
        b, h, t = off[0].tolist()
        total = theirs[b, h, t].sum()
        return (
            f"Row {t} of your map (sequence {b}, head {h}) sums to {total:.2f}; "
            f"it has to sum to {ours[b, h, t].sum():.0f}."
        )
    seen = ((ours == 0) & (theirs > 0.01)).nonzero()
    if len(seen):
        b, h, t, s = seen[0].tolist()
        return (
            f"Query {t} gives key {s}, which is hidden, the weight "
            f"{theirs[b, h, t, s]:.2f} (sequence {b}, head {h})."
        )
    return (
        f"Query {t} gives key {s} the weight {theirs[b, h, t, s]:.2f}; "
        f"{ours[b, h, t, s]:.2f} is right ({where})."
    )


def _of_output(theirs: Tensor, ours: Tensor) -> str:
    if theirs.shape != ours.shape:
        return (
            f"Your result has the shape {tuple(theirs.shape)}; "
            f"{tuple(ours.shape)} is right."
        )
    if theirs.dtype == torch.bool:
        place = (theirs != ours).nonzero()[0].tolist()
        got, right = theirs[tuple(place)].item(), ours[tuple(place)].item()
        return f"mask{place} is {got}; {right} is right."
    place = [int(i) for i in _largest(theirs.double() - ours)]
    got, right = theirs[tuple(place)].item(), ours[tuple(place)].item()
    return f"output{place} is {got:.3f}; {right:.3f} is right."


def _largest(difference: Tensor) -> tuple:
    flat = difference.nan_to_num(float("inf")).abs().argmax()
    return torch.unravel_index(flat, difference.shape)
