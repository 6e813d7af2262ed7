"""What a reader sees: whole names, text beside its icon, paper that is white."""

import re

import pytest

from tests.book.conftest import DESK, NARROW, PAPER, PHONE, printing, switch
from tests.book.test_pages import soup
from tools import book

# --- the search field ---------------------------------------------------------------

OVERLAPS = """() => [...document.querySelectorAll('.bd-search')]
    .filter(form => form.checkVisibility())
    .map(form => {
        const [icon, input] = ['i', 'input'].map(x => form.querySelector(x));
        const text = input.getBoundingClientRect().left
            + parseFloat(getComputedStyle(input).paddingLeft);
        return icon.getBoundingClientRect().right - text;
    })"""


def test_the_field_of_the_search_page_has_one_frame(visit):
    field = visit("search").page.locator(".bd-search-container .bd-search")
    frame = "x => getComputedStyle(x).borderTopWidth"
    assert [field.evaluate(frame), field.locator("input").evaluate(frame)] == [
        *("0px", "1px")
    ]


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


def test_an_option_is_not_cut_at_its_hyphens():
    names = soup(book.HTML / "book/instructors_guide.html").select("code .pre")
    options = [x for x in names if re.fullmatch(r"--?[a-z][a-z-]{0,14}", x.text)]
    assert len(options) > 10
    assert [x.text for x in options if "whole" not in x["class"]] == []


@pytest.mark.parametrize(
    "page", ["book/notation", "book/04_masks", "book/07_pytorchs_own"]
)
def test_names_may_be_split(page):
    assert soup(book.HTML / f"{page}.html").select("code .pre wbr")


def test_a_long_name_is_split(visit):
    opened = visit("book/04_masks", viewport=PHONE)
    names = opened.page.locator("code .pre")
    lines = names.evaluate_all("all => all.map(x => x.getClientRects().length)")
    assert max(lines) > 1


# --- notes beside code ----------------------------------------------------------------

NOTES = """all => all.map(note => {
    const box = x => x.getBoundingClientRect();
    const later = [...document.querySelectorAll(".highlight pre")].find(
        x => note.compareDocumentPosition(x) & Node.DOCUMENT_POSITION_FOLLOWING);
    return [box(note).left, box(note).top, box(note).bottom, box(note).width,
            box(later).right, box(later).top, box(later).bottom];
})"""


def test_a_note_stands_beside_its_code_or_before_it(visit):
    page = "book/06_einsum_sequence_first"
    opened = visit(page, viewport=DESK)
    notes = opened.page.locator("aside.margin")
    assert notes.count() == 1
    ((left, top, bottom, _, right, first, last),) = notes.evaluate_all(NOTES)
    assert left > right and abs(top - first) < 24 and bottom < last + 48
    switch(opened, "light", PHONE)
    ((_, _, bottom, width, _, first, _),) = notes.evaluate_all(NOTES)
    assert width > 320 and bottom < first


# --- what goes on beyond the edge of a phone ------------------------------------------

SHADE = """selector => {
    const all = [...document.querySelectorAll(selector)]
        .filter(x => x.checkVisibility());
    const shaded = x => getComputedStyle(x).backgroundAttachment.includes("local");
    const hides = x => x.tagName === "TR"
        && !/, 0(\\.\\d+)?\\)|transparent/.test(getComputedStyle(x).backgroundColor);
    return [all.filter(x => x.scrollWidth > x.clientWidth + 1).map(shaded),
            all.flatMap(x => [...x.querySelectorAll("tr")]).filter(hides).length];
}"""


@pytest.mark.parametrize(
    ("page", "selector"),
    [
        ("book/04_masks", ".highlight pre"),
        ("book/deeper/07_what_the_constructor_makes", "table"),
        ("book/deeper/10_softmax_in_pieces", 'mjx-container[display="true"]'),
    ],
)
def test_a_cut_edge_has_a_shadow(visit, page, selector):
    opened = visit(page, viewport=PHONE, at_once=True)
    for colours in ("light", "dark"):
        switch(opened, colours, PHONE)
        shaded, hidden = opened.page.evaluate(SHADE, f"article {selector}")
        assert shaded and all(shaded) and not hidden, colours


