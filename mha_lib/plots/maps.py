"""Attention maps, masks, cells and flow diagrams."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "HEADS",
    "INK",
    "ROLES",
    "attention_map",
    "cells",
    "flow_diagram",
    "head_maps",
    "mask_map",
]

# Okabe and Ito's palette, which colour-blind readers can tell apart (without black; its
# yellow is darker, or nothing of it would be left on a dark page).
COLOURS = (
    "#56B4E9",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#C8AE00",
    "#0072B2",
    "#D55E00",
    "#999999",
)
ROLES = {"q": 3, "k": 4, "v": 2}  # numbers of colours, for cells
HEADS = (5, 6, 7)  # the same of heads
INK = {  # the same as letters and lines: on white, and on a dark page
    "q": ("#8E4172", "#F0A8D3"),
    "k": ("#6B6300", "#E3D54A"),
    "v": ("#00694D", "#4FD1A5"),
}

HIDDEN = "×", "#666666"  # what stands in a cell that a mask hides, and its colour
TINT = 0.6  # of a cell: black on each of the colours has a contrast of 7 and more


def signed(role: str | None) -> Colormap:
    """From −1, red, over 0 to 1: the colour of a role, else blue."""
    both = plt.get_cmap("RdBu")
    least, most = both(0.19), both(0.81)
    if role is not None:
        tint = 1 if role == "k" else TINT  # yellow is light by itself
        most = [1 - tint * (1 - part) for part in to_rgb(COLOURS[ROLES[role]])]
    return LinearSegmentedColormap.from_list(f"signed {role}", [least, "white", most])


def attention_map(
    weights: torch.Tensor,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    numbers: bool | None = None,
    mask: torch.Tensor | None = None,
) -> Axes:
    """Draw one map of weights: a row a query, a column a key, strong = much weight.

    Args:
        weights: (T, S), each in 0…1.
        queries: T labels for the rows; None numbers them.
        keys: S labels for the columns; None repeats the queries if T = S.
        ax: where to draw; None makes a figure.
        title: what stands above.
        numbers: write each weight into its cell; None does so up to 64 cells.
        mask: boolean (T, S), True = may attend: a cross in place of a hidden weight.

    Returns:
        The axes.

    Raises:
        ValueError: weights or a mask that are not (T, S), or labels of another number.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import attention_map
        >>> ax = attention_map(torch.eye(2), ["the", "cat"])
        >>> [label.get_text() for label in ax.get_xticklabels()]
        ['the', 'cat']
        >>> plt.close(ax.figure)
    """
    grid = _grid(weights, "weights")
    T, S = grid.shape
    if keys is None and T == S:
        keys = queries
    if ax is None:
        ax = plt.subplots(figsize=_size(T, S))[1]
    ax.imshow(grid, cmap="Blues", vmin=0, vmax=1, aspect="equal")
    _label(ax, queries, keys, T, S)
    seen = np.ones((T, S), bool) if mask is None else _grid(mask, "mask")
    if seen.shape != (T, S):
        raise ValueError(f"mask must be {(T, S)} as the weights; got {seen.shape}")
    if T * S <= 64 if numbers is None else numbers:
        for t, s in np.ndindex(T, S):
            said, colour = f"{grid[t, s]:.2f}", "white" if grid[t, s] > 0.6 else "black"
            said, colour = (said, colour) if seen[t, s] else HIDDEN
            ax.text(s, t, said, ha="center", va="center", color=colour)
    ax.set(xlabel="key", ylabel="query", title=title or "")
    return ax


def head_maps(
    weights: torch.Tensor,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    titles: Sequence[str] | None = None,
) -> Figure:
    """Draw the maps of several heads side by side.

    Args:
        weights: (H, T, S), each in 0…1.
        queries: T labels for the rows; None numbers them.
        keys: S labels for the columns; None repeats the queries if T = S.
        titles: H titles; None gives "head 0", "head 1", …

    Returns:
        The figure.

    Raises:
        ValueError: weights that are not (H, T, S), or labels of another number.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import head_maps
        >>> figure = head_maps(torch.full((3, 2, 4), 0.25))
        >>> len(figure.axes)
        3
        >>> plt.close(figure)
    """
    weights = torch.as_tensor(weights)
    if weights.dim() != 3:
        raise ValueError(f"weights must be (H, T, S); got {tuple(weights.shape)}")
    H, T, S = weights.shape
    titles = [f"head {h}" for h in range(H)] if titles is None else titles
    if len(titles) != H:
        raise ValueError(f"{H} heads need {H} titles; got {len(titles)}")
    columns = min(H, 4)
    rows = -(-H // columns)
    width, height = _size(T, S)
    figure, axes = plt.subplots(
        rows, columns, figsize=(width * columns, height * rows), squeeze=False
    )
    for h, ax in enumerate(axes.flat):
        if h < H:
            attention_map(weights[h], queries, keys, ax=ax, title=titles[h])
        else:
            ax.remove()
    figure.tight_layout()
    return figure


def mask_map(
    mask: torch.Tensor,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw a boolean mask: a filled cell with a dot = may attend, a cross = hidden.

    Args:
        mask: boolean (T, S), True = may attend.
        queries: T labels for the rows; None numbers them.
        keys: S labels for the columns; None repeats the queries if T = S.
        ax: where to draw; None makes a figure.
        title: what stands above.

    Returns:
        The axes.

    Raises:
        TypeError: a mask that is not boolean.
        ValueError: a mask that is not (T, S), or labels of another number.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import mask_map
        >>> ax = mask_map(torch.tensor([[True, False]]))
        >>> [text.get_text() for text in ax.texts]
        ['●', '×']
        >>> plt.close(ax.figure)
    """
    if torch.as_tensor(mask).dtype != torch.bool:
        raise TypeError(f"mask must be boolean; got {torch.as_tensor(mask).dtype}")
    grid = _grid(mask, "mask")
    T, S = grid.shape
    if keys is None and T == S:
        keys = queries
    if ax is None:
        ax = plt.subplots(figsize=_size(T, S))[1]
    ax.imshow(grid, cmap="Blues", vmin=0, vmax=2, aspect="equal")
    for t, s in np.ndindex(T, S):
        sign, colour = ("●", "#0072B2") if grid[t, s] else HIDDEN
        ax.text(s, t, sign, ha="center", va="center", color=colour)
    _label(ax, queries, keys, T, S)
    ax.set(xlabel="key", ylabel="query", title=title or "")
    return ax


