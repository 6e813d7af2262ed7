"""One input through two of the six styles: other code, other shapes, equal numbers."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from traitlets import Int, List, Unicode

from mha_lib.widgets.base import Widget, labels, lists, module, numbers, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPLIT_QUERIES = {  # how each style orders the axes of the split queries
    "PerHeadMHA": "hbtd",
    "BatchedMHA": "bhtd",
    "FusedMHA": "bhtd",
    "EinsumMHA": "tbhd",
    "BuiltinMHA": "bhtd",
    "SplitConcatMHA": "hbtd",
}
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
MOST_SEQUENCES, MOST_TOKENS = 2, 6  # beyond them the first ones are shown
MOST_FEATURES, MOST_HEADS = 16, 4  # none can be left out: each output needs them all
FIRST_STEP = 2  # the split of the queries, where the layouts part
CENTRED = {"ha": "center", "va": "center"}

Array = torch.Tensor | np.ndarray | Sequence


class VersionsSideBySide(Widget):
    """Self-attention in two styles, step by step, one element outlined in both.

    Args:
        x: the input (B, T, E), batch first. Styles that want it otherwise turn it.
        parameters: q_proj.weight, k_proj.weight, v_proj.weight and out_proj.weight,
            each (E, E) as in ``nn.Linear``, and their biases (E,) under q_proj.bias
            and so on; a bias that is missing is zero. ``BatchedMHA.state_dict()`` is
            of this form, and so is ``convert(any_style, "separate")``.
        num_heads: H; it divides E.
        tokens: T labels for every sequence, or B lists of T labels; None numbers them.
        mask: boolean, True = may attend, (T, S) or (B, T, S), each axis of its size or
            1; or None. A mask for each head is refused, for EinsumMHA has none.
        left: the style on the left, such as ``"BatchedMHA"``.
        right: the style on the right.

    Attributes:
        mistake: ``"none"``, or what the right style does wrong: ``"exchange"`` of the
            projections of query and key, a wrong ``"scale"``, heads interleaved at the
            ``"merge"``.
        step: the step that is open, counted from 0.
        r: the role of the outlined element, 0, 1, 2 for query, key, value; and b, h, t,
            s, d, its place. −1: where the two differ most.

    Raises:
        TypeError: what is not an array of numbers; a mask that is not boolean.
        ValueError: shapes that do not fit each other, NaN or infinity, more than 16
            features or 4 heads, an unknown style.

    Note:
        Beyond 2 sequences or 6 tokens the first ones are computed and shown, and a line
        says so. The page computes in float64.

    Example:
        >>> import torch
        >>> from mha_lib import BatchedMHA
        >>> from mha_lib.widgets import VersionsSideBySide
        >>> layer = BatchedMHA(embed_dim=6, num_heads=3)
        >>> VersionsSideBySide(torch.randn(2, 4, 6), layer.state_dict(), num_heads=3)
        VersionsSideBySide(BatchedMHA and EinsumMHA, B = 2, T = 4, E = 6, H = 3)
    """

    _esm = module("versions_side_by_side")
    _css = style("versions_side_by_side")

    x = List().tag(sync=True)
    matrices = List().tag(sync=True)  # of q, k, v and the output
    biases = List().tag(sync=True)
    num_heads = Int(1).tag(sync=True)
    mask = List().tag(sync=True)
    tokens = List().tag(sync=True)
    note = Unicode().tag(sync=True)
    left = Unicode("BatchedMHA").tag(sync=True)
    right = Unicode("EinsumMHA").tag(sync=True)
    mistake = Unicode("none").tag(sync=True)
    step = Int(FIRST_STEP).tag(sync=True)
    r = Int(-1).tag(sync=True)
    b = Int(-1).tag(sync=True)
    h = Int(-1).tag(sync=True)
    t = Int(-1).tag(sync=True)
    s = Int(-1).tag(sync=True)
    d = Int(-1).tag(sync=True)

    def __init__(
        self,
        x: Array,
        parameters: Mapping[str, Array],
        num_heads: int,
        tokens: Sequence | None = None,
        mask: torch.Tensor | np.ndarray | None = None,
        *,
        left: str = "BatchedMHA",
        right: str = "EinsumMHA",
    ) -> None:
        for name in (left, right):
            if name not in SPLIT_QUERIES:
                raise ValueError(f"a style is {', '.join(SPLIT_QUERIES)}; got {name!r}")
        x = numbers(x, "x", "BTE")
        B, T, E = x.shape
        if E > MOST_FEATURES or num_heads > MOST_HEADS:
            raise ValueError(
                f"E must be at most {MOST_FEATURES} and num_heads at most "
                f"{MOST_HEADS}, so that all can be seen; got {E} and {num_heads}"
            )
        if num_heads < 1 or E % num_heads:
            raise ValueError(f"num_heads must divide E = {E}; got {num_heads}")
        matrices, biases = _parameters(parameters, E)
        mask = None if mask is None else _mask(mask, B, T)
        tokens = _tokens(tokens, B, T)
        b, t = slice(MOST_SEQUENCES), slice(MOST_TOKENS)
        x = x[b, t]
        super().__init__(
            x=lists(x),
            matrices=lists(matrices),
            biases=lists(biases),
            num_heads=num_heads,
            mask=[] if mask is None else mask[b, t, t].tolist(),
            tokens=[row[t] for row in tokens[b]],
            note=_note(B, T),
            left=left,
            right=right,
        )
        q = x @ matrices[0].T + biases[0]
        self._queries = q.reshape(*x.shape[:2], num_heads, -1).swapaxes(1, 2)

    def summary(self) -> str:
        """The two styles and the sizes."""
        B, H, T, D = self._queries.shape
        return f"{self.left} and {self.right}, B = {B}, T = {T}, E = {H * D}, H = {H}"

    def still(self) -> "Figure":
        """The split queries in the layouts of both styles."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 4))
        panels = figure.subplots(1, 2)
        largest = np.abs(self._queries).max()
        for ax, name in zip(panels, (self.left, self.right)):
            axes = SPLIT_QUERIES.get(name, "bhtd")  # a reader may have set another
            x = self._queries.transpose(["bhtd".index(letter) for letter in axes])
            ax.set_title(f"{name}: q, each block {axes[2]} × {axes[3]}", pad=16)
            rows, columns = x.shape[2:]
            for i, j in np.ndindex(x.shape[:2]):
                top, left = i * (rows + 1), j * (columns + 1)
                extent = (left, left + columns, top + rows, top)
                ax.imshow(
                    x[i, j], cmap="PuOr", vmin=-largest, vmax=largest, extent=extent
                )
                ax.text(left, top - 0.1, f"{axes[0]}{i} {axes[1]}{j}", size=7)
                for (k, m), value in np.ndenumerate(x[i, j]):
                    place = (left + m + 0.5, top + k + 0.5)
                    colour = "white" if abs(value) > 0.6 * largest else "black"
                    ax.text(*place, f"{value:.1f}", size=7, color=colour, **CENTRED)
            ax.axis("off")
            ax.autoscale()
            ax.set_aspect("auto")
        return figure


