"""The built pages are all there and whole; `make book` makes them."""

import gc
import re
import symtable
from functools import cache
from itertools import count
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from IPython.core.inputtransformer2 import TransformerManager

from mha_lib.styles import STYLES
from tests.book.conftest import WITH_WIDGETS, widgets_of
from tools import book, build, notebook, stamp

LEFTOVERS = re.compile(
    r"\$\$|\{(cite|ref|numref|doc|eq|exercise-|solution-)[^}]*\}|\\\(|\\\["
    r"|Unknown directive|Unknown interpreted text role|Traceback \(most recent call"
)
TEX = re.compile(r"\\[(\[]|\\(?:frac|sqrt|operatorname)\b")
CODE = ["pre", "code", "script"]
TOKEN = re.compile(r'<span class="\w{1,2}">([^<]*)</span>')
LEAST_ALT = 20
CHECKS = "✓"
ALSO_CHECKS = re.compile(rf"{CHECKS}|Code that is used below\b.*; and assertions")
LESSONS = [path for path in book.lessons() if "assignments" not in path.parts]
NOTEBOOKS = [path.relative_to(book.ROOT).with_suffix("") for path in book.notebooks()]


@cache
def soup(path) -> BeautifulSoup:
    """A page, without the colours of its code: every second element is one of these."""
    if not path.exists():
        pytest.fail(f"{path.name} was not built; run: make book")
    text = TOKEN.sub(r"\1", path.read_text(encoding="utf-8"))
    gc.disable()  # half of the time: a page stays to the end, none of it is garbage
    try:
        return BeautifulSoup(text, "html.parser")
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(params=book.pages())
def page(request):
    """The address of one page's file, and what is in it."""
    path = book.HTML / f"{request.param}.html"
    return path, soup(path)


def ids(html: BeautifulSoup) -> list[str]:
    return [element["id"] for element in html.find_all(id=True)]


@cache
def places(path) -> set[str]:
    return set(ids(soup(path)))


def test_no_page_is_missing_or_empty(page):
    assert len(page[1].article.get_text(strip=True)) >= build.LEAST_TEXT


def test_internal_links_lead_somewhere(page):
    path, html = page
    for link in html.find_all("a", href=True):
        parts = urlsplit(link["href"])
        if parts.scheme or parts.netloc or link["href"] == "#":
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        assert target.exists(), link
        if parts.fragment.startswith("mha-"):  # a widget's place, made in the browser
            continue  # test_lecture.py follows it
        if parts.fragment and target.suffix == ".html":
            assert unquote(parts.fragment) in places(target), link


def test_ids_are_unique(page):
    found = ids(page[1])
    assert sorted({id for id in found if found.count(id) > 1}) == []


def test_pictures_exist_and_are_described(page):
    path, html = page
    for picture in html.article.find_all("img"):
        if not picture["src"].startswith("data:"):
            assert (path.parent / unquote(picture["src"])).exists(), picture
        assert len(picture.get("alt", "")) >= LEAST_ALT, picture
        assert not picture["alt"].endswith(".png"), picture


def test_every_caption_stands_where_captions_have_their_look(page):
    figures = page[1].article.select("figure:has(figcaption)")
    apart = [x for x in figures if not x.find_parent(class_=["cell_output", "opening"])]
    assert [x.get_text() for x in apart if not x.find_parent(class_="mha")] == []


def test_no_output_is_empty(page):
    for output in page[1].select(".cell_output"):
        shown = output.find(["img", "svg", "table"]) or output.get_text(strip=True)
        assert shown, output


def test_nothing_is_left_unrendered(page):
    article = page[1].article
    apart = {id(x) for x in article.select(".math, .cell_input, code")}
    texts = (
        text
        for text in article.find_all(string=True)
        if apart.isdisjoint(map(id, text.parents))
    )
    assert LEFTOVERS.search("".join(texts)) is None
    folds = [summary.get_text() for summary in article.select("summary")]
    assert [x for x in folds if re.search(r"[*`]", x)] == []  # HTML knows no such signs


def test_no_tex_is_left(page):
    texts = page[1].article.find_all(string=TEX)
    assert [str(x) for x in texts if not x.find_parent(CODE)] == []


def test_nothing_is_loaded_from_another_host(page):
    loads = page[1].select("script[src], link[href], img[src], iframe[src]")
    addresses = [element.get("src") or element["href"] for element in loads]
    assert [a for a in addresses if urlsplit(a).netloc] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=str)
