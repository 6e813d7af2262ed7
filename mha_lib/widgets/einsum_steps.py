"""What does an einsum do for one cell? The loops, one product at a time."""

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.functional import one_hot
from traitlets import Dict, Int, List, Unicode, observe

from mha_lib.widgets.base import Widget, lists, module, numbers, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_SIZE, MOST_STEPS = 8, 1024  # of a letter, of one sum
MOST_CELLS, MOST_AXES = 256, 4  # of a tensor
FORM = re.compile(r"([a-zA-Z]*)(?:,([a-zA-Z]*))?->([a-zA-Z]*)")
SIZES = {"b": 2, "t": 3, "s": 4, "h": 2, "d": 3, "e": 4}

Example = str | Sequence


class EinsumSteps(Widget):
    """result = Σ a·b over the letters that are missing after the arrow, cell by cell.

    Args:
        equations: the examples to choose from, as a dict from a name or as a list. Each
            is what ``torch.einsum`` takes, such as ``("td,sd->ts", q, k)``; or
            ``("td,sd->ts", {"q": q, "k": k})``, which names the operands (else first
            and second); or only ``"td,sd->ts"``, which gets random whole numbers. One
            or two operands of at most 4 axes, and the result after an arrow. None shows
            the equations of chapter 6.
        sizes: the size of each letter, where the numbers are random.

    Raises:
        TypeError: what is neither a dict nor a list of equations, or operands that are
            not numbers.
        ValueError: an equation that cannot be computed, operands that do not fit it,
            NaN or infinity.

    Note:
        Beyond 8 values of a letter or 256 cells of a tensor, the first values of each
        letter are kept, and a line says so. As in torch, an axis of size 1 fits every
        size, and a letter twice in one operand walks along its diagonal.

    Example:
        >>> import torch
        >>> from mha_lib.widgets import EinsumSteps
        >>> EinsumSteps({"scores": ("td,sd->ts", torch.ones(3, 2), torch.ones(4, 2))})
        EinsumSteps(1 equation, td,sd->ts)
    """

    _esm = module("einsum_steps")
    _css = style("einsum_steps")

    names = List(Unicode()).tag(sync=True)
    equations = List(Unicode()).tag(sync=True)
    operands = List().tag(sync=True)
    operand_names = List().tag(sync=True)
    notes = List(Unicode()).tag(sync=True)
    example = Int(0).tag(sync=True)
    equation = Unicode().tag(sync=True)
    at = Dict().tag(sync=True)  # the value of each letter: a cell, a step of its sum

    def __init__(
        self,
        equations: Mapping[str, Example] | Sequence[Example] | None = None,
        *,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        at = {}
        if equations is None:
            equations, at = _chapter(), {"b": 1, "h": 1, "t": 0, "s": 0}
        if not isinstance(equations, Mapping):
            if isinstance(equations, str) or not isinstance(equations, Sequence):
                raise TypeError(
                    f"equations must be a dict or a list of examples; got {equations!r}"
                )
            equations = dict(enumerate(equations))
        if not equations:
            raise ValueError("equations must be at least one; got none")
        sizes = SIZES | dict(sizes or {})
        read = [_read(example, sizes) for example in equations.values()]
        texts, tensors, notes = zip(*read)
        super().__init__(
            names=["" if isinstance(name, int) else str(name) for name in equations],
            equations=list(texts),
            operands=[[_plain(x) for x in given.values()] for given in tensors],
            operand_names=[list(given) for given in tensors],
            notes=list(notes),
            equation=texts[0],
            at=at,
        )
        self._first = texts[0], tensors[0]

    @observe("example")
    def _choose(self, change: dict) -> None:
        if 0 <= change["new"] < len(self.equations):
            self.equation = self.equations[change["new"]]

    def summary(self) -> str:
        """How many equations there are, and which is shown."""
        count = len(self.equations)
        return f"{count} equation{'s' if count > 1 else ''}, {self.equation}"

    def still(self) -> "Figure":
        """The operands and the result; framed is the cell `at`, and what makes it."""
        import matplotlib.pyplot as plt

        from mha_lib.plots import cells

        equation, operands = self._first
        inputs, output = parse(equation)
        given = [torch.from_numpy(x) for x in operands.values()]
        result = torch.einsum(equation, *given)
        sheets = [*zip(operands, inputs, given), ("result", output, result)]
        size = (3.2 * len(sheets), 2.8)
        figure, axes = plt.subplots(1, len(sheets), figsize=size)
        for ax, (name, letters, values) in zip(axes, sheets):
            part = np.zeros(values.shape, dtype=bool)
            ends = zip(letters, part.shape)
            at = [min(self.at.get(x, 0), size - 1) for x, size in ends]
            shown = (n if x in output else slice(None) for x, n in zip(letters, at))
            part[tuple(shown)] = True
            part = _sheet(part)
            texts = [[f"{x:.3g}" for x in row] for row in _sheet(values.numpy())]
            cells(texts, np.where(part, 1, 7), ax=ax)
            ax.set_title(f"{name} ({', '.join(letters)})")
            for i, j in np.argwhere(part):
                ax.add_patch(plt.Rectangle((j, i), 1, 1, fill=False, lw=2.5, zorder=2))
        figure.suptitle(f"{equation}: a cell of the result, and what makes it")
        figure.tight_layout()
        return figure


def parse(equation: str) -> tuple[list[str], str]:
    """The letters of each operand and those of the result.

    Args:
        equation: such as ``"td,sd->ts"``; spaces do not count.

    Raises:
        TypeError: what is not a text.
        ValueError: another form, more than 4 axes, letters of the result that stand
            twice or that no operand has.
    """
    if not isinstance(equation, str):
        raise TypeError(f"an equation must be a text; got {equation!r}")
    found = FORM.fullmatch(equation.replace(" ", ""))
    if not found:
        raise ValueError(
            "an equation must be the letters of one or two operands, an arrow and the "
            f"letters of the result, such as td,sd->ts; got {equation!r}"
        )
    *inputs, output = (letters for letters in found.groups() if letters is not None)
    for letters in (*inputs, output):
        if len(letters) > MOST_AXES:
            raise ValueError(f"at most {MOST_AXES} axes can be shown; got {letters!r}")
    for letter in output:
        if output.count(letter) > 1:
            raise ValueError(f"{letter!r} must stand once after the arrow; {equation}")
        if letter not in "".join(inputs):
            raise ValueError(f"an operand must have the letter {letter!r}; {equation}")
    return inputs, output


def _read(example: Example, sizes: Mapping) -> tuple[str, dict[str, np.ndarray], str]:
    """Equation, operands by name and what has to be said about their size."""
    equation, *given = [example] if isinstance(example, str) else example
    inputs, output = parse(equation)
    if not given:
        given = _random(inputs, sizes)
    named = isinstance(given[0], Mapping)
    names, given = zip(*given[0].items()) if named else (("first", "second"), given)
    if len(given) != len(inputs):
        raise ValueError(
            f"{equation} must have {len(inputs)} operand(s); got {len(given)}"
        )
    tensors = {
        str(name): numbers(values, str(name), letters)
        for name, values, letters in zip(names, given, inputs)
    }
    size = {}
    for (name, x), letters in zip(tensors.items(), inputs):
        for letter, n in zip(letters, x.shape):
            if n != size.setdefault(letter, n) and 1 not in (n, size[letter]):
                raise ValueError(
                    f"{letter!r} must have one size in {equation}; got {size[letter]} "
                    f"and, in {name}, {n}"
                )
            size[letter] = max(n, size[letter])
    most = _most(size, inputs, output)
    cut = {name: x[(..., *[slice(most)] * x.ndim)] for name, x in tensors.items()}
    return equation.replace(" ", ""), cut, _note(size, most)


def _most(size: Mapping[str, int], inputs: Sequence[str], output: str) -> int:
    """How many values of each letter can be kept."""
    summed = set(size) - set(output)
    limits = [(letters, MOST_CELLS) for letters in (*inputs, output)]
    return max(
        n
        for n in range(1, MOST_SIZE + 1)
        if all(
            prod(min(size[x], n) for x in letters) <= most
            for letters, most in [*limits, (summed, MOST_STEPS)]
        )
    )


def _note(size: Mapping[str, int], most: int) -> str:
    cut = [f"{letter} had {n}" for letter, n in size.items() if n > most]
    if not cut:
        return ""
    return (
        f"Only the first {most} values of each letter are kept ({', '.join(cut)}); "
        "the sums are those of the smaller tensors."
    )


def _random(inputs: Sequence[str], sizes: Mapping) -> list[torch.Tensor]:
    """Whole numbers from −3 to 3, the same on every run."""
    missing = sorted(set("".join(inputs)) - set(sizes))
    if missing:
        raise ValueError(f"sizes must have every letter; {missing[0]!r} is missing")
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randint(-3, 4, [sizes[x] for x in letters], generator=generator)
        for letters in inputs
    ]


