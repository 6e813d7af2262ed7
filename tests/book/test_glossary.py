"""Every term is explained where the glossary says, and not used before."""

import re
from functools import cache

import pytest

from tools import book, notebook

ENTRY = re.compile(r"^(\S.*)\n  (.+)$", re.MULTILINE)
PAGE = re.compile(r"\(([\w/]+\.ipynb)\)$")
NO_PROSE = re.compile(  # a heading may name what it explains
    r"`[^`]*`|\[[^\]]*\]\([^)]*\)|\{\w+\}`[^`]*`|https?://\S+|^#+ .*$", re.MULTILINE
)
TO_A_TERM = re.compile(r'href="[^"]*glossary\.html#term-([^"]+)"')
GLOSSARY = book.ROOT / "book" / "glossary.md"
TERMS = dict(ENTRY.findall(GLOSSARY.read_text(encoding="utf-8")))


def prose(path) -> list[str]:
    """The texts of a page after its head, without code, links and sources."""
    cells = notebook.read(path).cells[1:]
    return [
        NO_PROSE.sub(" ", cell.source) for cell in cells if cell.cell_type == "markdown"
    ]


@cache
def road() -> list[tuple[str, str]]:
    return [(path.name, text) for path in book.chapters() for text in prose(path)]


@cache
def deeper() -> dict[str, list[str]]:
    return {f"deeper/{path.name}": prose(path) for path in book.deeper()}


def first(pattern: str, texts: list[tuple[str, str]]) -> int | None:
    found = re.compile(pattern, re.IGNORECASE)
    return next((n for n, (_, text) in enumerate(texts) if found.search(text)), None)


def explained(term: str, page: str) -> bool:
    """Whether the page has the term in italics, and nothing before it has it at all.

    Before it is the road; for a deeper page, up to the end of its chapter.
    """
    name, end = page.split("/")[-1], len(road())
    if page in deeper():
        end = max(n for n, (x, _) in enumerate(road()) if x[:2] == name[:2]) + 1
    texts = road()[:end] + [(name, text) for text in deeper().get(page, [])]
    word = rf"{re.escape(term)}s?"
    there = first(rf"\*{word}\*", texts)
    used = first(rf"(?<!\w){word}(?!\w)", texts)
    return there is not None and texts[there][0] == name and used == there


def test_there_are_terms():
    assert len(TERMS) > 50
    assert sorted(TERMS, key=str.casefold) == list(TERMS)


@pytest.mark.parametrize("term", TERMS)
def test_a_term_is_explained_before_it_is_used(term):
    page = PAGE.search(TERMS[term])
    assert page, f"{term}: name the page that explains it"
    assert explained(term, page[1])


def test_a_term_used_too_early_is_noticed(monkeypatch):
    assert explained("einsum", "06_einsum_sequence_first.ipynb")
    assert not explained("einsum", "07_pytorchs_own.ipynb")
    early = [("00.ipynb", "An einsum, unexplained."), *road()]
    monkeypatch.setitem(globals(), "road", lambda: early)
    assert not explained("einsum", "06_einsum_sequence_first.ipynb")


def test_chapters_lead_to_the_glossary():
    led = set()
    for path in book.lessons():
        page = book.HTML / path.relative_to(book.ROOT).with_suffix(".html")
        led.update(TO_A_TERM.findall(page.read_text(encoding="utf-8")))
    assert {term.replace(" ", "-").casefold() for term in TERMS} <= {
        x.casefold() for x in led
    }