def test_a_command_is_read_whole_on_a_desk(visit):
    commands = visit("book/what_the_grader_withstands").page.locator("article pre")
    hidden = "all => all.map(x => x.scrollWidth - x.clientWidth)"
    assert commands.evaluate_all(hidden) == [0, 0]


ARROWS = """() => [...document.querySelectorAll('.way')].map(way => {
    const strip = way.getBoundingClientRect(), steps = [...way.querySelectorAll('li')];
    const arrows = steps.flatMap(step => ['::before', '::after'].flatMap(place => {
        const style = getComputedStyle(step, place);
        if (style.content === 'none') return [];
        const left = step.getBoundingClientRect().left + parseFloat(style.left);
        return [[left - strip.left, strip.right - left - parseFloat(style.width)]];
    }));
    return [steps.length - 1 - arrows.length, Math.min(...arrows.flat())];
})"""


def test_no_arrow_of_the_way_stands_in_the_margin(visit):
    """A second line of steps begins with a step."""
    opened = visit("book/04_masks", viewport=PHONE)
    for screen in (PHONE, NARROW, PAPER):
        switch(opened, "light", screen)
        found = opened.page.evaluate(ARROWS)
        assert len(found) > 2
        assert all(missing == 0 and room >= 0 for missing, room in found), screen


def test_a_phone_is_not_told_of_keys(visit):
    opened = visit("search", viewport=NARROW).page
    assert opened.locator(".search-button__kbd-shortcut:visible").count() == 0
    opened.set_viewport_size(DESK)
    assert opened.locator(".search-button__kbd-shortcut:visible").count() > 0


def test_code_after_a_table_does_not_touch_it(visit):
    cells = visit("book/04_masks").page.locator("div:has(> table) + .cell")
    gaps = cells.evaluate_all("all => all.map(x => getComputedStyle(x).marginTop)")
    assert {*gaps} == {"16px"}


def test_works_stand_by_their_names_and_without_numbers(visit):
    """The text cites them by author and year."""
    works = visit("book/references").page.locator(".citation").all_inner_texts()
    assert len(works) > 40 and not any(re.match(r"\[\d", work) for work in works)
    assert works[0].startswith("Joshua Ainslie")  # then A to Z, and who has no surname
    assert works[-1].startswith("Source S5")


def test_a_work_without_a_year_is_cited_by_its_name_alone():
    cited = soup(book.HTML / "book" / "about.html").select("article a.reference")
    names = [a.get_text() for a in cited if "bibliography" not in a["href"]]
    assert "Source S1" in names and not any(x.endswith("n.d.") for x in names)


def test_the_table_of_agreement_fits_a_phone(visit):
    opened = visit("book/09_they_all_agree", viewport=NARROW).page
    table = opened.locator("article table", has_text="self, causal")
    assert table.evaluate("x => x.scrollWidth - x.clientWidth") <= 1


def test_the_tables_of_the_notation_fit_a_phone(visit):
    tables = visit("book/notation", viewport=NARROW).page.locator("article table")
    hidden = tables.evaluate_all("all => all.map(x => x.scrollWidth - x.clientWidth)")
    assert len(hidden) == 5 and max(hidden) <= 1


# --- paper --------------------------------------------------------------------------

WITH_WIDGETS = [
    "book/04_masks",
    pytest.param("book/03_all_heads_at_once", marks=pytest.mark.exhaustive),
]
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


@pytest.fixture(scope="module", params=WITH_WIDGETS)
def sheet(request, opened):
    """A page with widgets, opened in the dark to be printed."""
    options = {"colours": "dark", "viewport": PAPER, "at_once": True}
    with opened(request.param, **options) as visit:
        visit.page.wait_for_selector("html[data-widgets=ready]", state="attached")
        yield visit


def test_paper_is_white_from_dark_mode_too(sheet):
    drawn = []
    for colours in ("light", "dark"):
        switch(sheet, colours, PAPER)
        before = sheet.page.evaluate(LUMINANCE, "body, .mha")
        with printing(sheet.page):
            seen = sheet.page.evaluate(LUMINANCE, "body, article p, article pre, .mha")
            assert len(seen) > 20
            assert all(paper > 0.9 and ink < 0.6 for paper, ink in seen)
            drawn.append(sheet.page.evaluate(DRAWN))
    assert drawn[0] == drawn[1], "canvases are drawn anew, and at once"
    assert all(paper < 0.2 and ink > 0.7 for paper, ink in before)
    assert sheet.page.evaluate(LUMINANCE, "body, .mha") == before