def cells(
    labels: Sequence[Sequence[object]],
    groups: Sequence[Sequence[int]],
    *,
    ax: Axes | None = None,
    title: str | None = None,
    rows: Sequence[str] | None = None,
) -> Axes:
    """Draw a table of numbers as coloured cells: memory, slices, who belongs to whom.

    Args:
        labels: what stands in each cell; all rows of one length.
        groups: for each cell the number of its colour (of :data:`COLOURS`).
        ax: where to draw; None makes a figure.
        title: what stands above.
        rows: a label for each row; None leaves them out.

    Returns:
        The axes.

    Raises:
        ValueError: labels and groups of different shape, or not a table.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> from mha_lib.plots import cells
        >>> ax = cells([[0, 1, 2, 3]], [[0, 0, 1, 1]], title="two heads")
        >>> [text.get_text() for text in ax.texts]
        ['0', '1', '2', '3']
        >>> plt.close(ax.figure)
    """
    texts, colours = np.array(labels, dtype=object), np.array(groups)
    if texts.ndim != 2 or texts.shape != colours.shape:
        raise ValueError(
            "labels and groups must be tables of one shape; "
            f"got {texts.shape} and {colours.shape}"
        )
    height, width = texts.shape
    if ax is None:
        ax = plt.subplots(figsize=(0.5 * width + 1, 0.5 * height + 0.6))[1]
    for i, j in np.ndindex(height, width):
        colour = COLOURS[int(colours[i, j]) % len(COLOURS)]
        paint = (colour, TINT)
        ax.add_patch(plt.Rectangle((j, i), 1, 1, facecolor=paint, edgecolor="white"))
        ax.text(j + 0.5, i + 0.5, str(texts[i, j]), ha="center", va="center")
    ax.set(xlim=(0, width), ylim=(height, 0), aspect="equal", title=title or "")
    ax.set_xticks([])
    ax.set_yticks(
        [] if rows is None else np.arange(height) + 0.5, () if rows is None else rows
    )
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
    return ax


