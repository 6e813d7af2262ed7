"""An assignment as data: where it is read from, what it may hold."""

import json

import pytest

from mha_lib.grade.__main__ import FOLDER
from mha_lib.grade.assignments import load, parse
from tests.grade.course import ASSIGNMENT


def test_assignment_is_read_from_its_notebook(tmp_path):
    notebook = {"metadata": {"mha_assignment": ASSIGNMENT}, "cells": []}
    (tmp_path / "a9_heads.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "a1_other.ipynb").write_text(json.dumps({"metadata": {}}))
    assert load("a9", tmp_path) == parse(ASSIGNMENT)
    assert load(str(tmp_path / "a9_heads.ipynb"), FOLDER).points == 5
    with pytest.raises(ValueError, match="must be one of a1, a9, a notebook or"):
        load("a2", tmp_path)
    with pytest.raises(ValueError, match="must have mha_assignment"):
        load("a1", tmp_path)


def test_points_of_properties_add_up():
    question = {"name": "f", "task": "merge_heads"}
    question["properties"] = {"output_shape": 1, "right": 2}
    data = {"id": "a", "title": "b", "questions": [question]}
    assert parse(data).points == 3
    assert parse(parse(data).to_dict()) == parse(data)
    for change, message in (
        ({"points": 4}, "must be the sum of its properties, 3; got 4"),
        ({"task": "meditate"}, "a task must be one of attention"),
        (
            {"properties": {"rihgt": 3}},
            "must be of .*output_shape.*or what it requires; got rihgt",
        ),
        ({"properties": {}}, "must be worth points; got 0"),
        ({"weight": 3}, "must have id, title and questions"),
    ):
        with pytest.raises(ValueError, match=message):
            parse({**data, "questions": [question | change]})
    with pytest.raises(ValueError, match="names must differ"):
        parse({**data, "questions": [question, question]})


def test_the_assignment_in_the_documentation_can_be_graded():
    from mha_lib.grade import assignments

    text = assignments.__doc__.split("::\n\n")[1].split("\n\nA question")[0]
    assert parse(json.loads(text)).points == 8


def test_the_ids_of_the_book_are_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for number in range(1, 6):
        assert load(f"a{number}", FOLDER).id == f"a{number}"
