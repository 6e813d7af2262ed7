"""No sign is missing: each icon font has what pages and style sheets draw with it."""

import re
from functools import cache
from html import unescape as unescape_html
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from fontTools.ttLib import TTFont

from tools import book

PRIVATE = re.compile("[\ue000-\uf8ff]")  # the area in which icon fonts keep their signs
ESCAPE = re.compile(r"\\([0-9a-fA-F]{1,6})\s?|\\(.)")
RULE = re.compile(r"(?P<selector>[^{}]*)\{(?P<body>[^{}]*)\}")
DECLARATION = re.compile(r"""([\w-]+)\s*:((?:"[^"]*"|'[^']*'|[^;"'])*)""")
VARIABLE = re.compile(r"var\(\s*(--[\w-]+)\s*\)")
LINK = re.compile(r"<link\b[^>]*>")
HREF = re.compile(r'href="([^"]+)"')
SOURCE = re.compile(r"""url\(["']?([^"')]+)""")


class Face(NamedTuple):
    """A font as a style sheet announces it."""

    family: str
    weight: str
    file: Path


def unescape(text: str) -> str:
    return ESCAPE.sub(lambda x: chr(int(x[1], 16)) if x[1] else x[2], text)


def sheets(path: Path) -> tuple[Path, ...]:
    """The style sheets that a page loads."""
    links = LINK.findall(path.read_text(encoding="utf-8").partition("</head>")[0])
    found = [HREF.search(x)[1] for x in links if 'rel="stylesheet"' in x]
    return tuple((path.parent / urlsplit(x).path).resolve() for x in found)


@cache
def rules(sheet: Path) -> list[tuple[str, dict[str, str]]]:
    """Every rule: its selector, its declarations."""
    css = re.sub(r"/\*.*?\*/", "", sheet.read_text(encoding="utf-8"), flags=re.DOTALL)
    return [
        (rule["selector"].strip(), dict(DECLARATION.findall(rule["body"])))
        for rule in RULE.finditer(css)
    ]


@cache
def faces(loaded: tuple[Path, ...]) -> list[Face]:
    return [
        Face(
            unescape(face["font-family"]).strip("\"' "),
            face.get("font-weight", "400").strip(),
            (sheet.parent / SOURCE.search(face["src"])[1]).resolve(),
        )
        for sheet in loaded
        for selector, face in rules(sheet)
        if selector.endswith("@font-face")
    ]


@cache
def drawn_by(font: Path) -> set[str]:
    """The characters of a font."""
    return {chr(code) for code in TTFont(font).getBestCmap()}


@cache
def missing(loaded: tuple[Path, ...]) -> list[tuple[str, str]]:
    """(selector, character) of all that a rule's `content` names and no font draws."""
    every = [rule for sheet in loaded for rule in rules(sheet)]
    values = {name: value for _, body in every for name, value in body.items()}

    def resolve(value: str) -> str:
        while found := VARIABLE.search(value):
            value = value.replace(found[0], values.get(found[1], ""))
        return unescape(value)

    found = []
    for selector, body in every:
        font = resolve(body.get("font-family", body.get("font", "")))
        icons = faces(loaded)
        named = [face for face in icons if face.family in font] or icons
        for sign in PRIVATE.findall(resolve(body.get("content", ""))):
            if not any(sign in drawn_by(face.file) for face in named):
                found.append((selector, f"{ord(sign):x}"))
    return found


@pytest.mark.parametrize("page", [*book.pages(), "search", "genindex"])
def test_fonts_have_what_style_sheets_draw(page):
    loaded = sheets(book.HTML / f"{page}.html")
    assert len(faces(loaded)) > 3
    assert missing(loaded) == []


@pytest.mark.parametrize("page", [*book.pages(), "search", "genindex"])
def test_pages_hold_no_sign_of_their_own(page):
    # It would need an element in an icon font; ours come from style sheets alone.
    text = (book.HTML / f"{page}.html").read_text(encoding="utf-8")
    assert PRIVATE.findall(unescape_html(text)) == []


DRAWN = """() => [...document.querySelectorAll('*')].flatMap(element =>
    ['::before', '::after'].map(part => getComputedStyle(element, part))
        .filter(style => /[\\ue000-\\uf8ff]/.test(style.content))
        .map(style => [style.content, style.fontFamily, style.fontWeight]))"""
WITH_SIGNS = {  # pages that together show every kind, and what of it
    "book/intro": ".admonition.tip, .admonition.note",
    "book/04_masks": ".admonition.warning, .admonition.note, .exercise, .solution",
    "book/07_pytorchs_own": ".admonition, .exercise",
}


@pytest.mark.parametrize("page", WITH_SIGNS)
def test_what_is_drawn_is_in_the_very_font(visit, page):
    opened = visit(page, query="?highlight=attention")  # Hide Search Matches
    opened.page.wait_for_selector(".highlight-link")
    assert opened.count(WITH_SIGNS[page]) > 0
    known = faces(sheets(book.HTML / f"{page}.html"))
    drawn = {tuple(each) for each in opened.page.evaluate(DRAWN)}
    assert len(drawn) > 10
    for content, family, weight in drawn:
        first = family.split(",")[0].strip("\"' ")
        (file,) = {x.file for x in known if (x.family, x.weight) == (first, weight)}
        assert set(PRIVATE.findall(content)) <= drawn_by(file), (content, family)
