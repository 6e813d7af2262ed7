"""A task of your own: a right answer, and a function that draws inputs.

>>> import torch
>>> from mha_lib.check import check, own_task, registered
>>> def spread(x):
...     return x.amax(dim=-1) - x.amin(dim=-1)
>>> def draw_spread(generator):
...     return {"a row": {"x": torch.randn(7, generator=generator)},
...             "a table": {"x": torch.randn(3, 5, generator=generator)}}
>>> with registered(own_task("spread", spread, draw_spread)):
...     print(check(lambda x: x.max() - x.min(), "spread"))
Your spread is wrong, in a way that has no name here. What was seen, and what to ...
  Your result has the shape (); (3,) is right.
  It is right in 1 of 2 cases (a row), and wrong in a table.
  Next: call it yourself with the smallest case that is wrong, and print ...

`register` makes the task known for good, as a notebook does. What comes back is
compared with the reference, then with the mistakes that the task knows, which are wrong
versions of it::

    >>> def of_all(x):
    ...     return x.max() - x.min()
    >>> known = {"of-all": (of_all, "It takes one spread of all rows.")}
    >>> with registered(own_task("spread", spread, draw_spread, mistakes=known)):
    ...     print(check(lambda x: x.max() - x.min(), "spread"))
    One mistake in your spread.
      It takes one spread of all rows. [of-all]
      Your result has the shape (); (3,) is right.
      This explains all 2 calls that were tried: ...

A task is judged wherever its code was run: in a notebook that registers it or imports
the file that does, or by the grader, which finds both in the cells of an assignment
(`mha_lib.grade.author`).
"""

import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from itertools import combinations

import torch
from torch import Tensor

from mha_lib.check import beside
from mha_lib.check.beside import located
from mha_lib.check.diagnosis import Diagnosis
from mha_lib.check.equal import matches
from mha_lib.check.example import Example, difference
from mha_lib.check.seen import changed_inputs
from mha_lib.check.tasks import TASKS, Task
from mha_lib.check.together import pairs
from mha_lib.check.words import Fact

__all__ = ["BUILT_IN", "own_task", "register", "registered"]

BUILT_IN = set(TASKS)
"""Names of the tasks of mha_lib itself; `register` takes none of them."""
SEEDS = range(3)  # with each of them the cases have to tell the mistakes apart
Draw = Callable[[torch.Generator], Mapping[str, dict]]
Mistakes = Mapping[str, tuple[object, str]]
Case = tuple[dict, dict, Tensor]  # a probe, what came back, what is right
Words = Callable[[Tensor, Tensor, Mapping[str, object]], str]


def own_task(
    name: str,
    reference: object,
    draw: Draw,
    call: Callable | None = None,
    *,
    title: str = "",
    signature: str = "",
    mistakes: Mistakes | None = None,
    tolerance: float = 0.0,
    axes: tuple[str, str] = ("", ""),
    words: Callable[[Tensor, Tensor], str] | None = None,
) -> Task:
    """A task whose answers are compared with those of ``reference``.

    Args:
        name: as ``check(..., task=name)`` takes it.
        reference: what is right.
        draw: from a `torch.Generator` to the inputs of each case, by the case's name:
            tensors, numbers, texts and lists of them, in the order of the arguments.
        call: a function of a submission and the inputs, in that order; it returns a
            tensor or what makes one. None calls the submission with the inputs. It
            runs beside the submission, which can read it, and alone: what it needs it
            imports, and it must hold no answer. What it raises itself is said as it is.
        title: the same in words, as in "your …"; the name unless given.
        signature: what is required, in words; that of ``reference``, with the first
            line of its docstring, unless given.
        mistakes: wrong versions of the reference by name, each with a sentence that
            says what it is. Whoever gives the answers of one to every case is told so.
        tolerance: how far numbers may be from the right ones, for shares that are
            counted in random draws; 0 means rounding alone.
        axes: what a row and what a column of an answer is for, in words, as a picture
            of two answers says it; it says nothing of them unless given.
        words: from a wrong answer and the right one, tensors of one shape, to a
            sentence; None names the place where their numbers differ most.

    Returns:
        The task; `register` makes it known.

    Raises:
        ValueError: the name is taken; the reference or a mistake gives no answer to a
            case; or the cases do not tell a mistake from the reference or another one.
    """
    _check_free(name)
    options = {"title": title, "signature": signature, "tolerance": tolerance}
    options |= {"axes": axes}
    if words:
        options["words"] = lambda yours, right, inputs: words(yours, right)
    task = made(name, reference, draw, call, mistakes=mistakes or {}, **options)
    wrong = {k: version for k, (version, _) in (mistakes or {}).items()}
    for seed in SEEDS if mistakes else SEEDS[:1]:
        check_told_apart(task, {"the reference": reference, **wrong}, seed, tolerance)
    return task


