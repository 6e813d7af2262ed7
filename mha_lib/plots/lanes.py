"""Multi-head attention as lanes, a head each: a loop, one call, one matrix."""

from collections.abc import Sequence
from itertools import product

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mha_lib.plots.maps import COLOURS

__all__ = ["head_lanes"]

T, S, D, HEADS = 3, 4, 2, (5, 6, 7)  # rows, columns and colours that are drawn
ROLES = {"q": 3, "k": 4, "v": 2}  # numbers of colours, as in chapter 4
CELL, LANE, GAP, MARGIN = 11, 112, 8, 98  # pixels; the names stand in the margin
LINE = "#555555"
PLAIN, NEW = {"edgecolor": "#888888", "lw": 1}, {"edgecolor": "black", "lw": 2.5}


def head_lanes(*, one_call: bool = False, one_matrix: bool = False) -> Figure:
    """Draw a layer of three heads side by side, from its inputs, below, to its output.

    What is thick and bold is new beside the drawing of the chapter before.

    Args:
        one_call: the heads are slices of one tensor; else each runs by itself.
        one_matrix: the three projections are one, cut in three; needs one call.

    Returns:
        The figure, with one axes; a unit of it is a hundredth of an inch.

    Raises:
        ValueError: one matrix without one call.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> from mha_lib.plots import head_lanes
        >>> texts = [text.get_text() for text in head_lanes().axes[0].texts]
        >>> texts.count("q_proj"), texts.count("head 2")
        (3, 1)
        >>> plt.close()
    """
    if one_matrix and not one_call:
        raise ValueError("one_matrix needs one_call; got a loop over the heads")
    gap = 0 if one_call else GAP
    whole = 3 * LANE + 2 * gap
    lefts = [MARGIN + h * (LANE + gap) for h in range(3)]
    figure = plt.figure(figsize=((MARGIN + whole + 4) / 100, 5.5))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, MARGIN + whole + 4), ylim=(-6, 544))
    ax.axis("off")
    fresh = one_call and not one_matrix
    each = "(B, H, {}, {})" if one_call else "(B, {}, {})"
    middle = MARGIN + whole / 2

    for i, (name, rows) in enumerate((("query", T), ("key", S), ("value", S))):
        x = lefts[i] + LANE / 2
        _table(ax, x - 3 * D * CELL / 2, 0, rows, 3 * D, [ROLES["qkv"[i]]], 0.25)
        _say(ax, x, rows * CELL / 2, name)
        ax.plot([x, x], [rows * CELL, 52], color=LINE, lw=1)
    centres = [left + LANE / 2 for left in lefts]
    ax.plot(centres, [52] * 3, color=LINE, lw=1)
    for x in centres[1:2] if one_call else centres:
        _arrow(ax, (x, 52), (x, 67))
    _name(ax, 22, "(B, T, E)\n(B, S, E)")

    for role, bottom in zip("qkv", (116, 92, 68)):
        face = (COLOURS[ROLES[role]], 0.6)
        if one_call:
            frame = PLAIN | {"lw": 0} if one_matrix else NEW
            ax.add_patch(plt.Rectangle((MARGIN, bottom), whole, 22, fc=face, **frame))
            for left in lefts[1:]:  # where the heads part
                ax.plot([left, left], [bottom, bottom + 22], ":", color="black", lw=1)
            text = role if one_matrix else f"{role}_proj"
            _say(ax, middle, bottom + 11, text, bold=fresh)
        else:
            for left in lefts:
                box = (left + 8, bottom), LANE - 16, 22
                ax.add_patch(plt.Rectangle(*box, fc=face, **PLAIN))
                _say(ax, left + LANE / 2, bottom + 11, f"{role}_proj")
    if one_matrix:
        ax.add_patch(plt.Rectangle((MARGIN, 68), whole, 70, fill=False, **NEW))
    widths = "in_proj\nE → 3E" if one_matrix else "E → E" if one_call else "E → D"
    _name(ax, 103, widths, bold=one_call)

    frames = [(MARGIN, 148, whole, 202)]
    if not one_call:
        frames = [(left, 61, LANE, 289) for left in lefts]
    for left, bottom, width, height in frames:
        box = (left, bottom), width, height
        ax.add_patch(plt.Rectangle(*box, fill=False, **(NEW if fresh else PLAIN)))
    for h, left in enumerate(lefts):
        _lane(ax, left, h)
    _name(ax, 338, "one call" if one_call else "in a loop", fresh)
    _name(ax, 184, f"{each.format('T', 'D')}\n{each.format('S', 'D')}", fresh)
    _name(ax, 250, f"weights\n{each.format('T', 'S')}", fresh)
    _name(ax, 307, f"context\n{each.format('T', 'D')}", fresh)
    _tail(ax, middle, lefts, "merge" if one_call else "Concat", fresh)
    return figure


