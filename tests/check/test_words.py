"""What is found is data: codes and values, and each code has its words in one table."""

import ast
import json
import math
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

import mha_lib.check
from mha_lib.check import (
    SPECIAL,
    TASKS,
    Fact,
    Problem,
    beside,
    compute,
    diagnose,
    in_words,
    matches,
)
from mha_lib.check.beside.words import ADVICE, RAN_WITH
from mha_lib.check.example import _of_map
from mha_lib.check.words import WORDS
from tests.check.layers import Right
from tests.check.submissions_right import RIGHT
from tests.check.submissions_wrong import column_softmax, square_only

FOLDER = Path(mha_lib.check.__file__).parent


def strings(path):
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return {n.value for n in nodes if type(n) is ast.Constant and type(n.value) is str}


def test_no_words_are_left_over():
    tables = {FOLDER / "beside" / "words.py", *FOLDER.glob("words/*.py")}
    used = [strings(path) for path in FOLDER.rglob("*.py") if path not in tables]
    assert (WORDS.keys() | ADVICE.keys()) - {
        RAN_WITH,
        beside.NO_MASK,
        beside.OTHER_SHAPE,
        beside.RETURNED,
        beside.SQUARE_MASK,
    } <= set().union(*used)


def test_an_error_of_ours_has_a_code_and_one_of_theirs_has_none():
    outcomes = beside.run(square_only, TASKS["causal_mask"].probes(0))
    codes = [outcome.get("code") for outcome in outcomes]
    assert codes == [None] + ["square-mask"] * (len(outcomes) - 1)
    (theirs, *_) = beside.run(lambda x: x.no_such_thing, TASKS["merge_heads"].probes(0))
    assert theirs.keys() == {"error", "line"}


def test_the_words_of_an_error_that_somebody_else_raised_name_no_mistake_of_ours():
    def causal_mask(T, S):
        raise RuntimeError("this one takes T alone")

    found = diagnose(causal_mask)
    assert (found.verdict, found.mistakes) == ("failed", [])


@pytest.mark.long
@pytest.mark.sweep(13)
@pytest.mark.parametrize("submission, task", RIGHT)
def test_notes_are_plain_data(submission, task):
    told = {"code", "error", "line", "raised_by"}
    for outcome in beside.run(submission, TASKS[task].probes(0)):
        notes = outcome.get("notes", [])
        assert json.loads(json.dumps(notes)) == notes
        for note in notes:
            if note["code"] == beside.CHOSEN_DROPOUT:
                assert note.keys() == {"code"}
                continue
            if note["code"] == beside.REORDERED:
                assert note.keys() == {"code", "order"} and note["order"]
                continue
            assert note["code"] == RAN_WITH and note["error"]
            assert note.keys() - told == asdict(beside.Way()).keys()


@pytest.mark.parametrize(
    ("yours", "right", "words"),
    [
        (
            1.0,
            0.0,
            "Every key is hidden from query 2 (sequence 0, head 1): its weights",
        ),
        (0.0, 1.0, "Query 2 gives every key the weight 0 (sequence 0, head 1);"),
        (math.nan, 1.0, "The weights of query 2 are NaN (sequence 0, head 1), and"),
        (0.6, 1.0, "Row 2 of your map (sequence 0, head 1) sums to 0.60; it has to"),
    ],
)
def test_a_row_is_told_by_what_is_wrong_with_it(yours, right, words):
    place = {"sequence": 0, "head": 1, "row": 2}
    said = in_words(Fact("row-sum", place | {"yours": yours, "right": right}))
    assert said.startswith(words)


@pytest.mark.parametrize("code", ["no_dropout", "gradients", "strided"])
def test_a_sentence_ends_once(code):
    said = in_words(Fact(code))
    assert said[-1] in ".?" and said[-2] not in ".?"


