"""Typical mistakes of students: an edit of a right answer, and what a teacher says.

A row is ``(name, what is replaced, by what, what an honest teacher says)``. The teacher
says one of

- names of the catalogue: each of these, and no other, is true of the program;
- ``line``: it fails, at the line that was edited; ``line: text``: at the line with this
  text, or with this text in the message;
- ``unknown``: no name fits; properties and a next step are what can be said.

Each may be followed by ``| names`` that are true as well. A name that the catalogue
learns goes to its rows here.
"""

import linecache
import math
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.stress.bases import BASES
from tests.check.stress.typical_attention import ROWS as OF_ATTENTION
from tests.check.stress.typical_layers import ROWS as OF_LAYERS
from tests.check.stress.typical_parts import ROWS as OF_PARTS
from tests.check.stress.typical_styles import ROWS as OF_STYLES

__all__ = ["TYPICAL", "Typical", "made"]

NAMES = {"torch": torch, "nn": nn, "F": F, "math": math, "np": np}  # of a notebook
ROWS = OF_ATTENTION | OF_LAYERS | OF_STYLES | OF_PARTS


@dataclass(frozen=True)
class Typical:
    """A mistake: the text of the program, and what a teacher says of it."""

    name: str
    task: str
    source: str
    says: str  # named, line or unknown
    at: str  # where it fails, in the words of the line or of the message
    true: frozenset[str]  # the names that are no lie


def made(name: str, source: str):
    """The first thing that a cell with this text defines."""
    file = f"<cell of {name}>"
    lines = source.splitlines(keepends=True)
    linecache.cache[file] = (len(source), None, lines, file)  # as a notebook does
    space = dict(NAMES)
    exec(compile(source, file, "exec"), space)
    return next(x for key, x in space.items() if key not in NAMES and key[0] != "_")


def _typical(base: str, name: str, old, new, teacher: str) -> Typical:
    task, source = BASES[base]
    pairs = list(zip(old, new)) if isinstance(old, tuple) else [(old, new)]
    for before, after in pairs:
        if source.count(before) != 1:
            raise ValueError(f"{base}: {name}: {before!r} must occur once")
        source = source.replace(before, after)
    says, _, true = teacher.partition(" | ")
    kind, _, at = says.partition(": ")
    if kind not in ("line", "unknown"):
        kind, true = "named", f"{says} {true}"
    if kind == "line" and not at:
        at = pairs[-1][1].strip().splitlines()[-1].strip()
    return Typical(f"{base}: {name}", task, source, kind, at, frozenset(true.split()))


TYPICAL = {
    row.name: row
    for base, rows in ROWS.items()
    for row in (_typical(base, *row) for row in rows)
}
