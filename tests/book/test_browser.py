"""Every page works in a browser: no network, no errors, mathematics, small screens.

Opening a page is what takes long. Each is opened twice: over http on a desk, in light
colours, and from a file on a phone, in dark ones. Then the colours are switched, as
the system of a reader switches them.
"""

import functools
from contextlib import contextmanager

import nbformat
import pytest
from axe_playwright_python.sync_playwright import Axe

import mha_lib.widgets
from mha_lib.widgets.base import VIEW, Widget
from tests.book.conftest import DESK, PHONE
from tools import book

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
ICONS_WITHOUT_A_SIGN = """() => [...document.querySelectorAll('i[class*="fa-"]')]
    .filter(icon => getComputedStyle(icon, '::before').content.length < 3)
    .map(icon => icon.className)"""


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


# --- each page, opened once in each way ----------------------------------------------


@pytest.fixture(scope="module", params=book.pages())
def desk(request, opened):
    with opened(request.param, "http", "light", DESK) as visit:
        visit.widgets = widgets_of(request.param)
        yield visit


@pytest.fixture(scope="module", params=book.pages())
def phone(request, opened):
    with opened(request.param, "file", "dark", PHONE) as visit:
        visit.widgets = widgets_of(request.param)
        yield visit


# Buttons of the theme fade into their new colour: what axe saw halfway was too pale.
AT_ONCE = "*, ::before, ::after { transition: none !important }"


def switch(visit, colours: str) -> None:
    visit.page.add_style_tag(content=AT_ONCE)
    visit.page.emulate_media(color_scheme=colours)
    visit.page.wait_for_selector(f"html[data-theme={colours}]", state="attached")


def assert_works(visit, colours: str) -> None:
    switch(visit, colours)
    assert visit.count("mjx-container") == visit.count(".math")
    assert visit.count("mjx-merror") == 0
    assert visit.count(f'script[type="{VIEW}"]') == visit.widgets
    if visit.widgets:
        visit.page.wait_for_selector("html[data-widgets=ready]", state="attached")
    assert visit.count("[data-live]") == visit.widgets
    assert visit.count(".mha-problem:not([hidden])") == 0
    assert visit.complaints == []


@pytest.mark.parametrize("colours", ["light", "dark"])
def test_page_works_on_a_desk(desk, colours):
    assert_works(desk, colours)


@pytest.mark.parametrize("colours", ["dark", "light"])
def test_page_works_from_a_file_on_a_phone(phone, colours):
    assert_works(phone, colours)


def test_page_fits_a_phone(phone):
    width = phone.page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"], phone.page.evaluate(TOO_WIDE)
    assert phone.page.evaluate(DISTORTED) == []


def test_every_icon_is_there(desk):
    assert desk.count('i[class*="fa-"]') > 5
    assert desk.page.evaluate(ICONS_WITHOUT_A_SIGN) == []


# --- axe-core finds nothing to mend, in either colours -------------------------------

SWAP = """() => {
    const path = e => e.matches('article, html') ? ''
        : `${path(e.parentElement)} ${e.tagName}.${e.className}`;
    const seen = new Set();
    const again = e => seen.size === seen.add(path(e)).size;
    const swaps = [...document.querySelectorAll('mjx-container')].filter(again)
        .map(formula => [formula, new Text(formula.textContent)]);
    for (const pre of document.querySelectorAll('pre')) {
        const plain = pre.cloneNode(true);
        const known = [...pre.querySelectorAll('span')].map(again);
        [...plain.querySelectorAll('span')].forEach((token, i) => {
            if (known[i]) token.replaceWith(...token.childNodes);
        });
        plain.normalize();
        swaps.push([pre, plain]);
    }
    for (const [old, fresh] of swaps) old.replaceWith(fresh);
    return swaps;
}"""
SWAP_BACK = "swaps => swaps.forEach(([old, fresh]) => fresh.replaceWith(old))"
RULES = {  # in the dark, those that look at colours
    "light": {},
    "dark": {"runOnly": ["color-contrast", "link-in-text-block"]},
}


@contextmanager
def one_of_a_kind(page):
    """A page in which of like formulas, and of like tokens of code, the first is left.

    The others are plain text for a while: axe-core takes three times as long over the
    thousands of elements that they consist of, and says the same of each.
    """
    swaps = page.evaluate_handle(SWAP)
    try:
        yield
    finally:
        page.evaluate(SWAP_BACK, swaps)


@pytest.mark.parametrize("colours", RULES)
def test_axe_finds_nothing(desk, colours):
    switch(desk, colours)
    options = {"resultTypes": ["violations"]} | RULES[colours]
    with one_of_a_kind(desk.page):
        found = Axe().run(desk.page, options=options).response["violations"]
    faults = [f"{x['id']}: {n['html'][:200]}" for x in found for n in x["nodes"]]
    assert faults == []


# --- without scripts -----------------------------------------------------------------


@pytest.mark.parametrize("page", [page for page in book.pages() if widgets_of(page)])
def test_stills_stand_in_where_no_script_runs(visit, page):
    opened = visit(page, java_script_enabled=False)
    stills = opened.page.locator("noscript img")
    assert stills.count() == widgets_of(page)
    for still in stills.all():
        assert still.is_visible() and len(still.get_attribute("alt")) >= 20
