"""What comes next, and which head knows? A trained model that computes in the page."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from traitlets import Bool, Dict, Float, Int, List, Unicode

from mha_lib.widgets.base import Widget, lists, module, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_LETTERS = 2000
SHOWN, LISTED, FURTHER = 32, 6, 10  # as in model_lab_views.js
HOTTEST = 2
WHOLE = "#7a828c"  # --mha-hidden of common.css, the whole model's on the page too

Head = tuple[int, int]


class ModelLab(Widget):
    """p(next token | text) of the kept model, whole and with heads switched off.

    The page computes with the numbers of `mha_lib.model.quantised`: one byte each, the
    tokenizer beside them, 295 kB, which a page of the book loads when a reader first
    changes something. The first view is computed here.

    Args:
        text: to begin with, 1 to 2,000 characters. The model reads the last 128 tokens.
        off: heads that are switched off, pairs (layer, head).
        head: the head whose map is large, (layer, head).
        temperature: of the probabilities and of writing on, 0 to 2; at 0 the likeliest
            token has probability 1.
        seed: of writing on, 0 to 2³¹ − 1.

    Attributes:
        query, key: the tokens whose weight is told, counted from 0 among those in the
            small maps, the last 32 that are read; −1: the last one, and its largest.
        start: the first of the eight tokens in the large map; −1: the last eight.
        arcs: show where one token looks, and no map.

    Raises:
        TypeError: a text that is none.
        ValueError: an empty or too long text, a head that the model does not have,
            another temperature or seed.

    Note:
        Losses are in nats a token, over all tokens of the text but the first, and do
        not depend on the temperature. A head that is off adds nothing, as with
        `mha_lib.model.heads.removed`.

    Example:
        >>> from mha_lib.widgets import ModelLab
        >>> ModelLab("foo[bar, baz", off=[(0, 3)])
        ModelLab('foo[bar, baz' without layer 0, head 3)
    """

    _esm = module("model_lab")
    _css = style("model_lab")

    text = Unicode().tag(sync=True)
    off = List(Int()).tag(sync=True)
    compared = List(Int()).tag(sync=True)  # all on again: what was off before
    layer = Int(0).tag(sync=True)
    head = Int(0).tag(sync=True)
    query = Int(-1).tag(sync=True)
    key = Int(-1).tag(sync=True)
    start = Int(-1).tag(sync=True)
    arcs = Bool(False).tag(sync=True)
    temperature = Float(1.0).tag(sync=True)
    seed = Int(0).tag(sync=True)
    sizes = Dict().tag(sync=True)
    first = Dict().tag(sync=True)
    packed = Unicode().tag(sync=True)
    packed_name = Unicode().tag(sync=True)
    packed_at = Unicode().tag(sync=True)

    def __init__(
        self,
        text: str = "foo[bar, baz",
        *,
        off: Iterable[Head] = ((0, 3),),
        head: Head = (0, 3),
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        from mha_lib.model.kept import load_kept
        from mha_lib.model.quantised import read_packed, unpack

        if not isinstance(text, str):
            raise TypeError(f"text must be a str; got {type(text).__name__}")
        if not 0 < len(text) <= MOST_LETTERS:
            raise ValueError(
                f"text must have 1 to {MOST_LETTERS:,} characters; got {len(text):,}"
            )
        if not 0 <= temperature <= HOTTEST:
            raise ValueError(
                f"temperature must be from 0 to {HOTTEST}; got {temperature}"
            )
        if not 0 <= seed < 2**31:
            raise ValueError(f"seed must be from 0 to 2³¹ − 1; got {seed}")
        model, tokenizer = unpack(), load_kept()[1]
        L, H = model.sizes.num_layers, model.sizes.num_heads
        off = sorted({_number(x, L, H) for x in off})
        layer, head = divmod(_number(head, L, H), H)
        asked = {"text": text, "off": off, "compared": []}
        asked["temperature"] = temperature
        name, packed = read_packed()
        super().__init__(
            text=text,
            off=off,
            layer=layer,
            head=head,
            temperature=temperature,
            seed=seed,
            sizes={"layers": L, "heads": H},
            first=_view(model, tokenizer, text, off, temperature) | {"asked": asked},
            packed=packed,
            packed_name=name,
        )

    def summary(self) -> str:
        """The text, and which heads are off."""
        names = "; ".join(self._in_words(x) for x in self.off)
        return f"{self.text!r} without {names}" if names else repr(self.text)

    def _name(self, number: int) -> str:
        return "L{} H{}".format(*divmod(number, self.sizes["heads"]))

    def _in_words(self, number: int) -> str:
        return "layer {}, head {}".format(*divmod(number, self.sizes["heads"]))

    def still(self) -> "Figure":
        """The large map, and what comes next with and without the heads."""
        import matplotlib.pyplot as plt

        from mha_lib.plots import COLOURS

        chosen = self.layer * self.sizes["heads"] + self.head
        rows, words = self.first["maps"][chosen], self.first["words"]
        T = len(rows)
        padded = [row + [float("nan")] * (T - len(row)) for row in rows]
        words = [_readable(word) for word in words]
        figure, (left, right) = plt.subplots(
            1, 2, figsize=(7.5, 3.2), layout="constrained"
        )
        left.imshow(np.array(padded), cmap="Blues", vmin=0, vmax=1)
        title = f"{self._in_words(chosen)}: where each token looks"
        left.set_title(title, size=10)
        for axis in (left.xaxis, left.yaxis):
            axis.set_ticks(range(T), words)
        listed = self.first["next"]
        places = range(len(listed))
        names = ", ".join(self._name(x) for x in self.off)
        shown = [("whole model", 1, WHOLE, -0.2)]
        if self.off:
            shown.append((f"without {names}", 2, COLOURS[5], 0.2))
        for title, column, colour, shift in shown:
            right.barh(
                [place + shift for place in places],
                [row[column] for row in listed],
                height=0.4,
                color=colour,
                label=title,
            )
        right.set_yticks(places, [_readable(row[0]) for row in listed])
        right.invert_yaxis()
        right.set_xlim(0, 1)
        right.set_title(f"what comes after {_readable(self.text[-30:])}", size=10)
        right.legend(fontsize=10)
        return figure


def _number(head: Sequence[int], L: int, H: int) -> int:
    """Layer · H + head."""
    try:
        layer, head = (int(x) for x in head)
    except (TypeError, ValueError):
        raise ValueError(f"a head must be a pair (layer, head); got {head!r}") from None
    if not (0 <= layer < L and 0 <= head < H):
        raise ValueError(f"a head must be a pair below {(L, H)}; got {(layer, head)}")
    return layer * H + head


def _readable(token: str) -> str:
    return token.replace(" ", "·").replace("\n", "↵")


@torch.no_grad()
def _view(model, tokenizer, text: str, off: list[int], temperature: float) -> dict:
    """What the page computes after a change, `look` of model_lab_views.js, by torch."""
    from mha_lib.model import generate, next_token_probabilities
    from mha_lib.model.heads import removed

    ids = tokenizer.encode(text)
    read = torch.tensor([ids[-model.sizes.context :]])
    T, H = read.shape[1], model.sizes.num_heads
    chances, losses, goes = [], [], []
    for heads in ([], off):
        with removed(model, [divmod(x, H) for x in heads]):
            logits, maps = model.maps(read)
            room = min(FURTHER, model.sizes.context - T)
            further = generate(model, read, room, temperature=0)[0, T:].tolist()
        chances.append(next_token_probabilities(logits[0, -1], temperature))
        loss = torch.nn.functional.cross_entropy(logits[0, :-1], read[0, 1:])
        losses.append(float(f"{loss:.7g}") if T > 1 else None)
        goes.append(tokenizer.decode(further))
    most = torch.stack(chances).amax(0)
    top = [i for i in most.topk(LISTED).indices.tolist() if most[i] > 0]
    moved = max(top, key=lambda i: abs(chances[0][i] - chances[1][i]).item())
    told = [
        [tokenizer.tokens[i], *(float(f"{p[i]:.6g}") for p in chances)]
        for i in (*top, moved)
    ]
    start = max(0, T - SHOWN)
    maps = maps[:, 0].flatten(0, 1)[:, start:, start:]
    return {
        "words": [tokenizer.tokens[x] for x in ids[-T:][start:]],
        "read": T,
        "of": len(ids),
        "next": told[:-1],
        "most": told[-1] if off else None,
        "losses": losses,
        "goes": goes,
        "maps": [
            [lists(row[: t + 1].numpy().round(5)) for t, row in enumerate(head)]
            for head in maps
        ],
    }
