"""Text of an author's cells that runs by itself."""

import inspect

import pytest

from mha_lib.check import check, registered
from mha_lib.grade import author
from mha_lib.grade.assignments import from_notebook

CELLS = [
    "%matplotlib inline\nimport math, torch\nfrom torch import nn",
    "SIZE = 3\nx = torch.ones(SIZE)",
    "def half(x):\n    y = x / 2  # a comment\n    return y",
    "for n in range(2):\n    total = n",
    "class Layer(nn.Module):\n    size = SIZE\n"
    "    def forward(self, x):\n        return [half(y) for y in x]",
    "@torch.no_grad()\ndef last(x=total):\n    return x",
]


def run(*names):
    return author.execute(author.closure(CELLS, names), "a test")


def test_a_definition_comes_with_what_it_needs_and_nothing_else():
    assert author.bound(author.closure(CELLS, ["half"])) == {"half"}
    layer = author.bound(author.closure(CELLS, ["Layer"]))
    assert layer == {"half", "Layer", "SIZE", "nn"}
    assert run("Layer")["Layer"]()([4, 6]) == [2, 3]


def test_values_loops_and_decorators_come_along():
    found = run("last")
    assert found["last"]() == 1
    assert {"torch", "n", "total"} <= found.keys()


def test_a_definition_counts_and_no_experiment_with_its_name():
    cells = [*CELLS, "try:\n    half = last\nfinally:\n    half = half"]
    assert author.bound(author.closure(cells, ["half"])) == {"half"}


def test_the_variable_of_a_loop_is_its_own():
    cells = ["n = print('nothing')", "for n in (1, 2):\n    m = n"]
    assert author.closure(cells, ["m"]) == "for n in (1, 2):\n    m = n"


def test_a_name_that_nobody_binds_is_refused():
    with pytest.raises(ValueError, match="must define nowhere"):
        author.closure(CELLS, ["half", "nowhere"])


def test_functions_of_a_text_can_be_read_again():
    assert "return y" in inspect.getsource(run("half")["half"])


def test_a_text_that_fails_is_one_sentence():
    with pytest.raises(ValueError, match="the tasks of a9 must run; got ZeroDiv"):
        author.execute("1 / 0", "the tasks of a9")


def test_tasks_are_found_with_all_they_need():
    task = (
        "def draw_half(generator):\n    return {'one': {'x': SIZE}}\n"
        "register(own_task('a9.half', half, draw_half))"
    )
    cells = [*CELLS, "from mha_lib.check import own_task, register", task]
    text = author.tasks(cells)
    assert "Layer" not in text and "x = torch" not in text
    with registered():
        author.execute(text, "a test")
        assert check(lambda x: 0.5 * x, "a9.half")
        assert not check(lambda x: x, "a9.half")


def test_a_notebook_without_tasks_has_none():
    assert author.tasks(CELLS) == ""


def test_files_beside_a_notebook_are_those_that_it_imports(tmp_path):
    for name in ("ours", "second", "other", "torch", "json"):
        (tmp_path / f"{name}.py").write_text(f"print('{name}')")
    cells = ["import json, ours, elsewhere", "from second import x\nimport torch.nn"]
    cells += ["from . import other\nimport ours", "%load other"]
    found = author.files([*CELLS, *cells], tmp_path)
    assert found == ["print('ours')", "print('second')"]
    assert author.files(CELLS, tmp_path) == []


def test_a_file_registers_under_names_of_its_own(tmp_path):
    register = "from mha_lib.check import own_task, register\n"
    (tmp_path / "ours.py").write_text(
        f"{register}def half(x): return x / 2\n"
        "def draw(generator): return {'one': {'x': 3}}\n"
        "register(own_task('a9.half', half, draw))\nprint('not this')"
    )
    cells = ["import ours", "def half(x): return x * 2", "def draw(x): return {}"]
    cells += [f"{register}def third(x): return x / 3"]
    cells += ["register(own_task('a9.third', third, lambda g: {'one': {'x': 6}}))"]
    questions = [{"name": x, "task": f"a9.{x}", "points": 1} for x in ("half", "third")]
    source = {
        "metadata": {
            "mha_assignment": {"id": "a9", "title": "", "questions": questions}
        },
        "cells": [{"cell_type": "code", "source": cell} for cell in cells],
    }
    with registered():
        file, own = from_notebook(source, tmp_path).tasks
        assert "third" not in file and "half" not in own and "print" not in file
        assert check(lambda x: x / 2, "a9.half") and check(lambda x: x / 3, "a9.third")
    found = pytest.raises(ValueError, match="a task must be one of .*; got 'a9.half'")
    with found, registered():
        from_notebook(source)
