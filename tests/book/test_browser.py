"""Every page works in a browser: no network, no errors, mathematics, phones, paper.

Opening a page is what takes long, and laying it out anew is next. Every page is opened
once, from a file, in the dark on a small phone. Then it is laid out once more, in turn:
in the light on a desk, as all with widgets are; on paper; in the dark on a phone of
today. A small sample is laid out in the light on a phone, and a smaller one in the dark
on a desk, too. axe-core reads a few, and a few are opened as a server gives them;
`make exhaustive` asks all of every page. The order of these tests is the one with the
fewest changes.
"""

import re
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe

from mha_lib.widgets.base import VIEW
from tests.book.conftest import (
    DESK,
    NARROW,
    PAPER,
    PHONE,
    WITH_WIDGETS,
    printing,
    switch,
    until,
    widgets_of,
)
from tools import book

TOO_WIDE = """() => {
    const scrolls = e => e !== null && e !== document.body
        && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
    return [...document.querySelectorAll('article *')]
        .filter(e => e.getBoundingClientRect().right > innerWidth
            && !scrolls(e.parentElement))
        .map(e => e.outerHTML.slice(0, 120)).slice(0, 5);
}"""
DISTORTED = """() => [...document.querySelectorAll('article img')].filter(e => {
    const [style, natural] = [getComputedStyle(e), e.naturalWidth / e.naturalHeight];
    const sum = (...sides) => sides.reduce((all, x) => all + parseFloat(style[x]), 0);
    const shown = (e.clientWidth - sum('paddingLeft', 'paddingRight'))
        / (e.clientHeight - sum('paddingTop', 'paddingBottom'));
    return Math.abs(natural - shown) > 0.05 * natural;
}).map(e => e.alt)"""
ICONS = """() => [...document.querySelectorAll('i[class*="fa-"]')]
    .map(icon => [icon.className, getComputedStyle(icon, '::before').content])"""

SPLIT = """() => [...document.querySelectorAll('code .pre')].filter(name => {
    if (!name.checkVisibility() || name.getClientRects().length < 2) return false;
    const letters = [];
    const texts = document.createTreeWalker(name, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const [text, range] = [texts.currentNode, document.createRange()];
        for (let i = 0; i < text.length; i++) {
            range.setStart(text, i);
            range.setEnd(text, i + 1);
            letters.push([text.data[i], range.getBoundingClientRect().top]);
        }
    }
    return letters.some(([letter, top], i) => i && Math.abs(top - letters[i - 1][1]) > 8
        && /[A-Za-z0-9]/.test(letter) && /[A-Za-z0-9]/.test(letters[i - 1][0]));
}).map(name => name.textContent)"""


def sample(tried: list[str], name: str = "page", **options):
    """Every page, but those that are not tried only where it is to be exhaustive."""
    marks = {True: (), False: pytest.mark.exhaustive}
    pages = [pytest.param(x, marks=marks[x in tried]) for x in book.pages()]
    return pytest.mark.parametrize(name, pages, **options)


# --- each page, opened once: what is asked of it -------------------------------------

# What a cell prints: [how much of it is beyond the edge and cannot be reached there by
# hand and by keyboard, the size of its letters].
PRINTED = """() => [...document.querySelectorAll('.output:is(.text_plain, .stream)')]
    .map(x => x.querySelector('pre'))
    .filter(x => x.checkVisibility())
    .map(x => [x.style.getPropertyValue('--letters') && x.tabIndex === 0
            && getComputedStyle(x).overflowX === 'auto' ? 0
            : x.scrollWidth - x.clientWidth,
        parseFloat(getComputedStyle(x).fontSize), x.textContent.slice(0, 60)])"""

# Signs that begin a line while the formula before them ends another, and the other way.
TORN = """() => document.fonts.ready.then(() => [
    ...document.querySelectorAll('article span.math')].flatMap(formula => {
    const box = formula.getBoundingClientRect();
    const [found, ends] = [[], { next: /^[^\\w\\s]/, previous: /[^\\w\\s]$/ }];
    for (const [side, pattern] of Object.entries(ends)) {
        const text = formula[`${side}Sibling`];
        if (text?.nodeType !== 3 || !pattern.test(text.data)) continue;
        const [sign, last] = [document.createRange(), text.data.length];
        sign.setStart(text, side === 'next' ? 0 : last - 1);
        sign.setEnd(text, side === 'next' ? 1 : last);
        const { top, bottom } = sign.getBoundingClientRect();
        if (top > box.bottom || bottom < box.top) found.push(text.data.slice(0, 30));
    }
    return box.width ? found : [];
}))"""