def test_launch_buttons_lead_to_the_repository(path):
    html = soup(book.HTML / path.with_suffix(".html"))
    links = {link["href"] for link in html.find_all("a", href=True)}
    source = path.with_suffix(".ipynb").as_posix()
    assert stamp.colab_link(*book.repository(), source) in links
    assert stamp.binder_link(*book.repository(), source) in links
    up = "../" * (len(path.parts) - 1)
    assert f"{up}_sources/{source}" in links


def test_every_fold_says_what_it_holds(page):
    path, html = page
    for fold in html.select("div.cell > details.hide"):
        words = fold.summary.get_text(strip=True)
        tags = fold.parent["class"]
        assert (words == "Set-up") == ("tag_setup" in tags), path
        assert words and "cell source" not in words
        shown = fold.find_previous_sibling("div")
        assert fold.find_next_sibling() is None, path  # what it shows comes first
        if "assertions" in words or words.startswith(CHECKS):
            assert shown is None and "assert" in fold.get_text()
        if words.startswith(CHECKS):
            asserted = re.findall(r"\bassert(?:_\w+)?\b", fold.pre.get_text())
            checks = "check" if len(asserted) == 1 else "checks"
            assert words.partition(" (")[0] == f"{CHECKS} {len(asserted)} {checks}"
        # An opening's picture stands above, with its caption.
        above = fold.parent.find_previous_sibling()
        opens = above is not None and "opening" in (above.get("class") or ())
        if not words.startswith("The answer: "):  # which may show what `check` says
            says_what = words.startswith("How ") or words == "Stored results"
            assert says_what == (shown is not None or opens), path


@cache
def table_of(source: str) -> symtable.SymbolTable:
    return symtable.symtable(TransformerManager().transform_cell(source), "", "exec")


@cache
def given_in(source: str) -> set[str]:
    return {x.get_name() for x in table_of(source).get_symbols() if x.is_assigned()}


@cache
def read_in(source: str) -> set[str]:
    """Names of the page that it reads, in its functions too."""
    found, left = set(), [table_of(source)]
    while left:
        scope = left.pop()
        left += scope.get_children()
        found |= {
            x.get_name()
            for x in scope.get_symbols()
            if x.is_referenced() and (x.is_global() or scope.get_type() == "module")
        }
    return found


def folds(path) -> list[tuple[str | None, str]]:
    """(the words on its fold, its code) of each cell of code, in the page's order."""
    page = soup(book.HTML / path.relative_to(book.ROOT).with_suffix(".html"))
    titles = {
        fold.pre.get_text().strip(): fold.summary.get_text().strip()
        for fold in page.select("details.above-input")
    }
    cells = [x for x in notebook.read(path).cells if x.cell_type == "code"]
    return [(titles.get(x.source.strip()), x.source) for x in cells]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_fold_of_assertions_makes_nothing_that_is_used_below(path):
    cells = folds(path)
    assert any(title for title, _ in cells)
    known = set()
    for i, (title, source) in enumerate(cells):
        own = given_in(source) - known
        known |= own
        if not (title or "").startswith(CHECKS):
            continue
        for other, later in cells[i + 1 :]:
            if not ALSO_CHECKS.match(other or ""):
                assert not own & read_in(later) - given_in(later), source


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_no_two_folds_that_touch_have_one_name(path):
    page = soup(book.HTML / path.relative_to(book.ROOT).with_suffix(".html"))
    cells = page.select("div.cell")
    names = {
        id(cell): fold.get_text().strip()
        for cell in cells
        if (fold := cell.select_one("details.above-input > summary"))
    }
    for cell in cells:
        below = cell.find_next_sibling()
        if id(cell) in names and below and "cell_output" not in str(below):
            assert names[id(cell)] != names.get(id(below))


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_the_code_of_a_picture_stands_right_below_it(path):
    page = soup(book.HTML / path.relative_to(book.ROOT).with_suffix(".html"))
    for fold in page.select("details.above-input"):
        if fold.summary.get_text().strip() == "How this picture is drawn":
            above = fold.find_previous_sibling() or fold.parent.find_previous_sibling()
            assert above.find("img")


@pytest.mark.parametrize("page", WITH_WIDGETS)
def test_each_widget_has_a_still_that_is_described(page):
    stills = soup(book.HTML / f"{page}.html").article.select("noscript img")
    assert len(stills) == widgets_of(page)
    assert all(len(still.get("alt", "")) >= 20 for still in stills)


# Each lesson's opening, and its folds. Here, because a page is read once for a file of
# tests, which takes longer than to ask it anything.


