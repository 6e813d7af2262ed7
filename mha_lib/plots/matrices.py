"""The formula as matrices: what one query passes through, beside all others."""

from collections.abc import Sequence

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from mha_lib.plots.maps import INK, ROLES, signed

__all__ = ["matrix_steps"]

CELL = 0.197  # inches; all else in cells
ROOM, TITLE, BETWEEN = 2.7, 1.3, 1.9  # left for words; above a matrix; between lines
NUMBER = 0.9  # below a matrix, for a number
LETTER = 0.37


def matrix_steps(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    words: Sequence[str],
    *,
    query: int,
) -> Figure:
    """Draw q kᵀ / √D = scores, and softmax(scores) v = context, one query framed.

    Of the key that gets most the column of kᵀ and the row of v are framed, too. Below
    each matrix stands one number of what is framed.

    Args:
        q: (T, D).
        k: (S, D).
        v: (S, V).
        words: T words, one for each query.
        query: whose row is framed in each matrix that has one for it; its largest
            weight says whose key and value are.

    Returns:
        The figure.

    Raises:
        ValueError: shapes that do not fit, or a query that is none.

    Example:
        >>> import matplotlib.pyplot as plt
        >>> import torch
        >>> from mha_lib.plots import matrix_steps
        >>> x = torch.eye(3)
        >>> figure = matrix_steps(x, x, x, ["the", "cat", "slept"], query=1)
        >>> said = [text.get_text() for text in figure.axes[0].texts]
        >>> [text for text in said if text.startswith(("q", "k"))]
        ['q (3, 3)', 'kᵀ (3, 3)']
        >>> plt.close(figure)
    """
    q, k, v = (torch.as_tensor(x).detach().cpu().float() for x in (q, k, v))
    (T, D), (S, width) = q.shape, k.shape
    if width != D or len(v) != S or len(words) != T:
        shapes = ", ".join(str(tuple(x.shape)) for x in (q, k, v))
        raise ValueError(
            "q (T, D), k (S, D), v (S, V) and T words must fit each other; "
            f"got {shapes} and {len(words)} words"
        )
    if not 0 <= query < T:
        raise ValueError(f"query must be 0 to {T - 1}; got {query}")
    scores = q @ k.mT / D**0.5
    weights = scores.softmax(dim=-1)
    context = weights @ v
    key = weights[query].argmax().item()
    told = {  # a column and its number
        "q": _largest(q[query]),
        "kᵀ": (key, _largest(k[key])[1]),
        "scores": (key, scores[query, key].item()),
        "weights": (key, weights[query, key].item()),
        "v": _largest(v[key]),
        "context": _largest(context[query]),
    }
    lines = [
        [("", "q", q), ("@", "kᵀ", k.mT), ("/ √D =", "scores", scores)],
        [("", "weights", weights), ("@", "v", v), ("=", "context", context)],
    ]
    wide = ROOM + max(sum(map(_room, line)) for line in lines) + 0.15
    high = max(T, S, D) + TITLE
    total = 2 * high + BETWEEN + NUMBER + 0.2
    figure, ax = plt.subplots(figsize=(CELL * wide, CELL * total))
    for line, top in zip(lines, (0, high + BETWEEN)):
        left = ROOM
        middle = top + TITLE + (high - TITLE) / 2
        for sign, name, x in line:
            room = _room((sign, name, x))
            if sign:
                at = left + (room - _slot(name, x)) / 2
                ax.text(at, middle, sign, ha="center", va="center")
            else:
                _rows(ax, words, left, middle - T / 2, query)
            left += room
            corner = left - (x.shape[1] + _slot(name, x)) / 2, middle - len(x) / 2
            framed = (0, key, 1, D) if name == "kᵀ" else (query, 0, x.shape[1], 1)
            framed = (key, 0, x.shape[1], 1) if name == "v" else framed
            _matrix(ax, x, name, corner, framed, told[name])
    below_scores = ROOM + sum(map(_room, lines[0])) - _slot("scores", scores) / 2
    ax.annotate(
        "",
        (ROOM + S / 2 + 1, high + BETWEEN + 0.2),
        (below_scores, high + NUMBER),
        arrowprops={"arrowstyle": "->", "color": "0.4"},
    )
    place = (ROOM + S / 2 + 1.7, high + NUMBER + 0.25)
    ax.text(*place, "softmax of each row", ha="center", va="center")
    ax.set(xlim=(0, wide), ylim=(total, 0))
    ax.set_aspect("equal")
    ax.axis("off")
    figure.subplots_adjust(0, 0, 1, 1)
    return figure


def _largest(row: torch.Tensor) -> tuple[int, float]:
    """Where the largest number of a row stands, whatever its sign, and the number."""
    place = row.abs().argmax().item()
    return place, row[place].item()


def _slot(name: str, x: torch.Tensor) -> float:
    """The cells that a matrix or its title needs."""
    return max(x.shape[1], LETTER * len(_title(name, x)))


def _room(part: tuple[str, str, torch.Tensor]) -> float:
    """The same with the sign before it."""
    sign, name, x = part
    return _slot(name, x) + (0.5 + LETTER * len(sign)) * bool(sign)


def _title(name: str, x: torch.Tensor) -> str:
    return f"{name} ({x.shape[0]}, {x.shape[1]})"


def _matrix(
    ax: Axes,
    x: torch.Tensor,
    name: str,
    corner: tuple,
    framed: tuple[int, int, int, int],
    told: tuple[int, float],
) -> None:
    left, top = corner
    rows, columns = x.shape
    most = x.abs().max().item() or 1.0
    box = (left, left + columns, top + rows, top)
    role = name.rstrip("ᵀ") if name.rstrip("ᵀ") in ROLES else None
    ax.imshow(x.numpy(), signed(role), extent=box, vmin=-most, vmax=most)
    for edge in range(1, rows):
        ax.plot((left, left + columns), 2 * (top + edge,), color="white", linewidth=1)
    ax.add_patch(
        Rectangle((left, top), columns, rows, fill=False, color="0.6", zorder=3)
    )
    row, column, wide, high = framed
    at = left + column, top + row
    ax.add_patch(Rectangle(at, wide, high, fill=False, linewidth=2, zorder=4))
    column, number = told
    below = left + column + 0.5, top + rows + 0.2
    text = f"{number:.3f}".rstrip("0").rstrip(".")
    ax.text(*below, text, ha="center", va="top", fontweight="bold")
    place = (left + columns / 2, top - 0.15)
    colour = INK[role][0] if role else "black"
    ax.text(*place, _title(name, x), ha="center", va="bottom", color=colour)


def _rows(ax: Axes, words: Sequence[str], left: float, top: float, query: int) -> None:
    for t, word in enumerate(words):
        weight = "bold" if t == query else "normal"
        place = (left - 0.2, top + t + 0.5)
        ax.text(*place, word, ha="right", va="center", fontweight=weight)