def _parameters(given: Mapping[str, Array], E: int) -> tuple[np.ndarray, np.ndarray]:
    """The matrices (4, E, E) and the biases (4, E) of q, k, v and the output."""
    known = {f"{name}.{kind}" for name in PROJECTIONS for kind in ("weight", "bias")}
    missing = {f"{name}.weight" for name in PROJECTIONS} - set(given)
    if missing or set(given) - known:
        raise ValueError(
            "parameters must be named as those of BatchedMHA: "
            'convert(layer, "separate") does so; '
            f"missing {sorted(missing)}, unknown {sorted(set(given) - known)}"
        )
    matrices, biases = [], []
    for name in PROJECTIONS:
        weight = numbers(given[f"{name}.weight"], f"{name}.weight", "EE")
        bias = given.get(f"{name}.bias")
        bias = np.zeros(E) if bias is None else numbers(bias, f"{name}.bias", "E")
        if weight.shape != (E, E) or bias.shape != (E,):
            raise ValueError(
                f"{name} must hold a weight {(E, E)} and a bias {(E,)}, as x has "
                f"E = {E}; got {weight.shape} and {bias.shape}"
            )
        matrices.append(weight)
        biases.append(bias)
    return np.stack(matrices), np.stack(biases)


def _mask(mask: torch.Tensor | np.ndarray, B: int, T: int) -> np.ndarray:
    """The mask as (B, T, S), S = T."""
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask must be boolean; got {mask.dtype}")
    full = mask[None] if mask.ndim == 2 else mask
    sizes = zip(full.shape, (B, T, T))
    if full.ndim != 3 or any(n not in (1, size) for n, size in sizes):
        raise ValueError(
            f"mask must be (T, S) = {(T, T)} or (B, T, S) = {(B, T, T)}, each axis of "
            f"its size or 1; got {mask.shape}"
        )
    return np.broadcast_to(full, (B, T, T))


def _tokens(given: Sequence | None, B: int, T: int) -> list[list[str]]:
    """T labels for each of the B sequences."""
    if given is None or not given or isinstance(given[0], str):
        return [labels(given, T, "tokens")] * B
    if len(given) != B:
        raise ValueError(f"tokens must be T labels or {B} lists of them; got {given!r}")
    return [labels(row, T, "each row of tokens") for row in given]


def _note(B: int, T: int) -> str:
    if B <= MOST_SEQUENCES and T <= MOST_TOKENS:
        return ""
    return (
        f"Only the first {MOST_SEQUENCES} sequences and {MOST_TOKENS} tokens are "
        f"computed and shown, of {B} sequences and {T} tokens."
    )
