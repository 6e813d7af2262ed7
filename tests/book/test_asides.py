"""Checks, and how pictures are drawn, are shown to a reader of a lesson who asks."""

import re

from tests.book.test_pages import soup
from tools import book

CHAPTER = "book/03_all_heads_at_once"
SHOWN = """() => [...document.querySelectorAll('article .quiet details')]
    .filter(fold => fold.checkVisibility())
    .map(fold => fold.querySelector('summary').textContent.trim())"""


def test_they_come_and_go_with_a_button_and_stay_so(visit):
    page = visit(CHAPTER).page
    page.set_default_timeout(10_000)
    button = page.locator(".lesson-bar button.asides")
    before = page.evaluate(SHOWN)
    assert not any("✓" in x for x in before)
    told = r"Show\s+\d\d checks and how pictures are drawn"
    assert re.fullmatch(told, button.inner_text())
    button.focus()
    page.keyboard.press("Enter")
    shown = page.evaluate(SHOWN)
    assert any("✓" in x for x in shown)
    drawn = [x for x in shown if "How this picture is drawn" in x]
    assert len(drawn) > len(before)
    page.reload()
    assert page.evaluate(SHOWN) == shown
    button.click()
    assert page.evaluate(SHOWN) == before


def test_the_button_counts_the_checks_of_the_page(visit):
    told = visit(CHAPTER).page.locator(".lesson-bar button.asides").inner_text()
    folds = soup(book.HTML / f"{CHAPTER}.html").select("article .aside summary")
    each = [re.search(r"✓ (\d+)", fold.get_text()) for fold in folds]
    assert f" {sum(int(found[1]) for found in each if found)} checks" in told


def test_without_a_script_they_are_there(visit):
    page = visit(CHAPTER, java_script_enabled=False).page
    assert page.locator("article .quiet details").first.is_visible()
    assert not page.locator(".asides").is_visible()


def test_where_nothing_can_be_stored_the_button_works_for_the_page(visit):
    page = visit(CHAPTER, scheme="file").page
    page.evaluate("() => { Storage.prototype.setItem = () => { throw new Error() } }")
    page.locator(".lesson-bar .asides").click()
    assert page.evaluate(SHOWN)


def test_the_cell_that_a_sentence_speaks_of_is_in_sight(visit):
    page = visit("book/01_attention").page  # "The folded cell above has made `words`"
    fold = page.locator("details:has-text('its_shares = ')")
    assert fold.first.is_visible()
