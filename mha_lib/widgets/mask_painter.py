"""Who may see whom: paint a mask, see the weights, copy it for any framework."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from traitlets import Bool, Enum, Int, List, TraitError, Unicode, validate

from mha_lib.widgets.base import Widget, labels, lists, module, numbers, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 16  # queries and keys: a cell is then still wide enough for a finger
RULES = ("causal", "align", "length", "side", "window", "block", "swapped")
FORMS = [
    "mha_lib",
    "sdpa",
    "torch",
    "torch_padding",
    "added",
    "keras",
    "flax",
    "hugging_face",
    "hugging_face_4d",
    "einsum",
]

Mask = torch.Tensor | np.ndarray | Sequence


class MaskPainter(Widget):
    """A mask to paint or to combine, its weights, and its form in each framework.

    A key is visible where every rule that is switched on allows it: `causal`, padding
    (`length` real keys, the filler on the `side`), sliding `window`, `block`. A painted
    cell keeps its value when the rules change, until they agree with it.

    Args:
        queries: T tokens, or their number.
        keys: S tokens, or their number; None repeats the queries.
        scores: (T, S), any real numbers; None means 0 everywhere, so that a row shares
            its weight evenly.
        mask: boolean (T, S), True = may attend, as the first painting; None allows all.

    Attributes:
        mask: T lists of S booleans, True = may attend; changes with every stroke, and
            may be set.
        causal: hide the keys that come later than the query.
        align: if T ≠ S, ``"top-left"``: query t stands at key t; ``"bottom-right"``:
            the last query stands at the last key.
        length: how many keys are real, 0 … S; the others are padding.
        side: where the padding is, ``"right"`` or ``"left"``.
        window: how many keys a query sees on either side, its own included; 0 is off.
        block: only keys of the same block of so many; 0 is off.
        swapped: the whole mask is the opposite; the rules now say who is hidden.
        framework: whose form is shown.

    Raises:
        TypeError: scores that are no numbers, a mask that is not boolean.
        ValueError: no token; scores or a mask that are not (T, S); NaN or infinity.

    Note:
        Beyond 16 queries or keys the first ones are shown, a line says so, and the
        mask has their size.

    Example:
        >>> from mha_lib.widgets import MaskPainter
        >>> painter = MaskPainter(["the", "cat", "sat"])
        >>> painter.causal = True
        >>> painter
        MaskPainter(3 queries, 3 keys, 6 of 9 pairs may attend)
        >>> painter.tensor.int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """

    _esm = module("mask_painter")
    _css = style("mask_painter")

    scores = List().tag(sync=True)
    mask = List(List(Bool())).tag(sync=True)
    query_tokens = List(Unicode()).tag(sync=True)
    key_tokens = List(Unicode()).tag(sync=True)
    note = Unicode().tag(sync=True)
    causal = Bool(False).tag(sync=True)
    align = Enum(["top-left", "bottom-right"], "top-left").tag(sync=True)
    length = Int(0, min=0).tag(sync=True)
    side = Enum(["right", "left"], "right").tag(sync=True)
    window = Int(0, min=0).tag(sync=True)
    block = Int(0, min=0).tag(sync=True)
    swapped = Bool(False).tag(sync=True)
    query = Int(0, min=0).tag(sync=True)
    key = Int(0, min=0).tag(sync=True)
    framework = Enum(FORMS, "sdpa").tag(sync=True)

    def __init__(
        self,
        queries: Sequence[str] | int,
        keys: Sequence[str] | int | None = None,
        *,
        scores: Mask | None = None,
        mask: Mask | None = None,
    ) -> None:
        queries = _tokens(queries, "queries")
        keys = queries if keys is None else _tokens(keys, "keys")
        T, S = len(queries), len(keys)
        scores = np.zeros((T, S)) if scores is None else numbers(scores, "scores", "TS")
        if scores.shape != (T, S):
            raise ValueError(f"scores must be (T, S) = {(T, S)}; got {scores.shape}")
        mask = np.ones((T, S), bool) if mask is None else _mask(mask, T, S)
        super().__init__(
            scores=lists(scores[:MOST, :MOST]),
            mask=mask[:MOST, :MOST].tolist(),
            query_tokens=queries[:MOST],
            key_tokens=keys[:MOST],
            note=_note(T, S),
            length=min(S, MOST),
        )
        self._known = self.mask, self._ruled(), self.swapped
        self.observe(self._follow, ["mask", *RULES])

    @property
    def tensor(self) -> torch.Tensor:
        """The mask as a boolean tensor (T, S), True = may attend; may be set."""
        return torch.tensor(self.mask, dtype=torch.bool)

    @tensor.setter
    def tensor(self, mask: Mask) -> None:
        shape = len(self.query_tokens), len(self.key_tokens)
        self.mask = _mask(mask, *shape).tolist()

    def summary(self) -> str:
        """Its size, and how much of it is visible."""
        T, S = self.tensor.shape
        visible = int(self.tensor.sum())
        return f"{T} queries, {S} keys, {visible} of {T * S} pairs may attend"

    def still(self) -> "Figure":
        """The mask beside the weights."""
        import matplotlib.pyplot as plt

        from mha_lib.plots import attention_map, mask_map

        figure, axes = plt.subplots(1, 2, figsize=(9, 4))
        mask_map(self.tensor, self.query_tokens, self.key_tokens, ax=axes[0])
        axes[0].set_title("mask")
        weights = _weights(torch.tensor(self.scores), self.tensor)
        attention_map(weights, self.query_tokens, self.key_tokens, ax=axes[1])
        axes[1].set_title("weights")
        figure.tight_layout()
        return figure

    @validate("mask")
    def _fits(self, proposal: dict) -> list:
        shape = len(self.query_tokens), len(self.key_tokens)
        if [len(row) for row in proposal["value"]] != [shape[1]] * shape[0]:
            raise TraitError(f"mask must be (T, S) = {shape}, as nested lists")
        return proposal["value"]

    @validate("length")
    def _reaches(self, proposal: dict) -> int:
        S = len(self.key_tokens)
        if proposal["value"] > S:
            raise TraitError(f"length must be in 0…{S}; got {proposal['value']}")
        return proposal["value"]

    def _ruled(self) -> list:
        """What the rules alone make."""
        T, S = len(self.query_tokens), len(self.key_tokens)
        t, s = np.indices((T, S))
        if self.align == "bottom-right":
            t += S - T
        allowed = s < self.length if self.side == "right" else s >= S - self.length
        if self.causal:
            allowed &= s <= t
        if self.window:
            allowed &= abs(t - s) < self.window
        if self.block:
            allowed &= t // self.block == s // self.block
        return (allowed != self.swapped).tolist()

    def _follow(self, change: object) -> None:
        """Apply new rules to all cells but the painted ones; a swap is of all cells.

        The page does the same and sends rule and mask in one message: then the mask is
        a new one already.
        """
        mask, ruled, swapped = self._known
        new = self._ruled()
        if self.mask == mask:
            turn = self.swapped != swapped
            self.mask = [
                [cell != turn if cell != old else now for cell, old, now in zip(*rows)]
                for rows in zip(mask, ruled, new)
            ]
        self._known = self.mask, new, self.swapped


def _tokens(given: Sequence[str] | int, name: str) -> list[str]:
    if isinstance(given, int):
        given = labels(None, given, name)
    if isinstance(given, str) or not len(given):
        raise ValueError(f"{name} must be a list of at least one token; got {given!r}")
    return [str(token) for token in given]


def _mask(mask: Mask, T: int, S: int) -> np.ndarray:
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask must be boolean, True = may attend; got {mask.dtype}")
    if mask.shape != (T, S):
        raise ValueError(f"mask must be (T, S) = {(T, S)}; got {mask.shape}")
    return mask


def _weights(scores: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Softmax over the visible keys; zeros where there is none."""
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1)
    return weights.masked_fill(~mask, 0.0)


def _note(T: int, S: int) -> str:
    if max(T, S) <= MOST:
        return ""
    return f"Only the first {MOST} tokens are shown of {T} queries and {S} keys."
