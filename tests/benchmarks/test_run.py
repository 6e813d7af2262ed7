"""A whole run: plan, worker, results, trouble."""

import dataclasses
import json
from itertools import product

import pytest
import torch

from benchmarks import __main__, jobs, plots, report, results, views, worker
from benchmarks.contestants import FLOOR, Contestant, Floor, Layer
from benchmarks.jobs import EVERYBODY
from benchmarks.plan import MEMORY_LIMIT, SIZES, Plan
from benchmarks.workload import Size
from evidence.helpers import B, E, H, T

SIZE = Size(B, T, E, H)
TINY = ["--parts=sizes", "--sizes=3,5,22,2", "--masks=causal"]
TINY += ["--runs=training", "--budget=0"]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """Two contestants, one tiny size, two processes; and where the numbers are."""
    folder = tmp_path_factory.mktemp("results")
    output = folder / "small.json"
    wanted = [*TINY, "--only=floor,batched", "--quick", f"--output={output}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "TARGET", folder)
        status = __main__.main(wanted)
    return status, wanted, output


def test_a_run_leaves_its_numbers_and_says_that_all_is_well(small_run):
    status, _, output = small_run
    content = results.load(output)
    assert status == 0
    assert content["machine"]["versions"]["torch"] == torch.__version__
    found = {(e["run"], e["allocator"]): set(e["rows"]) for e in content["entries"]}
    both = {FLOOR.name, "BatchedMHA"}
    assert found == {("training", "system"): both, ("training", "keeps pages"): both}
    assert (output.parent / "small_training_causal.png").exists()


def test_a_run_that_is_resumed_measures_what_is_missing(small_run, monkeypatch):
    """First nothing, then the one cell whose process had died."""
    _, wanted, output = small_run
    monkeypatch.setattr(plots, "draw_all", lambda *_: [])
    asked = []

    def answer(setting, job):
        asked.append(setting.allocator)
        return {"rows": {}}

    monkeypatch.setattr(worker, "answer", answer)
    before = output.read_bytes()
    __main__.main([*wanted, "--resume"])
    assert output.read_bytes() == before and asked == []
    content = results.load(output)
    content["entries"][1] = {**content["entries"][1], "died": "of nothing"}
    broken = output.with_stem("broken")
    broken.write_text(json.dumps(content), encoding="utf-8")
    __main__.main([*wanted, f"--output={broken}", "--resume"])
    assert asked == ["keeps pages"]


def test_a_plan_times_everybody_once_and_the_core_everywhere():
    cells = {}
    for setting, jobs_there in Plan(parts=("sizes",)).groups():
        for job in jobs_there:
            asked = job.arguments
            key = (setting.threads, setting.allocator, asked["dtype"], asked["run"])
            cells.setdefault(key, []).append((asked["causal"], set(asked["names"])))
    everybody = set(EVERYBODY)
    core = {name for name in everybody if EVERYBODY[name].core}
    assert cells.keys() == {
        *product((1, 2), ["system"], ("float32", "bfloat16"), ("forward", "training")),
        *product([1], ["keeps pages"], ["float32"], ("forward", "training")),
    }
    for (threads, allocator, dtype, _), there in cells.items():
        first = (threads, allocator, dtype) == (1, "system", "float32")
        masks = (False, True) if allocator == "system" else (False,)
        names = everybody if first else core
        assert there == [(causal, names) for _ in SIZES for causal in masks]


def test_a_point_of_memory_that_would_not_fit_is_not_measured(monkeypatch, tmp_path):
    asked = []

    def answer(setting, job):
        asked.append((setting.allocator, job.arguments["size"][1]))
        return {"mib": MEMORY_LIMIT / 8}

    monkeypatch.setattr(worker, "answer", answer)
    plan = Plan(parts=("memory",), only=("batched",), memory_lengths=(64, 128, 512))
    __main__.measure(plan, results.Results(tmp_path / "memory.json", {}))
    assert asked == [("own pages", 64), ("own pages", 128)]  # 512 may take 16 times it


def test_a_refused_contestant_is_reported_and_fails_the_run(monkeypatch):
    def broken(workload):
        raise RuntimeError("no kernel\nand more")

    def doubled(workload):
        return Layer(Floor(workload), lambda layer, x: (2 * layer(x)[0], None))

    wrong = {
        "wrong": Contestant("wrong", doubled),
        "broken": Contestant("broken", broken),
    }
    monkeypatch.setattr(jobs, "EVERYBODY", {**EVERYBODY, **wrong})
    answer = jobs.race(
        list(SIZE),
        False,
        "forward",
        "float32",
        ["wrong", "broken", FLOOR.name],
        0,
        threads=1,
        device="cpu",
    )
    assert list(answer["rows"]) == [FLOOR.name]
    assert "output: off by" in answer["refused"]["wrong"]
    assert answer["cannot"] == {"broken": "RuntimeError: no kernel"}

    content = {"entries": [{"part": "sizes", **answer}]}
    assert views.trouble(content, "refused") != []
    monkeypatch.setattr(__main__, "measure", lambda plan, results: None)
    monkeypatch.setattr(__main__, "Results", lambda *a, **k: FakeResults(content))
    monkeypatch.setattr(report, "report", lambda content: "")
    monkeypatch.setattr(plots, "draw_all", lambda *_: [])
    assert __main__.main(["--quick"]) == 1


@dataclasses.dataclass
class FakeResults:
    content: dict


def test_a_worker_that_dies_is_an_answer():
    died = worker.answer(worker.Setting(), worker.Job("sizes", "unheard of", {}))
    assert died.keys() == {"died"} and "KeyError: 'unheard of'" in died["died"]


def test_the_shortest_sequences_come_first():
    """A run that goes on appends what it lacked."""
    cell = {"part": "sizes", **views.MAIN, "dtype": "float32", "rows": {}}
    sizes = [[1, 2048, 768, 12], [8, 128, 256, 8], [2, 1024, 1024, 16]]
    content = {"entries": [{**cell, "size": size} for size in sizes]}
    assert [size.T for size in views.rows_by_size(content)] == [128, 1024, 2048]


def test_the_jobs_of_a_gpu_are_done_in_this_process(monkeypatch):
    def start(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(worker.subprocess, "run", start)
    add = {"add": lambda *, a, threads, device: {"a": a}}
    monkeypatch.setattr(jobs, "BY_KIND", add)
    setting = worker.Setting(device="cuda")
    assert worker.answer(setting, worker.Job("sizes", "add", {"a": 3})) == {"a": 3}
    died = worker.answer(setting, worker.Job("sizes", "add", {"b": 3}))
    assert died["died"].startswith("TypeError: ")
