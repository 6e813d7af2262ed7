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

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn

from mha_lib.check import adapt
from mha_lib.check.diagnosis import CONFIDENCE, Diagnosis, judge
from mha_lib.check.report import Report
from mha_lib.check.tasks import TASKS, Task

__all__ = ["TASKS", "Diagnosis", "Report", "check", "diagnose"]


def check(
    submission: Callable | type | nn.Module,
    task: str | None = None,
    *,
    layers: Mapping[str, str] | None = None,
    num_heads: int | None = None,
    dtype: torch.dtype | None = None,
    seed: int = 0,
) -> Report:
    """Whether ``submission`` computes what ``task`` asks for, and what is wrong if not.

    Args:
        submission: a function, a class or a module.
        task: a name of `TASKS`; None takes the name of the submission, then
            "attention" for a function and "mha" for a layer.
        layers: where a module keeps its weights, if that cannot be found: a name for
            each of q, k, v and o (or for qkv, kv).
        num_heads: H of a module that does not say.
        dtype: of the inputs; None takes that of the module, or float32.
        seed: of the probes. The same seed gives the same report.

    Returns:
        A report, which a notebook shows. It is true if everything is right.

    Raises:
        ValueError: an unknown task.

    Example:
        >>> from mha_lib import BatchedMHA
        >>> from mha_lib.check import check
        >>> check(BatchedMHA, "mha")
        Right: multi-head attention, batch first.
          Not a mistake: a query that sees no key gets zeros, as in this book.
    """
    diagnosis = diagnose(
        submission, task, layers=layers, num_heads=num_heads, dtype=dtype, seed=seed
    )
    return Report(diagnosis, TASKS[diagnosis.task])


def diagnose(
    submission: Callable | type | nn.Module,
    task: str | None = None,
    *,
    layers: Mapping[str, str] | None = None,
    num_heads: int | None = None,
    dtype: torch.dtype | None = None,
    seed: int = 0,
) -> Diagnosis:
    """The same as `check`, as data: verdict, names, evidence, properties.

    Args:
        submission: as for `check`.
        task: as for `check`.
        layers: as for `check`.
        num_heads: as for `check`.
        dtype: as for `check`.
        seed: as for `check`.

    Returns:
        The diagnosis; its ``to_dict()`` is ready for JSON.

    Raises:
        ValueError: an unknown task.

    Example:
        >>> from mha_lib.check import diagnose
        >>> import torch
        >>> diagnose(lambda T, S: torch.ones(T, S).bool(), "causal_mask").mistakes
        ['causal-ignored']
    """
    chosen = _task(submission, task)
    try:
        sizes = adapt.sizes(submission, num_heads) or (None, None)
    except adapt.Advice as advice:
        return Diagnosis(
            chosen.name, "failed", error=str(advice), confidence=CONFIDENCE["failed"]
        )
    if dtype is None:
        dtype = torch.float32
        if isinstance(submission, nn.Module):
            dtype = next((x.dtype for x in submission.parameters()), dtype)
    probes = chosen.probes(seed, dtype, *sizes)
    outcomes = adapt.run(submission, probes, layers, num_heads)
    with _one_thread():
        return judge(chosen.name, probes, outcomes)


@contextmanager
def _one_thread() -> Iterator[None]:
    """The judge's tensors are many and small: more threads only get in the way."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _task(submission: object, name: str | None) -> Task:
    if name is None:
        name = getattr(submission, "__name__", "")
        if name not in TASKS:
            layer = isinstance(submission, (type, nn.Module))
            name = "mha" if layer else "attention"
    if name not in TASKS:
        raise ValueError(f"task must be one of {', '.join(TASKS)}; got {name!r}")
    return TASKS[name]
