"""The timers are commands that start; the room's map names every module."""

import importlib
from itertools import chain
from pathlib import Path

import pytest

import benchmarks
from benchmarks import timers
from benchmarks.timers import check, pages
from mha_lib.check.catalogue import MISTAKES


def modules(package):
    return sorted(path.stem for path in Path(package.__file__).parent.glob("[a-z]*.py"))


@pytest.mark.parametrize("name", modules(timers))
def test_every_timer_is_a_documented_command(name):
    timer = importlib.import_module(f"benchmarks.timers.{name}")
    assert f"\n    python -m benchmarks.timers.{name}" in timer.__doc__
    assert callable(timer.main)


@pytest.mark.parametrize("package", [benchmarks, timers])
def test_the_map_of_a_room_names_every_module(package):
    unnamed = [
        name for name in modules(package) if f"``{name}``" not in package.__doc__
    ]
    assert unnamed == []


def test_the_stacks_that_are_timed_are_of_the_catalogue():
    assert set(chain(*check.STACKS)) <= MISTAKES.keys()


def test_work_inside_other_work_counts_once():
    assert pages.union([(8, 12), (0, 10), (2, 5), (20, 21)]) == 13


def test_the_work_for_a_key_is_that_until_the_next_one():
    def event(name, start, took, thread=1, kind="keydown"):
        where = {"pid": 1, "tid": thread, "args": {"data": {"type": kind}}}
        return {"name": name, "ts": start, "dur": took, **where}

    events = [
        event("EventDispatch", 0, 2000),
        event("Layout", 1000, 3000),  # half inside the handler
        event("Paint", 5000, 1000, thread=2),  # not the main thread's
        event("EventDispatch", 10_000, 500),
        event("Paint", 200_000, 1000),  # long after the last key
    ]
    assert pages.busy(events) == [4.0, 0.5]