PARTS = {
    "formulas set": "mjx-container",
    "formulas": ".math",
    "faults in formulas": "mjx-merror",
    "widgets": f'script[type="{VIEW}"]',
    "live widgets": "[data-live]",
    "problems": ".mha-problem:not([hidden])",
}
COUNT = """parts => Object.fromEntries(Object.entries(parts)
    .map(([name, selector]) => [name, document.querySelectorAll(selector).length]))"""

HEIGHTS = """() => [...document.querySelectorAll('[data-live] .mha')]
    .map(x => [x.getAttribute('aria-label'), x.getBoundingClientRect().height])"""

TOLD_TO_PRESS = """() => [...document.querySelectorAll('article em')]
    .filter(x => x.textContent !== 'et al.') // of somebody named Press
    .filter(x => /[Pp]ress $/.test(x.previousSibling?.textContent ?? ''))
    .map(x => x.textContent)"""
BUTTONS = """() => [...document.querySelectorAll('[data-live] button')]
    .map(x => x.textContent.trim())"""

# The theme shows its button by an inline style, once a page has been scrolled back; on
# a desk it hides it itself.
TABLET = {"width": 820, "height": 1180}
SHOWN = """x => (x.style.display = "block", getComputedStyle(x).display)"""


@pytest.fixture(scope="module", params=book.pages())
def reader(request, opened):
    with opened(request.param, "file", "dark", PHONE, at_once=True) as visit:
        expect_widgets(visit, request.param)
        yield visit


def expect_widgets(visit, page: str) -> None:
    visit.widgets = widgets_of(page)
    visit.ready = lambda: visit.widgets and until(visit.page, "widgets", "ready")


def assert_works(visit, colours: str, screen: dict) -> None:
    switch(visit, colours, screen)
    visit.ready()
    there = visit.page.evaluate(COUNT, PARTS)
    assert there.pop("formulas set") == there.pop("formulas")
    assert there == {
        "faults in formulas": 0,
        "widgets": visit.widgets,
        "live widgets": visit.widgets,
        "problems": 0,
    }
    assert visit.complaints == []


FOR_DESKS, FOR_PAPER, FOR_PHONES = (book.pages()[turn::3] for turn in range(3))


# --- in the dark, on two phones -------------------------------------------------------


def test_page_works_from_a_file_on_a_small_phone(reader):
    assert_works(reader, "dark", PHONE)


def test_page_fits_a_small_phone(reader):
    switch(reader, "dark", PHONE)
    width = reader.page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"], reader.page.evaluate(TOO_WIDE)
    assert reader.page.evaluate(DISTORTED) == []


def test_names_are_split_at_underscores_and_dots_alone(reader):
    switch(reader, "dark", PHONE)
    assert reader.page.evaluate(SPLIT) == []


class OnAScreen:
    """What holds on each; pages are laid out once for all of it."""

    colours: str
    screen: dict
    printed: float  # pixels, the least size of the letters of what a cell prints
    most: int  # pixels, how high a widget may be

    def test_page_works_from_a_file(self, reader):
        assert_works(reader, self.colours, self.screen)

    def test_what_is_printed_can_be_read(self, reader):
        switch(reader, self.colours, self.screen)
        found = reader.page.evaluate(PRINTED)
        assert [x for x in found if x[0] > 1 or x[1] < self.printed] == []

    def test_no_line_ends_between_a_formula_and_its_signs(self, reader):
        switch(reader, self.colours, self.screen)
        assert reader.page.evaluate(TORN) == []

    def test_each_widget_fits_one_screen(self, reader):
        switch(reader, self.colours, self.screen)
        reader.ready()
        found = reader.page.evaluate(HEIGHTS)
        assert len(found) == reader.widgets
        assert [x for x in found if x[1] > self.most] == []


@sample(FOR_PHONES, "reader", indirect=True)
class TestOnAPhone(OnAScreen):
    """The phone of today, in the dark."""

    colours, screen, printed, most = "dark", NARROW, 11, 844


@sample(FOR_PHONES[::14], "reader", indirect=True)
def test_no_button_floats_over_the_page(reader):
    button = reader.page.locator("#pst-back-to-top")
    for screen, wanted in ((NARROW, "none"), (TABLET, "block")):
        switch(reader, "dark", screen)
        assert button.evaluate(SHOWN) == wanted
    button.evaluate("x => (x.style.display = '')")


@sample([*FOR_PHONES[::7], *WITH_WIDGETS[::6]], "reader", indirect=True)
def test_page_works_from_a_file_on_a_phone_in_the_light(reader):
    assert_works(reader, "light", NARROW)


