"""Six programs for one function, and any mistake of the catalogue in any of them."""

import json
from importlib.resources import files
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from traitlets import Bool, Dict, Int, List, Unicode

from mha_lib.check.catalogue import MISTAKES
from mha_lib.widgets.base import Widget, lists, module, style
from mha_lib.widgets.break_it_catalogue import HOSTED, layer_with, mask_with

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = ("PerHeadMHA", "BatchedMHA", "FusedMHA")
NAMES += ("EinsumMHA", "BuiltinMHA", "SplitConcatMHA")
B, T, H, D = 2, 6, 3, 4  # all different, and E = 12
E = H * D
SIZES = {"B": B, "T": T, "S": T, "H": H, "D": D, "E": E}
WORDS = (
    ("the", "cat", "drank", "milk", "slept", "pad"),
    ("it", "drank", "all", "pad", "pad", "pad"),
)
LENGTHS = (5, 3)


class BreakIt(Widget):
    """Which step goes wrong, and who notices: the shapes, the loss, the map, `check`?

    Six small programs, one for each style, get the same input, weights and mask (causal
    and padding). The page computes every step of them, right and wrong, and puts the
    numbers beside the right ones. The loss is that of a small language model which was
    trained with the mistake (`python -m evidence.curves`).

    Args:
        mistake: a name of the catalogue that is in `HOSTED`, or "" for none.
        style: the program that has it, such as ``"FusedMHA"``; it is the open one.
        three_inputs: query, key and value are three tensors, not one.
        sealed: a puzzle: which line is wrong is shown when the reader has found it.

    Raises:
        ValueError: a mistake that is not hosted, an unknown style.

    Example:
        >>> from mha_lib.widgets import BreakIt
        >>> BreakIt("scale-embed-dim", "BatchedMHA")
        BreakIt(scale-embed-dim in BatchedMHA)
    """

    _esm = module("break_it")
    _css = style("break_it")

    inputs = List().tag(sync=True)  # query, key, value, where they are three
    matrices = List().tag(sync=True)  # of q, k, v and the output
    biases = List().tag(sync=True)
    num_heads = Int(H).tag(sync=True)
    lengths = List().tag(sync=True)
    tokens = List().tag(sync=True)
    catalogue = Dict().tag(sync=True)  # {name: what `check` says}
    losses = Dict().tag(sync=True)
    mistakes = List(Unicode()).tag(sync=True)  # of each program, "" for none
    opened = Int(0).tag(sync=True)
    step = Unicode().tag(sync=True)  # "": the map, or where it is right the output
    b = Int(-1).tag(sync=True)  # -1: where most is wrong
    h = Int(-1).tag(sync=True)
    row = Int(-1).tag(sync=True)
    column = Int(-1).tag(sync=True)
    three = Bool(False).tag(sync=True)
    patient = Unicode().tag(sync=True)  # a date: the mistake of that day, hidden
    sealed = Bool(False).tag(sync=True)  # which line is wrong is for the reader to find
    guess = Unicode().tag(sync=True)  # a step; of a patient its date and a name

    def __init__(
        self,
        mistake: str = "causal-sees-next",
        style: str = "FusedMHA",
        *,
        three_inputs: bool = False,
        sealed: bool = False,
    ) -> None:
        if mistake and mistake not in HOSTED:
            raise ValueError(
                f"mistake must be one of HOSTED in {__package__}.break_it_catalogue; "
                f"got {mistake!r}"
            )
        if style not in NAMES:
            raise ValueError(f"style must be one of {', '.join(NAMES)}; got {style!r}")
        x, matrices, biases = example()
        super().__init__(
            inputs=[lists(one.numpy()) for one in x],
            matrices=lists(matrices.numpy()),
            biases=lists(biases.numpy()),
            lengths=[*LENGTHS],
            tokens=[[*words] for words in WORDS],
            catalogue={name: MISTAKES[name].message for name in HOSTED},
            losses=read_losses(),
            mistakes=[mistake if name == style else "" for name in NAMES],
            opened=NAMES.index(style),
            three=three_inputs,
            sealed=sealed,
        )

    def summary(self) -> str:
        """Which mistakes are where; of a puzzle, where alone."""
        wrong = [
            f"a mistake in {y}" if self.sealed else f"{x} in {y}"
            for x, y in zip(self.mistakes, NAMES)
            if x
        ]
        return ", ".join(wrong) or "six right programs"

    def still(self) -> "Figure":
        """The map of the open program beside the right one, on one scale."""
        from matplotlib.figure import Figure

        name = self.mistakes[self.opened]
        right, here = (_run(x, self.three) for x in ("", name))
        what = "weights" if (right["weights"] != here["weights"]).any() else "output"
        a, b = (x[what].flatten(0, -3) for x in (right, here))
        worst = (a - b).abs().amax((-2, -1)).argmax()
        a, b = a[worst], b[worst]
        largest = max(a.abs().max(), b.abs().max())
        figure = Figure(figsize=(6.4, 3.2), layout="constrained")
        words = WORDS[worst // (len(right[what].flatten(0, -3)) // B)]
        what_is_it = "what is wrong?" if self.sealed else name or "right"
        titles = (
            "as it should be",
            f"{NAMES[self.opened]}, {what_is_it}",
        )
        for ax, title, x in zip(figure.subplots(1, 2), titles, (a, b)):
            ax.imshow(x.numpy(), cmap="PuOr_r", vmin=-largest, vmax=largest)
            ax.set_title(title, size=10)
            ax.set_yticks(range(T), words)
            ax.set_xticks(range(x.shape[1]))
            if what == "weights":
                ax.set_xticks(range(T), words, rotation=90)
        return figure


def read_losses() -> dict:
    """What `python -m evidence.curves` measured: right, curves and a log."""
    path = files(__package__) / "break_it_curves.json"
    return json.loads(path.read_text(encoding="utf-8"))


def example() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs (3, B, T, E), matrices (4, E, E) and biases (4, E).

    Head 0 looks at the token before, head 1 from a verb to a noun, head 2 at nothing
    in particular. Small random numbers everywhere let each mistake show.
    """
    generator = torch.Generator().manual_seed(5)

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = 0.3 * noise(3, B, T, E)
    turn = torch.arange(T) * torch.pi / 3
    x[..., 0], x[..., 1] = x[..., 0] + turn.cos(), x[..., 1] + turn.sin()
    nouns, verbs = ("cat", "milk", "it", "all"), ("drank", "slept")
    for b, words in enumerate(WORDS):
        for t, word in enumerate(words):
            x[:, b, t, 2] += 2.0 * (word in nouns)
            x[:, b, t, 3] += 2.0 * (word in verbs)
    matrices, biases = 0.15 * noise(4, E, E), 0.2 * noise(4, E)
    back = torch.tensor([[0.5, 0.75**0.5], [-(0.75**0.5), 0.5]], dtype=torch.float64)
    matrices[0, :2, :2] += 3.2 * back  # turned by the angle of one place
    matrices[1, :2, :2] += 3.2 * torch.eye(2, dtype=torch.float64)
    matrices[0, 4, 3] += 1.6  # a verb asks
    matrices[1, 4, 2] += 1.6  # and a noun answers
    matrices[2:] += 0.35 * noise(2, E, E)
    return x, matrices, biases


def _run(name: str, three: bool) -> dict[str, Tensor]:
    x, matrices, biases = example()
    inputs = tuple(x if three else x[:1].expand(3, -1, -1, -1))
    W = {f"W_{r}": one for r, one in zip("qkvo", matrices)}
    W |= {f"b_{r}": one for r, one in zip("qkvo", biases)}
    mask = mask_with(name, SIZES, torch.tensor(LENGTHS))
    return layer_with(name, SIZES, inputs, W, mask)
