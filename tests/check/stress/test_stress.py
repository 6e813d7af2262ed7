"""Wrong programs, written without a look at the probes: none may be called right.

Each has a witness, a call that its task allows and on which it differs from a plain
reference; so no right program hides among them. What a task does not ask for stands in
`ALLOWED`, with the reason, and is called right.
"""

import functools
import zlib

import pytest

import mha_lib.check
from mha_lib.check import TASKS, conclude, diagnose
from tests.check.stress import (  # noqa: F401 (each fills PROGRAMS)
    contract,
    gaming,
    gradients,
    masks,
    plain,
    precision,
    sizes,
    sizes_layers,
    sizes_parts,
    state,
)
from tests.check.stress.allowed import ALLOWED
from tests.check.stress.programs import PROGRAMS

pytestmark = pytest.mark.long

NAMES = sorted(PROGRAMS)
LISTED = [name for names in ALLOWED.values() for name in names]
WRONG = [name for name in NAMES if name not in LISTED]


def seeds(name, count):
    """Another start for each program, the same in every run."""
    first = zlib.crc32(name.encode()) % 10_000
    return range(first, first + count)


@pytest.fixture
def without_names(monkeypatch):
    """The verdict alone: the search for the name of a mistake takes long."""
    quick = functools.partial(conclude, search=False)
    monkeypatch.setattr(mha_lib.check, "conclude", quick)


def verdicts(name, count):
    program = PROGRAMS[name]
    return {
        diagnose(program.make(), program.task, seed=seed).verdict
        for seed in seeds(name, count)
    }


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_witness_shows_that_it_is_wrong(name):
    program = PROGRAMS[name]
    assert plain.wrong_on(program.make(), program.task, program.calls)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", NAMES)
def test_a_witness_shows_nothing_of_what_is_right(name):
    program = PROGRAMS[name]
    layer = plain.is_layer(program.make())
    right = plain.RightLayer if layer else plain.RIGHT[program.task]
    assert not plain.wrong_on(right, program.task, program.calls)


@pytest.mark.sweep(8)
@pytest.mark.parametrize("name", WRONG)
def test_it_is_not_called_right(name, without_names):
    assert "right" not in verdicts(name, 1)


@pytest.mark.parametrize("name", LISTED)
def test_what_is_allowed_is_called_right(name, without_names):
    assert verdicts(name, 1) == {"right"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WRONG)
def test_it_is_not_called_right_by_any_of_eight_seeds(name, without_names):
    assert "right" not in verdicts(name, 8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", WRONG)
def test_it_is_not_called_right_by_the_search_either(name):
    assert "right" not in verdicts(name, 1)


def test_each_task_and_each_kind_has_its_share():
    programs = PROGRAMS.values()
    ours = {name for name, task in TASKS.items() if not task.conclude}
    assert {p.task for p in programs} == ours
    for task in ours:
        assert sum(p.task == task for p in programs) >= 10
    assert len({p.kind for p in programs}) == 7 and len(programs) >= 120
    assert all(p.says.endswith(".") for p in programs)


def test_what_is_allowed_is_named_once():
    assert sorted({*LISTED}) == sorted(LISTED) and {*LISTED} <= {*NAMES}