@pytest.mark.parametrize("path", book.lessons(), ids=lambda path: path.stem)
def test_aims_facts_and_set_up_stand_in_one_bar(path):
    """A line out of place would leave all three open above the question."""
    article = soup(book.HTML / path.relative_to(book.ROOT).with_suffix(".html")).article
    (bar,) = article.select(".lesson-bar")
    assert "Read first" in bar.p.get_text() and bar.select("details.aims li")
    assert bar.select(".tag_setup")
    parts = [part.name for part in bar.find_all(recursive=False)]
    # What comes after the set-up, but a button, is text like all other.
    assert parts[:3] == ["p", "details", "div"] and parts[3:] in ([], ["button"])
    assert bar.find_next("h2") == article.h2


@pytest.mark.parametrize("path", book.lessons(), ids=lambda path: path.stem)
def test_code_that_names_what_is_used_below_is_never_hidden(path):
    page = book.HTML / path.relative_to(book.ROOT).with_suffix(".html")
    for fold in soup(page).select("article .aside summary"):
        assert "used below" not in fold.get_text()


# --- from page to page -------------------------------------------------------------


def test_the_links_at_the_end_say_what_comes(page):
    _, html = page
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
    said = [x for x in page.article.select("p") if x.text.startswith("Back to ")]
    assert len(said) == 1
    title = soup(book.HTML / "book" / f"{chapter.stem}.html").article.h1.get_text()
    assert back.get_text() == f"Back to {title.removesuffix('#')}"


@pytest.mark.parametrize("name", ["book/intro", "book/04_masks"])
def test_a_page_can_be_edited_and_reported(name):
    links = [a["href"] for a in soup(book.HTML / f"{name}.html").select("a[href]")]
    assert any("/edit/" in link and name in link for link in links)
    assert any("/issues/new" in link for link in links)


@pytest.mark.parametrize(
    ("chapter", "name"),
    [
        ("01_attention", "attention"),
        ("02_heads_in_a_loop", "PerHeadMHA"),
        ("03_all_heads_at_once", "split_heads"),
    ],
)
def test_the_answer_to_a_blank_is_folded_below_it(chapter, name):
    article = soup(book.HTML / "book" / f"{chapter}.html").article
    (fold,) = (
        x.find_parent("details")
        for x in article.select("summary")
        if x.get_text(strip=True) == f"The answer: {name}"
    )
    before = [x.get_text() for x in fold.find_all_previous("pre")]
    assert fold.find_previous(string=re.compile(rf"{name} is not finished|__init__ is"))
    assert any(f"check({name}" in text and "..." in text for text in before)
    assert name in fold.pre.get_text() and "..." not in fold.pre.get_text()


def test_chapters_show_all_versions_and_where_the_reader_is(page):
    path, html = page
    links = html.select(".six-versions a")
    chapter = path.parent == book.HTML / "book"
    number = path.stem[:2]
    if not chapter or number not in ("02", "03", "05", "06", "07", "08", "09"):
        assert not links
        return
    here = [x for x in links if "aria-current" in x.attrs]
    assert len(here) == (0 if number == "09" else 1)  # 9 compares them
    assert not any("href" in x.attrs for x in here)
    assert [x.b.get_text() for x in links] == [kind.__name__ for kind in STYLES]
    assert all((path.parent / x["href"]).exists() for x in links if x not in here)


# --- figures -----------------------------------------------------------------------


def has_figure(cell) -> bool:
    return "figure" in cell.metadata.get("mystnb", {})


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_captions_are_numbered_by_chapter(path):
    """The opening figure is number 1, wherever it is drawn; others follow as read."""
    figures = soup(book.HTML / f"book/{path.stem}.html").select(".cell_output figure")
    figures = [x for x in figures if x.select_one(".caption-number")]
    assert len(figures) == sum(map(has_figure, notebook.read(path).cells))
    others, chapter = count(2), int(path.stem[:2])
    for figure in figures:
        number = 1 if "opening" in figure["class"] else next(others)
        said = figure.select_one(".caption-number").get_text(strip=True)
        assert said == f"Fig. {chapter}.{number}"


@pytest.mark.parametrize("page", book.pages())
def test_no_link_begins_with_a_blank_that_would_be_underlined(page):
    links = soup(book.HTML / f"{page}.html").select("article a.internal")
    assert [x.get_text() for x in links if x.get_text().startswith(" ")] == []


def test_names_keep_their_capitals_in_the_list_of_references():
    """BibTeX writes a title in small letters, but for what stands in braces."""
    source = (book.ROOT / "book" / "references.bib").read_text(encoding="utf-8")
    titles = " ".join(re.findall(r"^  title *= (.*)$", source, re.M))
    names = {*re.findall(r"[\w.]*\w[A-Z]\w*", titles)}
    shown = soup(book.HTML / "book" / "references.html").article.get_text()
    assert len(names) > 10 and [x for x in sorted(names) if x not in shown] == []
