"""An index of sections: a search leads to the place, not to the page.

Sphinx's own index knows pages. This one knows, of each section, its heading,
what its code defines, which errors it shows and the words of its text.
``search.js`` ranks the sections and hands them to Sphinx's list of results. It
is one script, loaded on the page of the search alone, and needs no network.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import chain
from math import log2
from pathlib import Path

from asked import PHRASES
from docutils import nodes
from sphinx.addnodes import glossary
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish
from sphinx.util import logging

INDEX = "sections.js"
PAGE, HEADING, NAMED, TEXT, CODE = 2, 8, 4, 1, 0.4  # what a word counts in each
OFTEN = 3  # from here on, once more tells nothing more
STRONGEST = 9  # one digit in the index
DEFINED = re.compile(r"^(?:def|class) (\w+)", re.MULTILINE)
ERROR = re.compile(r"\b\w*(?:Error|Warning): .+")
NAME = re.compile(r"\w*[^\W_]_[^\W_]\w*")
CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
WORD = re.compile(r"[^\W_]+")


def words(text: str) -> Iterator[str]:
    """Words in lower case; a name whole and in parts: in_proj, in, proj."""
    for name in NAME.findall(text):
        yield name.lower()
    for word in WORD.findall(text):
        yield word.lower()
        if len(pieces := CAPITALS.split(word)) > 1:
            yield from (piece.lower() for piece in pieces)


def parts(node: nodes.Element) -> Iterator[tuple[float, str]]:
    """(what a word counts, the text) of a section, not of those beneath it."""
    for child in node.children:
        if isinstance(
            child, nodes.section | nodes.raw | nodes.comment | glossary
        ):
            continue
        if isinstance(child, nodes.title) and isinstance(node, nodes.section):
            yield HEADING, child.astext()
        elif isinstance(child, nodes.literal_block):
            yield CODE, child.astext()
            yield NAMED, " ".join(DEFINED.findall(child.astext()))
            yield NAMED, " ".join(ERROR.findall(child.astext()))
        elif isinstance(child, nodes.term):
            yield (HEADING if child["ids"] else NAMED), child.astext()
        elif isinstance(child, nodes.TextElement | nodes.Text):
            yield TEXT, child.astext()
            yield NAMED, " ".join(ERROR.findall(child.astext()))
        else:
            yield from parts(child)


def names_given(place: str) -> Iterator[tuple[float, str]]:
    """What readers call a section who have not read it."""
    if place in PHRASES:
        yield HEADING, ", ".join(PHRASES[place])


class Index:
    """Sections and, for each stem, in which of them it counts how much."""

    def __init__(self) -> None:
        self.stem = cache(SearchEnglish({}).stem)  # a word comes forty times
        self.pages: list[tuple[str, str]] = []
        self.sections: list[tuple[int, str, str]] = []
        self.found: dict[str, list[tuple[int, int]]] = {}
        self.stems_of_phrases: list[tuple[int, list[str]]] = []

    def add(self, page: str, doctree: nodes.document) -> None:
        """Take in a page."""
        title = next(doctree.findall(nodes.title), None)
        if title is None:
            return
        self.pages.append((page, title.astext()))
        for section in doctree.findall(nodes.section):
            heading = section.children[0] if section.children else None
            if not isinstance(heading, nodes.title):
                continue
            where = section["ids"][0] if section.parent is not doctree else ""
            self.enter(where, heading.astext(), section)
        for term in doctree.findall(nodes.term):
            if term["ids"] and isinstance(term.parent.parent.parent, glossary):
                self.enter(term["ids"][0], term.astext(), term.parent)

    def enter(self, where: str, heading: str, content: nodes.Element) -> None:
        """Take in a section, or a term of the glossary, of the last page."""
        page, title = self.pages[-1]
        times = Counter()
        for weight, text in chain(
            parts(content), names_given(f"{page}#{where}")
        ):
            times.update((stem, weight) for stem in self.stems(text))
        count = Counter({stem: PAGE for stem in self.stems(title)})
        for (stem, weight), n in times.items():
            count[stem] += weight * min(n, 1 if weight > TEXT else OFTEN)
        for stem, weight in count.items():
            strength = min(STRONGEST, max(1, round(2 * log2(1 + weight))))
            self.found.setdefault(stem, []).append(
                (len(self.sections), strength)
            )
        for phrase in PHRASES.get(f"{page}#{where}", ()):
            if stems := sorted({*self.stems(phrase)}):
                self.stems_of_phrases.append((len(self.sections), stems))
        self.sections.append((len(self.pages) - 1, where, heading))

    def nowhere(self) -> set[str]:
        """Places of which it is said what is asked, and that do not exist."""
        known = {
            f"{self.pages[page][0]}#{where}" for page, where, _ in self.sections
        }
        return PHRASES.keys() - known

    def stems(self, text: str) -> Iterator[str]:
        """What is looked for: stems, as Sphinx makes them in the page."""
        for word in words(text):
            yield self.stem(word)

    def written(self) -> str:
        """The script; in ``1f7 03`` gaps in base 36 stand before strengths."""
        stems = {}
        for stem, found in sorted(self.found.items()):
            before, line = 0, []
            for section, strength in found:
                line.append(f"{base36(section - before)}{strength}")
                before = section
            stems[stem] = " ".join(line)
        content = {
            "pages": self.pages,
            "sections": self.sections,
            "stems": stems,
            "asked": self.stems_of_phrases,
        }
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        return f"var bookSections = {text};\n"


def base36(number: int) -> str:
    """As parseInt(…, 36) reads it."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    high, low = divmod(number, 36)
    return (base36(high) if high else "") + digits[low]


def write(app: Sphinx, error: Exception | None) -> None:
    """Put the index beside Sphinx' own."""
    if error or app.builder.format != "html":
        return
    index = Index()
    for page in sorted(app.env.found_docs):
        index.add(page, app.env.get_doctree(page))
    for place in sorted(index.nowhere()):
        logging.getLogger(__name__).warning(
            "asked.py names no section: %s", place
        )
    path = Path(app.outdir) / "_static" / INDEX
    path.write_text(index.written(), encoding="utf-8")


def load(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    """The page of the search alone needs the index."""
    if page == "search":
        app.add_js_file(INDEX, loading_method="defer")
        app.add_js_file("search.js", loading_method="defer")


def setup(app: Sphinx) -> dict:
    """Sphinx calls this."""
    app.connect("html-page-context", load)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
