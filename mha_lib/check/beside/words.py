"""What is said about a submission: advice, notes and errors."""

import inspect
import traceback
from pathlib import Path

import torch

NOT_THEIRS = (str(Path(torch.__file__).parents[1]), inspect.__file__[:-10])
NOT_THEIRS += (str(Path(__file__).parent),)
RAN_WITH = "it ran with"  # how a note begins that says in what way it was called
REMEMBERS = "it remembers"  # and one that says that a call changes the next one


class Advice(Exception):
    """The submission cannot be called as it is; the message says what to do."""


def sentence(error: BaseException) -> str:
    """The error in one line, with the line of the submission where it arose."""
    try:
        text = " ".join(str(error).split())
    except Exception:  # an exception may define its own __str__
        text = "it cannot be printed"
    text = f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(NOT_THEIRS):
            line = f": {frame.line}" if frame.line else ""
            return f"{text} (your line {frame.lineno}{line})"
    return text
