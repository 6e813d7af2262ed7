"""A sentence that sends to a deeper page steps back, and the road goes on.

On the page of a chapter such a sentence stands below its paragraph, small; in
the notebook it is a sentence like the others.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

CHAPTER = re.compile(r"book/\d\d_\w+")
ENDS = re.compile(r"[.?!]\s*$")
INSIDE = re.compile(r"[.?!]\s")


class StepsBack(SphinxPostTransform):
    """Part it from what it ends."""

    default_priority = 200  # links have their addresses
    formats = ("html",)

    def run(self, **kwargs) -> None:
        if not CHAPTER.fullmatch(self.env.docname):
            return
        for paragraph in list(self.document.findall(nodes.paragraph)):
            if not isinstance(paragraph.parent, nodes.section):
                continue
            at = begins(paragraph.children)
            if at is not None:
                around = paragraph.parent
                tail = nodes.paragraph("", "", classes=["deeper"])
                tail += paragraph.children[at:]
                place = around.index(paragraph)
                around.insert(place + 1, tail)
                paragraph.children = paragraph.children[:at]
                if not at:
                    around.remove(paragraph)


def begins(parts: list[nodes.Node]) -> int | None:
    """Where the last sentences begin, if each begins with such a link."""
    at = None
    for place, part in enumerate(parts):
        first = not place or ENDS.search(parts[place - 1].astext())
        if leads_deeper(part) and first:
            at = place if at is None else at
        elif isinstance(part, nodes.Text):
            last = place + 1 == len(parts) or leads_deeper(parts[place + 1])
            text = part.astext()
            if INSIDE.search(text.rstrip() if last else text):
                at = None
    return at if at is not None and parts[-1].astext().endswith(".") else None


def leads_deeper(part: nodes.Node) -> bool:
    return isinstance(part, nodes.reference) and "deeper/" in part.get(
        "refuri", ""
    )


def setup(app: Sphinx) -> dict:
    app.add_post_transform(StepsBack)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
