"""A chapter runs on its own, as on Colab; `python -m tools.alone` runs them all."""

import pytest

from tools import alone, book

FIRST, *OTHERS = book.lessons()


@pytest.mark.parametrize(
    "chapter",
    [FIRST, *(pytest.param(path, marks=pytest.mark.exhaustive) for path in OTHERS)],
    ids=lambda path: path.stem,
)
def test_chapter_installs_what_it_needs(chapter):
    worked, message = alone.run_alone(chapter)
    assert worked, message
    url, _ = book.repository()
    assert message == url
