"""Where the heading of a task or of a page may go on in a second line."""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

PART = re.compile(r"(^Assignment \d+ ·|\d+ to \d+ min ·|\S+ ·)")


class HeadingInParts(SphinxPostTransform):
    """A line of a heading neither begins with a "·" nor ends within a time.

    `book.css` keeps what is unbroken in one line.
    """

    default_priority = 200
    formats = ("html",)

    def run(self, **kwargs) -> None:
        for title in self.document.findall(nodes.title):
            for text in [x for x in title if isinstance(x, nodes.Text)]:
                title.replace(text, parted(text))


def parted(text: str) -> list[nodes.Node]:
    """Every second piece, from the second on, is a part."""
    return [
        nodes.inline("", piece, classes=["unbroken"])
        if place % 2
        else nodes.Text(piece)
        for place, piece in enumerate(PART.split(text))
    ]


def setup(app: Sphinx) -> dict:
    app.add_post_transform(HeadingInParts)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
