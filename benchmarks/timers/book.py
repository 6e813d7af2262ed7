"""What the book and its tests cost. Goals on two cores: see GOALS.

    python -m benchmarks.timers.book             # a full build, one with nothing to do
    python -m benchmarks.timers.book --tests     # the tests of each room as well
    python -m benchmarks.timers.book --chapters  # each chapter beside an empty kernel
    python -m benchmarks.timers.book --pages     # each page that runs, on one core

The first two work on a copy of the tree, so that nothing built before helps and
nothing of yours is touched.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import nbformat

from tools import book, executed, notebook, tree

GOALS = {  # seconds; but chapters: times empty ones
    "full": 90,
    "nothing changed": 20,
    "chapters": 4,
    "page": 12,
    "assignment": 60,
}


def timed(title: str, arguments: list[str], root: Path, goal: int = 0) -> None:
    """Run one of our commands there: seconds on the clock, and of the processors."""
    own = {**os.environ, "PYTHONPATH": str(root)}  # not the mha_lib that is installed
    start, before = time.perf_counter(), cpu()
    command = [sys.executable, "-m", *arguments]
    done = subprocess.run(command, cwd=root, env=own, stdout=subprocess.DEVNULL)
    took, used = time.perf_counter() - start, cpu() - before
    wanted = f" (goal: {goal} s)" if goal else ""
    failed = f", exit status {done.returncode}" if done.returncode else ""
    print(f"{title:24}{took:7.1f} s {used:7.1f} s of CPU{wanted}{failed}", flush=True)


def cpu() -> float:
    """CPU seconds of the children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def build_and_test(tests: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = tree.copy(Path(folder))
        for title in ("full", "nothing changed"):
            timed(f"build, {title}", ["tools.build"], root, GOALS[title])
        rooms = sorted(path for path in (root / "tests").iterdir() if path.is_dir())
        for room in rooms if tests else ():
            timed(f"tests/{room.name}", ["pytest", "-q", f"tests/{room.name}"], root)


def seconds(path: Path) -> float:
    start = time.perf_counter()
    notebook.execute(path)
    return time.perf_counter() - start


def empty_notebook(folder: str) -> Path:
    """One cell, `import torch`: what every chapter pays."""
    path = Path(folder) / "empty.ipynb"
    cell = nbformat.v4.new_code_cell("import torch")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


def chapters() -> None:
    """What executing costs beyond starting kernels; chapter and floor in turn."""
    spent, floor = 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        empty = empty_notebook(folder)
        seconds(empty)  # fills the disk cache
        for path in book.chapters():
            base, own = seconds(empty), seconds(path)
            print(f"{path.stem}: {own:.1f} s, {own / base:.1f} times an empty kernel")
            spent, floor = spent + own, floor + base
    ratio = spent / floor
    print(f"all chapters: {ratio:.2f} times (goal: under {GOALS['chapters']})")


def pages(names: list[str]) -> None:
    """What each page and each assignment costs by itself, its kernel's start included.

    Seconds of CPU are those of the page whatever else runs; those on the clock are not.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # and all kernels
    found = executed.pages() | {path: notebook.read(path) for path in book.sources()}
    took = {}
    for path, page in found.items():
        if names and path.stem not in names:
            continue
        start, before = time.perf_counter(), cpu()
        notebook.run(page, path)
        took[path.stem] = cpu() - before
        clock = time.perf_counter() - start
        print(
            f"{path.stem:36}{took[path.stem]:6.1f} s of CPU {clock:6.1f} s", flush=True
        )
    given = {path.stem for path in book.sources()}
    for kind, names in (("page", took.keys() - given), ("assignment", given)):
        over = [name for name in took if name in names and took[name] > GOALS[kind]]
        listed = ", ".join(over) or "none"
        print(f"{kind}s above {GOALS[kind]} s of CPU: {listed}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tests", action="store_true", help="of each room, too")
    parser.add_argument("--chapters", action="store_true", help="executed one by one")
    parser.add_argument("--pages", nargs="*", metavar="NAME", help="all, or these")
    options = parser.parse_args()
    if options.pages is not None:
        pages(options.pages)
    elif options.chapters:
        chapters()
    else:
        build_and_test(options.tests)


if __name__ == "__main__":
    main()
