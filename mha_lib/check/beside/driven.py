"""Call a submission as a task of one's own says: by a function that came as text."""

from collections.abc import Callable
from functools import cache
from types import CodeType

import torch

from .words import DRIVER


def driven(submission: object, driver: str) -> Callable[[dict], object]:
    """A function of the inputs; without a driver, the submission with them in order."""
    call = _called
    if driver:
        space: dict[str, object] = {}
        exec(_compiled(driver), space)
        call = list(space.values())[-1]
    return lambda inputs: _as_tensor(call(submission, *inputs.values()))


@cache
def _compiled(driver: str) -> CodeType:
    """Once for all probes.

    Its lines are none of theirs; what it raises is said as it is: see `words`.
    """
    return compile(driver, DRIVER, "exec")


def _called(submission: Callable, *inputs: object) -> object:
    return submission(*inputs)


def _as_tensor(x: object) -> object:
    """Numbers and lists of them as a tensor; anything else as it is."""
    return torch.tensor(x) if isinstance(x, (bool, int, float, list)) else x