def made(
    name: str,
    reference: object,
    draw: Draw,
    call: Callable | None,
    *,
    title: str,
    signature: str,
    mistakes: Mistakes,
    tolerance: float,
    axes: tuple[str, str] = ("", ""),
    words: Words | None = None,
    seen: Callable[[Mapping], str] | None = None,
) -> Task:
    """The task as it is; nobody asks whether its cases tell its mistakes apart."""
    if not signature:
        signature = f"{reference.__name__}{inspect.signature(reference)}"
        signature += f": {doc.splitlines()[0]}" if (doc := reference.__doc__) else ""
    driver = textwrap.dedent(inspect.getsource(call)) if call else ""

    def make(drawn: object) -> list[dict]:
        cases = draw(drawn.generator)
        common = {"sizes": {}, "weights": None, "options": {}, "driver": driver}
        return [{"name": k, "inputs": dict(v), **common} for k, v in cases.items()]

    wrong = {k: version for k, (version, _) in mistakes.items()}
    said = {k: sentence for k, (_, sentence) in mistakes.items()}
    judged = partial(_conclude, name, reference, wrong, tolerance, words, seen)
    shown = {"axes": axes, "conclude": judged, "mistakes": said}
    return Task(name, title or name, signature, (), make, **shown)


def register(task: Task) -> None:
    """Make a task known to `check` and to the grader, in this process.

    Raises:
        ValueError: the name is that of a task of ours.
    """
    _check_free(task.name)
    TASKS[task.name] = task


@contextmanager
def registered(*tasks: Task) -> Iterator[None]:
    """Make tasks known inside the `with`; after it all is as it was before.

    Raises:
        ValueError: as `register`.

    Example:
        >>> from mha_lib.check import TASKS, own_task, registered
        >>> def double(x):
        ...     return 2 * x
        >>> with registered(own_task("double", double, lambda _: {"three": {"x": 3}})):
        ...     print("double" in TASKS)
        True
        >>> "double" in TASKS
        False
    """
    before = dict(TASKS)
    try:
        for task in tasks:
            register(task)
        yield
    finally:
        TASKS.clear()
        TASKS.update(before)


def built_in(tasks: Mapping[str, Task]) -> None:
    """Tasks of ours that are made in the same way; their names are taken."""
    TASKS.update(tasks)
    BUILT_IN.update(tasks)


def _check_free(name: str) -> None:
    if name in BUILT_IN:
        raise ValueError(f"{name} is a task of mha_lib; choose another name")


def check_told_apart(
    task: Task,
    versions: dict[str, object],
    seed: int,
    tolerance: float = 0.0,
    fail: Collection[str] = (),
) -> None:
    """Every version has to answer every case, and no two in the same way.

    Those in ``fail`` may fail by an error of torch, in some cases and not in all.
    """
    probes = task.probes(seed)
    answers = {k: beside.run(version, probes) for k, version in versions.items()}
    for version, outcomes in answers.items():
        for probe, outcome in zip(probes, outcomes):
            of_torch = outcome.get("raised_by") == "torch"
            if "error" in outcome and not (of_torch and version in fail):
                raise ValueError(
                    f"{version} of {task.name} must answer {probe['name']!r}; "
                    f"got {outcome['error']}"
                )
    for one, other in combinations(answers, 2):
        if _agree(answers[one], answers[other], tolerance):
            raise ValueError(
                f"the cases of {task.name} must tell {one} and {other} apart; got the "
                f"same answers with seed {seed}"
            )


def _conclude(
    name: str,
    reference: object,
    mistakes: dict[str, object],
    tolerance: float,
    words: Words | None,
    seen: Callable[[Mapping], str] | None,
    probes: list[dict],
    outcomes: list[dict],
) -> Diagnosis:
    """Which answers are those of the reference, else whether a mistake gives them all.

    The first answer that is not right is an example.
    """
    found = Diagnosis(name, "failed")
    holds = {"runs": all("error" not in x for x in outcomes)}
    changed = changed_inputs([*zip(probes, outcomes)])
    holds["inputs_unchanged"] = not changed
    if changed:
        found.unmet.append(Fact("inputs-changed", {"inputs": changed}))
    if name in BUILT_IN:
        answers = [_answer(reference, probe) for probe in probes]
    else:  # what a notebook's own calls may have been defined anew
        answers = beside.run(reference, probes)
    cases = [*zip(probes, outcomes, map(_output, answers))]
    for probe, theirs, right in cases:
        yours = _output(theirs)
        coarse = yours is not None and _coarser(probe, yours, right)
        same = yours is not None and not coarse and _same(yours, right, tolerance)
        holds[f"right: {probe['name']}"] = same
        if yours is None:
            error = located(theirs["error"], theirs.get("line", ""))
            found.error = found.error or error
        elif not same and found.example is None:
            kind = "mask" if right.dtype == yours.dtype == torch.bool else "output"
            alike = yours.shape == right.shape
            told = words and alike and words(yours, right, probe["inputs"])
            shown = (told,) if told else _difference(yours, right, coarse)
            found.example = Example(probe["name"], kind, yours, right, *shown)
    holds["right"] = all(holds.values())
    if holds["right"]:
        found.verdict = "right"
    elif any("outputs" in x for x in outcomes):
        found.verdict = "unknown"
        wrong = [x for x in cases if not holds[f"right: {x[0]['name']}"]]
        _name(found, mistakes, tolerance, cases, wrong)
        if found.verdict == "unknown" and changed and all(map(_in_place, wrong)):
            found.verdict = "unmet"  # its answers are right, and an input is changed
        elif found.verdict == "unknown" and seen and holds["runs"]:
            every = {p["name"]: (p["inputs"], _output(x), y) for p, x, y in cases}
            found.evidence += filter(None, [seen(every)])
    found.properties = holds if found.verdict != "failed" else {"runs": False}
    return found


