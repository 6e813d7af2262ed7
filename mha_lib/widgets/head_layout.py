"""Why view and then transpose? One line of memory, followed through every step."""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from traitlets import Bool, Int, List, Unicode

from mha_lib.layouts import head_size
from mha_lib.widgets.base import Widget, module, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CELLS, MOST_STEPS, MOST_AXES = 48, 8, 4  # what a reader can follow
MOST_BATCH, MOST_TOKENS = 2, 6  # as many letters as tokens have
ARGUMENTS = {"view": None, "reshape": None, "transpose": 2, "contiguous": 0}
ARGUMENTS |= {"split": 2, "cat": 1}  # None: a shape
STARTS = ("x", "context")
STEP = re.compile(r"(\w+)\(([\w\s,*-]*)\)")
FACTOR = re.compile(r"[BTEHD]|-?\d+", re.ASCII)

RECIPES = {
    "split: view, transpose": ["x", "view(B, T, H, D)", "transpose(1, 2)"],
    "split, wrong: view alone": ["x", "view(B, H, T, D)"],
    "split, wrong: heads interleaved": [
        "x",
        "view(B, T, D, H)",
        "transpose(2, 3)",
        "transpose(1, 2)",
    ],
    "merge: transpose, copy, view": [
        "context",
        "transpose(1, 2)",
        "contiguous()",
        "view(B, T, E)",
    ],
    "merge, refused: no contiguous": ["context", "transpose(1, 2)", "view(B, T, E)"],
    "merge, wrong: no transpose": ["context", "view(B, T, E)"],
    "TensorFlow: there and back": [
        "x",
        "split(D, 2)",
        "cat(0)",
        "split(B, 0)",
        "cat(2)",
    ],
    "TensorFlow, wrong: batch-major": [
        "x",
        "split(D, 2)",
        "cat(0)",
        "view(B, H, T, D)",
    ],
}


