"""Each chapter is a road that one person walks in one go: see tools/road.py."""

import pytest

from tools import book, notebook, road


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_chapter_is_a_road(path):
    assert road.measure(notebook.read(path)).faults == []


@pytest.mark.parametrize("path", book.lessons(), ids=lambda path: path.stem)
def test_minutes_are_counted(path):
    page = notebook.read(path)
    said = road.TIME.findall(page.cells[0].source)
    assert said == [road.measure(page).time], "run: python -m tools.road --write"
