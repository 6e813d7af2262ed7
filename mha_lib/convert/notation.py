"""The notation in which a format says where each number of a layer is stored.

A line gives the parts that an array holds, and where each number lies. The parts are
``Wq bq Wk bk Wv bv Wo bo``, weights and biases of the projections of query, key, value
and output, which we keep as ``nn.Linear`` does: (out, in). ::

    "in_proj_weight": "Wq Wk Wv: 3 (H D) E -> (3 H D) E"      torch
    "query/kernel":   "Wq: (H D) E -> E H D"                  Keras
    "c_attn.weight":  "Wq Wk Wv: 3 (H D) E -> E (3 H D)"      GPT-2

Left of the arrow stands our form (3: three parts are stacked), right of it the stored
array. Brackets join axes into one; the first of them is the slowest. H is the number of
heads, D the size of a head of queries and keys, V that of a head of values; E, K and W
are the widths of query, key and value, O is the width of the output. One letter is one
size: a table that writes E for the key too cannot hold a key of another width.

The notation for axes is that of einops (Rogozhnikov, 2022).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

from torch import Tensor

__all__ = ["PARTS", "Line", "axes_in_words", "move", "parse", "size", "solve"]

PARTS = ("Wq", "bq", "Wk", "bk", "Wv", "bv", "Wo", "bo", "bias_k", "bias_v")
Axes = tuple[tuple[str, ...], ...]  # "E (H D)" is (("E",), ("H", "D"))


@dataclass(frozen=True)
class Line:
    """One line of a table: the parts, the axes of each, the axes as stored."""

    parts: tuple[str, ...]
    ours: Axes
    stored: Axes

    @property
    def stacked(self) -> Axes:
        """Our axes with the one along which several parts are stacked."""
        several = len(self.parts) > 1
        return ((str(len(self.parts)),), *self.ours) if several else self.ours


@cache
def parse(text: str) -> Line:
    """The line that a text writes; ValueError if it cannot be read."""
    found = re.fullmatch(r"([\w ]+): (.+) -> (.+)", text)
    if found is None or not set(found[1].split()) <= set(PARTS):
        raise ValueError(
            "a line must read 'parts: our axes -> stored axes' with parts out of "
            f"{' '.join(PARTS)}; got {text!r}"
        )
    parts, ours, stored = tuple(found[1].split()), _axes(found[2]), _axes(found[3])
    line = Line(parts, ours[len(parts) > 1 :], stored)
    if line.stacked != ours or sorted(_flat(ours)) != sorted(_flat(stored)):
        raise ValueError(
            "the two sides of a line must have the same axes, and several parts a "
            f"first axis with their number; got {text!r}"
        )
    return line


def _axes(text: str) -> Axes:
    """'E (H D)' → (("E",), ("H", "D"))."""
    groups = re.findall(r"\([^)]*\)|\S+", text)
    return tuple(tuple(group.strip("()").split()) for group in groups)


def _flat(axes: Axes) -> list[str]:
    """The axes one by one; 1 says nothing about where a number lies."""
    return [letter for group in axes for letter in group if letter != "1"]


def size(group: Iterable[str], sizes: Mapping[str, int]) -> int:
    """The length of an axis that joins these, or of one with its size as its name."""
    return prod(int(x) if x.isdigit() else sizes[x] for x in group)


def solve(axes: Axes, shape: tuple, sizes: dict[str, int]) -> dict[str, int] | None:
    """The sizes with those that ``shape`` tells; None if it cannot have these axes."""
    if len(axes) != len(shape):
        return None
    sizes = dict(sizes)
    for group, length in zip(axes, shape):
        unknown = [x for x in group if not x.isdigit() and x not in sizes]
        known = size((x for x in group if x not in unknown), sizes)
        if length == 0 or length % known or len(unknown) > 1:
            return None
        if not unknown and length != known:
            return None
        sizes |= {x: length // known for x in unknown}
    return sizes


def move(x: Tensor, axes: Axes, to: Axes, sizes: Mapping[str, int]) -> Tensor:
    """The same numbers with their axes in another order."""
    names = _flat(axes)
    x = x.reshape([size([name], sizes) for name in names])
    x = x.permute([names.index(name) for name in _flat(to)])
    return x.reshape([size(group, sizes) for group in to])


def axes_in_words(axes: Axes, sizes: Mapping[str, int]) -> str:
    """'(H·D, E) = (6, 6)', or with as much as is known."""
    text = ", ".join("·".join(group) for group in axes) + "," * (len(axes) == 1)
    letters = [x for x in dict.fromkeys(_flat(axes)) if not x.isdigit()]
    if set(letters) <= set(sizes):
        return f"({text}) = {tuple(size(group, sizes) for group in axes)}"
    known = ", ".join(f"{x} = {sizes[x]}" for x in letters if x in sizes)
    return f"({text})" + (f" with {known}" if known else "")
