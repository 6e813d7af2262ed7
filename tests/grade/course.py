"""A small course: an assignment, what was handed in for it, and a run over that."""

import csv
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

from mha_lib.grade import sandbox
from mha_lib.grade.assignments import parse
from mha_lib.grade.run import Run
from tests.grade.attacks.table import MERGE

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
ASSIGNMENT = {
    "id": "a9",
    "title": "Heads <and> tails",
    "banned": [],
    "questions": [
        {"name": "merge_heads", "task": "merge_heads", "points": 2},
        {"name": "split_heads", "task": "split_heads", "points": 3},
    ],
}
SPLIT = "def split_heads(x, H): return x.unflatten(2, (H, -1)).transpose(1, 2)\n"
MARKUP = "def split_heads(x, H): raise ValueError('<script>alert(1)</script>')\n"
SUBMISSIONS = {
    "ada.py": MERGE + SPLIT,
    "=cmd|x.py": MERGE + SPLIT,
    "group 1/ben é.py": MERGE,
    "group 2/cleo.py": MERGE + MARKUP,
    "x" * 230 + ".py": SPLIT,
    "essay.pdf": "%PDF",
    "eve.py": "import gc\n",
}
POINTS = dict(zip(SUBMISSIONS, (5, 5, 2, 2, 3, 0, 0)))
# Wide: no test waits for them, and none fails where the machine is busy.
LIMITS = {"seconds": 40.0, "wall": 300.0, "cpu": 120, "memory": 1 << 29}


# A warm process that has torch, and nothing else that is imported ahead.
BARE = sandbox.START.replace(
    "from inside.warm",
    "import inside.warm as w; w.imports = lambda: None; from inside.warm",
)

TOP = "grading"  # begins the name of the folder in which all tests grade


def new_run(folder: Path, **changes) -> Run:
    """A run whose warm process is that of all others below the same folder."""
    above = (folder.resolve(), *folder.resolve().parents)
    tops = [str(path) for path in above if path.name.startswith(TOP)]
    fields = {
        "assignment": parse(ASSIGNMENT),
        "places": [folder],
        "output": folder.parent / "out" / "grades.csv",
        "limits": LIMITS | ({"hidden": tops} if tops else {}),
        "seed": 7,
    }
    return Run(**{**fields, **changes})


def notebook(*cells: str) -> str:
    """What a notebook's file holds that has these cells of code."""
    made = [nbformat.v4.new_code_cell(cell) for cell in cells]
    return nbformat.writes(nbformat.v4.new_notebook(cells=made))


def table(path: Path) -> dict[str, dict]:
    rows = csv.DictReader(io.StringIO(path.read_text()))
    return {row["submission"].removeprefix("'"): row for row in rows}


def rows_of(path: Path) -> list[str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["submission"] for line in lines[1:]]


def text(question: dict) -> str:
    """What a student is told about one question, a line below the other."""
    return "\n".join(line["text"] for line in question["lines"])


def wait_until(happened: Callable[[], bool], seconds: float = 180.0) -> None:
    """Until an event, however busy the machine is; an error if it never comes."""
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
