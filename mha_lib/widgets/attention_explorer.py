"""Where does each word look? All heads small, one query's arcs, one head large."""

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np
import torch
from traitlets import Bool, Int, List, Unicode

from mha_lib.widgets.base import Widget, labels, lists, module, numbers, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_HEADS, MOST_TOKENS = 12, 64  # what one screen holds and one frame draws
MOST_ON_A_STILL = 4  # maps that can be read on a phone
TOLERANCE = 1e-3  # between given weights and those of q and k: half precision

Maps = torch.Tensor | np.ndarray | Sequence


class AttentionExplorer(Widget):
    """The maps of all heads, and softmax(q·k/√D) of one query at a time.

    Args:
        weights: (H, T, S); or (B, H, T, S), of which one sample is shown; or a list of
            either, one a layer. That is what each style of this book, what
            ``nn.MultiheadAttention(..., average_attn_weights=False)`` and what a
            Hugging Face model with ``output_attentions=True`` return. None if q and k
            are given.
        queries: T tokens; None numbers them.
        keys: S tokens; None repeats the queries if T = S.
        q: queries of every head, (H, T, D) or (B, H, T, D), or a list of such. With q
            and k the page computes scores and weights itself.
        k: keys of every head, in the same form, with S in place of T.
        mask: boolean, True = may attend, (T, S) or (H, T, S); drawn into the maps.
        sample: which sample of a batch.
        unit: what a token is to the reader, such as ``"letter"``.

    Raises:
        TypeError: what is not an array of numbers; a mask that is not boolean.
        ValueError: shapes that do not fit each other, NaN or infinity, weights that are
            not softmax(q·k/√D).

    Note:
        Beyond 12 heads or 64 tokens the first ones are shown, and a line says so.

    Example:
        >>> import torch
        >>> from mha_lib.widgets import AttentionExplorer
        >>> weights = torch.eye(3).expand(2, 3, 3)
        >>> AttentionExplorer(weights, ["the", "cat", "sat"])
        AttentionExplorer(1 layer, 2 heads, 3 queries, 3 keys)
    """

    _esm = module("attention_explorer")
    _css = style("attention_explorer")

    weights = List().tag(sync=True)
    q = List().tag(sync=True)
    k = List().tag(sync=True)
    mask = List().tag(sync=True)
    query_tokens = List(Unicode()).tag(sync=True)
    key_tokens = List(Unicode()).tag(sync=True)
    unit = Unicode("word").tag(sync=True)
    note = Unicode().tag(sync=True)
    layer = Int(0).tag(sync=True)
    head = Int(0).tag(sync=True)
    query = Int(-1).tag(sync=True)  # -1: the last
    key = Int(-1).tag(sync=True)  # -1: the one with the largest weight
    pattern = Unicode().tag(sync=True)  # which head has it, the reader is asked
    guess = Unicode().tag(sync=True)  # the answer: "layer head"
    view = Unicode("weights").tag(sync=True)
    log = Bool(False).tag(sync=True)

    def __init__(
        self,
        weights: Maps | None = None,
        queries: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        *,
        q: Maps | None = None,
        k: Maps | None = None,
        mask: torch.Tensor | np.ndarray | None = None,
        sample: int = 0,
        unit: str = "word",
    ) -> None:
        if (q is None) != (k is None):
            raise ValueError("q and k must be given together")
        if weights is None and q is None:
            raise ValueError("weights or q and k must be given; got neither")
        given = None if weights is None else _layers(weights, "weights", "HTS", sample)
        if q is not None:
            q = _layers(q, "q", "HTD", sample)
            k = _layers(k, "k", "HSD", sample)
            computed = _weights(q, k, mask)
            if given is not None and not _close(given, computed):
                raise ValueError("weights must be softmax(q·k/√D) under the mask")
            given = computed
        H, T, S = given[0].shape
        queries = labels(queries, T, "queries")
        keys = queries if keys is None and T == S else labels(keys, S, "keys")
        h, t, s = (slice(most) for most in (MOST_HEADS, MOST_TOKENS, MOST_TOKENS))
        super().__init__(
            weights=[] if q is not None else [lists(x[h, t, s]) for x in given],
            q=[] if q is None else [lists(x[h, t]) for x in q],
            k=[] if k is None else [lists(x[h, s]) for x in k],
            mask=[] if mask is None else _mask(mask, H, T, S)[h, t, s].tolist(),
            query_tokens=queries[t],
            key_tokens=keys[s],
            unit=unit,
            note=_note(H, T, S),
        )
        self._shown = np.stack([x[h, t, s] for x in given])

    def summary(self) -> str:
        """How many layers, heads and tokens are shown."""
        L, H, T, S = self._shown.shape
        parts = [(L, "layer"), (H, "head"), (T, "queries"), (S, "keys")]
        return ", ".join(
            f"{n} {word}{'s' if n > 1 and word[-1] != 's' else ''}" for n, word in parts
        )

    def still(self) -> "Figure":
        """The maps of the open layer's heads; of more than four, the open head's."""
        from mha_lib.plots import head_maps

        L, H = self._shown.shape[:2]
        heads = range(H) if H <= MOST_ON_A_STILL else [self.head]
        layer = f"layer {self.layer}, " if L > 1 else ""
        return head_maps(
            torch.from_numpy(self._shown[self.layer, [*heads]]),
            self.query_tokens,
            self.key_tokens,
            titles=[f"{layer}head {h}" for h in heads],
        )


