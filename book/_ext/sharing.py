"""Tell search engines, chats and the browser's tab what each page is."""

import re
from html import escape, unescape
from pathlib import Path

import address
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

SENTENCE = re.compile(r"\S.*?[.?!](?=\s|$)")
MOST = 200  # characters of a description: more is not shown anywhere
TOUCH_ICON = "_static/icon.png"  # for home screens, which take no drawing
CARD = "_static/card.png"  # of tools.pictures: chats take no drawing either
CARD_SIZE = 1200, 630
CARD_SHOWS = (
    "The title of the book above a sentence that ends with tired: "
    "one head of the word it looks at animal"
)
TITLES = {"search": "Search", "genindex": "Index"}  # Sphinx sets them too late
FRONT_DOOR = """<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<title>{title}</title>
<meta http-equiv="Refresh" content="0; url={first}">
<link rel="icon" href="_static/icon.svg">
{tags}
</head>
<body><a href="{first}">{title}</a></body>
</html>
"""


def know_the_address(app: Sphinx, config: Config) -> None:
    config.html_baseurl = config.html_baseurl or address.pages(config)


def describe(doctree: nodes.document) -> str:
    """The first sentence of a page, and the next ones as far as they fit."""
    for paragraph in doctree.findall(nodes.paragraph):
        if not isinstance(paragraph.parent, nodes.section):
            continue
        text = " ".join(paragraph.astext().split())
        description, *others = SENTENCE.findall(text) or [text]
        for sentence in others:
            if len(description) + len(sentence) >= MOST:
                break
            description += f" {sentence}"
        return description
    return ""


def head(app: Sphinx, page: str, title: str, description: str) -> list[str]:
    """The tags of one page; chats want whole addresses, or none."""
    config = app.config
    shared = {
        "title": title,
        "description": description,
        "type": "website" if page == config.root_doc else "article",
        "site_name": config.html_title,
    }
    if base := config.html_baseurl:
        shared["url"] = base + app.builder.get_target_uri(page)
        shared["image"] = base + CARD
        shared["image:width"], shared["image:height"] = map(str, CARD_SIZE)
        shared["image:alt"] = CARD_SHOWS
    return [
        meta("name", "description", description),
        *(meta("property", f"og:{key}", x) for key, x in shared.items()),
    ]


def add_tags(
    app: Sphinx,
    page: str,
    template: str,
    context: dict,
    doctree: nodes.document | None,
) -> None:
    title = context.get("title") or TITLES[page]
    title = unescape(re.sub("<[^>]*>", "", title))
    description = describe(doctree) if doctree else ""
    description = (
        description or f"{title}: a page of “{app.config.html_title}”."
    )
    icon = context["pathto"](TOUCH_ICON, 1)
    tags = [context.get("metatags", ""), *head(app, page, title, description)]
    tags.append(f'<link rel="apple-touch-icon" href="{icon}">')
    context["metatags"] = "\n".join(tags)


def write_front_door(app: Sphinx, error: Exception | None) -> None:
    """Lead from the address of the whole book to its first page."""
    if error or app.builder.format != "html":
        return
    first, title = app.config.root_doc, app.config.html_title
    description = describe(app.env.get_doctree(first))
    text = FRONT_DOOR.format(
        language=app.config.language,
        title=escape(title),
        first=app.builder.get_target_uri(first),
        tags="\n".join(head(app, first, title, description)),
    )
    (Path(app.outdir) / "index.html").write_text(text, encoding="utf-8")


def meta(kind: str, name: str, content: str) -> str:
    return f'<meta {kind}="{name}" content="{escape(content)}">'


def setup(app: Sphinx) -> dict:
    app.connect("config-inited", know_the_address)
    app.connect("html-page-context", add_tags)
    app.connect("build-finished", write_front_door)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
