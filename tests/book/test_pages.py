"""The built pages are all there and whole; `make book` makes them."""

import re
from functools import cache
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from tools import book, build, stamp

LEFTOVERS = re.compile(
    r"\$\$|\{(cite|ref|numref|doc|eq|exercise-|solution-)[^}]*\}|\\\(|\\\["
    r"|Unknown directive|Unknown interpreted text role|Traceback \(most recent call"
)
LEAST_ALT = 20
NOTEBOOKS = [path.relative_to(book.ROOT).with_suffix("") for path in book.notebooks()]


@cache
def soup(path) -> BeautifulSoup:
    if not path.exists():
        pytest.fail(f"{path.name} was not built; run: make book")
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


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


def test_nothing_is_loaded_from_another_host(page):
    loads = page[1].select("script[src], link[href], img[src], iframe[src]")
    addresses = [element.get("src") or element["href"] for element in loads]
    assert [a for a in addresses if urlsplit(a).netloc] == []


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=str)
def test_launch_buttons_lead_to_the_repository(notebook):
    html = soup(book.HTML / notebook.with_suffix(".html"))
    links = {link["href"] for link in html.find_all("a", href=True)}
    source = notebook.with_suffix(".ipynb").as_posix()
    assert stamp.colab_link(*book.repository(), source) in links
    assert stamp.binder_link(*book.repository(), source) in links
    up = "../" * (len(notebook.parts) - 1)
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
        if "assertions" in words:
            assert shown is None and "assert" in fold.get_text()
        assert words.startswith("How ") == (shown is not None), path
