"""Pictures: pressed they fill the screen; in the dark they are sheets of paper."""

import re
from pathlib import Path

import pytest

from mha_lib.styles import STYLES
from tests.book.conftest import DESK, PHONE
from tests.book.test_pages import soup
from tools import book, notebook

PAGE = "book/01_attention"
FIRST = "article .cell_output img"


@pytest.mark.parametrize("key", ["Enter", " "])
def test_a_picture_is_enlarged_and_put_back_by_keyboard(visit, key):
    page = visit(PAGE, viewport=DESK).page
    picture, dialog = page.locator(FIRST).first, page.locator("dialog.enlarged")
    small = picture.bounding_box()["width"]
    picture.focus()
    page.keyboard.press(key)
    assert dialog.is_visible()
    assert dialog.locator("img").bounding_box()["width"] > 1.5 * small
    assert dialog.locator("p").last.inner_text() == picture.get_attribute("alt")
    page.keyboard.press("Escape")
    assert not dialog.is_visible()
    assert picture.evaluate("x => x === document.activeElement")


def test_an_enlarged_picture_keeps_its_caption_and_no_other(visit):
    page = visit(PAGE, viewport=DESK).page
    dialog = page.locator("dialog.enlarged")
    captioned = page.locator(".cell_output figure").first
    said = captioned.locator("figcaption").inner_text().removesuffix("#").strip()
    plain = page.locator(".cell_output > img").first
    for picture, wanted in ((captioned.locator("img"), said), (plain, "")):
        picture.click()
        assert dialog.locator("p").first.inner_text().strip() == wanted
        page.keyboard.press("Escape")
    assert said.startswith("Fig. 1.1")


def test_on_a_phone_its_letters_are_as_large_as_the_text(visit):
    page = visit(PAGE, viewport=PHONE, has_touch=True).page
    picture, dialog = page.locator(FIRST).first, page.locator("dialog.enlarged")
    small = picture.bounding_box()["width"]
    picture.tap()
    assert dialog.locator("img").bounding_box()["width"] > 1.5 * small
    assert dialog.evaluate("x => x.scrollWidth > x.clientWidth"), "it is moved sideways"
    dialog.tap()
    assert not dialog.is_visible()


def test_in_the_dark_it_is_paper_without_a_frame(visit):
    page = visit(PAGE, colours="dark").page
    style = page.locator(FIRST).first.evaluate(
        "x => { const s = getComputedStyle(x); return [s.backgroundColor, s.filter]; }"
    )
    assert style == ["rgb(255, 255, 255)", "brightness(0.86)"]


LETTERS = """all => all.filter(x => x.checkVisibility()).map(x => {
    const wide = x.clientWidth - parseFloat(getComputedStyle(x).paddingInlineEnd);
    return 10 / 72 * 100 * wide / (x.naturalWidth / 2);
})"""  # of 10 points, in pixels
PAPER_IN_THE_DARK = """all => all.filter(x => x.checkVisibility()).every(x =>
    getComputedStyle(x).filter === 'brightness(0.86)')"""


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize(
    "page", ["book/02_heads_in_a_loop", "book/08_tensorflow_style"]
)
def test_letters_have_eleven_pixels_where_the_page_has_358(visit, page, colours):
    opened = visit(page, colours=colours, viewport={"width": 390, "height": 844}).page
    assert opened.locator("article > section").evaluate("x => x.clientWidth") == 358
    pictures = opened.locator(".cell_output img")
    pictures.evaluate_all("all => Promise.all(all.map(x => x.decode()))")
    letters = pictures.evaluate_all(LETTERS)
    assert len(letters) > 5 and min(letters) >= 11
    assert opened.evaluate("document.documentElement.scrollWidth") == 390
    assert pictures.evaluate_all(PAPER_IN_THE_DARK) == (colours == "dark")


def test_code_is_large_enough_and_a_line_fits(visit):
    page = visit("book/03_all_heads_at_once", viewport=DESK).page
    found = page.locator("article pre").evaluate_all(
        """all => all.filter(x => x.checkVisibility()).map(x => [
            parseFloat(getComputedStyle(x).fontSize), x.scrollWidth - x.clientWidth])"""
    )
    assert len(found) > 20
    assert min(size for size, _ in found) >= 13
    assert max(hidden for _, hidden in found) <= 0


@pytest.mark.parametrize("page", book.pages())
def test_the_links_at_the_end_say_what_comes(page):
    html = soup(book.HTML / f"{page}.html")
    said = [x.get_text() for x in html.select(".prev-next-info")]
    promises = html.select(".prev-next-says")
    assert len(said) == len(promises) > 0
    assert all(re.search(r"[.?!]$", x.get_text()) for x in promises)


def test_who_follows_the_buttons_alone_stays_on_the_road():
    page, met = book.HTML / "book" / "intro.html", []
    while page.stem != book.chapters()[-1].stem:
        (link,) = soup(page).select("a.right-next")
        page = (page.parent / link["href"]).resolve()
        met.append(page.stem)
        (link,) = soup(page).select("a.left-prev")
        assert (page.parent / link["href"]).resolve().stem == ["intro", *met][-2]
    chapters = [path.stem for path in book.chapters()]
    assert [stem for stem in met if stem in chapters] == chapters
    assert not {path.stem for path in book.deeper()} & {*met}


@pytest.mark.parametrize("path", book.deeper(), ids=lambda path: path.stem)
def test_a_deeper_page_leads_to_the_one_beside_it_and_back(path):
    (chapter,) = (x for x in book.chapters() if x.stem[:2] == path.stem[:2])
    beside = [x for x in book.deeper() if x.stem[:2] == path.stem[:2]]
    place = beside.index(path)
    page = soup(book.HTML / "book" / "deeper" / f"{path.stem}.html")
    links = [page.select(f"a.{side}") for side in ("left-prev", "right-next")]
    leads = [Path(link["href"]).stem for (link,) in links]
    around = [chapter, *beside, chapter]
    assert leads == [around[place].stem, around[place + 2].stem]
    (back,) = page.select("article .back-to-chapter a")
    assert back["href"] == f"../{chapter.stem}.html"
    title = notebook.read(chapter).cells[0].source.splitlines()[0]
    assert back.get_text() == f"Back to {title.removeprefix('# ')}"


@pytest.mark.parametrize("page", ["book/intro", "book/05_masks"])
def test_a_page_can_be_edited_and_reported(page):
    links = [a["href"] for a in soup(book.HTML / f"{page}.html").select("a[href]")]
    assert any("/edit/" in link and page in link for link in links)
    assert any("/issues/new" in link for link in links)


@pytest.mark.parametrize("page", book.pages())
def test_six_chapters_show_all_versions_and_where_the_reader_is(page):
    path = book.HTML / f"{page}.html"
    links = soup(path).select(".six-versions a")
    if page[5:7] not in ("02", "03", "04", "06", "07", "08"):
        assert not links
        return
    here = [x for x in links if "aria-current" in x.attrs]
    assert len(here) == 1 and "href" not in here[0].attrs
    assert [x.b.get_text() for x in links] == [kind.__name__ for kind in STYLES]
    assert all((path.parent / x["href"]).exists() for x in links if x not in here)