def flow_diagram(
    nodes: Mapping[str, tuple[float, float]],
    edges: Sequence[tuple[str, str, object]],
    *,
    names: Mapping[str, str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw steps as boxes and tensors as arrows, the shape of each written on it.

    Args:
        nodes: for each step its place (column, row); row 0 is at the top.
        edges: (from, to, what): a tensor, whose shape is written on the arrow, or a
            text.
        names: axis letters by edge "from→to", written before the sizes, for
            example ``{"q_proj→scores": "B H T D"}``; None writes sizes alone.
        title: what stands above.

    Returns:
        The figure.

    Raises:
        KeyError: an edge that names a step without a place.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import flow_diagram
        >>> q = torch.zeros(2, 5, 6)
        >>> places = {"input": (0, 0), "softmax": (0, 1)}
        >>> figure = flow_diagram(places, [("input", "softmax", q)])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['input', 'softmax', '', '(2, 5, 6)']
        >>> plt.close(figure)
    """
    columns, rows = zip(*nodes.values())
    width, height = max(columns) - min(columns), max(rows) - min(rows)
    figure, ax = plt.subplots(figsize=(2.2 * width + 2.4, 1.05 * height + 1.0))
    boxes = {}
    for label, (x, y) in nodes.items():
        frame = {
            "boxstyle": "round,pad=0.4",
            "facecolor": "#E8F1FA",
            "edgecolor": "#0072B2",
        }
        text = ax.text(x, y, label, ha="center", va="center", bbox=frame, zorder=1)
        boxes[label] = text.get_bbox_patch()
    for start, end, what in edges:
        (x0, y0), (x1, y1) = nodes[start], nodes[end]
        arrow = {
            "arrowstyle": "-|>",
            "color": "#555555",
            "patchA": boxes[start],  # an arrow runs from frame to frame
            "patchB": boxes[end],
            "shrinkA": 2,
            "shrinkB": 2,
        }
        # Above the boxes, which have to know their size when the arrow is drawn.
        ax.annotate("", (x1, y1), (x0, y0), arrowprops=arrow, zorder=2)
        text = str(tuple(what.shape)) if hasattr(what, "shape") else str(what)
        letters = (names or {}).get(f"{start}→{end}")
        if letters:
            text = f"{letters}\n{text}"
        ax.text(
            (x0 + x1) / 2,
            (y0 + y1) / 2,
            text,
            ha="center",
            va="center",
            bbox={"boxstyle": "square,pad=0.15", "facecolor": "white", "linewidth": 0},
            zorder=3,
        )
    ax.set(
        xlim=(min(columns) - 0.65, max(columns) + 0.65),
        ylim=(max(rows) + 0.3, min(rows) - 0.3),
        title=title or "",
    )
    ax.axis("off")
    figure.tight_layout()
    return figure


def _grid(values: torch.Tensor, name: str) -> np.ndarray:
    grid = torch.as_tensor(values).detach().cpu().float().numpy()
    if grid.ndim != 2:
        raise ValueError(f"{name} must be (T, S); got {grid.shape}")
    return grid


def _size(T: int, S: int) -> tuple[float, float]:
    return 1.2 + 0.5 * min(S, 16), 1.2 + 0.5 * min(T, 16)


def _label(
    ax: Axes,
    queries: Sequence[str] | None,
    keys: Sequence[str] | None,
    T: int,
    S: int,
) -> None:
    for name, labels, size in (("queries", queries, T), ("keys", keys, S)):
        if labels is not None and len(labels) != size:
            raise ValueError(f"{name} need {size} labels; got {len(labels)}")
    slanted = keys is not None and any(len(str(key)) > 3 for key in keys)
    ax.set_xticks(range(S), range(S) if keys is None else keys)
    if slanted:
        plt.setp(ax.get_xticklabels(), rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(T), range(T) if queries is None else queries)
    ax.tick_params(length=0)
