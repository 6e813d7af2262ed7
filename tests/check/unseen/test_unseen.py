"""Programs written before a look at the probes, when all other sets passed.

Of 85 wrong ones (`asks_the_shapes` came later) 19 were called right when they were
first tried, 13 of them parts of a language model. Of 35 right ones one was refused, as
the task did not say how wide an mlp is; and one that loses its digits was given a
reason that need not be true. Later rounds: 6 of 45 parts of a language model; in the
fourth 26 of 69, eleven of them answers to the assignments; in the fifth, once the
probes varied more, 13 of 40; in the sixth 1 of 42; in the seventh 2 of 27 (the two
tables came later), and one got the name of another mistake. None of 17 other right ones
was refused, and none of the sixth and seventh round. In the eighth, written against
the sizes that the probes had, 39 of 42 were called right with seed 0. In the ninth 50
of 226 were called right, 40 of which are mended and kept here, and of 72 right ones
none was refused. Nine are left, as contrived or accepted: a cost cut off at 1000, a
fill by the smallest score, no new words, ….

In the tenth, 485 wrong and 118 right answers to all six assignments, no right one was
refused, and 12 wrong ones passed. Four are mended (double precision, large scores and a
token of one number: `tests/tools/wrong_answers.py`). Of the others two have layers of
other names than the task asks for, one has a dropout that nothing forbids, one keeps
the rows of a patient's matrix in another order; one removes a head's map as well, one
takes the highest price for the lowest, one adds 1 where a norm takes it off again, and
one returns a list, which the notebook's own example refuses.

In the sixteenth ten were called right: heads merged as if they always lay in order, a
batch of one text, a mask (T, 1) and a mask_of that nobody asks. They are mended, and
kept in `wrong_eleventh`; `test_answers` holds what was said of others, and not true.

In the seventeenth, 434 wrong and 102 right programs, no right one was refused. Seven
wrong ones passed and are mended: weights in float32 beside an output in float64, four
answers to an assignment's own tasks in float32, a dictionary of matrices that a call
changes, and a silent head whose map is another (`wrong_twelfth`, and
`tests/tools/wrong_answers.py`).

Three kinds are called right and stay so. A table of more places than any probe has: a
right mask may be cut out of a square, which has to have the memory. A sum of 1 + 1e-6
under a softmax is within the rounding that a task allows. A fill of -1e4 hides a key
from all scores that a layer meets; to the letter, a hidden score above 10,000 would
show.
"""

import math

import pytest
import torch

from mha_lib.check import BUILT_IN, check, diagnose
from mha_lib.grade.assignments import from_notebook
from tests.check.unseen import (
    right,
    right_eighth,
    right_fifth,
    right_fourth,
    right_seventh,
    right_sixth,
    wrong_answers,
    wrong_edges,
    wrong_eighth,
    wrong_eleventh,
    wrong_fifth,
    wrong_language,
    wrong_layers_copied,
    wrong_models_copied,
    wrong_ninth,
    wrong_parts,
    wrong_parts_copied,
    wrong_sixth,
    wrong_tenth,
    wrong_third,
    wrong_twelfth,
)
from tools import book, notebook

ROUNDS = (
    wrong_parts,
    wrong_language,
    wrong_third,
    wrong_parts_copied,
    wrong_layers_copied,
    wrong_models_copied,
    wrong_fifth,
    wrong_sixth,
    wrong_edges,
    wrong_eighth,
    wrong_ninth,
    wrong_tenth,
    wrong_eleventh,
    wrong_twelfth,
)
WRONG = [row for each in ROUNDS for row in each.WRONG]
RIGHT_ROUNDS = (
    right,
    right_fourth,
    right_fifth,
    right_sixth,
    right_seventh,
    right_eighth,
)
RIGHT = [row for each in RIGHT_ROUNDS for row in each.RIGHT]
RIGHT_ANSWERS = [
    row
    for each in (right_fourth, right_sixth, right_seventh)
    for row in each.RIGHT_ANSWERS
]
ANSWERS = [
    *wrong_answers.WRONG,
    *wrong_answers.FIFTH,
    *wrong_sixth.ANSWERS,
    *wrong_edges.ANSWERS,
]
pytestmark = pytest.mark.long


def named(rows):
    return {"argvalues": rows, "ids": [program.__name__ for _, program in rows]}


@pytest.mark.sweep(241)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("task", "program"), **named(WRONG))
def test_what_is_wrong_is_not_called_right(task, program, seed):
    report = check(program, task, seed=seed)
    assert not report
    assert "wrong in ." not in repr(report) and "[]" not in repr(report)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", [0, 1, 5])
@pytest.mark.parametrize(("task", "program"), **named(wrong_ninth.FOR_ALL))
def test_one_mask_for_all_is_not_told_by_its_size(task, program, seed):
    assert not check(program, task, seed=seed, requires=["mask_for_all"])


@pytest.mark.sweep(13)
@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(("task", "program"), **named(RIGHT))
def test_what_is_right_is_called_right(task, program, seed):
    assert diagnose(program, task, seed=seed).verdict == "right"


@pytest.fixture(scope="module")
def asked():
    """The task of each question that an assignment asks, as "a1 softmax"."""
    found = {}
    for path in book.sources():
        id = path.stem.partition("_")[0]
        for question in from_notebook(notebook.read(path)).questions:
            found[f"{id} {question.name}"] = question.task
    return found


@pytest.mark.sweep(65)
@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(("task", "program"), **named(ANSWERS))
def test_a_wrong_answer_is_not_called_right(task, program, seed, asked):
    assert not check(program, asked[task], seed=seed)


@pytest.mark.sweep(9)
@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize(("task", "program"), **named(RIGHT_ANSWERS))
def test_a_right_answer_is_called_right(task, program, seed, asked):
    assert check(program, asked[task], seed=seed)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", [0, 5])
def test_a_key_of_zeros_is_no_score_of_zero(seed):
    found = diagnose(wrong_edges.HidesAlsoWhatIsZero, "mha", seed=seed)
    assert (found.verdict, found.mistakes) == ("unknown", [])


def test_what_loses_its_digits_is_refused_for_a_reason_that_may_be_true():
    def by_distances(q, k, v, mask=None):  # |q|² + |k|² - |q - k|² = 2 q·k
        apart = (q[..., :, None, :] - k[..., None, :, :]).square().sum(-1)
        qq, kk = q.square().sum(-1)[..., :, None], k.square().sum(-1)[..., None, :]
        z = (qq + kk - apart) / 2 / math.sqrt(q.size(-1))
        if mask is not None:
            z = torch.where(mask, z, -torch.inf)
        w = torch.softmax(z, -1)
        return torch.where(w.isnan(), 0.0, w) @ v

    report = check(by_distances, "attention", seed=1)
    assert report.diagnosis.verdict == "unmet"
    assert "a difference of much larger numbers" in repr(report)


def test_every_task_has_its_share():
    assert {task for task, _ in WRONG} == {task for task, _ in RIGHT} == BUILT_IN
    assert len(WRONG) >= 80 and len(RIGHT) >= 35
