"""A chapter runs on its own, as on Colab; `python -m tools.alone` runs them all."""

from tools import alone, book


def test_first_chapter_installs_what_it_needs():
    worked, message = alone.run_alone(book.chapters()[0])
    assert worked, message
    url, _ = book.repository()
    assert message == url
