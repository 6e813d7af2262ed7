"""Where the work is done: here, in processes, on many machines, one of which dies."""

import math
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from mha_lib.grade import engines, run, sandbox
from tests.grade.attacks.table import MERGE
from tests.grade.course import BARE, SPLIT, linux, new_run, rows_of, table


@pytest.fixture
def forks(monkeypatch):
    """Processes are forked from one that has imported, once, what all of them need."""
    from distributed import utils

    known = "_forkserver_preload_set"  # so that it asks for no other packages
    monkeypatch.setattr(utils, known, True, raising=False)
    context = get_context("forkserver")
    context.set_forkserver_preload(["distributed", "mha_lib.grade.run"])
    return context


def test_two_processes_do_what_one_does(forks, monkeypatch):
    """Spawned ones are what the command has, in test_start.py."""
    monkeypatch.setattr(engines, "get_context", {"spawn": forks}.__getitem__)
    items = [(n, 3) for n in range(9)]
    done = engines.local(math.prod, iter(items), 2, "")
    assert sorted(done) == [n * 3 for n in range(9)]
    assert list(engines.local(math.prod, iter(items), 1, "")) == sorted(
        map(math.prod, items)
    )


def test_an_engine_does_everything_once_and_does_not_run_ahead():
    taken = []
    items = (taken.append(n) or n for n in range(100))
    with ThreadPoolExecutor(2) as executor:
        results = engines.ahead(executor, abs, items, 2)
        done = [next(results)]
        assert len(taken) <= engines.AHEAD * 2
        assert sorted([*done, *results]) == list(range(100))


# --- many machines ------------------------------------------------------------------


GRADE = run._grade


def noted(notes: Path, settings: str, item: tuple) -> tuple:
    """What a worker does; it notes what it begins, and dies once at its work."""
    name, _ = item
    with (notes / "begun").open("a") as file:
        file.write(f"{name} {os.getpid()}\n")
    sandbox.START = BARE
    if name == "05.py" and not (notes / "killed").exists():
        (notes / "killed").touch()

        def wait_for_an_answer(connection, limit):
            os.kill(os.getpid(), signal.SIGKILL)

        start = sandbox.Sandbox.start
        sandbox.Sandbox.start = lambda self: (
            start(self) or setattr(sandbox.wire, "receive", wait_for_an_answer)
        )
    return GRADE(settings, item)


@pytest.fixture
def cluster(forks):
    """Two workers."""
    from dask import config
    from distributed import LocalCluster

    machines = {"n_workers": 2, "threads_per_worker": 1}
    machines |= {"dashboard_address": "127.0.0.1:0"}
    by_forks = {"distributed.worker.multiprocessing-method": "forkserver"}
    with config.set(by_forks), LocalCluster(**machines) as made:
        yield made


@linux
def test_a_machine_that_dies_while_it_grades_costs_nobody_a_mark(
    place, monkeypatch, cluster
):
    """Of a scheduler that runs already; test_course.py has one that a run starts."""
    folder = place / "in"
    folder.mkdir()
    names = [f"{number:02}.py" for number in range(10)]
    for number, name in enumerate(names):
        (folder / name).write_text([MERGE, MERGE + SPLIT, "x = 1"][number % 3])
    here, there = place / "here.csv", place / "there.csv"
    new_run(folder, output=here)()
    monkeypatch.setattr(run, "_grade", partial(noted, place))
    address = cluster.scheduler_address
    new_run(folder, output=there, engine="dask", address=address)()

    begun = [line.split() for line in (place / "begun").read_text().splitlines()]
    (one, other) = [pid for name, pid in begun if name == "05.py"]
    assert one != other and (place / "killed").exists()
    assert len({pid for _, pid in begun}) >= 2
    assert sorted(rows_of(there.with_suffix("") / "journal.jsonl")) == names
    assert there.read_text() == here.read_text()
    assert set(table(there)) == set(names)


def test_without_dask_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ValueError, match="need Dask: pip install distributed"):
        next(engines.ENGINES["dask"](abs, [1], 1, ""))