@sample([*FOR_DESKS, *WITH_WIDGETS], "reader", indirect=True)
class TestOnADesk(OnAScreen):
    """In the light; the dark comes last."""

    colours, screen, printed, most = "light", DESK, 13, 600

    def test_a_button_that_the_text_names_is_there(self, reader):
        reader.ready()
        there = reader.page.evaluate(BUTTONS)
        told = reader.page.evaluate(TOLD_TO_PRESS)
        if there:  # or they are another's: GitHub's, in the guide for instructors
            assert [x for x in told if x not in there] == []

    def test_every_icon_is_there(self, reader):
        switch(reader, "light", DESK)
        icons = reader.page.evaluate(ICONS)
        assert len(icons) > 5
        assert [x for x in icons if not re.fullmatch('".+"', x[1])] == []


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
# From a file no style sheet can be fetched again, and the page is not to be blamed.
AXE = {"resultTypes": ["violations"], "preload": False}
COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}


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


def faults(page, options: dict) -> list[str]:
    with one_of_a_kind(page):
        axe = Axe().run(page, options=AXE | options)
    found = axe.response["violations"]
    return [f"{x['id']}: {n['html'][:200]}" for x in found for n in x["nodes"]]


COLOURFUL = [
    "book/01_attention",  # letters, names and words in the colours of their roles
    "book/how_we_know",  # tables
]


@sample(COLOURFUL, "reader", indirect=True)
def test_axe_finds_nothing(reader):
    switch(reader, "light", DESK)
    assert faults(reader.page, {}) == []


@sample(COLOURFUL[:1], "reader", indirect=True)
def test_page_works_from_a_file_on_a_desk_in_the_dark(reader):
    assert_works(reader, "dark", DESK)


@sample(COLOURFUL[:1], "reader", indirect=True)
def test_axe_finds_nothing_in_the_dark(reader):
    switch(reader, "dark", DESK)
    assert faults(reader.page, COLOURS) == []


# --- on paper -------------------------------------------------------------------------

CUT = """() => [...document.querySelectorAll('article *')]
    .filter(e => getComputedStyle(e).overflowX !== 'visible' && e.clientWidth
        && e.scrollWidth > e.clientWidth + 1
        // MathJax cuts the pieces of a long brace on purpose
        && !e.matches('mjx-assistive-mml, mjx-ext, span.math'))
    .map(e => e.outerHTML.slice(0, 160))"""
EMPTY_FRAMES = """() => [...document.querySelectorAll(
        'article details, .admonition.toggle')]
    .filter(fold => fold.checkVisibility() && ![...fold.children].slice(1)
        .some(x => x.checkVisibility({visibilityProperty: true, opacityProperty: true})
            && x.getBoundingClientRect().height > 5))
    .map(fold => fold.outerHTML.slice(0, 160))"""
FOLDED_CODE = """() => [...document.querySelectorAll(
        'article details.hide:not([open])')]
    .filter(fold => fold.checkVisibility() && fold.getBoundingClientRect().height)
    .map(fold => fold.outerHTML.slice(0, 160))"""
TALL = """() => [...document.querySelectorAll('article figure, article img')]
    .filter(e => e.getBoundingClientRect().height > 926) // US Letter, the shorter sheet
    .map(e => e.outerHTML.slice(0, 160))"""
OPEN = "document.querySelectorAll('article details[open]').length"


@sample(FOR_PAPER, "reader", indirect=True)
def test_paper_shows_all_of_it(reader):
    folds = reader.page.evaluate(OPEN)
    with printing(reader.page, PAPER):
        for fault in (CUT, EMPTY_FRAMES, FOLDED_CODE, TALL):
            assert reader.page.evaluate(fault) == []
    assert reader.page.evaluate(OPEN) == folds


# --- from a server, and without scripts -----------------------------------------------


def test_nothing_but_this_machine_is_reached_and_who_tries_is_heard(visit):
    opened = visit("book/glossary")
    reached = "address => fetch(address, {mode: 'no-cors'}).then(() => 1, () => 0)"
    assert opened.page.evaluate(reached, "http://192.0.2.1/") == 0
    assert opened.complaints[0] == "asked for http://192.0.2.1/"
    assert "ERR_PROXY_CONNECTION_FAILED" in opened.complaints[1]


@sample(["book/intro", "book/04_masks", "book/play/which_head_knows"])
def test_page_works_from_a_server_on_a_desk(visit, page):
    opened = visit(page, "http", "light", DESK)
    expect_widgets(opened, page)
    assert_works(opened, "light", DESK)


@sample(WITH_WIDGETS[::12])
def test_stills_stand_in_where_no_script_runs(visit, page):
    opened = visit(page, java_script_enabled=False)
    stills = opened.page.locator("noscript img")
    assert stills.count() == widgets_of(page)
    assert all(still.is_visible() for still in stills.all())
