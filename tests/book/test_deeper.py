"""Sentences that send to a deeper page stand small, below what they end."""

import importlib

import pytest
from docutils import nodes

from tests.book.test_pages import soup
from tools import book


@pytest.fixture
def deeper(monkeypatch):
    """Our extension that parts them."""
    monkeypatch.syspath_prepend(book.ROOT / "book" / "_ext")
    return importlib.import_module("deeper")


LINK = nodes.reference("", "Why", refuri="deeper/01_why.html")
OTHER = nodes.reference("", "chapter 4", refuri="04_masks.html")


@pytest.mark.parametrize(
    ("parts", "place"),
    [
        (["All are soft. ", LINK, " proves it."], 1),
        ([LINK, " proves it."], 0),
        (["All are soft. ", LINK, " proves it, and ", LINK, " measures it."], 1),
        (["All are soft. ", LINK, " proves it. ", LINK, " measures it."], 1),
        (["How much is ", LINK, "."], None),
        (["Soft. ", LINK, " proves it. Then the road goes on."], None),
        (["Soft. ", LINK, " proves it. ", OTHER, " goes on."], None),
        (["Soft. ", LINK, " trains two. Their losses:"], None),
        (["Soft. ", OTHER, " hides them."], None),
    ],
    ids=lambda x: str(x)[:60],
)
def test_where_the_last_sentences_begin(deeper, parts, place):
    found = [nodes.Text(x) if isinstance(x, str) else x.deepcopy() for x in parts]
    assert deeper.begins(found) == place


@pytest.mark.parametrize("path", book.chapters()[:5], ids=lambda path: path.stem)
def test_a_chapter_has_some_and_each_leads_deeper_at_once(path):
    found = soup(book.HTML / "book" / f"{path.stem}.html").select("p.deeper")
    assert found
    for paragraph in found:
        first = next(iter(paragraph.contents))
        assert first.name == "a" and first["href"].startswith("deeper/"), paragraph
        assert paragraph.get_text().rstrip().endswith(".")
