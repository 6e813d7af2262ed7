"""Products of tensors: which cells make which."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mha_lib.plots.maps import cells

__all__ = ["einsum_cells"]

CELL, GAP = 0.3, 0.21  # inches: a cell, what stands between two tables
BARE = 0.22  # inches: a letter before a table
READ, QUIET = 1, 7  # numbers of colours: read or written, and the rest


def einsum_cells(
    pattern: str,
    operands: Mapping[str, torch.Tensor],
    at: Mapping[str, int],
    *,
    labels: Mapping[str, Sequence[str]] | None = None,
) -> Figure:
    """Draw the tables of an einsum; coloured is one cell of the result and its makers.

    The sum that makes the cell stands below, and each letter along its axis.

    Args:
        pattern: such as ``"td,sd->ts"``; the result after an arrow, at most two letters
            for each tensor.
        operands: the tensors by their names, in the order of the pattern.
        at: the cell of the result, by letters.
        labels: words along the axis of a letter; None writes none.

    Returns:
        The figure, with axes for each operand and for the result.

    Raises:
        ValueError: tensors with more than two axes, or a cell that lacks a letter.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import einsum_cells
        >>> q, k = torch.tensor([[1, 2], [0, 1]]), torch.tensor([[3, 4]])
        >>> figure = einsum_cells("td,sd->ts", {"q": q, "k": k}, {"t": 0, "s": 0})
        >>> figure.texts[-1].get_text()
        '1 · 3 + 2 · 4 = 11'
        >>> plt.close(figure)
    """
    inputs, output = pattern.replace(" ", "").split("->")
    letters = [*inputs.split(","), output]
    if max(map(len, letters)) > 2:
        raise ValueError(f"tables have at most two axes; got the pattern {pattern}")
    if missing := set(output) - set(at):
        raise ValueError(f"at must name a cell by {output!r}; got no {min(missing)!r}")
    result = torch.einsum(pattern, *operands.values())
    tensors = [torch.as_tensor(x).detach() for x in (*operands.values(), result)]
    places = {x: at[x] for x in output}
    tables = [_table(x, axes, places) for x, axes in zip(tensors, letters)]
    labels, shown = dict(labels or {}), set()
    most = max(values.shape[0] for values, _ in tables)
    before = [_before(axes, labels, shown) for axes in letters]  # inches
    width = sum(before) + sum(CELL * v.shape[1] + GAP for v, _ in tables)
    height = CELL * most + 1.0 + 0.06 * _longest(labels)
    figure = plt.figure(figsize=(width, height))
    signs = ["·"] * (len(operands) - 1) + ["=", ""]
    x = 0.0
    for i, (values, read) in enumerate(tables):
        rows, columns = values.shape
        x += before[i]
        bottom = 0.5 + CELL * (most - rows) / 2
        size = (CELL * columns / width, CELL * rows / height)
        ax = figure.add_axes((x / width, bottom / height, *size))
        texts = [[f"{value:.3g}" for value in row] for row in values]
        cells(texts, np.where(read, READ, QUIET), ax=ax)
        for patch in np.array(ax.patches)[~read.ravel()]:
            patch.set_facecolor("#EEEEEE")
        words = labels if before[i] > BARE or i == len(operands) else {}
        _name_axes(ax, letters[i], words, before[i] > BARE)
        middle, name = x + CELL * columns / 2, [*operands, "result"][i]
        figure.text(
            middle / width, (bottom - 0.12) / height, name, ha="center", va="center"
        )
        x += CELL * columns + GAP
        place = (x - GAP / 2) / width, (0.5 + CELL * most / 2) / height
        figure.text(*place, signs[i], ha="center", va="center", fontsize=14)
    figure.text(0.5, 0.1 / height, _sum(pattern, operands, places), ha="center")
    return figure


def _table(
    x: torch.Tensor, axes: str, places: Mapping[str, int]
) -> tuple[np.ndarray, np.ndarray]:
    """The tensor as a table, and which of its cells belong to the chosen one."""
    values = x.cpu().numpy()
    read = np.zeros(values.shape, dtype=bool)
    if len(axes) == 2 and axes[0] == axes[1]:  # a letter twice: its diagonal
        np.fill_diagonal(read, True)
    else:
        read[tuple(places.get(letter, slice(None)) for letter in axes)] = True
    return np.atleast_2d(values), np.atleast_2d(read)


def _longest(labels: Mapping[str, Sequence[str]]) -> int:
    return max(
        (len(str(word)) for words in labels.values() for word in words), default=0
    )


def _before(axes: str, labels: Mapping[str, Sequence[str]], shown: set[str]) -> float:
    """Inches before a table: its row letter, and its words where they are new."""
    if len(axes) < 2 or axes[0] not in labels or axes[0] in shown:
        return BARE
    shown.add(axes[0])
    return BARE + 0.075 * _longest({axes[0]: labels[axes[0]]})


def _name_axes(
    ax: Axes, axes: str, labels: Mapping[str, Sequence[str]], rows: bool
) -> None:
    """A letter along each axis; words along the columns, and on request the rows."""
    look = {"style": "italic", "fontsize": 11}
    if len(axes) == 2:
        ax.set_ylabel(axes[0], rotation=0, ha="right", va="center", **look)
        words = labels.get(axes[0], ()) if rows else ()
        ax.set_yticks(np.arange(len(words)) + 0.5, words)
    if axes:
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xlabel(axes[-1], **look)
        words = labels.get(axes[-1], ())
        ax.set_xticks(np.arange(len(words)) + 0.5, words)
        slanted = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
        plt.setp(ax.get_xticklabels(), **slanted)
    ax.tick_params(length=0, top=False)


def _sum(
    pattern: str, operands: Mapping[str, torch.Tensor], places: Mapping[str, int]
) -> str:
    """The chosen cell as the sum that makes it."""
    inputs, output = pattern.replace(" ", "").split("->")
    groups, size = inputs.split(","), {}
    for axes, x in zip(groups, operands.values()):
        size |= dict(zip(axes, x.shape))
    summed = [letter for letter in size if letter not in output]
    terms, total = [], 0
    for at in np.ndindex(*(size[letter] for letter in summed)):
        here = {**places, **dict(zip(summed, at))}
        factors = [
            x[tuple(here[letter] for letter in axes)].item()
            for axes, x in zip(groups, operands.values())
        ]
        terms.append(" · ".join(f"{factor:.3g}" for factor in factors))
        total += float(np.prod(factors))
    return f"{' + '.join(terms)} = {total:.3g}"
