"""Submissions that are odd, or forged: each gets what it deserves, and is told why."""

import csv
import io
import shutil
from html import unescape

import pytest

from mha_lib.grade import run
from mha_lib.grade.assignments import parse
from tests.grade.attacks.table import MERGE, RIGHT
from tests.grade.course import linux, new_run, notebook

WORTH = {"gradients": 1, "right_with_mask": 4, "right_without_mask": 6}
ASSIGNMENT = {
    "id": "holes",
    "title": "Holes",
    "banned": ["F.scaled_dot_product_attention", "nn.MultiheadAttention"],
    "questions": [
        {"name": "merge_heads", "task": "merge_heads", "points": 1},
        {"name": "attention", "task": "attention", "points": 2},
        {"name": "mha", "task": "mha", "properties": WORTH},
        {"name": "causal_mask", "task": "causal_mask", "points": 5},
    ],
}


FORGED = """
import sys, torch
wire = sys.modules["inside.wire"]
pack = wire.pack
def forged(tree):
    for outcome in tree.get("outcomes", ()):
        outcome["missing"] = [a + "_" + role for a in "Wb" for role in "qkvo"]
        outcome.pop("without_gradient", None)
    return pack(tree)
wire.pack = forged
def mha(query, key, value, weights, num_heads, mask=None):
    return torch.zeros_like(query)
"""
SKIPS = """
import sys, torch
wire = sys.modules["inside.wire"]
pack = wire.pack
def forged(tree):
    if tree.get("question") == "causal_mask":
        rest = len(tree["outcomes"]) - 1
        tree["outcomes"][1:] = [{"skipped": "it takes T alone"}] * rest
    return pack(tree)
wire.pack = forged
def causal_mask(T, S):
    return torch.ones(T, S).tril(S - T).bool()
"""
T_ALONE = """
import torch
def causal_mask(T):
    return torch.ones(T, T).tril().bool()
"""
DIES = """
import ctypes, time
class Event(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("number", ctypes.c_int),
                ("how", ctypes.c_int), ("rest", ctypes.c_int * 12)]
libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
libc.timer_create(0, ctypes.byref(Event(None, 40, 0)), ctypes.byref(timer))
libc.timer_settime(timer, 0, (ctypes.c_long * 4)(0, 0, 0, 1000), None)
time.sleep(5)
"""
FORGETS = """
import torch
class mha(torch.nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        for name in ("W_q", "W_k", "W_v", "W_o"):
            matrix = torch.randn(embed_dim, embed_dim)
            setattr(self, name, torch.nn.Parameter(matrix))
    def forward(self, query, key, value, mask=None):
        pairs = ((query, self.W_q), (key, self.W_k), (value, self.W_v))
        q, k, v = (torch.stack((x @ W).chunk(self.num_heads, -1), 1) for x, W in pairs)
        s = q @ k.mT / q.shape[-1] ** 0.5
        if mask is None:
            return (s.softmax(-1) @ v).transpose(1, 2).flatten(2) @ self.W_o
        s = s.masked_fill(~mask[:, None], -1e9)
        (s.softmax(-1) @ v).transpose(1, 2).flatten(2) @ self.W_o
"""
FLEX = """
import torch
def attention(q, k, v, mask=None):
    import torch.nn.attention.flex_attention as flex
    flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    see = lambda s, b, h, i, j: torch.where(mask[b, 0, i, j], s, -torch.inf)
    return flex.flex_attention(q, k, v, score_mod=None if mask is None else see)
"""
FUTURE = """
from __future__ import annotations
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from torch import Tensor
"""
ANNOTATED = """
def merge_heads(x: Tensor) -> Tensor:
    return x.transpose(1, 2).flatten(2)
class Mask:
    @classmethod
    def of(cls, T: int) -> Mask: return cls()
"""
PIP = "!pip install -q einops \\\n    tqdm \\\n    rich\nimport torch\n%env A=\\\n 1\n"
COLON = "import torch\ndef causal_mask(T, S)\n    return torch.ones(T, S).tril().bool()"
BLANK = "def causal_mask(T, S):\n    ...  # your code here\n"
SUBMISSIONS = {  # and the points that they deserve
    "ada/hw.py": (MERGE + RIGHT, 3),
    "eve/hw.py": (MERGE, 1),
    "eve/hw.py.json/hw.py": (MERGE, 1),
    "eve/HW.PY.html/hw.py": (MERGE, 1),
    "eve/hw.py.html/hw.py": (MERGE, 1),
    "dies.py": (DIES + MERGE, 0),
    "flex.py": (MERGE + FLEX, 1),
    "forgets.py": (MERGE + FORGETS, 7),
    "forged.py": (MERGE + FORGED, 1),
    "future.py": (FUTURE + "# %%\n" + ANNOTATED, 1),
    "future.ipynb": (notebook(FUTURE, ANNOTATED), 1),
    "pip.ipynb": (notebook(PIP + MERGE), 1),
    "skips.py": (MERGE + SKIPS, 1),
    "t_alone.py": (MERGE + T_ALONE, 1),
    "mask.py": (T_ALONE.replace("(T):", "(T, S):").replace("T, T", "T, S"), 5),
    "blank.py": (MERGE + BLANK, 1),
    "colon.ipynb": (notebook(MERGE, COLON), 1),
    "zoe/hw.py": (MERGE + RIGHT, 3),
}


@pytest.fixture(scope="module")
def graded(top):
    """The rows of the table, and all that a student is told, by submission."""
    place = top
    for name, (text, _) in SUBMISSIONS.items():
        path = place / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    output = place / "out" / "grades.csv"
    new_run(place / "in", assignment=parse(ASSIGNMENT), output=output)()
    rows = list(csv.DictReader(io.StringIO(output.read_text())))
    folder = place / "out" / "grades" / "students"
    pages = {
        row["submission"]: unescape((folder / f"{name}.html").read_text())
        for row in rows
        for name in [run._short(row["submission"])]
    }
    for part in place.iterdir():
        shutil.rmtree(part)
    return {row["submission"]: row for row in rows}, pages


@linux
@pytest.mark.parametrize("name", SUBMISSIONS)
def test_every_submission_gets_what_it_deserves(name, graded):
    rows, pages = graded
    assert len(rows) == len(pages) == len(SUBMISSIONS)
    assert float(rows[name]["points"]) == SUBMISSIONS[name][1], pages[name]


@linux
@pytest.mark.parametrize(
    "name, words",
    [
        ("dies.py", "it crashed (signal 40)"),
        ("flex.py", "torch.nn.attention.flex_attention holds it"),
        ("blank.py", "causal_mask is not finished: its line"),
        ("forgets.py", "return</code> missing?"),
        ("skips.py", "it sent no output"),
        ("t_alone.py", "causal_mask must take T and S; this one takes T alone"),
    ],
)
def test_what_happened_is_said(name, words, graded):
    assert words in graded[1][name]


@linux
def test_a_syntax_error_stands_in_the_question_whose_cell_it_hit(graded):
    parts = graded[1]["colon.ipynb"].split("<h2>")
    said = "did not run to its end: cell 2, line 2: SyntaxError: expected ':'."
    assert [said in part for part in parts if "<code>causal_mask" in part] == [True]
    assert sum(said in part for part in parts) == 1


@linux
@pytest.mark.parametrize("name", ["future.py", "future.ipynb", "pip.ipynb"])
def test_cells_that_jupyter_runs_have_no_notes(name, graded):
    assert "Error" not in graded[1][name]
