"""The text in figures: large enough on a phone, and none of it over another.

A page runs once more, in a kernel that notes what matplotlib draws (`figures.py`).
"""

import json
from itertools import combinations, pairwise
from pathlib import Path

import nbformat
import pytest

from tools import book, notebook

NOTES = Path(__file__).with_name("figures.py").read_text(encoding="utf-8")
PAGE, EDGES = 358, 24  # pixels of a phone's page; a picture's white stands outside it
LEAST = 11  # pixels


def figures_of(page, path):
    """(width, [(text, points, corners)]) of each figure that a page draws."""
    page.cells.insert(0, nbformat.v4.new_code_cell(NOTES))
    page.cells.append(nbformat.v4.new_code_cell("print(told_of_figures())"))
    done = notebook.run(page, path)
    return json.loads(done.cells[-1].outputs[0].text)


def in_pixels(points: float, width: float) -> float:
    return points / 72 * 100 * min(1, (PAGE + EDGES) / width)


def apart(one, other) -> bool:
    """Whether a line parts two rectangles: one along a side of theirs, if any."""
    for (x0, y0), (x1, y1) in [*pairwise(one), *pairwise(other)]:
        across = [
            [x * (y1 - y0) - y * (x1 - x0) for x, y in each] for each in (one, other)
        ]
        if max(across[0]) <= min(across[1]) or max(across[1]) <= min(across[0]):
            return True
    return False


def faults(figures) -> list[str]:
    found = []
    for n, (width, texts) in enumerate(figures):
        small = [t for t, points, _ in texts if in_pixels(points, width) < LEAST]
        found += [
            f"figure {n}, {width:.0f} pixels wide: too small: {t!r}" for t in small
        ]
        found += [
            f"figure {n}: {one[0]!r} meets {other[0]!r}"
            for one, other in combinations(texts, 2)
            if not apart(one[2], other[2])
        ]
    return found


@pytest.mark.sweep(14)
@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_text_in_figures_is_large_and_apart(path):
    figures = figures_of(notebook.read(path), path)
    assert figures
    assert faults(figures) == []


# --- what it notices ------------------------------------------------------------------

CELL = """import matplotlib.pyplot as plt
figure, ax = plt.subplots(figsize=({width}, 2))
ax.set(xticks=[], yticks=[])
ax.text(0.1, 0.5, "one", fontsize={points})
ax.text({place}, 0.5, "other", rotation={angle})
plt.show()"""


NOTICED = [
    ({}, []),
    ({"points": 7}, ["too small: 'one'"]),
    ({"width": 6}, ["too small: 'one'", "too small: 'other'"]),
    ({"place": 0.12}, ["'one' meets 'other'"]),
    ({"place": 0.14, "angle": 45}, ["'one' meets 'other'"]),
    ({"place": 0.5, "angle": 45}, []),
]


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """Of each change, drawn by one page: a kernel takes longer than all of them."""
    look = {"width": 4.6, "points": 10, "place": 0.5, "angle": 0}
    first = "%config InlineBackend.figure_formats = ['retina']"
    cells = [first, *(CELL.format(**look | change) for change, _ in NOTICED)]
    new = nbformat.v4
    page = new.new_notebook(cells=[new.new_code_cell(cell) for cell in cells])
    return figures_of(page, tmp_path_factory.mktemp("figures") / "page.ipynb")


@pytest.mark.parametrize("n", range(len(NOTICED)))
def test_what_it_notices(figures, n):
    found, (_, said) = faults(figures[n : n + 1]), NOTICED[n]
    assert len(figures) == len(NOTICED) and len(found) == len(said)
    assert all(part in fault for part, fault in zip(said, found))
