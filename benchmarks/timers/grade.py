"""What grading a submission costs: CPU seconds, beside pytest and otter-grader.

    python -m benchmarks.timers.grade
    python -m benchmarks.timers.grade --otter ~/otter/bin/otter   # where it is
    python -m benchmarks.timers.grade --many 10000                # memory, a long run

The probes of contract and conduct may cost at most twice the 46 ms that a submission
cost before there were any. With them it is 82 ms of CPU where every submission computes
what is right anew, and 67 where the judge keeps it for the class: 15 for the judge, 23
for the submission's process, 28 in the kernel for two forks and the namespaces (medians
of three rounds in turn, on two cores that others were using). Far sizes, caches
and loud hidden values came later: 74 with them, 71 without, measured in the same way.

Goals: at most 1/40 of the CPU time of a cold pytest run of the same checks and 1/100 of
that of `otter run`; two workers 1.8 times as fast as one, on two free cores; memory
that does not grow. All times of one table come from one run, in turn. CPU time of the
children counts; starting the warm process is left out, as it is paid once.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from statistics import median

from mha_lib.grade import run
from mha_lib.grade.assignments import parse

GOALS = {"pytest": 40, "otter": 100}
ROUNDS = 5
BATCH = 300  # submissions that one and two workers share out
ASSIGNMENT = {
    "id": "cost",
    "title": "Cost",
    "questions": [
        {"name": "attention", "task": "attention", "points": 4},
        {"name": "merge_heads", "task": "merge_heads", "points": 2},
    ],
}
SUBMISSION = """
import torch
import torch.nn.functional as F

def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax({dim})
    return weights @ v, weights

def merge_heads(x):
    return x.transpose(1, 2).flatten(2)
"""
PYTEST = """
import sys
sys.path.insert(0, {folder!r})
from mha_lib.check import diagnose
import submission

def test_attention():
    assert diagnose(submission.attention, "attention").verdict == "right"

def test_merge_heads():
    assert diagnose(submission.merge_heads, "merge_heads").verdict == "right"
"""
OTTER = """
from otter.test_files import test_case
OK_FORMAT = False
name, points = "q1", 6

@test_case()
def test_answers(attention, merge_heads):
    from mha_lib.check import diagnose
    assert diagnose(attention, "attention").verdict == "right"
    assert diagnose(merge_heads, "merge_heads").verdict == "right"
"""


def cpu() -> float:
    """CPU seconds of this process and of the children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def write_submissions(folder: Path, count: int) -> None:
    """A third of them right, the others wrong in one way."""
    folder.mkdir(parents=True)
    for number in range(count):
        text = SUBMISSION.format(dim=-1 if number % 3 == 0 else -2)
        (folder / f"{number:05}.py").write_text(text + f"# {number}\n")


def graded(folder: Path, count: int, workers: int = 1) -> tuple[float, float]:
    """CPU seconds and seconds on the clock for so many submissions."""
    write_submissions(folder / "in", count)
    output = folder / "out.csv"
    start = time.perf_counter(), cpu()
    run.Run(parse(ASSIGNMENT), [folder / "in"], output, {}, workers=workers)()
    run.close()
    return cpu() - start[1], time.perf_counter() - start[0]


def per_submission(folder: Path, few: int = 5, many: int = 65) -> float:
    """What one more costs: the start is paid in both runs."""
    small, _ = graded(folder / "few", few)
    large, _ = graded(folder / "many", many)
    return (large - small) / (many - few)


def speedup(folder: Path, few: int = 10) -> float:
    """How much faster two workers are than one, their start left out."""
    each = []
    for workers in (1, 2):
        place = folder / str(workers)
        _, small = graded(place / "few", few, workers)
        _, large = graded(place / "many", few + BATCH, workers)
        each.append(large - small)
    return each[0] / each[1]


def command(arguments: list[str], folder: Path) -> float:
    start = cpu()
    subprocess.run(arguments, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return cpu() - start


def pytest_run(folder: Path) -> float:
    folder.mkdir()
    (folder / "submission.py").write_text(SUBMISSION.format(dim=-1))
    (folder / "test_it.py").write_text(PYTEST.format(folder=str(folder)))
    return command([sys.executable, "-m", "pytest", "-q", "test_it.py"], folder)


def otter_run(folder: Path, otter: str) -> float:
    """`otter run` of the same checks on a notebook, in otter's own environment."""
    folder.mkdir()
    cells = [SUBMISSION.format(dim=-1)]
    notebook = {
        "cells": [
            {
                "cell_type": "code",
                "metadata": {},
                "source": text,
                "outputs": [],
                "execution_count": None,
            }
            for text in cells
        ],
        "metadata": {
            "kernelspec": {"name": "python3", "language": "python", "display_name": "p"}
        },
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    (folder / "submission.ipynb").write_text(json.dumps(notebook))
    with zipfile.ZipFile(folder / "autograder.zip", "w") as archive:
        archive.writestr("tests/q1.py", OTTER)
        archive.writestr("otter_config.json", "{}")
    arguments = [otter, "run", "-a", "autograder.zip", "submission.ipynb"]
    return command([*arguments, "--no-logo"], folder)


def rss(pid: int) -> float:
    """MB that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def memory(folder: Path, count: int) -> list[tuple[int, float, float]]:
    """After how many submissions the judge and the warm process hold how much."""
    write_submissions(folder / "in", count)
    seen = []

    def watched(results, total):
        for number, result in enumerate(results, 1):
            if number in (count // 10, count // 2, count):
                warm = run._LOCAL.sandbox.process.pid
                seen.append((number, rss(os.getpid()), rss(warm)))
            yield result

    run.Run(parse(ASSIGNMENT), [folder / "in"], folder / "out.csv", {})(watched)
    run.close()
    return seen


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--otter", help="the program, where otter-grader is installed")
    parser.add_argument("--many", type=int, default=300, help="for the memory")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args()
    others = {"pytest": pytest_run}
    if options.otter:
        others["otter"] = lambda folder: otter_run(folder, options.otter)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ours, theirs = [], {other: [] for other in others}
        for number in range(options.rounds):
            ours.append(per_submission(folder / f"ours{number}"))
            for other, measure in others.items():
                theirs[other].append(measure(folder / f"{other}{number}"))
        print(f"a submission: {1000 * median(ours):.0f} ms of CPU")
        for other, times in theirs.items():
            ratio = median(their / own for their, own in zip(times, ours))
            print(f"{other}: {median(times):.2f} s, {ratio:.0f} times that "
                  f"(goal: {GOALS[other]})")  # fmt: skip

        speedups = [speedup(folder / f"speedup{number}") for number in range(2)]
        print(f"two workers: {min(speedups):.2f} times one, {BATCH} submissions")
        for number, judge, warm in memory(folder / "memory", options.many):
            print(f"after {number}: judge {judge:.0f} MB, warm process {warm:.0f} MB")


if __name__ == "__main__":
    main()
