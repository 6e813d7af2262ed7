"""Every page works in a browser: no network, no errors, mathematics, small screens."""

import functools

import nbformat
import pytest

import mha_lib.widgets
from mha_lib.widgets.base import VIEW, Widget
from tools import book

PHONE = {"width": 360, "height": 740}
TOO_WIDE = """() => {
    const scrolls = e => e !== null && e !== document.body
        && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
    return [...document.querySelectorAll('article *')]
        .filter(e => e.getBoundingClientRect().right > innerWidth
            && !scrolls(e.parentElement))
        .map(e => e.outerHTML.slice(0, 120)).slice(0, 5);
}"""
DISTORTED = """() => [...document.querySelectorAll('article img')]
    .filter(e => Math.abs(e.naturalWidth / e.naturalHeight
        - e.clientWidth / e.clientHeight) > 0.05 * e.naturalWidth / e.naturalHeight)
    .map(e => e.alt)"""


@functools.cache
def widgets_of(page: str) -> int:
    """How many widgets a chapter shows, by what its committed outputs say."""
    path = book.ROOT / f"{page}.ipynb"
    if not path.exists():
        return 0
    values = vars(mha_lib.widgets).values()
    names = [
        x.__name__ for x in values if isinstance(x, type) and issubclass(x, Widget)
    ]
    outputs = [
        output.get("data", {}).get("text/plain", "")
        for cell in nbformat.read(path, as_version=4).cells
        for output in cell.get("outputs", [])
    ]
    return sum(text.partition("(")[0] in names for text in outputs)


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("page", book.pages())
def test_page_works_on_its_own(visit, page, scheme, colours):
    opened = visit(page, scheme, colours)
    opened.page.evaluate("() => document.fonts.ready")
    assert opened.complaints == []
    assert opened.page.locator("html").get_attribute("data-theme") == colours
    assert opened.count("mjx-container") == opened.count(".math")
    assert opened.count("mjx-merror") == 0
    assert opened.count(f'script[type="{VIEW}"]') == widgets_of(page)
    if widgets_of(page):
        opened.page.wait_for_selector("html[data-widgets=ready]", state="attached")
    assert opened.count("[data-live]") == widgets_of(page)
    assert opened.count(".mha-problem:not([hidden])") == 0


@pytest.mark.parametrize("page", [page for page in book.pages() if widgets_of(page)])
def test_stills_stand_in_where_no_script_runs(visit, page):
    opened = visit(page, java_script_enabled=False)
    stills = opened.page.locator("noscript img")
    assert stills.count() == widgets_of(page)
    for still in stills.all():
        assert still.is_visible() and len(still.get_attribute("alt")) >= 20


ICONS_WITHOUT_A_SIGN = """() => [...document.querySelectorAll('i[class*="fa-"]')]
    .filter(icon => getComputedStyle(icon, '::before').content.length < 3)
    .map(icon => icon.className)"""


@pytest.mark.parametrize("page", book.pages())
def test_every_icon_is_there(visit, page):
    opened = visit(page)
    opened.page.evaluate("() => document.fonts.ready")
    assert opened.count('i[class*="fa-"]') > 5
    assert opened.page.evaluate(ICONS_WITHOUT_A_SIGN) == []


@pytest.mark.parametrize("page", book.pages())
def test_page_fits_a_phone(visit, page):
    opened = visit(page, viewport=PHONE)
    width = opened.page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"], opened.page.evaluate(TOO_WIDE)
    assert opened.page.evaluate(DISTORTED) == []
