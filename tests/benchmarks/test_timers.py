"""The timers are commands that start; the room's map names every module."""

import importlib
from itertools import chain
from pathlib import Path

import pytest

import benchmarks
from benchmarks import timers
from benchmarks.timers import check, pages, widgets
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


def test_of_an_act_the_longest_frame_counts():
    def event(name, start, took=0, thread=1):
        where = {"pid": 1, "tid": thread, "ph": "X" if took else "I"}
        return {"name": name, "ts": start, "tts": start, "tdur": took, **where}

    events = [
        event("EventDispatch", 0, 9000),  # before the act
        event("act", 10_000),
        event("EventDispatch", 11_000, 1000),
        event("FireAnimationFrame", 12_000, 3000),
        event("Layout", 14_000, 1500),  # a part of it inside the one before
        event("Paint", 14_000, 9000, thread=2),  # not the main thread's
        event("Commit", 16_000, 500),
        event("FireAnimationFrame", 30_000, 2000),  # the next frame
        event("Commit", 33_000, 500),
        event("done", 40_000),
        event("act", 50_000),
        event("FireIdleCallback", 51_000, 3000),
        event("FunctionCall", 52_000, 1000),  # in it
        event("FireIdleCallback", 55_000, 2500),  # the page is free between the two
        event("Paint", 58_000, 1000),
        event("done", 60_000),
    ]
    assert widgets.work_of_each(events) == [5.0, 3.0]

    without_ends = [x for x in events if x["name"] != "Commit"]
    with pytest.raises(ValueError, match="frames must end with 'Commit'"):
        widgets.work_of_each(without_ends)
