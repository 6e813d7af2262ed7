"""A mistake is paid for once: what builds on it is judged beside a right part."""

import json
from types import ModuleType

import pytest

from mha_lib.check import registered
from mha_lib.grade.assignments import from_notebook, parse
from mha_lib.grade.inside.child import stand_in
from mha_lib.grade.judge import Judge
from mha_lib.grade.platforms import workflow
from mha_lib.grade.sandbox import Sandbox
from mha_lib.grade.submission import Submission
from tests.grade.course import linux, text

SPLIT = "def split_heads(x, H):\n    return x.unflatten(2, (H, -1)).transpose(1, 2)\n"
MERGE = "def merge_heads(x):\n    return x.transpose(1, 2).flatten(2)\n"
ROUND = "def round_trip(x, H):\n    return merge_heads(split_heads(x, H)) + x\n"
DRAW = """
def draw_round(generator):
    sizes = torch.randint(2, 6, (4,), generator=generator).tolist()
    B, T, H, D = sizes
    x = torch.randn(B, T, H * D, generator=generator)
    return {"drawn": {"x": x, "H": H}}

register(own_task("a9.round", round_trip, draw_round, title="there and back"))
"""
QUESTIONS = [
    {"name": "split_heads", "task": "split_heads", "points": 2},
    {"name": "merge_heads", "task": "merge_heads", "points": 2},
    {
        "name": "round_trip",
        "task": "a9.round",
        "points": 3,
        "uses": ["split_heads", "merge_heads"],
    },
]
WRONG_SPLIT = (
    "def split_heads(x, H): return x.unflatten(2, (-1, H)).permute(0, 3, 1, 2)\n"
)


def cell(source):
    return {"cell_type": "code", "source": [source]}


def source(questions=QUESTIONS):
    spec = {"id": "a9", "title": "Heads", "questions": questions}
    imports = "import torch\nfrom mha_lib.check import own_task, register"
    return {
        "metadata": {"mha_assignment": spec},
        "cells": [
            cell(imports),
            {"cell_type": "markdown", "source": "Text."},
            *map(cell, (SPLIT, MERGE, ROUND, DRAW)),
        ],
    }


@pytest.fixture
def assignment():
    with registered():
        yield from_notebook(source())


def graded(assignment, code, warm):
    with Judge(assignment, 5, warm) as judge:
        result = judge.grade(Submission(code.encode(), "py", digest=""))
    return result, {q["name"]: q["points"] for q in result["questions"]}


@linux
def test_what_builds_on_a_wrong_part_keeps_its_points(assignment, warm):
    result, points = graded(assignment, WRONG_SPLIT + MERGE + ROUND, warm)
    assert points == {"split_heads": 0, "merge_heads": 2, "round_trip": 3}
    assert result["points"] == 5
    said = text(result["questions"][2])
    assert "It was judged beside our split_heads, because yours is not" in said
    assert "Right: there and back." in said


@linux
def test_a_part_that_is_missing_is_no_loss_either(assignment, warm):
    _, points = graded(assignment, ROUND, warm)
    assert points == {"split_heads": 0, "merge_heads": 0, "round_trip": 3}


@linux
def test_what_is_wrong_itself_stays_wrong(assignment, warm):
    result, points = graded(assignment, WRONG_SPLIT + ROUND.replace("+ x", "- x"), warm)
    assert points == {"split_heads": 0, "merge_heads": 0, "round_trip": 0}
    assert "judged beside" not in text(result["questions"][2])


@linux
def test_right_parts_are_not_replaced(assignment, monkeypatch, warm):
    runs, run = [], Sandbox.run
    monkeypatch.setattr(Sandbox, "run", lambda *x: runs.append(x) or run(*x))
    result, points = graded(
        assignment, SPLIT + MERGE + ROUND.replace("+ x", "- x"), warm
    )
    assert points == {"split_heads": 2, "merge_heads": 2, "round_trip": 0}
    assert "judged beside" not in text(result["questions"][2])
    assert len(runs) == 1


@linux
def test_a_part_cannot_be_copied_from_what_stands_in(assignment, warm):
    """The code that looks for it finds it, in a process that is not asked for it."""
    thief = """
import gc
def split_heads(x, H):
    for found in gc.get_objects():
        if type(found) is dict and "stand_ins" in found and found["stand_ins"]:
            space = {}
            exec(found["stand_ins"]["split_heads"], space)
            return space["split_heads"](x, H)
"""
    _, points = graded(assignment, thief + MERGE + ROUND, warm)
    assert points == {"split_heads": 0, "merge_heads": 2, "round_trip": 3}


def test_the_assignment_travels_as_json(assignment):
    data = json.loads(json.dumps(assignment.to_dict()))
    assert parse(data).stand_ins.keys() == {"split_heads", "merge_heads"}
    assert "merge_heads" not in assignment.stand_ins["split_heads"]
    assert "draw_round" in "".join(assignment.tasks)


def test_what_students_can_read_holds_no_solution(assignment, tmp_path):
    workflow(assignment, tmp_path)
    written = (tmp_path / ".github" / "assignment.json").read_text()
    assert "round" not in written and "transpose" not in written
    assert [q["name"] for q in json.loads(written)["questions"]] == [
        "split_heads",
        "merge_heads",
    ]
    assert parse(json.loads(written)).points == 4


def test_a_part_stands_where_code_looks_it_up():
    module = ModuleType("theirs")
    exec("def f(): return g()\ndef g(): return 1", module.__dict__)
    stand_in(module, {"g": "import math\ndef g(): return math.floor(2.5)"})
    assert module.f() == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uses": ["round_trip"]}, "must use questions before it; got round_trip"),
        ({"uses": ["merge"]}, "the notebook must define merge"),
    ],
)
def test_uses_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        from_notebook(source([*QUESTIONS[:2], QUESTIONS[2] | change]))


def test_stand_ins_must_be_there_and_give_nothing_else_away(assignment):
    data = assignment.to_dict()
    with pytest.raises(ValueError, match="so stand_ins must define it"):
        parse(data | {"stand_ins": {}})
    both = {k: SPLIT + MERGE + ROUND for k in data["stand_ins"]}
    with pytest.raises(ValueError, match="must define it and not round_trip"):
        parse(data | {"stand_ins": both})
