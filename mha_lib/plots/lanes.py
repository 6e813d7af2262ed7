"""Multi-head attention as lanes, a head each: a loop, one call, one matrix."""

from collections.abc import Sequence
from itertools import product

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mha_lib.plots.maps import COLOURS, HEADS, INK, ROLES

__all__ = ["head_lanes"]

T, S, D = 3, 4, 2  # rows and columns that are drawn
CELL, LANE, GAP, MARGIN = 11, 106, 8, 111  # pixels; the names stand in the margin
LINE = "#555555"
RAILS = {"v": 47, "k": 51.5, "q": 56}  # the heights of the inputs' ways to the lanes
BARS = {"q": 116, "k": 92, "v": 68}  # the bottoms of the projections, each 22 high
PLAIN, NEW = {"edgecolor": "#888888", "lw": 1}, {"edgecolor": "black", "lw": 2.5}


def head_lanes(
    *, one_call: bool = False, one_matrix: bool = False, masked: bool = False
) -> Figure:
    """Draw a layer of three heads side by side, from its inputs, below, to its output.

    What is thick and bold is new beside the drawing of the chapter before.

    Args:
        one_call: the heads are slices of one tensor; else each runs by itself.
        one_matrix: the three projections are one, cut in three; needs one call.
        masked: one mask enters, and stands before the weights of all heads; needs
            one call.

    Returns:
        The figure, with one axes; a unit of it is a hundredth of an inch.

    Raises:
        ValueError: one matrix or a mask without one call.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> from mha_lib.plots import head_lanes
        >>> texts = [text.get_text() for text in head_lanes().axes[0].texts]
        >>> texts.count("q_proj"), texts.count("head 2")
        (3, 1)
        >>> plt.close()
    """
    if (one_matrix or masked) and not one_call:
        name = "one_matrix" if one_matrix else "masked"
        raise ValueError(f"{name} needs one_call; got a loop over the heads")
    gap = 0 if one_call else GAP
    whole = 3 * LANE + 2 * gap
    lefts = [MARGIN + h * (LANE + gap) for h in range(3)]
    width = MARGIN + whole + (24 if one_call else 4)
    figure = plt.figure(figsize=(width / 100, 5.66))
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(-22, 544))
    ax.axis("off")
    fresh = one_call and not one_matrix and not masked
    each = "(B, H, {}, {})" if one_call else "(B, {}, {})"
    middle = MARGIN + whole / 2

    ends = [MARGIN + whole] if one_call else [left + LANE - 24 for left in lefts]
    for i, (name, rows) in enumerate((("query", T), ("key", S), ("value", S))):
        x, role = lefts[i] + LANE / 2, name[0]
        _table(ax, x - 3 * D * CELL / 2, 0, rows, 3 * D, [ROLES[role]], 0.25)
        _say(ax, x, rows * CELL / 2, name)
        _say(ax, x, -12, f"(B, {'TS'[rows == S]}, E)")
        _rail(ax, role, (x, rows * CELL), ends)

    for role, bottom in BARS.items():
        face = (COLOURS[ROLES[role]], 0.6)
        if one_call:
            frame = NEW if fresh else PLAIN | {"lw": 0}
            ax.add_patch(plt.Rectangle((MARGIN, bottom), whole, 22, fc=face, **frame))
            for left in lefts[1:]:  # where the heads part
                ax.plot([left, left], [bottom, bottom + 22], ":", color="black", lw=1)
            text = role if one_matrix else f"{role}_proj"
            _say(ax, middle, bottom + 11, text, bold=fresh)
        else:
            for left in lefts:
                box = (left + 8, bottom), LANE - 32, 22
                ax.add_patch(plt.Rectangle(*box, fc=face, **PLAIN))
                _say(ax, left + LANE / 2 - 8, bottom + 11, f"{role}_proj")
    if one_matrix:
        ax.add_patch(plt.Rectangle((MARGIN, 68), whole, 70, fill=False, **NEW))
    widths = "in_proj\nE → 3E" if one_matrix else "E → E" if one_call else "E → D"
    _name(ax, 103, widths, bold=one_call and not masked)

    frames = [(MARGIN, 148, whole, 202)]
    if not one_call:
        frames = [(left, 63, LANE, 287) for left in lefts]
    for left, bottom, width, height in frames:
        box = (left, bottom), width, height
        ax.add_patch(plt.Rectangle(*box, fill=False, **(NEW if fresh else PLAIN)))
    for h, left in enumerate(lefts):
        _lane(ax, left, h, masked)
    _name(ax, 338, "one call" if one_call else "in a loop", fresh)
    _name(
        ax, 184, f"q {each.format('T', 'D')}\nk and v\n{each.format('S', 'D')}", fresh
    )
    map_of = "mask,\nweights" if masked else "weights"
    _name(ax, 250, f"{map_of}\n{each.format('T', 'S')}", fresh or masked)
    _name(ax, 307, f"context\n{each.format('T', 'D')}", fresh)
    _tail(ax, middle, lefts, "merge" if one_call else "Concat", fresh)
    if masked:
        _mask(ax, MARGIN + whole - 22)
    return figure


