"""The steps of a look-up and of a layer: vectors, scores, weights, the mean."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mha_lib.plots.maps import COLOURS, INK, signed

__all__ = ["look_up", "strips", "vectors"]


def vectors(
    rows: torch.Tensor,
    words: Sequence[str],
    *,
    features: Sequence[str] | None = None,
    ax: Axes | None = None,
    title: str | None = None,
    role: str | None = None,
) -> Axes:
    """Draw vectors as rows of coloured cells: blue is positive, red negative.

    Args:
        rows: (T, E), a vector for each word.
        words: T words.
        features: E names of the entries; None numbers them.
        ax: where to draw; None makes a figure.
        title: what stands above.
        role: "q", "k" or "v": positive numbers, and the title, have its colour.

    Returns:
        The axes.

    Raises:
        ValueError: rows that are not a table, or names of another number.
        KeyError: another role.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import vectors
        >>> ax = vectors(torch.tensor([[3.0, -0.5]]), ["cat"])
        >>> [text.get_text() for text in ax.texts]
        ['3.0', '-0.5']
        >>> plt.close(ax.figure)
    """
    grid = torch.as_tensor(rows).detach().cpu().float().numpy()
    if grid.ndim != 2 or len(grid) != len(words):
        raise ValueError(f"{len(words)} words need as many rows; got {grid.shape}")
    E = grid.shape[1]
    names = range(E) if features is None else features
    if len(names) != E:
        raise ValueError(f"rows of {E} entries need {E} features; got {len(names)}")
    if ax is None:
        ax = plt.subplots(figsize=(1.2 + 0.8 * E, 0.6 + 0.33 * len(grid)))[1]
    most = np.abs(grid).max() or 1
    ax.imshow(grid, cmap=signed(role), vmin=-most, vmax=most, aspect="auto")
    for (t, e), text in zip(np.ndindex(grid.shape), _alike(grid, 2)):
        ax.text(e, t, text, ha="center", va="center")
    ax.set_xticks(range(E), names)
    ax.set_yticks(range(len(grid)), words)
    ax.tick_params(length=0, top=False, bottom=False)
    for edge in np.arange(0.5, len(grid) - 1):
        ax.axhline(edge, color="white", linewidth=2)
    for side in ax.spines.values():
        side.set_visible(False)
    ink = INK[role][0] if role else "black"
    ax.set_title(title or "", fontsize=10, color=ink)
    return ax


def look_up(
    scores: torch.Tensor,
    weights: torch.Tensor,
    values: torch.Tensor,
    words: Sequence[str],
    *,
    features: Sequence[str] | None = None,
) -> Figure:
    """Draw one query's look-up: its scores, their weights, the values and their mean.

    Args:
        scores: (S,).
        weights: (S,), each in 0…1.
        values: (S, V).
        words: S words, one for each key.
        features: V names of the values' entries; None numbers them.

    Returns:
        The figure, with axes for scores, weights, values and context.

    Raises:
        ValueError: another number of scores, weights, values or names than of words.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import look_up
        >>> weights = torch.tensor([0.25, 0.75])
        >>> figure = look_up(weights.log(), weights, torch.eye(2), ["the", "cat"])
        >>> [text.get_text() for text in figure.axes[5].texts]
        ['0.25', '0.75']
        >>> plt.close(figure)
    """
    S = len(words)
    for name, tensor in (("scores", scores), ("weights", weights), ("values", values)):
        if len(tensor) != S:
            raise ValueError(f"{S} words need {S} {name}; got {len(tensor)}")
    figure, axes = plt.subplots(
        2,
        3,
        figsize=(4.6, 1.3 + 0.33 * (S + 1)),
        height_ratios=(S, 1.1),
        width_ratios=(1, 1, 1.5),
        layout="constrained",
    )
    (left, middle, right), (empty, also_empty, below) = axes
    for ax, row, name, colour in (
        (left, scores, "scores", COLOURS[7]),
        (middle, weights, "weights", COLOURS[0]),
    ):
        row = torch.as_tensor(row).detach().cpu().float().numpy()
        bars = ax.barh(range(S), row, color=colour)
        ax.bar_label(bars, fmt="%.2f", padding=2)
        ax.set(xlim=(min(0, row.min()), 1.9 * max(row.max(), 0.01)))
        ax.set_title(name, fontsize=10)
        ax.set(ylim=(S - 0.5, -0.5), xticks=[])
        ax.set_yticks(range(S), words if ax is left else [""] * S)
        ax.tick_params(length=0)
        for side in ("top", "right", "bottom"):
            ax.spines[side].set_visible(False)
    vectors(values, [""] * S, features=features, ax=right, title="values")
    context = torch.as_tensor(weights) @ torch.as_tensor(values)
    vectors(context[None], [""], features=features, ax=below)
    below.set_xticks([])
    also_empty.text(1, 0.5, "context", ha="right", va="center")
    for ax in (empty, also_empty):
        ax.axis("off")
    return figure


def strips(
    rows: Sequence[Sequence[tuple[str, torch.Tensor, Sequence[int]]]],
    *,
    words: Sequence[str] = (),
) -> Figure:
    """Draw the way of one word through a layer: a row for each step, a strip a vector.

    A cell has its head's colour, the deeper the larger its number.

    Args:
        rows: for each step its strips: (title, (n,) numbers, n numbers of colours, of
            :data:`COLOURS`).
        words: written under a strip that has as many cells.

    Returns:
        The figure, with one axes.

    Raises:
        ValueError: another number of colours than of numbers.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import strips
        >>> weights = torch.tensor([0.25, 0.75])
        >>> figure = strips([[("head 0", weights, [5, 5])]], words=["the", "cat"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['head 0', '0.25', 'the', '0.75', 'cat']
        >>> plt.close(figure)
    """
    widths = [sum(len(strip[1]) + 0.5 for strip in row) - 0.5 for row in rows]
    named = [any(len(strip[1]) == len(words) for strip in row) for row in rows]
    widest, height = max(widths), sum(2.1 + 0.7 * under for under in named)
    figure = plt.figure(figsize=(4.6, 0.28 * height))
    ax = figure.add_axes((0, 0, 1, 1))
    top = 0.0
    for row, width, under in zip(rows, widths, named):
        left = (widest - width) / 2
        for title, numbers, colours in row:
            values = torch.as_tensor(numbers).detach().cpu().double()
            if len(values) != len(colours):
                raise ValueError(
                    f"{title!r} has {len(values)} numbers; got {len(colours)} colours"
                )
            ax.text(left + len(values) / 2, top + 0.5, title, ha="center", va="center")
            most = values.abs().max().item() or 1.0
            texts = _alike(values.numpy(), 3)
            for i, (value, colour) in enumerate(zip(values.tolist(), colours)):
                tint = 0.06 + 0.5 * abs(value) / most  # black text stays legible
                face = (COLOURS[colour], tint)
                place = (left + i, top + 1)
                frame = {"facecolor": face, "edgecolor": "#BBBBBB"}  # of a zero, too
                ax.add_patch(plt.Rectangle(place, 1, 1, **frame))
                middle = {"ha": "center", "va": "center"}
                ax.text(left + i + 0.5, top + 1.5, texts[i], **middle)
                if len(values) == len(words):
                    ax.text(left + i + 0.5, top + 2.3, words[i], **middle)
            left += len(values) + 0.5
        top += 2.1 + 0.7 * under
    ax.set(xlim=(-0.1, widest + 0.1), ylim=(height, 0))
    ax.axis("off")
    return figure


def _alike(numbers: np.ndarray, most: int) -> list[str]:
    """All with as many decimals as one of them needs, up to most."""
    rounded = np.round(np.asarray(numbers, dtype=float).ravel(), most) + 0.0  # no -0
    fractions = (f"{number:.{most}f}".partition(".")[2] for number in rounded)
    decimals = max((len(digits.rstrip("0")) for digits in fractions), default=0)
    return [f"{number:.{decimals}f}" for number in rounded]
