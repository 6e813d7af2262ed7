"""What a reader waits for: a chapter with all that its page loads, compressed."""

import pytest

from benchmarks.timers.pages import load, served
from tools import book

MOST = 500  # kB
CHAPTERS = [page for page in book.pages() if page.split("/")[1][:2].isdigit()]


@pytest.fixture(scope="module")
def root():
    with served() as address:
        yield address


@pytest.mark.sweep(4)
@pytest.mark.parametrize("page", CHAPTERS)
def test_a_chapter_is_light(chromium, root, page):
    weight = load(chromium, f"{root}/{page}.html", False)["bytes"] / 1000
    assert 100 < weight < MOST, f"{page}: {weight:.0f} kB"


def test_the_numbers_of_a_model_are_loaded_when_a_reader_asks(visit):
    page = visit("book/play/which_head_knows").page
    page.wait_for_selector("html[data-widgets=ready]", state="attached")
    numbers = page.locator("script[src*='/widgets/model']")
    assert numbers.count() == 0  # the page has the first view as it is
    page.locator("textarea").fill("The list is")
    numbers.wait_for(state="attached")