def _layers(given: Maps, name: str, axes: str, sample: int) -> list[np.ndarray]:
    """One array a layer; of a batch, the sample."""
    layers = given if isinstance(given, list | tuple) else [given]
    if not layers:
        raise ValueError(f"{name} must be at least one layer; got an empty list")
    found = []
    for layer in layers:
        if np.ndim(layer) == len(axes) + 1:
            layer = layer[sample]
        found.append(numbers(layer, name, axes))
    if len({x.shape for x in found}) > 1:
        shapes = ", ".join(str(x.shape) for x in found)
        raise ValueError(f"all layers of {name} must have one shape; got {shapes}")
    return found


def _mask(mask: torch.Tensor | np.ndarray, H: int, T: int, S: int) -> np.ndarray:
    """One map, or one a head."""
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise TypeError(f"mask must be boolean; got {mask.dtype}")
    if mask.shape not in ((T, S), (1, T, S), (H, T, S)):
        raise ValueError(f"mask must be {(T, S)} or {(H, T, S)}; got {mask.shape}")
    return mask.reshape(-1, T, S)


def _weights(q: list, k: list, mask: torch.Tensor | None) -> list[np.ndarray]:
    """softmax(q·k/√D) of every layer, as the page computes it."""
    if [(*x.shape[::2], len(q)) for x in q] != [(*x.shape[::2], len(k)) for x in k]:
        raise ValueError(
            "q and k must have the same layers, heads and D; "
            f"got {[x.shape for x in q]} and {[x.shape for x in k]}"
        )
    found = []
    for a, b in zip(q, k):
        scores = a @ b.swapaxes(-1, -2) / sqrt(a.shape[-1])
        if mask is not None:
            H, T, S = scores.shape
            scores = np.where(_mask(mask, H, T, S), scores, -np.inf)
        highest = scores.max(-1, keepdims=True)
        powers = np.exp(scores - np.where(np.isfinite(highest), highest, 0))
        total = powers.sum(-1, keepdims=True)
        found.append(powers / np.where(total == 0, 1, total))
    return found


def _close(given: list, computed: list) -> bool:
    return len(given) == len(computed) and all(
        a.shape == b.shape and np.allclose(a, b, atol=TOLERANCE)
        for a, b in zip(given, computed)
    )


def _note(H: int, T: int, S: int) -> str:
    if H <= MOST_HEADS and max(T, S) <= MOST_TOKENS:
        return ""
    return (
        f"Only the first {MOST_HEADS} heads and {MOST_TOKENS} tokens are shown "
        f"of {H} heads, {T} queries and {S} keys."
    )