def _mask(ax: Axes, x: float) -> None:
    """One mask for all heads, from above into their call."""
    _table(ax, x - 22, 410, T, S, [7], 0.25)
    _crossed(ax, x - 22, 410)
    _say(ax, x - 14, 463, "mask\n(B, 1, T, S)", bold=True)
    _arrow(ax, (x, 410), (x, 351))


def _rail(ax: Axes, role: str, start: tuple, ends: Sequence[float]) -> None:
    """From an input up to its rail, along it, and into its projection in each lane."""
    (x, top), rail, into = start, RAILS[role], BARS[role] + 11
    turns = [end + 4 + 6 * (1 + "vkq".index(role)) for end in ends]
    line = {"color": INK[role][0], "lw": 1.5, "solid_capstyle": "butt"}
    ax.plot([x, x], [top, rail], **line)
    ax.plot([min(x, *turns), max(x, *turns)], [rail, rail], **line)
    for end, turn in zip(ends, turns):
        ax.plot([turn, turn], [rail, into], **line)
        _arrow(ax, (turn, into), (end, into), INK[role][0])


def _lane(ax: Axes, left: float, h: int, masked: bool) -> None:
    """One head: q, k and v, above them its weights, above these its context."""
    for i, role in enumerate("qkv"):
        start = left + 8 + 28 * i
        _arrow(ax, (start + CELL, 139), (start + CELL, 160))
        rows = T if role == "q" else S
        _table(ax, start, 162, rows, D, [ROLES[role]])
        _say(ax, start + CELL, 162 + rows * CELL / 2, role)
        if role != "v":
            _arrow(ax, (start + CELL, 162 + rows * CELL), (start + CELL, 232))
    _table(ax, left + 12, 234, T, S, [HEADS[h]])
    if masked:
        _crossed(ax, left + 12, 234)
    _arrow(ax, (left + 34, 267), (left + 34, 289))
    around = left + 8 + 56 + CELL  # v passes the weights by
    ax.plot([around, around], [162 + S * CELL, 307], color=LINE, lw=1)
    _arrow(ax, (around, 307), (left + 47, 307))
    _table(ax, left + 23, 291, T, D, [HEADS[h]])
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


def _crossed(ax: Axes, left: float, bottom: float) -> None:
    """A mask, new: the last T rows of a causal one."""
    for t, s in product(range(T), range(S)):
        if s > t + S - T:
            _say(ax, left + (s + 0.5) * CELL, bottom + (T - t - 0.5) * CELL, "×")
    ax.add_patch(plt.Rectangle((left, bottom), S * CELL, T * CELL, fill=False, **NEW))


def _say(ax: Axes, x: float, y: float, text: str, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    ax.text(x, y, text, ha="center", va="center", weight=weight)


def _name(ax: Axes, y: float, text: str, bold: bool = False) -> None:
    weight = "bold" if bold else "normal"
    ax.text(MARGIN - 8, y, text, ha="right", va="center", weight=weight)


def _arrow(ax: Axes, start: tuple, end: tuple, color: str = LINE) -> None:
    look = {"arrowstyle": "-|>", "color": color, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", end, start, arrowprops=look)
