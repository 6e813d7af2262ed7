"""Why divide by √D? Scores, weights, entropy and slopes, for any D and divisor."""

from collections.abc import Callable, Sequence
from math import log, sqrt
from typing import TYPE_CHECKING

import numpy as np
import torch
from traitlets import Float, Int, List, Unicode

from mha_lib.widgets.base import Widget, lists, module, numbers, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_VECTORS, MOST_ENTRIES = 48, 1024  # what one frame computes and draws
FIRST = 64  # the head size to begin with: that of most models
FLOOR = 1e-12  # where a logarithmic axis ends
DIVISORS = ("none", "sqrt", "D", "temperature")
AVERAGES = {"mean": torch.mean, "median": torch.median}

Vectors = torch.Tensor | np.ndarray | Sequence


class ScaleLab(Widget):
    """q·k over 1, √D, D or a number τ: what remains of the softmax and its gradient.

    The first D entries of each vector are used. Entropy is in nats and in bits; the
    *remaining gradient* is the norm of the Jacobian ∂w/∂x = diag(w) − w wᵀ of a row.

    Args:
        q: queries, (T, D); a reader can choose any head size up to this D.
        k: keys, (S, D), at least two.
        D: the head size to begin with: 1, 2, 4, … or all entries. None takes 64, or
            all entries where there are fewer.
        divisor: of the divided side: "sqrt" (√D), "D" or "temperature" (τ); with "none"
            the undivided side stands alone.
        temperature: τ, a positive number, for the last of these.
        query: which query to begin with; of its keys the one with the largest
            undivided weight is chosen.
        average: "mean" or "median" over the queries (the lower middle one, as torch's).

    Raises:
        TypeError: what is not an array of numbers.
        ValueError: shapes that do not fit each other, NaN or infinity, a single key; a
            head size, divisor, τ, query or average that there is not.

    Note:
        Beyond 48 queries or keys or 1024 entries the first ones are taken, and a line
        says so.

    Example:
        >>> import torch
        >>> from mha_lib.widgets import ScaleLab
        >>> ScaleLab(torch.ones(3, 8), torch.ones(5, 8))
        ScaleLab(3 queries, 5 keys, D up to 8)
    """

    _esm = module("scale_lab")
    _css = style("scale_lab")

    q = List().tag(sync=True)
    k = List().tag(sync=True)
    D = Int(1).tag(sync=True)
    divisor = Unicode("sqrt").tag(sync=True)
    temperature = Float(1.0).tag(sync=True)
    query = Int(0).tag(sync=True)
    key = Int(0).tag(sync=True)
    average = Unicode("median").tag(sync=True)
    note = Unicode().tag(sync=True)

    def __init__(
        self,
        q: Vectors,
        k: Vectors,
        *,
        D: int | None = None,
        divisor: str = "sqrt",
        temperature: float = 1.0,
        query: int = 0,
        average: str = "median",
    ) -> None:
        q, k = numbers(q, "q", "TD"), numbers(k, "k", "SD")
        if q.shape[1] != k.shape[1]:
            raise ValueError(f"q and k must have one D; got {q.shape} and {k.shape}")
        if len(k) < 2:
            raise ValueError("k must be at least 2 keys: one key always has weight 1")
        note = _note(*q.shape, len(k))
        q, k = (x[:MOST_VECTORS, :MOST_ENTRIES] for x in (q, k))
        sizes = head_sizes(q.shape[1])
        D = max(x for x in sizes if x <= FIRST or x == sizes[0]) if D is None else D
        _one_of("D", D, sizes)
        _one_of("divisor", divisor, DIVISORS)
        _one_of("average", average, AVERAGES)
        if not 0 < temperature < float("inf"):
            raise ValueError(f"temperature must be positive; got {temperature!r}")
        if query not in range(len(q)):
            raise ValueError(f"query must be in 0…{len(q) - 1}; got {query!r}")
        super().__init__(
            q=lists(q),
            k=lists(k),
            D=D,
            divisor=divisor,
            temperature=float(temperature),
            query=query,
            key=int((k[:, :D] @ q[query, :D]).argmax()),
            average=average,
            note=note,
        )
        self._given = torch.from_numpy(q), torch.from_numpy(k), AVERAGES[average]

    def summary(self) -> str:
        """How many vectors there are, and how long they are."""
        (T, most), S = self._given[0].shape, len(self._given[1])
        return f"{T} {'query' if T == 1 else 'queries'}, {S} keys, D up to {most}"

    def still(self) -> "Figure":
        """Variance, entropy and slope over D, for the three fixed divisors."""
        import matplotlib.pyplot as plt

        from mha_lib.plots import COLOURS

        q, k, average = self._given
        sizes = head_sizes(q.shape[1])
        figure, axes = plt.subplots(1, 3, figsize=(8, 2.7), layout="constrained")
        for name, divide, line in (
            ("q · k", lambda _: 1, {"color": COLOURS[6], "linestyle": "--"}),
            ("q · k / √D", sqrt, {"color": COLOURS[5]}),
            ("q · k / D", float, {"color": "black", "linestyle": ":"}),
        ):
            curves = _curves(q, k, sizes, divide, average)
            for ax, curve in zip(axes, curves):
                ax.plot(sizes, curve, label=name, **line)
        titles = ["variance of the scores", "entropy (nats)", "norm of ∂w/∂x"]
        for ax, title in zip(axes, titles):
            ax.set_title(title, fontsize=10)
            ax.set_xscale("log", base=2)
            ax.set_xlabel("head size D")
        for ax in (axes[0], axes[2]):
            ax.set_yscale("log")
        axes[1].set_ylim(0, 1.1 * log(len(k)))
        axes[0].legend(fontsize=8)
        return figure


def head_sizes(most: int) -> list[int]:
    """The powers of two up to `most`, and `most` itself: what the slider offers.

    Example:
        >>> head_sizes(20)
        [1, 2, 4, 8, 16, 20]
    """
    return sorted({2**i for i in range(most.bit_length())} | {most})


def _curves(
    q: torch.Tensor,
    k: torch.Tensor,
    sizes: list[int],
    divide: Callable[[int], float],
    average: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Variance, entropy and norm of the Jacobian, each for all sizes: (3, sizes)."""
    found = []
    for size in sizes:
        scores = q[:, :size] @ k[:, :size].T / divide(size)
        w = scores.softmax(dim=-1)
        entropy = torch.special.entr(w).sum(dim=-1)
        jacobian = torch.diag_embed(w) - w[..., :, None] * w[..., None, :]
        norm = torch.linalg.matrix_norm(jacobian)
        found.append(torch.stack([scores.var(), average(entropy), average(norm)]))
    return torch.stack(found, dim=1).clamp(min=FLOOR)


def _one_of(name: str, value: object, allowed: Sequence) -> None:
    if value not in list(allowed):
        choices = ", ".join(map(repr, allowed))
        raise ValueError(f"{name} must be one of {choices}; got {value!r}")


def _note(T: int, D: int, S: int) -> str:
    if max(T, S) <= MOST_VECTORS and D <= MOST_ENTRIES:
        return ""
    return (
        f"Only the first {MOST_VECTORS} vectors and {MOST_ENTRIES} entries are shown "
        f"of {T} queries and {S} keys with {D} entries."
    )
