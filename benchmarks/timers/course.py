"""What grading a course costs, roster and reports and all.

    python -m benchmarks.timers.course
    python -m benchmarks.timers.course --students 30 --workers 1

The class is the made-up one of `tools.practice`. Goal: 150 submissions on two cores in
at most 30 seconds beyond the students' own code, starting the workers included. On the
clock, where the machine does nothing else; from the CPU time of all processes, which
two cores share, anywhere.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mha_lib.grade import course, run
from mha_lib.grade.assignments import load
from mha_lib.grade.inside import kernel
from mha_lib.grade.run import Run
from tools import practice

GOAL = 30  # seconds beyond the students' own code
CORES = 2
FOLDER = practice.ROOT / "book" / "assignments"


def grade(folder: Path, workers: int) -> None:
    """What `mha-grade` does with the files of the class."""
    assignment = load("a1", FOLDER)
    known = course.load(assignment, folder / "roster.csv", folder / "plan.yaml")
    new = Run(assignment, [folder / "export.zip"], folder / "out.csv", {})
    new.course, new.template, new.workers = known, practice.NOTEBOOK, workers
    new()
    run.close()


def cost(command: list[str]) -> tuple[float, float]:
    """Seconds on the clock, and of CPU time with all that it leaves behind."""
    kernel.prctl(kernel.SET_CHILD_SUBREAPER, 1)
    start = time.perf_counter()
    subprocess.run(command, check=True)
    seconds = time.perf_counter() - start
    while True:
        try:
            os.wait()  # the warm processes of workers that have ended
        except ChildProcessError:
            break
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--students", type=int, default=155)
    parser.add_argument("--workers", type=int, default=CORES)
    parser.add_argument("--grade", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grade:
        return grade(options.grade, options.workers)
    with tempfile.TemporaryDirectory() as name:
        practice.write(Path(name), options.students)
        command = [sys.executable, "-m", "benchmarks.timers.course", "--grade", name]
        seconds, spent = cost([*command, "--workers", str(options.workers)])
        reports = list(Path(name, "out", "students").rglob("*.json"))
        own = sum(json.loads(path.read_text())["cpu"] for path in reports)
    print(f"{len(reports)} submissions, {options.workers} workers: {seconds:.1f} s")
    print(f"CPU time: {spent:.1f} s, of which the students' own code {own:.1f} s")
    beyond = (spent - own) / CORES
    print(f"beyond it, on {CORES} free cores: {beyond:.1f} s (goal for 150: {GOAL})")


if __name__ == "__main__":
    main()
