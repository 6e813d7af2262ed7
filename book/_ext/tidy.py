"""Small repairs of what other extensions put on a page."""

import re
from html import unescape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.transforms.post_transforms import SphinxPostTransform

LAST_LINE = re.compile(
    r"^[\w.]+(Error|Exception|Warning|Interrupt)\b", re.MULTILINE
)
DEEPER = "book/deeper/"
NUMBERED = re.compile(r"( ?Exercise )\((\d+\.\d+)\)")
REPEATED_IDS = {"exercise-content", "solution-content"}  # an id may occur once


def last_error(traceback: str) -> str:
    """Cut all before the error's own message, which may have several lines."""
    starts = [match.start() for match in LAST_LINE.finditer(traceback)]
    return traceback[starts[-1] :] if starts else traceback


def shorten_tracebacks(app: Sphinx, doctree: nodes.document) -> None:
    """Show an error by its message: the frames hold paths of one machine."""
    for block in doctree.findall(nodes.literal_block):
        if "traceback" in block["classes"]:
            text = last_error(block.astext())
            block.rawsource, block.children = text, [nodes.Text(text)]


def drop_repeated_ids(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """sphinx-exercise gives the body of every exercise the same id."""
    for section in doctree.findall(nodes.section):
        section["ids"] = [id for id in section["ids"] if id not in REPEATED_IDS]


def unbracket_numbers(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Our exercises carry their number as title, which would read "(2.1)"."""
    for kind in (nodes.title, nodes.reference):
        for node in list(doctree.findall(kind)):
            if found := NUMBERED.fullmatch(node.astext()):
                text = f"{found[1]}{found[2]}"
                node.children = [nodes.Text(text.lstrip())]
                if text.startswith(" "):  # or it would be underlined
                    node.parent.insert(node.parent.index(node), nodes.Text(" "))


CHAPTER = re.compile(r"book/(\d\d)_")


def opening_of(doctree: nodes.document) -> str | None:
    """The figure that `opening.py` shows before all others."""
    for figure in doctree.findall(nodes.figure):
        if "opening" in figure["classes"]:
            return next(iter(figure["ids"]), None)
    return None


def number_by_chapter(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Figure 5.1 is the first of chapter 4; other pages count from 1."""
    for page, kinds in env.toc_fignumbers.items():
        found = CHAPTER.match(page)
        chapter = (int(found[1]),) if found else ()
        first = opening_of(env.get_doctree(page)) if chapter else None
        for named in kinds.values():
            inorder = sorted(named, key=lambda name: name != first)
            for place, name in enumerate(inorder, start=1):
                named[name] = (*chapter, place)
    return []  # pages to read anew


# What axe-core finds in the theme's and in docutils' HTML: (what, instead).
# The first page has the title of the book, which would stand in its tab twice.
REPAIRS = (
    (re.compile(r"<title>(.+) &#8212; \1</title>"), r"<title>\1</title>"),
    (
        re.compile(r'<div class="bd-sidebar-primary bd-sidebar">'),
        '<div class="bd-sidebar-primary bd-sidebar" role="navigation" '
        'aria-label="Book">',
    ),
    (
        re.compile(r'<th class="head[^"]*">\s*(<p>\s*</p>)?\s*</th>'),
        "<td></td>",
    ),
    (re.compile(r' role="doc-biblioentry"'), ""),
    (
        re.compile(r'<summary>(?=<span class="toctree-toggle")'),
        '<summary aria-label="Pages of this part">',
    ),
    (re.compile(r'<div role="list" class="citation-list">'), "<div>"),
    (re.compile(r", n\.d\.</a>"), "</a>"),  # a work without a year has a name
)


# A long name in a sentence may break, but only where a reader expects it.
INLINE_CODE = re.compile(r'(?<=<span class="pre">)[^<]{12,}(?=</span>)')
BREAKS = re.compile(r"(?<=[^\W_]{2})_+(?=[^\W_])|(?<=[\w)\]]{2})(?=\.[^\W\d])")


# A short one with a hyphen, of an einsum or an option say, would break there.
HYPHENED = re.compile(
    r'<span class="pre">(?='
    r"(?:[^<-]{1,14}-(?:[^<&;]|&\w+;){1,8}|--?[a-z][a-z-]{0,14})</span>)"
)


# In a table a shorter name may, too: its column would be as wide as the name.
CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
IN_A_CELL = re.compile(r'(?<=<span class="pre">)[^<]{8,11}(?=</span>)')


def let_names_break(html: str) -> str:
    """Allow a line to end after each `_` and before each `.` of a long name."""

    def broken(name: re.Match) -> str:
        return BREAKS.sub(r"\g<0><wbr>", name[0])

    html = HYPHENED.sub('<span class="pre whole">', html)
    html = CELL.sub(lambda cell: IN_A_CELL.sub(broken, cell[0]), html)
    return INLINE_CODE.sub(broken, html)


# A fold has one name, not one for each state, and no label over it.
FOLD = re.compile(
    r'(<details class="admonition hide above-input">\s*<summary)[^>]*>\s*'
    r'<p class="collapsed (admonition-title">.*?</p>).*?</summary>',
    re.DOTALL,
)


OPENS, CLOSES = re.compile(r"[^\w\s]+$"), re.compile(r"^[^\w\s]+")


class Unbroken(SphinxPostTransform):
    """No line ends between a formula and the signs that touch it."""

    default_priority = 200
    formats = ("html",)

    def run(self, **kwargs) -> None:
        for formula in list(self.document.findall(nodes.math)):
            around, at = formula.parent, formula.parent.index(formula)
            before = signs(around, at - 1, OPENS) if at else ""
            after = signs(around, at + 1, CLOSES)
            if before or after:
                parts = [nodes.Text(before), formula, nodes.Text(after)]
                whole = nodes.inline("", "", *parts, classes=["unbroken"])
                around[at] = whole


def signs(around: nodes.Element, at: int, pattern: re.Pattern) -> str:
    """Take the signs at one end off the text that stands there."""
    beside = around[at] if at < len(around) else None
    found = isinstance(beside, nodes.Text) and pattern.search(beside)
    if not found:
        return ""
    around[at] = nodes.Text(pattern.sub("", beside))
    return found[0]


class LeadsIn(SphinxPostTransform):
    """A sentence that ends in a colon stays, on paper, with what follows it."""

    default_priority = 200
    formats = ("html",)

    def run(self, **kwargs) -> None:
        for paragraph in self.document.findall(nodes.paragraph):
            after = paragraph.next_node(descend=False, siblings=True)
            last = after is None or isinstance(after, nodes.section)
            if isinstance(paragraph.parent, nodes.section) and last:
                continue  # "Your answer:", and a new section
            if paragraph.astext().endswith(":"):
                paragraph["classes"].append("leads-in")


# A link to the page before or after, and the title that ends it.
BESIDE = re.compile(
    r'<a class="(?:left-prev|right-next)"\s+href="(?P<to>[^"]+)".*?'
    r'<p class="prev-next-title">.*?</p>',
    re.DOTALL,
)
SAYS = re.compile(r'<meta name="description" content="([^"]*)"')
PROMISE = re.compile(r"\S.*?[.?!](?=\s|$)")


def say_what_comes(html: str, page: Path, promises: dict[Path, str]) -> str:
    """Below the title of the next page its first sentence, as in its head."""

    def told(link: re.Match) -> str:
        promise = promises.get((page.parent / link["to"]).resolve(), "")
        said = f'<p class="prev-next-says">{promise}</p>' if promise else ""
        return link[0] + said

    return BESIDE.sub(told, html)


BACK = '<p class="back-to-chapter"><a href="{link}">Back to {title}</a></p>'


def lead_past_deeper(
    app: Sphinx,
    page: str,
    template: str,
    context: dict,
    doctree: nodes.document,
) -> None:
    """From a chapter the buttons lead to chapters, past the deeper pages.

    From a deeper page they lead to those beside it, and back to its chapter.
    """

    def link_to(to: str) -> dict[str, str]:
        title = app.builder.render_partial(app.env.titles[to])["title"]
        return {"link": app.builder.get_relative_uri(page, to), "title": title}

    relations = app.builder.relations
    if page.startswith(DEEPER):
        chapter, _, to = relations[page]
        beside = to and relations[to][0] == chapter
        context["next"] = link_to(to if beside else chapter)
        context["body"] += BACK.format(**link_to(chapter))
        return
    for side, name in ((1, "prev"), (2, "next")):
        to = relations.get(page, [None] * 3)[side]
        while to and to.startswith(DEEPER):
            to = relations[to][side]
        if to:
            context[name] = link_to(to)


def first_sentences(pages: dict[Path, str]) -> dict[Path, str]:
    found = {page: SAYS.search(html) for page, html in pages.items()}
    said = {
        page: PROMISE.match(match[1]) for page, match in found.items() if match
    }
    return {page.resolve(): match[0] for page, match in said.items() if match}


# What a cell prints, and how long its longest line is: on a phone one of up to
# `FITS` characters gets smaller letters, as small as `book.css` lets them be; a
# longer one goes on below.
PRINTED = re.compile(
    r'(?P<head><div class="output (?:text_plain|stream)\b[^>]*><div[^>]*>)<pre>'
    r"(?P<text>.*?)</pre>",
    re.DOTALL,
)
WHOLE, FITS = 42, 60


def fit_printed(html: str) -> str:
    def fitted(found: re.Match) -> str:
        text = unescape(re.sub("<[^>]+>", "", found["text"]))
        longest = max(map(len, text.splitlines()), default=0)
        if longest <= WHOLE:
            return found[0]
        how = (
            f'style="--letters: {longest}"'
            if longest <= FITS
            else 'class="long"'
        )
        return f"{found['head']}<pre {how}>{found['text']}</pre>"

    return PRINTED.sub(fitted, html)


def repair_pages(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    pages = {
        page: page.read_text(encoding="utf-8")
        for page in Path(app.outdir).rglob("*.html")
    }
    promises = first_sentences(pages)
    for page, html in pages.items():
        for pattern, better in REPAIRS:
            html = pattern.sub(better, html)
        html = FOLD.sub(r'\1><p class="\2</summary>', let_names_break(html))
        html = say_what_comes(html, page, promises)
        html = fit_printed(html)
        page.write_text(html, encoding="utf-8")


def setup(app: Sphinx) -> dict:
    app.connect("doctree-read", shorten_tracebacks)
    app.connect(  # after Sphinx has numbered them from 1 to the end of the book
        "env-get-updated", number_by_chapter, priority=900
    )
    for transform in (Unbroken, LeadsIn):
        app.add_post_transform(transform)
    app.connect("doctree-resolved", drop_repeated_ids)
    app.connect("doctree-resolved", unbracket_numbers)
    app.connect("html-page-context", lead_past_deeper)
    app.connect("build-finished", repair_pages)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
