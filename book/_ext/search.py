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
from math import log2
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.search.en import SearchEnglish

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
        if isinstance(child, nodes.section | nodes.raw | nodes.comment):
            continue
        if isinstance(child, nodes.title) and isinstance(node, nodes.section):
            yield HEADING, child.astext()
        elif isinstance(child, nodes.literal_block):
            yield CODE, child.astext()
            yield NAMED, " ".join(DEFINED.findall(child.astext()))
            yield NAMED, " ".join(ERROR.findall(child.astext()))
        elif isinstance(child, nodes.term):
            yield NAMED, child.astext()
        elif isinstance(child, nodes.TextElement | nodes.Text):
            yield TEXT, child.astext()
            yield NAMED, " ".join(ERROR.findall(child.astext()))
        else:
            yield from parts(child)


class Index:
    """Sections and, for each stem, in which of them it counts how much."""

    def __init__(self) -> None:
        self.stem = SearchEnglish({}).stem
        self.pages: list[tuple[str, str]] = []
        self.sections: list[tuple[int, str, str]] = []
        self.found: dict[str, list[tuple[int, int]]] = {}

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
            count = Counter({stem: PAGE for stem in self.stems(title.astext())})
            times = Counter()
            for weight, text in parts(section):
                times.update((stem, weight) for stem in self.stems(text))
            for (stem, weight), n in times.items():
                count[stem] += weight * min(n, 1 if weight > TEXT else OFTEN)
            where = section["ids"][0] if section.parent is not doctree else ""
            for stem, weight in count.items():
                strength = min(STRONGEST, max(1, round(2 * log2(1 + weight))))
                self.found.setdefault(stem, []).append(
                    (len(self.sections), strength)
                )
            self.sections.append((len(self.pages) - 1, where, heading.astext()))

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