def _chapter() -> dict[str, tuple]:
    """The equations of chapter 6; its own numbers where they are small."""
    q, k = [[1, 2], [0, 1]], [[3, 4], [1, 0], [0, 2]]
    weights, v = [[0.5, 0.25, 0.25], [0, 0.5, 0.5]], [[4, 0], [8, 4], [0, 12]]
    heads = dict(zip(["q", "k"], _random(["tbhd", "sbhd"], SIZES)))
    T, B, H, S = (SIZES[x] for x in "tbhs")
    draws = torch.randint(S, (T, 4, B, H), generator=torch.Generator().manual_seed(0))
    quarters = one_hot(draws, S).sum(1).movedim(-1, 1) / 4  # (T, S, B, H)
    values = {"weights": quarters, "v": heads["k"].flip(-1)}
    distance = -(torch.arange(T)[:, None] - torch.arange(S)).abs()
    return {
        "scores of one head": ("td,sd->ts", {"q": q, "k": k}),
        "context of one head": ("ts,sv->tv", {"weights": weights, "values": v}),
        "dot product": ("d,d->", {"q": q[0], "k": k[0]}),
        "scores of all heads": ("tbhd,sbhd->bhts", heads),
        "the source's order": ("tbhd,sbhd->tsbh", heads),
        "context of all heads": ("tsbh,sbhd->tbhd", values),
        "batch first": ("tbe->bte", {"x": torch.arange(24).view(3, 2, 4)}),
        "a slope for each head": ("ts,h->tsh", {"distance": distance, "slope": [1, 2]}),
    }


def _plain(array: np.ndarray) -> list | float:
    return lists(array) if array.ndim else float(array)


def _sheet(array: np.ndarray) -> np.ndarray:
    """Up to four axes as one table: the last two in blocks, side by side."""
    if array.ndim <= 2:
        return np.atleast_2d(array)
    blocks = array.reshape(-1, *array.shape[-3:])
    return np.concatenate([np.concatenate(list(row), axis=1) for row in blocks])
