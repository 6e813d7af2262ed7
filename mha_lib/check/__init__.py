"""Check your own attention: `check` answers in words, `diagnose` with data.

>>> from mha_lib.check import check
>>> def attention(q, k, v, mask=None):
...     scores = q @ k.mT / q.shape[-1] ** 0.5
...     if mask is not None:
...         scores = scores.masked_fill(~mask, float("-inf"))
...     return scores.softmax(dim=-2) @ v
>>> check(attention)
One mistake in your scaled dot-product attention.
  The columns of your map sum to 1, its rows do not: the softmax ran over dim=-2, ...
  ...

The tasks and how each of them is called: `TASKS`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache

import torch
from torch import nn

from mha_lib.check import beside
from mha_lib.check.beside import ORDERS
from mha_lib.check.catalogue import MISTAKES, check_name
from mha_lib.check.contract import judged, property_names
from mha_lib.check.diagnosis import Diagnosis, conclude
from mha_lib.check.equal import TOLERANCE, matches
from mha_lib.check.example import Example
from mha_lib.check.failures import taken_for_another
from mha_lib.check.language import LANGUAGE
from mha_lib.check.own import BUILT_IN, own_task, register, registered
from mha_lib.check.picture import STYLE as PICTURE_STYLE
from mha_lib.check.reference import POLICIES, Problem, Stage, compute
from mha_lib.check.report import HEADLINES, Line, Report, report_html
from mha_lib.check.sections import link, repository
from mha_lib.check.seen import SPECIAL
from mha_lib.check.tasks import TASKS, Task
from mha_lib.check.words import Fact, in_words

__all__ = [
    "BUILT_IN",
    "HEADLINES",
    "LANGUAGE",
    "MISTAKES",
    "ORDERS",
    "PICTURE_STYLE",
    "POLICIES",
    "SPECIAL",
    "TASKS",
    "Diagnosis",
    "Example",
    "Fact",
    "Line",
    "Problem",
    "Report",
    "Stage",
    "Task",
    "check",
    "check_name",
    "compute",
    "conclude",
    "diagnose",
    "in_words",
    "judged",
    "link",
    "matches",
    "own_task",
    "property_names",
    "register",
    "registered",
    "report_html",
    "repository",
]


def check(
    submission: Callable | type | nn.Module,
    task: str | None = None,
    *,
    layers: Mapping[str, str] | None = None,
    num_heads: int | None = None,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    requires: Iterable[str] = (),
    mask: bool = True,
) -> Report:
    """Whether ``submission`` computes what ``task`` asks for, and what is wrong if not.

    Args:
        submission: a function, a class or a module.
        task: a name of `TASKS`; None takes the name of the submission, then
            "attention" for a function and "mha" for a layer.
        layers: where a module keeps its weights, if that cannot be found: a name for
            each of q, k, v and o (or for qkv, kv, kqv: the order of its rows).
        num_heads: H of a module that does not say.
        dtype: of the inputs; None takes that of the module, or float32.
        seed: of the probes. The same seed gives the same report.
        requires: names of `property_names` that are asked for beside what the
            signature in `TASKS` says, such as "weights" or "mask_optional".
        mask: whether it is called with masks, too. False is for what is not to have
            one yet.

    Returns:
        A report, which a notebook shows. It is true if everything is right.

    Raises:
        ValueError: an unknown task or requirement, a dtype that is not of floating
            point, or a task that is nothing without a mask.

    Example:
        >>> from mha_lib import BatchedMHA
        >>> from mha_lib.check import check
        >>> check(BatchedMHA, "mha")
        Right: multi-head attention, batch first.
          Not a mistake: a query that sees no key gets zeros, as in this book.
    """
    options = {"layers": layers, "num_heads": num_heads, "dtype": dtype, "mask": mask}
    diagnosis = diagnose(submission, task, seed=seed, requires=requires, **options)
    asked = TASKS[diagnosis.task]
    asked = asked if mask else asked.without_mask()
    return Report(diagnosis, asked.for_class() if _is_class(submission) else asked)


def diagnose(
    submission: Callable | type | nn.Module,
    task: str | None = None,
    *,
    layers: Mapping[str, str] | None = None,
    num_heads: int | None = None,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    requires: Iterable[str] = (),
    mask: bool = True,
) -> Diagnosis:
    """The same as `check`, as data: verdict, names, evidence, properties.

    Args:
        submission: as for `check`.
        task: as for `check`.
        layers: as for `check`.
        num_heads: as for `check`.
        dtype: as for `check`.
        seed: as for `check`.
        requires: as for `check`.
        mask: as for `check`.

    Returns:
        The diagnosis; its ``to_dict()`` is ready for JSON.

    Raises:
        ValueError: an unknown task or requirement, a dtype that is not of floating
            point, or a task that is nothing without a mask.

    Example:
        >>> from mha_lib.check import diagnose
        >>> import torch
        >>> diagnose(lambda T, S: torch.ones(T, S).bool(), "causal_mask").mistakes
        ['causal-ignored']
    """
    chosen = _task(submission, task)
    chosen = chosen if mask else chosen.without_mask()
    with _on_cpu():
        requires = judged(chosen.name, requires) - judged(chosen.name)
    try:
        submission = beside.unwrapped(submission)
        layer = chosen.name in beside.LAYERS  # other tasks have no sizes of their own
        sizes = (beside.sizes(submission, num_heads) if layer else None) or (None, None)
    except beside.Advice as advice:
        return Diagnosis(chosen.name, "failed", error=str(advice))
    if dtype is None:
        dtype = torch.float32
        if isinstance(submission, nn.Module):
            own = (x.dtype for x in submission.parameters())
            dtype = next((x for x in own if x in TOLERANCE), dtype)
    if dtype not in TOLERANCE:
        known = ", ".join(str(x).removeprefix("torch.") for x in TOLERANCE)
        raise ValueError(f"dtype must be one of {known}; got {dtype}")
    with _on_cpu():
        probes = _drawn(chosen, seed, dtype, *sizes)
        outcomes = beside.run(submission, probes, layers, num_heads)
        with _one_thread(), beside.with_gradients():
            found = conclude(chosen.name, probes, outcomes, requires=requires)
    name = getattr(submission, "__name__", "")
    if task is None and name not in TASKS and found.error:
        found.error += taken_for_another(found.error, name, TASKS)
    return found


@lru_cache(maxsize=8)  # whoever checks once checks again
def _drawn(task: Task, *settings: object) -> list[dict]:
    """The probes, which nobody changes: what is called gets copies."""
    return task.probes(*settings)


def _on_cpu() -> AbstractContextManager:
    """New tensors lie there, whatever device a notebook has made its default."""
    elsewhere = torch.get_default_device().type != "cpu"
    return torch.device("cpu") if elsewhere else nullcontext()


@contextmanager
def _one_thread() -> Iterator[None]:
    """The tensors of a search are many and small: threads only get in its way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _is_class(submission: object) -> bool:
    with suppress(Exception, SystemExit):  # of a __class__ of theirs
        return beside.makes_layers(submission)
    return False


def _task(submission: object, name: str | None) -> Task:
    if name is None:
        name = getattr(submission, "__name__", "")
        if name not in TASKS:
            name = "attention"
            with suppress(Exception, SystemExit):  # of a __class__ of theirs
                if _is_class(submission) or isinstance(submission, nn.Module):
                    name = "mha"
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}; got {name!r}")
    return TASKS[name]