class HeadLayout(Widget):
    """A tensor (B, T, E) as cells in memory, and each step that makes heads of it.

    Every number is named by its token (a, b, …) and its feature: b2 is feature 2 of
    token b. A recipe is a list of texts: where it starts, then one operation a step.
    It starts from ``"x"``, (B, T, E), or from ``"context"``, (B, H, T, D), both
    contiguous. The operations are ``view(…)``, ``reshape(…)``, ``transpose(i, j)``,
    ``contiguous()``, ``split(size, axis)`` and ``cat(axis)``, which joins what split
    made. Sizes are written in the letters B, T, E, H and D, in numbers, or as a
    product such as ``H*B``; the letters name the axes, and a verdict compares what
    each place holds with what its names claim.

    Args:
        T: tokens of a sequence, 1 to 6.
        embed_dim: E, a multiple of H.
        num_heads: H, 1 to 4; each of at most 4 features.
        batch: B, 1 or 2. B·T·E is at most 48.
        recipes: name → steps; None gives the right and the well-known wrong ones.
        show: name of the recipe to begin with; None takes the first.
        beside: name of the one to compare it with; None takes the second, if there
            is one, and ``""`` shows nothing.
        strides: show strides, and each address as a sum of index times stride.

    Raises:
        TypeError: sizes that are not integers; steps that are not texts.
        ValueError: sizes out of range, a step that is none of the operations, the
            name of no recipe.

    Example:
        >>> from mha_lib.widgets import HeadLayout
        >>> widget = HeadLayout(T=2, embed_dim=6, num_heads=3)
        >>> widget
        HeadLayout(B=1, T=2, H=3, D=2, 8 recipes)
        >>> widget.code
        'x.view(B, T, H, D).transpose(1, 2)'
        >>> widget.result()[0, 1]  # head 1: features 2 and 3 of both tokens
        tensor([[2, 3],
                [8, 9]])
    """

    _esm = module("head_layout")
    _css = style("head_layout")

    batch = Int(1).tag(sync=True)
    tokens = Int(3).tag(sync=True)
    num_heads = Int(2).tag(sync=True)
    head_dim = Int(2).tag(sync=True)
    recipes = List().tag(sync=True)
    steps = List(Unicode()).tag(sync=True)
    beside = List(Unicode()).tag(sync=True)
    draft = Unicode("view(B, T, H, D)").tag(sync=True)
    at = Int(-1).tag(sync=True)  # the step that is shown; -1: the last
    element = Int(0).tag(sync=True)
    colour = Unicode("head").tag(sync=True)
    strides = Bool(False).tag(sync=True)

    def __init__(
        self,
        T: int = 3,
        embed_dim: int = 4,
        num_heads: int = 2,
        batch: int = 1,
        recipes: Mapping[str, Sequence[str]] | None = None,
        *,
        show: str | None = None,
        beside: str | None = None,
        strides: bool = False,
    ) -> None:
        D = head_size(embed_dim, num_heads)
        for name, size, most in [
            ("T", T, MOST_TOKENS),
            ("batch", batch, MOST_BATCH),
            ("num_heads", num_heads, 4),
            ("embed_dim / num_heads", D, 4),
        ]:
            if not isinstance(size, int):
                raise TypeError(f"{name} must be an integer; got {size!r}")
            if not 1 <= size <= most:
                raise ValueError(f"{name} must be 1 to {most}; got {size}")
        if batch * T * embed_dim > MOST_CELLS:
            raise ValueError(
                f"batch · T · embed_dim must be at most {MOST_CELLS} cells; "
                f"got {batch * T * embed_dim}"
            )
        recipes = RECIPES if recipes is None else recipes
        if not recipes:
            raise ValueError("recipes must be at least one; got none")
        recipes = {name: _checked(name, steps) for name, steps in recipes.items()}
        names = list(recipes)
        show = names[0] if show is None else show
        beside = (names[1:2] or [""])[0] if beside is None else beside
        for name in (show, beside or show):
            if name not in recipes:
                raise ValueError(f"show and beside must be of {names}; got {name!r}")
        super().__init__(
            batch=batch,
            tokens=T,
            num_heads=num_heads,
            head_dim=D,
            recipes=[[name, steps] for name, steps in recipes.items()],
            steps=recipes[show],
            beside=recipes[beside] if beside else [],
            strides=strides,
        )

    @property
    def sizes(self) -> dict[str, int]:
        """What the letters stand for now."""
        B, T, H, D = self.batch, self.tokens, self.num_heads, self.head_dim
        return {"B": B, "T": T, "E": H * D, "H": H, "D": D}

    @property
    def code(self) -> str:
        """The steps that are shown, as one line of Python."""
        return reduce(_code, self.steps[1:], self.steps[0])

    def result(self) -> Tensor | tuple[Tensor, ...]:
        """What torch makes of the steps that are shown.

        Each number is t·E + e, counted on over the sequences: where x has it.

        Raises:
            RuntimeError, IndexError, TypeError, AttributeError: as torch does.
        """
        return _run(self.steps, self.sizes)

    def summary(self) -> str:
        """The sizes, and how many recipes there are."""
        sizes = ", ".join(f"{name}={self.sizes[name]}" for name in "BTHD")
        return f"{sizes}, {len(self.recipes)} recipes"

    def still(self) -> "Figure":
        """What the heads of both recipes hold at the step shown, in reading order."""
        import matplotlib.pyplot as plt

        from mha_lib.plots import cells

        upto = None if self.at < 0 else self.at + 1
        shown = [self.steps[:1]]
        for steps in (self.steps[:upto], self.beside[:upto]):
            if len(steps) > 1:  # or memory would be shown twice
                shown.append(steps)
        figure, axes = plt.subplots(
            len(shown), figsize=(8, 2 * len(shown)), layout="constrained", squeeze=False
        )
        D = self.head_dim
        for ax, steps in zip(axes.flat, shown):
            title = reduce(_code, steps[1:], steps[0])
            try:
                result = _run(steps, self.sizes)
            except RuntimeError as error:
                ax.set_axis_off()
                ax.set_title(f"{title}\n{type(error).__name__}: {error}", wrap=True)
                continue
            parts = result if isinstance(result, tuple) else (result,)
            lines = torch.cat([part.flatten() for part in parts]).view(
                -1, prod(parts[0].shape[-2:])
            )
            cells(
                [[self._name(i) for i in line] for line in lines.tolist()],
                [[i % (D * self.num_heads) // D for i in line] for line in lines],
                ax=ax,
                title=f"{title}: a row for each table"
                if len(steps) > 1
                else f"memory of {title}",
            )
        return figure

    def _name(self, element: int) -> str:
        t, e = divmod(element, self.sizes["E"])
        b, t = divmod(t, self.tokens)
        return f"{('abcdef', 'uvwxyz')[b][t]}{e}"


def _checked(name: str, steps: Sequence[str]) -> list[str]:
    """A recipe whose every step can be read."""
    if isinstance(steps, str) or not all(isinstance(step, str) for step in steps):
        raise TypeError(f"recipe {name!r} must be a list of texts; got {steps!r}")
    if not steps or steps[0] not in STARTS or len(steps) > MOST_STEPS + 1:
        raise ValueError(
            f"recipe {name!r} must start from one of {STARTS} and have at most "
            f"{MOST_STEPS} steps; got {list(steps)}"
        )
    for step in steps[1:]:
        _parse(step)
    return list(steps)


def _parse(step: str) -> tuple[str, list[str]]:
    """An operation and its arguments, in letters and numbers."""
    found = STEP.fullmatch(step)
    operation, text = found.groups() if found else ("", "")
    if operation not in ARGUMENTS:
        raise ValueError(f"a step must be one of {list(ARGUMENTS)}; got {step!r}")
    terms = [term.strip() for term in text.split(",")] if text.strip() else []
    count = ARGUMENTS[operation]
    if len(terms) != count and not (count is None and 1 <= len(terms) <= MOST_AXES):
        count = f"1 to {MOST_AXES}" if count is None else count
        raise ValueError(f"{operation} takes {count} arguments; got {step!r}")
    for i, term in enumerate(terms):
        if not all(FACTOR.fullmatch(factor.strip()) for factor in term.split("*")):
            raise ValueError(
                "sizes must be whole numbers, or letters of B, T, E, H, D; "
                f"got {term!r} in {step!r}"
            )
        size = _size(term, dict.fromkeys("BTEHD", 1))
        is_length = count is None or (operation == "split" and i == 0)
        if is_length and size < 1 and not (size == -1 and count is None):
            raise ValueError(f"an axis must have at least 1 element; got {step!r}")
    return operation, terms


def _size(term: str, sizes: Mapping[str, int]) -> int:
    factors = (factor.strip() for factor in term.split("*"))
    return prod(sizes.get(factor) or int(factor) for factor in factors)


def _run(steps: Sequence[str], sizes: Mapping[str, int]) -> Tensor | tuple:
    B, T, E, H, D = sizes.values()
    x = torch.arange(B * T * E).view(B, T, E)
    if steps[0] == "context":
        x = x.view(B, T, H, D).transpose(1, 2)
        x = x.clone(memory_format=torch.contiguous_format)
    for step in steps[1:]:
        x = _apply(x, step, sizes)
    return x


def _apply(x: Tensor | tuple, step: str, sizes: Mapping[str, int]) -> Tensor | tuple:
    operation, terms = _parse(step)
    arguments = [_size(term, sizes) for term in terms]
    if operation == "cat":
        return torch.cat(x, *arguments)
    return getattr(x, operation)(*arguments)


def _code(before: str, step: str) -> str:
    operation, terms = _parse(step)
    if operation == "cat":
        return f"torch.cat({before}, dim={terms[0]})"
    if operation == "split":
        return f"{before}.split({terms[0]}, dim={terms[1]})"
    return f"{before}.{operation}({', '.join(terms)})"