@pytest.mark.parametrize(
    ("way", "words"),
    [
        ({"mask": "(B, T, S)"}, "a mask (B, T, S)"),
        ({"numbers": True}, "a mask of numbers 0 and 1"),
        ({"added": True}, "a mask that is all True"),
        ({"folded": True}, "the heads folded into the batch (B·H, T, D)"),
        (
            {"mask": "(T)", "numbers": True, "added": True, "folded": True},
            "the heads folded into the batch (B·H, T, D), a mask (T) of numbers 0 and "
            "1 that is all True",
        ),
    ],
)
def test_a_way_to_call_is_told_in_words(way, words):
    said = in_words(Fact(RAN_WITH, {"error": "IndexError", "other": 1, **way}))
    assert said == f"As the task calls it, it fails: IndexError. It ran with {words}."


def test_what_somebody_else_said_stays_as_it_is():
    assert in_words("{not} ours") == "{not} ours"


def test_facts_are_plain_data():
    found = diagnose(column_softmax, "attention")
    assert found.policy == {"empty rows": "uniform"}
    for fact in (*found.evidence, found.example.fact):
        assert json.loads(json.dumps(asdict(fact))) == asdict(fact)


@pytest.mark.parametrize(
    ("submission", "task", "kind", "letters"),
    [
        (column_softmax, "attention", "map", "BHT"),
        (lambda T, S: torch.ones(T, S).bool(), "causal_mask", "mask", "TS"),
        (lambda x: x.transpose(1, 2).flatten(2) + 1, "merge_heads", "output", "BTE"),
    ],
)
def test_an_example_names_its_place(submission, task, kind, letters):
    found = diagnose(submission, task).example
    sizes = {p["name"]: p["sizes"] for p in TASKS[task].probes()}[found.probe]
    assert found.sizes == sizes
    assert found.kind == kind and len(found.place) == len(letters)
    assert all(i < sizes[letter] for i, letter in zip(found.place, letters))
    theirs, expected = found.theirs[found.place], found.expected[found.place]
    if kind == "map":  # a row, by its sum
        theirs, expected = theirs.sum(), expected.sum()
    assert not torch.allclose(theirs.double(), expected.double(), atol=1e-2)
    values = [x for x in found.fact.values.values() if type(x) is int]
    assert {*found.place} <= {*values, *found.fact.values.get("place", ())}


def test_an_example_of_another_shape_has_no_place():
    found = diagnose(lambda T, S: torch.ones(T, T).tril().bool(), "causal_mask")
    assert found.example.place == () and found.example.fact.code == "other-shape"


def test_a_right_layer_has_nothing_to_tell():
    found = diagnose(Right, "mha")
    assert (found.evidence, found.error, found.example) == ([], None, None)


@pytest.mark.parametrize(
    ("submission", "task"),
    [
        (column_softmax, "attention"),
        (lambda x: x.transpose(1, 2).flatten(2) + 1, "merge_heads"),
    ],
)
def test_the_example_is_of_the_smallest_probe_that_shows_it(submission, task):
    found = diagnose(submission, task, seed=8).example
    assert 1 not in found.sizes.values()
    probes = TASKS[task].probes(8)
    outcomes = beside.run(submission, probes)
    shown = []
    for probe, outcome in zip(probes, outcomes):
        if SPECIAL & probe["options"].keys() or probe["name"] == "empty row":
            continue
        right = compute(Problem.of(probe))  # the map counts, too, where there is one
        theirs = outcome.get("outputs", {}).get("output")
        alone = 1 in probe["sizes"].values()
        if not alone and not matches(theirs, right["output"]):
            shown.append((sum(x.numel() for x in right.values()), probe["name"]))
    assert found.probe == min(shown)[1]


@pytest.mark.parametrize(
    "row, said",
    [
        ([math.nan, math.nan, math.nan], "The weights of query 0 are NaN"),
        ([math.nan, 1.5, 0.5], "Row 0 of your map (sequence 0, head 0) sums to 2.00"),
        ([0.0, 0.0, 0.0], "Query 0 gives every key the weight 0"),
    ],
)
def test_a_row_is_nan_if_all_of_it_is(row, said):
    fact, _ = _of_map(torch.tensor([[[row]]]), torch.tensor([[[[0.0, 0.5, 0.5]]]]))
    assert in_words(fact).startswith(said)
