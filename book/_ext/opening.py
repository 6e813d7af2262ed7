"""The first screen of a lesson: a question, a picture, and the rest in a bar.

A figure with the class `opening` stands below the first heading. One that is
drawn in that section moves there, and its code with it; further down it stays,
and a copy does.
"""

import re

from sphinx.application import Sphinx

LESSON = re.compile(r"book/(\d\d_|deeper/|play/)")
# Between title and first section: what a reader will know, what is read first
# and how long it takes, the set-up.
FACTS = re.compile(
    r"<p><strong>(?P<title>[^<]+)</strong></p>\s*"
    r'(?P<aims><ul class="simple">.*?</ul>)\s*'
    r"(?P<facts><p><strong>Read first:.*?</p>)\s*"
    r'(?P<setup><div class="cell tag_setup .*?</details>\s*</div>)',
    re.DOTALL,
)
FIGURE = re.compile(
    r'<figure class="[^"]*\bopening\b[^"]*" id="(?P<id>[^"]+)">.*?</figure>',
    re.DOTALL,
)
NUMBER = re.compile(r'<span class="caption-number">(.*?) ?</span>')
HEADER_LINK = re.compile(r'<a class="headerlink".*?</a>', re.DOTALL)
CELL = re.compile(r'<div class="(cell [^"]*)"')
ASIDE = re.compile(
    r'<div class="cell [^"]*\baside\b(?:(?!<div class="cell ).)*?'
    r"<summary[^>]*>(.*?)</p>",
    re.DOTALL,
)
CODE = r"(?:\s*(<details class=\"admonition hide.*?</details>))?"


def in_a_bar(head: str, rest: str) -> str:
    """Fold the aims, and set them beside the facts and the set-up."""

    def bar(found: re.Match) -> str:
        return (
            f'<div class="lesson-bar">{found["facts"]}\n<details class="aims">'
            f"<summary>{found['title']}</summary>{found['aims']}</details>\n"
            f"{found['setup']}{switch(rest)}</div>\n"
        )

    return FACTS.sub(bar, head)


def switch(page: str) -> str:
    """The button that shows what stands aside: asides.js."""
    titles = ASIDE.findall(page)
    checks = sum(map(int, re.findall(r"✓ (\d+)", " ".join(titles))))
    drawn = any("picture" in title for title in titles)
    what = [f"{checks} checks"] * (checks > 0)
    what += ["how pictures are drawn"] * drawn
    if not what:
        return ""
    show = '<span class="shows">Show</span><span class="hides">Hide</span>'
    button = '<button type="button" class="asides">'
    return f"{button}{show} {' and '.join(what)}</button>"


def copied(figure: re.Match) -> str:
    """The figure again: its number leads to where it is drawn."""
    link = rf'<a href="#{figure["id"]}">\1</a> '
    again = figure[0].replace(f' id="{figure["id"]}"', "")
    return NUMBER.sub(link, HEADER_LINK.sub("", again))


def with_picture(rest: str) -> str:
    """Put the figure below the first heading of what follows the title."""
    figure = FIGURE.search(rest)
    heading, end, text = rest.partition("</h2>")
    if not figure:
        return rest
    if not end or figure.start() < len(heading):
        raise ValueError(
            "the opening figure must stand below the page's first h2; "
            f"{figure['id']} stands above it: move its cell below that heading"
        )
    if "</h2>" in text[: text.index(figure[0])]:
        shown = f'<div class="opening">{copied(figure)}</div>'
    else:
        shown = f'<div class="cell_output opening">{figure[0]}</div>'
        drawn = re.escape(figure[0])
        output = rf'<div class="cell_output[^>]*>\s*{drawn}\s*</div>{CODE}'
        cell = re.search(output, text, re.DOTALL)
        if cell and cell[1]:
            *_, kinds = CELL.findall(text[: cell.start()])
            kept = " ".join(x for x in kinds.split() if "tag_" not in x)
            shown += f'<div class="{kept}">{cell[1]}</div>'
        text = re.sub(output, "", text, flags=re.DOTALL)
    return f"{heading}{end}\n{shown}{text}"


def open_page(
    app: Sphinx, page: str, template: str, context: dict, doctree
) -> None:
    if not LESSON.match(page):
        return
    title, end, body = context["body"].partition("</h1>")
    head, section, rest = body.partition("<section ")
    rest = with_picture(section + rest)
    context["body"] = title + end + in_a_bar(head, rest) + rest


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", open_page)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
