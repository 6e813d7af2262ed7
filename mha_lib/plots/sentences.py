"""Who looks at whom in a sentence."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Arc, Rectangle

from mha_lib.plots.maps import COLOURS

__all__ = ["arcs", "shaded_words"]

WIDTH = 4.6  # inches: all of it is read on a phone
FAINT = 0.05  # a weight below it is not drawn


def arcs(
    weights: torch.Tensor,
    words: Sequence[str],
    *,
    queries: Sequence[int] | None = None,
    colour: int = 5,
    below: bool = False,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw the words of a sentence and an arc for each look, thick = much weight.

    Each arc runs from a query, a dot, to a key. A look of a word at itself is a ring.

    Args:
        weights: (T, T), each in 0…1; less than 0.05 is not drawn.
        words: T words.
        queries: whose looks are drawn; None draws all.
        colour: of the arcs, a number of :data:`COLOURS`.
        below: draw below the words: for a second head in the same axes.
        ax: where to draw; None makes a figure.
        title: what stands above.

    Returns:
        The axes.

    Raises:
        ValueError: weights that are not (T, T) for T words.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import arcs
        >>> weights = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
        >>> ax = arcs(weights, ["it", "slept"], queries=[1])
        >>> len(ax.patches)
        1
        >>> plt.close(ax.figure)
    """
    grid = torch.as_tensor(weights).detach().cpu().float().numpy()
    T = len(words)
    if grid.shape != (T, T):
        raise ValueError(f"{T} words need weights ({T}, {T}); got {grid.shape}")
    if ax is None:
        ax = plt.subplots(figsize=(WIDTH, 1.8))[1]
    low, high = ax.get_ylim() if ax.texts else (-0.35, 0.35)
    if not ax.texts:
        for place, word in enumerate(words):
            ax.text(place, 0, word, ha="center", va="center")
    side = -1 if below else 1
    paint, edge = COLOURS[colour % len(COLOURS)], 0.35 * side
    for t in range(T) if queries is None else queries:
        ax.plot(t, edge, "o", color=paint, markersize=4)
        for s in np.flatnonzero(grid[t] >= FAINT):
            if t == s:
                arc = Arc((t, edge + 0.25 * side), 0.5, 0.5)
            else:
                ends = {"theta1": 180 * below, "theta2": 180 + 180 * below}
                span = abs(t - s)
                arc = Arc(((t + s) / 2, edge), span, 0.7 * span, **ends)
            arc.set(color=paint, linewidth=0.5 + 3.5 * grid[t, s], alpha=0.85)
            ax.add_patch(arc)
    reach = 0.35 * (T - 1) + 0.5
    low, high = (min(low, -reach), high) if below else (low, max(high, reach))
    ax.set(xlim=(-0.6, T - 0.4), ylim=(low, high), title=title or "")
    ax.axis("off")
    return ax


def shaded_words(
    weights: Sequence[torch.Tensor],
    sentences: Sequence[Sequence[str]],
    *,
    notes: Sequence[str] | None = None,
    title: str | None = None,
) -> Axes:
    """Write sentences below each other, each word on a blue as strong as its weight.

    Args:
        weights: for each sentence the weights of its words, each in 0…1.
        sentences: the words of each.
        notes: what stands at the end of each line; None leaves it out.
        title: what stands above.

    Returns:
        The axes.

    Raises:
        ValueError: another number of weights, or of notes, than of words or sentences.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import shaded_words
        >>> ax = shaded_words([torch.tensor([0.0, 1.0])], [["the", "cat"]])
        >>> [text.get_text() for text in ax.texts]
        ['the', '0.00', 'cat', '1.00']
        >>> plt.close(ax.figure)
    """
    notes = [""] * len(sentences) if notes is None else notes
    if not len(weights) == len(sentences) == len(notes):
        raise ValueError(
            f"{len(sentences)} sentences need as many weights and notes; "
            f"got {len(weights)} and {len(notes)}"
        )
    longest = max(map(len, sentences))
    columns = longest + 1.3 * any(notes)
    ax = plt.subplots(figsize=(WIDTH, 0.62 * len(sentences) + 0.35))[1]
    for i, (row, words, note) in enumerate(zip(weights, sentences, notes)):
        row = torch.as_tensor(row).detach().cpu().float().tolist()
        if len(row) != len(words):
            raise ValueError(f"{len(words)} words need weights; got {len(row)}")
        for j, (weight, word) in enumerate(zip(row, words)):
            colour = plt.get_cmap("Blues")(weight)
            ax.add_patch(Rectangle((j, i), 1, 0.9, facecolor=colour, edgecolor="white"))
            ink = "white" if weight > 0.6 else "black"
            ax.text(j + 0.5, i + 0.28, word, ha="center", va="center", color=ink)
            number = f"{weight:.2f}"
            ax.text(j + 0.5, i + 0.66, number, ha="center", va="center", color=ink)
        if note:
            ax.text(longest + 0.15, i + 0.45, note, ha="left", va="center")
    ax.set(xlim=(0, columns), ylim=(len(sentences), 0), title=title or "")
    ax.axis("off")
    ax.figure.tight_layout(pad=0.3)
    return ax
