"""What a reader sees: whole names, text beside its icon, paper that is white."""

import pytest

from tools import book

PHONE = {"width": 360, "height": 740}
PAPER = {"width": 718, "height": 1047}  # A4 without its margins

# --- the search field ---------------------------------------------------------------

OVERLAPS = """() => [...document.querySelectorAll('.bd-search')]
    .filter(form => form.checkVisibility())
    .map(form => {
        const [icon, input] = ['i', 'input'].map(x => form.querySelector(x));
        const text = input.getBoundingClientRect().left
            + parseFloat(getComputedStyle(input).paddingLeft);
        return icon.getBoundingClientRect().right - text;
    })"""


@pytest.mark.parametrize("page", ["book/intro", "search"])
def test_typed_text_starts_beside_the_magnifier(visit, page):
    opened = visit(page)
    if page != "search":
        opened.page.keyboard.press("Control+k")
        opened.page.wait_for_selector(".bd-search input:focus")
    opened.page.evaluate("() => document.fonts.ready")
    overlaps = opened.page.evaluate(OVERLAPS)
    assert len(overlaps) == 1
    assert -12 < overlaps[0] < 0


# --- names --------------------------------------------------------------------------

SPLIT = """() => [...document.querySelectorAll('code .pre')].filter(name => {
    if (name.getClientRects().length < 2) return false;
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


@pytest.mark.parametrize(
    "page", ["book/notation", "book/05_masks", "book/07_pytorchs_own"]
)
def test_names_are_split_at_underscores_and_dots_alone(visit, page):
    opened = visit(page, viewport=PHONE)
    assert opened.count("code .pre wbr") > 0
    assert opened.page.evaluate(SPLIT) == []


def test_a_long_name_is_split(visit):
    opened = visit("book/05_masks", viewport=PHONE)
    names = opened.page.locator("code .pre")
    lines = names.evaluate_all("all => all.map(x => x.getClientRects().length)")
    assert max(lines) > 1


# --- paper --------------------------------------------------------------------------

WITH_WIDGETS = ["book/03_all_heads_at_once", "book/05_masks"]
LUMINANCE = """selector => [...document.querySelectorAll(selector)].map(element => {
    const style = getComputedStyle(element);
    const bright = colour => {
        const [r, g, b, a] = colour.match(/[\\d.]+/g).map(Number);
        const opaque = (0.299 * r + 0.587 * g + 0.114 * b) / 255;
        return a === undefined ? opaque : a * opaque + 1 - a; // over white
    };
    return [bright(style.backgroundColor), bright(style.color)];
})"""
DRAWN = """() => [...document.querySelectorAll('.mha canvas')]
    .map(canvas => canvas.toDataURL())"""
CUT = """() => [...document.querySelectorAll('article *')]
    .filter(e => getComputedStyle(e).overflowX !== 'visible' && e.clientWidth
        && e.scrollWidth > e.clientWidth + 1
        // MathJax cuts the pieces of a long brace on purpose
        && !e.matches('mjx-assistive-mml, mjx-ext, span.math'))
    .map(e => e.outerHTML.slice(0, 160))"""
FOLDS = "article details, .admonition.toggle"
EMPTY_FRAMES = """folds => [...document.querySelectorAll(folds)]
    .filter(fold => fold.checkVisibility() && ![...fold.children].slice(1)
        .some(x => x.checkVisibility({visibilityProperty: true, opacityProperty: true})
            && x.getBoundingClientRect().height > 5))
    .map(fold => fold.outerHTML.slice(0, 160))"""


def on_paper(opened):
    """What a browser does before it prints."""
    opened.page.emulate_media(media="print")
    opened.page.evaluate("() => void dispatchEvent(new Event('beforeprint'))")


def off_paper(opened):
    opened.page.evaluate("() => void dispatchEvent(new Event('afterprint'))")
    opened.page.emulate_media(media="screen")


@pytest.mark.parametrize("page", WITH_WIDGETS)
def test_paper_is_white_from_dark_mode_too(visit, page):
    drawn = []
    for colours in ("light", "dark"):
        opened = visit(page, colours=colours, viewport=PAPER)
        opened.page.wait_for_selector("html[data-widgets=ready]", state="attached")
        before = opened.page.evaluate(LUMINANCE, "body, .mha")
        on_paper(opened)
        shown = opened.page.evaluate(LUMINANCE, "body, article p, article pre, .mha")
        assert len(shown) > 20
        assert all(paper > 0.9 and ink < 0.6 for paper, ink in shown)
        drawn.append(opened.page.evaluate(DRAWN))
    assert drawn[0] == drawn[1], "canvases are drawn anew, and at once"
    assert all(paper < 0.2 and ink > 0.7 for paper, ink in before)
    off_paper(opened)
    assert opened.page.evaluate(LUMINANCE, "body, .mha") == before


def test_printing_itself_leaves_the_screen_as_it_was(visit):
    opened = visit("book/05_masks", colours="dark")
    opened.page.evaluate(
        "() => addEventListener('beforeprint', () =>"
        " { window.printed = document.documentElement.dataset.theme; })"
    )
    opened.page.pdf(format="A4", page_ranges="1")
    assert opened.page.evaluate("window.printed") == "light"
    assert opened.page.locator("html").get_attribute("data-theme") == "dark"


@pytest.mark.parametrize("page", book.pages())
def test_paper_shows_all_of_it(visit, page):
    opened = visit(page, viewport=PAPER)
    folds = opened.count("article details[open]")
    on_paper(opened)
    assert opened.page.evaluate(CUT) == []
    assert opened.page.evaluate(EMPTY_FRAMES, FOLDS) == []
    assert opened.page.locator("article details.hide:not([open]):visible").count() == 0
    off_paper(opened)
    assert opened.count("article details[open]") == folds


@pytest.mark.parametrize("page", WITH_WIDGETS)
def test_widgets_keep_their_colours_on_paper(visit, page):
    opened = visit(page, viewport=PAPER)
    opened.page.wait_for_selector("html[data-widgets=ready]", state="attached")
    on_paper(opened)
    adjusted = opened.page.locator(".mha *").evaluate_all(
        "all => [...new Set(all.map(x => getComputedStyle(x).printColorAdjust))]"
    )
    assert adjusted == ["exact"]
