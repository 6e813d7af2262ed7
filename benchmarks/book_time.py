"""What executing the chapters costs beyond starting kernels. Goal: under 4 times.

    python -m benchmarks.book_time

The floor is a notebook of one cell, `import torch`, run as often as there are
chapters. Chapter and floor run in turn.
"""

import tempfile
import time
from pathlib import Path

import nbformat

from tools import book, notebook


def seconds(path: Path) -> float:
    start = time.perf_counter()
    notebook.execute(path)
    return time.perf_counter() - start


def empty_notebook(folder: str) -> Path:
    path = Path(folder) / "empty.ipynb"
    cell = nbformat.v4.new_code_cell("import torch")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


def main() -> None:
    chapters, floor = 0.0, 0.0
    with tempfile.TemporaryDirectory() as folder:
        empty = empty_notebook(folder)
        seconds(empty)  # fills the disk cache
        for path in book.chapters():
            base, own = seconds(empty), seconds(path)
            print(f"{path.stem}: {own:.1f} s, {own / base:.1f} times an empty kernel")
            chapters, floor = chapters + own, floor + base
    print(f"all chapters: {chapters / floor:.2f} times empty kernels (goal: under 4)")


if __name__ == "__main__":
    main()
