"""Where we are: a paragraph that names steps of the layer becomes a drawing.

    Where we are: x → q, k, v → **scores** → weights → context

The steps in bold letters are those of the section. Where no page is built, in a
notebook say, the sentence stands as it is.
"""

import re
from collections import defaultdict
from html import escape

from sphinx.application import Sphinx

PARAGRAPH = re.compile(r"<p>Where we are: (?P<steps>.*?)</p>", re.DOTALL)
ARROW = "→"
CELL, GAP, APART = 6, 1, 3

# How a step looks: the colours of its small matrices, and how strong their
# cells are, a digit each. What each head has for itself is drawn for two.
TOKENS, SLICE, JOINED = "666 666 666", "93 49 27", "9393 4949 2727"
DRAWN = {
    "x": ("x", TOKENS),
    "q, k, v": ("q k v", "96 49 68"),
    "split": ("h0 h1", SLICE),
    "scores": ("h0", "931 294 159"),
    "mask": ("x", "6-- 66- 666"),
    "weights": ("h0", "900 181 018"),
    "context": ("h0", SLICE),
    "Concat": ("h0", JOINED),  # its right half has the colour of h1
    "merge": ("h0", JOINED),
    "output": ("x", TOKENS),
}
OF_EACH_HEAD = {"scores", "weights", "context"}
JOINS = re.compile("Concat|merge")  # there are heads to be joined


def matrix(colour: str, rows: str, left: int) -> tuple[str, int]:
    """Its cells, a hidden one as an outline, and its right edge."""
    step, width, alike = CELL + GAP, rows.index(" "), defaultdict(str)
    for top, row in enumerate(rows.split()):
        for place, strength in enumerate(row):
            name = "h1" if width == 4 and place > 1 else colour
            corner = f"M{left + place * step} {top * step}"
            alike[name, strength] += f"{corner}h{CELL}v{CELL}h-{CELL}z"
    cells = (
        f'<path class="{name}" d="{path}" '
        + ('fill="none"/>' if strength == "-" else f'opacity=".{strength}"/>')
        for (name, strength), path in alike.items()
    )
    return "".join(cells), left + width * step - GAP


def icon(step: str, heads: bool) -> str:
    """The matrices of a step beside each other."""
    colours, rows = DRAWN[step]
    if heads and step in OF_EACH_HEAD:
        colours = "h0 h1"
    drawn, right = [], -APART
    for colour in colours.split():
        cells, right = matrix(colour, rows, right + APART)
        drawn.append(cells)
    height = 3 * CELL + 2 * GAP
    return (
        f'<svg viewBox="0 0 {right} {height}" aria-hidden="true">'
        f"{''.join(drawn)}</svg>"
    )


def way(steps: str) -> str:
    """A list of the steps, each with its drawing."""
    items, here, heads = [], False, bool(JOINS.search(steps))
    for named in steps.split(ARROW):
        here |= "<strong>" in named
        name = re.sub(r"<[^>]+>", "", named).strip()
        if name not in DRAWN:
            raise ValueError(
                f"“Where we are” knows no step {name!r}; it knows: "
                + "; ".join(DRAWN)
            )
        now = ' aria-current="step"' if here else ""
        drawn = icon(name, heads)
        items.append(f"<li{now}>{drawn}<span>{escape(name)}</span></li>")
        here &= "</strong>" not in named
    return (
        '<div class="way" role="group" '
        'aria-label="Where we are in the layer">'
        f"<ol>{''.join(items)}</ol></div>"
    )


def draw_ways(
    app: Sphinx, page: str, template: str, context: dict, doctree
) -> None:
    if "body" in context:
        context["body"] = PARAGRAPH.sub(
            lambda found: way(found["steps"]), context["body"]
        )


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", draw_ways)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