def _lane(ax: Axes, left: float, h: int) -> None:
    """One head: q, k and v, above them its weights, above these its context."""
    for i, role in enumerate("qkv"):
        start = left + 14 + 32 * i
        _arrow(ax, (start + CELL, 139), (start + CELL, 160))
        rows = T if role == "q" else S
        _table(ax, start, 162, rows, D, [ROLES[role]])
        _say(ax, start + CELL, 162 + rows * CELL / 2, role)
        if role != "v":
            _arrow(ax, (start + CELL, 162 + rows * CELL), (start + CELL, 232))
    _table(ax, left + 18, 234, T, S, [HEADS[h]])
    _arrow(ax, (left + 40, 267), (left + 40, 289))
    around = left + 14 + 64 + CELL  # v passes the weights by
    ax.plot([around, around], [162 + S * CELL, 307], color=LINE, lw=1)
    _arrow(ax, (around, 307), (left + 53, 307))
    _table(ax, left + 29, 291, T, D, [HEADS[h]])
    _say(ax, left + LANE / 2, 338, f"head {h}")


def _tail(
    ax: Axes, middle: float, lefts: Sequence[float], join: str, fresh: bool
) -> None:
    """The lanes meet: their contexts side by side, then the output projection."""
    start = middle - 3 * D * CELL / 2
    for h, left in enumerate(lefts):
        _arrow(ax, (left + LANE / 2, 352), (start + (2 * h + 1) * D * CELL / 2, 386))
    _table(ax, start, 388, T, 3 * D, HEADS)
    _name(ax, 404, f"{join}\n(B, T, E)", fresh)
    _arrow(ax, (middle, 421), (middle, 441))
    ax.add_patch(plt.Rectangle((start, 443), 66, 24, fc="#EEEEEE", **PLAIN))
    _say(ax, middle, 455, "out_proj")
    _name(ax, 455, "E → E")
    _arrow(ax, (middle, 467), (middle, 487))
    _table(ax, start, 489, T, 3 * D, [7], 0.25)
    _say(ax, middle, 505, "output")
    _name(ax, 505, "(B, T, E)")


def _table(
    ax: Axes,
    left: float,
    bottom: float,
    rows: int,
    columns: int,
    by: Sequence[int],
    tint: float = 0.6,
) -> None:
    """Cells in the colours of its slices, from left to right."""
    for r, c in product(range(rows), range(columns)):
        face = (COLOURS[by[c * len(by) // columns]], tint)
        place = left + c * CELL, bottom + r * CELL
        ax.add_patch(plt.Rectangle(place, CELL, CELL, fc=face, ec="white", lw=0.7))


def _say(ax: Axes, x: float, y: float, text: str, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    ax.text(x, y, text, ha="center", va="center", weight=weight)


def _name(ax: Axes, y: float, text: str, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    ax.text(MARGIN - 8, y, text, ha="right", va="center", weight=weight)


def _arrow(ax: Axes, start: tuple, end: tuple) -> None:
    look = {"arrowstyle": "-|>", "color": LINE, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=look)
