"""What is wrong beside what is right: maps with their differences, step by step."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mha_lib.plots.maps import COLOURS

__all__ = ["differences", "first_difference"]

WIDTH = 4.6  # inches: all of it is read on a phone
SAME, FIRST, LATER = COLOURS[2], COLOURS[6], COLOURS[7]


def differences(
    maps: torch.Tensor,
    right: torch.Tensor,
    words: Sequence[str],
    *,
    titles: Sequence[str] | None = None,
) -> Figure:
    """Draw maps, a row each, and what each has more or less than the right one.

    The heads of a map stand side by side, with a bar between them. Left, strong = much
    weight, and red is negative; right, blue = more than in the right map, red = less.

    Args:
        maps: (N, H, T, S), whatever reaches the output.
        right: (H, T, S).
        words: S words, that ask and answer; T = S.
        titles: N titles; None numbers them.

    Returns:
        The figure, with two axes for each map.

    Raises:
        ValueError: maps and a right one of different shape, or labels of another
            number.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import differences
        >>> right = torch.eye(2).expand(3, 2, 2)
        >>> figure = differences(right.flip(0, 1)[None], right, ["the", "cat"])
        >>> [ax.get_title() for ax in figure.axes]
        ['0', 'minus right']
        >>> plt.close(figure)
    """
    maps, right = (torch.as_tensor(x).detach().cpu().float() for x in (maps, right))
    if maps.dim() != 4 or maps.shape[1:] != right.shape:
        raise ValueError(
            "maps must be (N, H, T, S) and right (H, T, S); "
            f"got {tuple(maps.shape)} and {tuple(right.shape)}"
        )
    N, H, T, S = maps.shape
    titles = [str(n) for n in range(N)] if titles is None else titles
    if not len(words) == T == S:
        raise ValueError(f"T = S = {len(words)} words; got T = {T} and S = {S}")
    if len(titles) != N:
        raise ValueError(f"{N} maps need {N} titles; got {len(titles)}")
    figure, axes = plt.subplots(
        N,
        2,
        figsize=(WIDTH, N * (0.19 * T + 0.35) + 0.6),
        squeeze=False,
        layout="constrained",
    )
    for row, one, title in zip(axes, maps, titles):
        both = (one, title), (one - right, "minus right")
        for ax, (grid, name) in zip(row, both):
            flat = torch.cat(list(grid), dim=-1)  # (T, H·S): head after head
            ax.imshow(flat.numpy(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
            for bar in range(1, H):
                ax.axvline(bar * S - 0.5, color="black", linewidth=1.5)
            ax.set_title(name, fontsize=10)
            ax.set_xticks([])
            ax.set_yticks(range(T), words if ax is row[0] else [])
            ax.tick_params(length=0)
    for ax in axes[-1]:
        ax.set_xticks(range(H * S), [*words] * H, rotation=90)
    return figure


def first_difference(
    gaps: Mapping[str, float],
    *,
    tolerance: float = 1e-5,
    ax: Axes | None = None,
    title: str | None = None,
) -> Axes:
    """Draw how far two layers lie apart, step by step; the first step that differs.

    Args:
        gaps: for each step, in order, the largest difference.
        tolerance: up to here two steps are the same.
        ax: where to draw; None makes a figure.
        title: what stands above.

    Returns:
        The axes.

    Raises:
        ValueError: no step, or a difference below zero.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> from mha_lib.plots import first_difference
        >>> ax = first_difference({"q": 0.0, "scores": 1.5, "weights": 0.25})
        >>> [text.get_text() for text in ax.texts]
        ['same', '1.5, the first', '0.25']
        >>> plt.close(ax.figure)
    """
    if not gaps or min(gaps.values()) < 0:
        raise ValueError(f"gaps must be steps with differences ≥ 0; got {dict(gaps)}")
    if ax is None:
        ax = plt.subplots(figsize=(4.0, 0.6 + 0.28 * len(gaps)))[1]
    most, found = max(gaps.values()) or 1.0, False
    for place, gap in enumerate(gaps.values()):
        same, first = gap <= tolerance, gap > tolerance and not found
        found = found or first
        colour = SAME if same else FIRST if first else LATER
        words = "same" if same else f"{gap:.2g}" + ", the first" * first
        ax.barh(place, max(gap, 0.01 * most), color=colour)
        ax.text(max(gap, 0.01 * most) + 0.02 * most, place, words, va="center")
    ax.set(ylim=(len(gaps) - 0.5, -0.5), xlim=(0, 1.35 * most), xticks=[])
    ax.set_yticks(range(len(gaps)), list(gaps))
    ax.tick_params(length=0)
    for side in ("top", "right", "bottom"):
        ax.spines[side].set_visible(False)
    ax.set_title(title or "", fontsize=10)
    ax.figure.tight_layout(pad=0.3)
    return ax