def _name(
    found: Diagnosis,
    mistakes: dict[str, object],
    tolerance: float,
    cases: list[Case],
    wrong: list[Case],
) -> None:
    """The mistake that gives every answer, else two together; all, if several do."""
    left = {(name,): version for name, version in mistakes.items()}
    for case in cases:  # most of them fall at the first
        left = _that_fit(left, case, tolerance)
    if not left and wrong:
        probe, theirs, right = min(wrong, key=_size)
        alone = {k: _output(_answer(x, probe)) for k, x in mistakes.items()}
        left = dict(pairs(mistakes, alone, _output(theirs), right))
        for case in sorted(cases, key=_size):
            left = _that_fit(left, case, tolerance)
    if len(left) == 1:
        (found.mistakes,) = map(list, left)
        found.verdict = "named" if len(found.mistakes) == 1 else "stacked"
    elif left:
        found.verdict, found.candidates = "ambiguous", [*map(list, left)]
    if left:
        count = sum("outputs" in theirs for _, theirs, _ in cases)
        values = {"count": count, "all": len(cases), "ways": len(left)}
        values["mistakes"] = len(next(iter(left)))
        found.evidence.append(Fact("reproduced", values))


def _that_fit(
    versions: dict[tuple[str, ...], object], case: Case, tolerance: float
) -> dict[tuple[str, ...], object]:
    """Those that answer a case in the same way."""
    probe, theirs, _ = case
    return {
        names: version
        for names, version in versions.items()
        if _agree([theirs], [_answer(version, probe)], tolerance)
    }


class _This:
    """An object that is the same only as itself, as a key: nobody changes it."""

    def __init__(self, it: object) -> None:
        self.it = it

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _This) and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)


def _answer(version: object, probe: dict) -> dict:
    """What a version of ours, or two of them together, answers."""
    return _kept(_This(version), _This(probe))


@lru_cache(maxsize=1 << 13)  # who checks again, or grades a class, has the same probes
def _kept(version: _This, probe: _This) -> dict:
    (outcome,) = beside.run(version.it, [probe.it])
    return outcome


def _in_place(case: Case) -> bool:
    """Whether torch refused to change what a gradient needs."""
    _, theirs, _ = case
    of_torch = theirs.get("raised_by") == "torch"
    return of_torch and re.search("in-?place", theirs["error"]) is not None


def _size(case: Case) -> int:
    """How many numbers come in."""
    return sum(x.numel() for x in case[0]["inputs"].values() if isinstance(x, Tensor))


def _output(outcome: dict) -> Tensor | None:
    return outcome.get("outputs", {}).get("output")


def _agree(some: list[dict], others: list[dict], tolerance: float) -> bool:
    """Whether all answers are the same, and the inputs after them changed alike.

    Where both fail, torch has to say the same of both.
    """
    return all(
        _same(one["outputs"]["output"], other["outputs"]["output"], tolerance)
        and one.get("changed_inputs") == other.get("changed_inputs")
        if "outputs" in one.keys() & other.keys()
        else one.get("raised_by") == other.get("raised_by") == "torch"
        and one["error"] == other["error"]
        for one, other in zip(some, others)
    )


def _coarser(probe: dict, yours: Tensor, right: Tensor) -> bool:
    """Whether float64 is answered with less, where the reference keeps it."""
    given = [x.dtype for x in probe["inputs"].values() if isinstance(x, Tensor)]
    full = right.dtype == torch.float64 in given and torch.float32 not in given
    return full and yours.is_floating_point() and yours.dtype != torch.float64


def _difference(
    yours: Tensor, right: Tensor, coarse: bool
) -> tuple[Fact, tuple[int, ...]]:
    """Where they differ most; of another kind, they differ everywhere."""
    if coarse or (yours.dtype == torch.bool) != (right.dtype == torch.bool):
        kinds = {"yours": str(yours.dtype), "right": str(right.dtype)}
        return Fact("other-kind", kinds), ()
    found, place = difference(yours, right)
    truth = found.code == "other-mask"  # a table of theirs need not be a mask
    return Fact("other-truth", found.values) if truth else found, place


def _same(yours: Tensor, right: Tensor, tolerance: float = 0.0) -> bool:
    """Equal up to rounding, or as far as allowed; numbers may be of any kind."""
    kinds = {yours.dtype == torch.bool, right.dtype == torch.bool}
    if tolerance and True not in kinds:
        close = yours.shape == right.shape
        return close and bool((yours - right).abs().amax() <= tolerance)
    if right.is_floating_point() or True in kinds:
        return matches(yours, right)
    return yours.shape == right.shape and torch.equal(yours.double(), right.double())
