"""A chapter runs on its own, as on Colab; `python -m tools.alone` runs them all."""

import pytest

from tools import alone, book

SAMPLE = "02_the_two_heads_of_the_first_page"  # short, and has a widget


def marks(path) -> list:
    return [] if path.stem == SAMPLE else [pytest.mark.exhaustive]


@pytest.mark.parametrize(
    "chapter",
    [pytest.param(path, marks=marks(path), id=path.stem) for path in book.lessons()],
)
def test_chapter_installs_what_it_needs(chapter):
    worked, message = alone.run_alone(chapter)
    assert worked, message
    url, _ = book.repository()
    assert message == url