def test_widgets_keep_their_colours_on_paper(sheet):
    with printing(sheet.page):
        adjusted = sheet.page.locator(".mha *").evaluate_all(
            "all => [...new Set(all.map(x => getComputedStyle(x).printColorAdjust))]"
        )
    assert adjusted == ["exact"]


def test_nothing_on_paper_asks_to_be_pressed(sheet):
    seen = "all => all.filter(x => x.checkVisibility()).length"
    buttons = sheet.page.locator(".mha :is(select, input, .mha-button, summary)")
    assert buttons.evaluate_all(seen) > 5
    with printing(sheet.page):
        assert buttons.evaluate_all(seen) == 0
        assert sheet.page.locator(".mha-question").evaluate_all(seen) > 0
        assert sheet.page.locator(".mha-lead").evaluate_all(seen) == 0  # "Choose …"


GAMES = [  # beside those of the sheet
    "book/06_einsum_sequence_first",
    "book/09_they_all_agree",
    "book/13_what_the_heads_learned",
    "book/play/which_head_knows",
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("page", GAMES)
def test_what_is_set_is_read_on_paper_and_not_pressed(visit, page):
    """A map needs the words of its menu, and no arrow, slider, *next* or *undo*."""
    opened = visit(page, viewport=PAPER).page
    opened.wait_for_selector("html[data-widgets=ready]", state="attached")
    tools = opened.locator(".mha input").all() + [
        one
        for name in ("previous", "next", "undo", "play")
        for one in opened.locator(".mha").get_by_text(name, exact=True).all()
    ]
    lists = opened.locator(".mha select")
    assert any(one.is_visible() for one in [*tools, *lists.all()])
    with printing(opened):
        assert not any(one.is_visible() for one in tools)
        looks = lists.evaluate_all(
            """all => all.filter(x => x.checkVisibility()).map(x => {
                const look = getComputedStyle(x);
                return look.appearance + look.borderTopWidth;
            })"""
        )
    assert set(looks) <= {"none0px"}
    assert bool(looks) == (page in GAMES[1:3])


@pytest.fixture(scope="module")
def masks(opened):
    """The chapter of which most is asked; who changes it puts it back."""
    with opened("book/04_masks", viewport=PAPER) as visit:
        visit.page.wait_for_selector("html[data-widgets=ready]", state="attached")
        yield visit.page


ORDER = """() => [...document.querySelectorAll('article :is(.exercise, .solution, h2)')]
    .map(x => x.classList[0] ?? x.firstChild.textContent)"""


def test_on_paper_the_solutions_come_last_and_then_go_back(masks):
    before = masks.evaluate(ORDER)
    pairs = [x for x in before if x in ("exercise", "solution")]
    assert pairs == ["exercise", "solution"] * 5  # on a screen, where it is folded
    with printing(masks):
        assert masks.evaluate(ORDER)[-6:] == ["Solutions"] + ["solution"] * 5
        seen = "all => all.every(x => x.checkVisibility())"
        assert masks.locator(".solution p").evaluate_all(seen)
    assert masks.evaluate(ORDER) == before


def test_a_hint_is_not_printed_beside_its_question(visit):
    opened = visit("book/assignments/student/a2_heads", viewport=PAPER).page
    hints = opened.locator("details", has_text="Hint 1: a nudge")
    assert hints.count() > 2
    with printing(opened):
        assert not any(x.is_visible() for x in hints.all())
    assert all(x.is_visible() for x in hints.all())


def test_paper_says_how_a_mask_was_made(masks):
    painter = masks.locator(".mha-mask-painter")
    rule = painter.locator(".mha-paper")
    assert rule.is_hidden()
    painter.get_by_role("button", name="a window", exact=True).click()
    with printing(masks):
        assert rule.inner_text() == "Rule: s <= t and abs(t - s) < 3."
        assert rule.is_visible()
    painter.get_by_role("button", name="reset", exact=True).click()


def test_two_maps_that_stand_side_by_side_are_of_one_size_on_paper(masks):
    with printing(masks):
        sizes = masks.locator(".mha-painting canvas").evaluate_all(
            "all => all.map(x => [x.clientWidth, x.clientHeight])"
        )
    assert len(sizes) == 2 and sizes[0] == sizes[1] != [0, 0]


def test_no_shadow_of_what_can_be_scrolled_lies_on_paper(visit):
    """Each formula had a stroke at both of its ends."""
    opened = visit("book/01_attention", viewport=PAPER).page
    formulas = opened.locator('article mjx-container[display="true"]')
    formulas.first.wait_for()
    behind = "all => all.map(x => getComputedStyle(x).backgroundImage)"
    assert "none" not in formulas.evaluate_all(behind)
    with printing(opened):
        assert {*formulas.evaluate_all(behind)} == {"none"}


def test_no_page_ends_between_what_belongs_together(masks):
    """A picture and its caption, the lines of a heading and of an answer of `check`; a
    heading, where we are and what is said there; what ends in a colon."""
    whole = "article :is(figure, .opening, h2, h3, .way, .text_html)"
    with printing(masks):
        inside = masks.locator(whole).evaluate_all(
            "all => all.map(x => getComputedStyle(x).breakInside)"
        )
        ways = masks.locator(".way").evaluate_all(
            "all => all.map(x => getComputedStyle(x).breakAfter)"
        )
        after = masks.locator("article p").evaluate_all(
            "all => all.filter(x => x.textContent.trim().endsWith(':'))"
            ".map(x => getComputedStyle(x).breakAfter)"
        )
    assert len(inside) > 2 and {*inside} == {"avoid"}
    assert len(ways) > 2 and {*ways} == {"avoid"}
    assert len(after) > 2 and {*after} == {"avoid"}


def test_a_line_of_code_is_one_line_on_paper(visit):
    """A cell of an assignment has lines of 80 letters."""
    opened = visit("book/assignments/student/a1_attention_and_masks", viewport=PAPER)
    with printing(opened.page):
        folded = opened.page.locator("article .highlight pre").evaluate_all(
            """all => all.map(x => {
                const height = x.clientHeight;
                x.style.whiteSpace = 'pre';
                return height - x.clientHeight;
            })"""
        )
    assert len(folded) > 10 and {*folded} == {0}


def test_printing_itself_leaves_the_screen_as_it_was(visit):
    opened = visit("book/04_masks", colours="dark")
    opened.page.evaluate(
        "() => addEventListener('beforeprint', () =>"
        " { window.printed = document.documentElement.dataset.theme; })"
    )
    opened.page.pdf(format="A4", page_ranges="1")
    assert opened.page.evaluate("window.printed") == "light"
    assert opened.page.locator("html").get_attribute("data-theme") == "dark"


def test_paper_says_what_it_leaves_out_and_whence_it_is(visit, masks):
    assert_says_what_is_missing(masks, hints=False)
    assignment = visit("book/assignments/student/a2_heads", viewport=PAPER).page
    assert_says_what_is_missing(assignment, hints=True)


def assert_says_what_is_missing(opened, hints: bool):
    assert opened.locator(".on-paper").count() == 0
    with printing(opened):
        said = opened.locator(".on-paper").inner_text()
        assert opened.locator(".on-paper").is_visible()
        assert "set-up cell" in said and ("hints" in said) == hints
        assert ("the checks" in said) != hints  # an assignment folds none
        assert opened.url.partition("?")[0] in said
    assert opened.locator(".on-paper").count() == 0


def test_paper_of_a_page_without_cells_misses_none(visit):
    opened = visit("book/instructors_guide", viewport=PAPER).page
    with printing(opened):
        said = opened.locator(".on-paper").inner_text()
    assert said == f"This page is {opened.url}."


def test_sheets_have_margins_and_numbers(masks):
    rules = masks.evaluate(
        """() => [...document.styleSheets].flatMap(sheet => {
            try { return [...sheet.cssRules]; } catch { return []; }
        }).filter(x => x instanceof CSSPageRule).map(x => x.cssText)"""
    )
    (page,) = rules
    assert "margin: 16mm" in page and "counter(page)" in page
