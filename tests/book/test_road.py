"""Each chapter is a road that one person walks in one go: see tools/road.py."""

import re

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


def test_the_first_page_tells_the_minutes_of_the_first_lesson():
    intro = book.INTRO.read_text(encoding="utf-8")
    (told,) = road.OF_THE_LESSON.findall(intro)
    said = [
        road.TIME.findall(notebook.read(path).cells[0].source)[0]
        for path in book.chapters()[: road.FIRST_LESSON]
    ]
    pairs = [map(int, re.findall(r"\d+", time)) for time in said]
    reading, practice = map(sum, zip(*pairs))
    assert told == f"{reading} minutes, and {practice} for the exercises", (
        "run: python -m tools.road --write"
    )
