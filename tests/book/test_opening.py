"""A chapter's first screen: its title, its question, and a picture of that question."""

import sys

import pytest

from tests.book.conftest import DESK, until
from tests.book.test_pages import soup
from tools import book, notebook

PHONE = {"width": 390, "height": 844}
CHAPTERS = [f"book/{path.stem}" for path in book.chapters()]
PLACES = """() => {
    const box = (selector) => document.querySelector(selector).getBoundingClientRect();
    const [title, question, picture] = ["h1", "h2", ".opening img"]
        .map(x => box(`article ${x}`));
    return {title: title.top, question: question.bottom, picture: picture.top,
            shown: Math.min(1, (innerHeight - picture.top) / picture.height)};
}"""


@pytest.mark.sweep(5)
@pytest.mark.parametrize("page", CHAPTERS)
def test_title_question_and_picture_are_on_the_first_screen(visit, page):
    opened = visit(page, viewport=DESK).page
    desk = opened.evaluate(PLACES)
    assert 0 < desk["title"] < desk["question"] < desk["picture"]
    assert desk["shown"] > 2 / 3, desk
    opened.set_viewport_size(PHONE)
    phone = opened.evaluate(PLACES)
    assert phone["question"] < phone["picture"] and phone["shown"] > 1 / 2, phone


@pytest.mark.parametrize("page", CHAPTERS)
def test_the_first_heading_asks_and_one_picture_stands_below_it(page):
    path = book.ROOT / f"{page}.ipynb"
    marked = [
        cell
        for cell in notebook.read(path).cells
        if cell.metadata.get("mystnb", {}).get("figure", {}).get("classes") == "opening"
    ]
    assert len(marked) == 1
    article = soup(book.HTML / f"{page}.html").article
    assert "?" in article.h2.get_text()
    (opening,) = article.select("div.opening")
    assert opening.find_previous_sibling() == article.h2
    assert opening.img["alt"] == marked[0].metadata.mystnb.image.alt


@pytest.mark.parametrize("page", CHAPTERS)
def test_a_picture_from_further_down_leads_there(page):
    """And no id, no number occurs twice."""
    article = soup(book.HTML / f"{page}.html").article
    (opening,) = article.select("div.opening")
    place = notebook.read(book.ROOT / f"{page}.ipynb")
    name = next(
        cell.metadata.mystnb.figure.name
        for cell in place.cells
        if "classes" in cell.metadata.get("mystnb", {}).get("figure", {})
    )
    assert len(article.select(f"#{name}")) == 1
    links = opening.select(f'a[href="#{name}"]:not(.headerlink)')
    assert len(links) == (0 if opening.select(f"#{name}") else 1)


@pytest.mark.parametrize("page", CHAPTERS)
def test_the_code_of_the_opening_is_told_of_as_that_of_each_picture(page):
    article = soup(book.HTML / f"{page}.html").article
    folds = article.select("details.hide")
    drawn = [x for x in folds if "How this picture is drawn" in x.summary.text]
    assert drawn and all("quiet" in fold.parent["class"] for fold in drawn)


@pytest.mark.sweep(13)
@pytest.mark.parametrize("page", [page for page in book.pages() if "/deeper/" in page])
def test_the_aims_unfold_with_a_key(visit, page):
    opened = visit(page, viewport=DESK).page
    aims = opened.locator(".lesson-bar .aims")
    assert not aims.locator("ul").is_visible()
    aims.locator("summary").focus()
    opened.keyboard.press("Enter")
    assert aims.locator("li").count() > 1 and aims.locator("ul").is_visible()


SCREENS = ["desk", "phone"]
TO_PLAY = ["book/play/break_it", "book/play/which_head_knows"]
SHIFTS = """() => new Promise(done => {
    new PerformanceObserver(list => done(list.getEntries().map(x => x.value)))
        .observe({type: 'layout-shift', buffered: true});
    setTimeout(() => done([]), 500);
})"""


@pytest.mark.parametrize("share, screen", [(0.55, DESK), (0.7, PHONE)], ids=SCREENS)
@pytest.mark.parametrize("page", TO_PLAY)
def test_it_opens_with_its_game_and_what_follows_does_not_move_when_it_comes(
    visit, page, screen, share
):
    opened = visit(page, "file", viewport=screen).page
    until(opened, "widgets", "ready")
    assert sum(opened.evaluate(SHIFTS)) < 0.02
    game = opened.locator(".mha")
    held = "x => x.parentElement.parentElement.clientHeight - x.clientHeight"
    assert game.evaluate(held) < 40  # no room is left over
    top = "x => x.getBoundingClientRect().top"
    assert game.evaluate(top) < share * screen["height"]


def test_the_puzzles_are_called_as_on_their_buttons(visit):
    page = visit("book/play/break_it", viewport=DESK).page
    until(page, "widgets", "ready")
    told = page.locator("article li > p > em:first-child:visible").all_inner_texts()
    buttons = page.locator(".mha-button").all_inner_texts()
    assert len(told) == 6 and [name for name in told if name not in buttons] == []


def test_a_picture_above_the_first_heading_is_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(book.ROOT / "book/_ext"), *sys.path])
    from opening import with_picture

    figure = '<figure class="align-default opening" id="fig-1-end"></figure>'
    with pytest.raises(ValueError, match="below .* first h2; fig-1-end stands above"):
        with_picture(f"{figure}<h2>Who slept?</h2>")
    with pytest.raises(ValueError, match="move its cell below"):
        with_picture(figure)
    assert 'class="cell_output opening"' in with_picture(f"<h2>Who?</h2>{figure}")
