"""What once got past the grader, or ended the run of a class, does so no more."""

import csv
import io
import json
import signal
import sys
import time
from html import unescape
from pathlib import Path

import nbformat
import pytest
import torch

from mha_lib.check import beside
from mha_lib.check.tasks import TASKS
from mha_lib.grade import judge, run, sandbox
from mha_lib.grade.assignments import parse
from mha_lib.grade.inside import bans
from mha_lib.grade.run import Run
from tests.check.submissions_right import FusedHeadByHead
from tests.grade.attacks.table import MERGE, RIGHT

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
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
LIMITS = {"seconds": 5.0, "wall": 20.0, "cpu": 20, "memory": 1 << 29}


def notebook(*cells: str) -> str:
    cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells))


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
        tree["outcomes"][1:] = [{"skipped": "it takes T alone"}] * 2
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
    "zoe/hw.py": (MERGE + RIGHT, 3),
}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The rows of the table, and all that a student is told, by submission."""
    place = tmp_path_factory.mktemp("holes")
    for name, (text, _) in SUBMISSIONS.items():
        path = place / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    output = place / "out" / "grades.csv"
    Run(parse(ASSIGNMENT), [place / "in"], output, LIMITS, seed=7)()
    run.close()
    rows = list(csv.DictReader(io.StringIO(output.read_text())))
    folder = place / "out" / "grades" / "students"
    pages = {
        row["submission"]: unescape((folder / f"{name}.html").read_text())
        for row in rows
        for name in [run._short(row["submission"])]
    }
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
        ("flex.py", "import of torch.nn.attention.flex_attention halted"),
        ("forgets.py", "is a `return` missing?"),
        ("skips.py", "it sent no output"),
        ("t_alone.py", "causal_mask must take T and S; this one takes T alone"),
    ],
)
def test_what_happened_is_said(name, words, graded):
    assert words in graded[1][name]


@linux
@pytest.mark.parametrize("name", ["future.py", "future.ipynb", "pip.ipynb"])
def test_cells_that_jupyter_runs_have_no_notes(name, graded):
    assert "Error" not in graded[1][name]


# --- one by one ---------------------------------------------------------------------


def test_only_biases_may_be_missing():
    probe = TASKS["mha"].probes(3)[0]
    answer = {"outputs": {"output": torch.zeros(2, 3)}}
    names = ["b_k", "W_q", "W_o", "b_q", "b_x", "x"]
    kept = judge._outcome(probe, {**answer, "missing": names})
    assert kept["missing"] == ["b_k", "b_q"]
    merge = TASKS["merge_heads"].probes(3)[0]
    assert judge._outcome(merge, {**answer, "missing": names})["missing"] == []


def test_zeros_are_not_right_where_every_matrix_is_said_to_be_missing():
    probes = TASKS["mha"].probes(3)
    names = [f"{letter}_{role}" for letter in "Wb" for role in "qkvo"]
    outcomes = [
        judge._outcome(
            probe,
            {
                "outputs": {"output": torch.zeros_like(probe["inputs"]["query"])},
                "missing": names,
            },
        )
        for probe in probes
    ]
    found = judge.judge("mha", probes, outcomes)
    assert found.verdict != "right"
    assert not any(v for k, v in found.properties.items() if k.startswith("right"))


def test_a_giant_second_answer_is_not_hashed():
    probe = TASKS["attention"].probes(3)[0]
    small = {"output": torch.ones(2, 3)}
    giant = torch.zeros(1, dtype=torch.uint8).expand(judge.LARGEST_ANSWER + 1)
    kept = judge._outcome(probe, {"outputs": {**small, "weights": giant}})
    assert kept["outputs"].keys() == {"output"}
    assert judge.fingerprint("attention", [kept]) == judge.fingerprint(
        "attention", [{"outputs": small}]
    )
    kept = judge._outcome(probe, {"outputs": {"output": giant}})
    assert kept == {"error": "it sent no output, or too large a one"}


SHARES = {"right_with_mask": 3, "right_without_mask": 2, "output_dtype": 1}


def layer_with(plain: float | None, masked: float | None) -> tuple[judge.Judge, list]:
    """A judge, and right outcomes in which a number replaces some of the output."""
    question = {"name": "mha", "task": "mha", "properties": SHARES}
    assignment = parse({"id": "s", "title": "S", "questions": [question]})
    judging = judge.Judge(assignment, seed=7)
    outcomes = []
    for probe in judging.probes["mha"]:
        problem = judge.Problem.of(probe, [])
        right = judge.compute(problem, (), "zeros")["output"].float()
        number = masked if "mask" in probe["inputs"] else plain
        if number is not None:
            right[-1, -1] = number
        has = not probe["options"].get("train")
        answers = {"skipped": "no dropout"}, {"outputs": {"output": right}}
        outcomes.append(answers[has])
    return judging, outcomes


NUMBERS = [(1e30, 1e30, 0), (1e30, None, 4), (None, 1e4, 3), (None, None, 6)]
NUMBERS += [(float("inf"), None, 4), (float("nan"), float("-inf"), 0)]


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("plain", "masked", "points"), NUMBERS)
def test_no_numbers_make_the_judge_search_without_end(
    plain, masked, points, monkeypatch
):
    monkeypatch.setattr(judge, "JUDGING", 1.0)
    judging, outcomes = layer_with(plain, masked)
    start = time.process_time()
    part = judging._question(judging.assignment.questions[0], outcomes)
    assert time.process_time() - start < 15
    assert part["points"] == points, part["words"]
    assert "a fault of" not in part["words"] and json.loads(json.dumps(part)) == part


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("plain", "masked", "points"), NUMBERS)
def test_a_search_that_was_given_up_costs_a_name_and_no_points(
    plain, masked, points, monkeypatch
):
    def slow(task, probes, outcomes):
        if calls.append(task) or len(calls) == 1:
            while True:
                time.sleep(0)
        return quick(task, probes, outcomes)

    calls, quick = [], judge.judge
    monkeypatch.setattr(judge, "judge", slow)
    monkeypatch.setattr(judge, "JUDGING", 0.1)
    judging, outcomes = layer_with(plain, masked)
    part = judging._question(judging.assignment.questions[0], outcomes)
    assert (part["points"], len(calls)) == (points, 2), part["words"]
    gave_up = "No known mistake was found in 0.1 s of searching." in part["words"]
    assert gave_up == (points < 6) and "nan" not in part["words"]


@pytest.mark.parametrize(
    "answer",
    [{"outputs": {}}, {"outputs": {"weights": torch.ones(2)}}, {"outputs": None}, {}],
    ids=["none", "weights alone", "no dictionary", "nothing"],
)
def test_one_probe_without_an_output_is_judged_as_an_error(answer):
    probes = TASKS["attention"].probes(3)
    outcomes = [{"outputs": {"output": torch.zeros(2, 3)}} for _ in probes]
    outcomes[3] = answer
    outcomes = [judge._outcome(p, x) for p, x in zip(probes, outcomes)]
    found = judge.judge("attention", probes, outcomes)
    assert outcomes[3] == {"error": "it sent no output, or too large a one"}
    assert found.properties["runs"] is found.properties["right"] is False


def test_only_dropout_can_be_skipped():
    skipped = {"skipped": "x" * 2000, "outputs": {"output": torch.ones(2)}}
    for name in ("mha", "attention", "causal_mask", "split_heads"):
        for probe in TASKS[name].probes(3):
            kept = judge._outcome(probe, skipped)
            train = bool(probe["options"].get("train"))
            assert ("skipped" in kept) == train
            assert not train or kept == {"skipped": "x" * 1000}


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_every_signal_can_be_said():
    for code in range(1, 65):
        ending = {"late": False, "code": -code, "cpu": 0.0}
        assert sandbox._in_words(ending, {"limits": {"cpu": 1}}).startswith("it ")
    ending = {"late": False, "code": -signal.SIGSEGV, "cpu": 0.0}
    assert "(SIGSEGV)" in sandbox._in_words(ending, {"limits": {"cpu": 1}})


def test_no_folder_of_a_report_has_the_name_of_another_report():
    for suffix in (".json", ".html", ".JSON", ".Html", ".json_"):
        folders = run._short(f"eve/hw.py{suffix}/hw.py").parts
        assert folders == ("eve", f"hw.py{suffix}_", "hw.py")
    assert run._short("eve/hw.py.json") == Path("eve/hw.py.json")


def test_modules_that_compute_attention_are_banned_with_it():
    name = "torch.nn.functional.scaled_dot_product_attention"
    assert {"torch.nn.attention.flex_attention", "torch.onnx.ops"} <= {
        *bans.MODULES[name]
    }


def test_the_assignment_in_the_documentation_can_be_graded():
    from mha_lib.grade import assignments

    text = assignments.__doc__.split("::\n\n")[1].split("\n\nA question")[0]
    assert parse(json.loads(text)).points == 8


def test_every_way_to_load_weights_reaches_the_judge():
    probes = TASKS["mha"].probes(3)[:1]
    (outcome,) = beside.run(FusedHeadByHead, probes)
    kept = judge._outcome(probes[0], outcome)
    assert len(outcome["alternatives"]) > 1
    assert kept["alternatives"].keys() == outcome["alternatives"].keys()


def test_notes_of_an_outcome_are_plain_and_short():
    probe = TASKS["attention"].probes(3)[0]
    note = {"code": "ran-with", "folded": True, "mask": [1], "error": "x" * 999}
    given = {"error": "a", "code": "square-mask", "notes": [note, "no note", note] * 20}
    kept = judge._outcome(probe, given)
    assert kept["code"] == "square-mask" and len(kept["notes"]) == 13
    assert kept["notes"][0] == {"code": "ran-with", "folded": True, "error": "x" * 500}
