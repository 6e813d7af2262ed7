"""Load weights into what was found, however it keeps them."""

import re
from dataclasses import dataclass
from itertools import permutations
from typing import NoReturn

import torch
from torch import Tensor, nn

from .find import BIAS, OUT_IN, Slot, candidates_of, for_all_heads, role_of, slot_of
from .observe import alike
from .words import OTHER_SHAPE, Advice

ORDERS = {  # of the axes (3, H, D) in what is fused, if not that
    "head by head": (1, 0, 2),
    "feature by feature": (1, 2, 0),
    "heads last": (2, 0, 1),
}


@dataclass
class Holder:
    """One matrix, or one for each head, that holds the weights of some parts."""

    parts: str  # "q", "qkv", ...; the letters in the order of the rows
    slots: list[Slot]
    biases: list[Tensor]
    out_in: bool | None  # weights are (out, in); None where nothing tells
    axes: str | None = None  # of a cube, if known: "hed", or "nhed" with n parts

    @property
    def either_way(self) -> bool:
        """Whether nothing tells in which of two ways its matrices lie."""
        shape = self.slots[0].shape
        *_, short, long = sorted(shape) if self.cube else shape  # one head: it is flat
        return self.out_in is None and self.axes is None and short == long

    @property
    def rows(self) -> int:
        """Of all its matrices together, if they are (out, in)."""
        n = len(self.parts)
        numbers = sum(slot.shape.numel() for slot in self.slots)
        return n * round((numbers / n) ** 0.5)

    @property
    def stacked(self) -> bool:
        """(3, E, E) and the like."""
        return len(self.slots[0].shape) == 3 and len(self.parts) > 1

    @property
    def cube(self) -> bool:
        """The heads have an axis of their own: (H, E, D), (E, H, 3, D)."""
        return len(self.slots[0].shape) > 2 and not self.stacked

    @property
    def fused(self) -> bool:
        """Whether the order of (3, H, D) in it is to be found out."""
        return len(self.parts) > 1 and not self.stacked and self.axes is None

    def load(self, given: dict[str, Tensor], sizes: dict, loading: str) -> None:
        """Put the weights of a probe in, in one of the ways in which they may lie."""
        H, D, E = (sizes[x] for x in "HDE")
        n, count = len(self.parts), len(self.slots)
        W = torch.cat([given[f"W_{part}"] for part in self.parts])
        b = torch.cat([given[f"b_{part}"] for part in self.parts])
        order = ORDERS.get("head by head" if count > 1 else loading, (0, 1, 2))
        axes = self._axes(sizes, order, loading) if self.cube else ""
        if n > 1 and not self.stacked:
            order = tuple("nhd".index(x) for x in axes if x != "e") or order
            b = b.view(n, H, D).permute(order).reshape(n * E)
        if n > 1 and not self.stacked and not self.cube:
            W = W.view(n, H, D, E).permute(*order, 3).reshape(n * E, E)
        axis = int(self.parts == "o")  # the heads are columns of W_o
        for slot, value in zip(self.slots, W.chunk(count, axis)):
            if self.cube:
                lie = "ehd" if axis else "nhde" if n > 1 else "hde"
                value = value.view([self._sizes(sizes)[x] for x in lie])
                slot.put(value.permute([lie.index(x) for x in axes]))
            else:
                slot.put(self._fit(value, slot, sizes["E"], loading))
        count = len(self.biases) or 1
        parts = [b / count] * count if self.parts == "o" else b.chunk(count)
        for x, value in zip(self.biases, parts):
            x.data.copy_(value.reshape(x.shape))

    def _sizes(self, sizes: dict) -> dict[str, int]:
        """By the letters of the axes."""
        return {"n": len(self.parts), **{x: sizes[x.upper()] for x in "hde"}}

    def _axes(self, sizes: dict, order: tuple[int, ...], loading: str) -> str:
        """The letters of a cube's axes: as known, or by their sizes and the order."""
        if self.axes is not None:
            return self.axes
        shape, sizes = self.slots[0].shape, self._sizes(sizes)
        letters = "hde" if self.parts == "o" else "hed" if len(shape) == 3 else "nhed"
        ways = ["".join(way) for way in permutations(letters)]
        fitting = [way for way in ways if [sizes[x] for x in way] == [*shape]]
        if not fitting:
            required = tuple(sizes[x] for x in letters)
            axes = [str(sizes[x]) if x == "n" else x.upper() for x in letters]
            self._refuse(axes, required, shape)
        wanted = "".join("nhd"[i] for i in order)
        axes = next((x for x in fitting if x.replace("e", "") == wanted), fitting[0])
        turned = self.either_way and loading == "transposed"
        return axes.translate(str.maketrans("ed", "de")) if turned else axes

    def _fit(self, W: Tensor, slot: Slot, E: int, loading: str) -> Tensor:
        shape = slot.shape
        if self.stacked:
            W = W.view(-1, E, E)
            fitting = [W.mT if self.either_way and loading != "transposed" else W]
        elif self.out_in or (self.either_way and loading == "transposed"):
            fitting = [W]
        else:  # x @ W is what bare matrices are mostly made for
            fitting = [W.T] if self.either_way or self.out_in is False else [W, W.T]
        for turned in fitting:
            if turned.shape == shape:
                return turned
        return self._refuse(self._letters, fitting[0].shape, shape)

    @property
    def _letters(self) -> list[str]:
        """The axes of one of its matrices, as they are to lie."""
        n = len(self.parts)
        if self.stacked:
            return [str(n), "E", "E"]
        cut = f"{n}·" * (n > 1) + ("E" if len(self.slots) == 1 else "D")
        axes = ["E", cut] if self.parts == "o" else [cut, "E"]
        return axes[::-1] if self.out_in is False else axes

    def _refuse(self, axes: list[str], required: tuple, got: tuple) -> NoReturn:
        name, attribute = self.slots[0].path, self.slots[0].name
        if name.rpartition(".")[2] != attribute:  # the path of a layer
            name += f".{attribute}"
        shapes = {"required": tuple(required), "got": tuple(got)}
        raise Advice(OTHER_SHAPE, name=name, axes=f"({', '.join(axes)})", **shapes)


def _keeps_out_in(child: nn.Module) -> bool | None:
    """Whether it computes x @ W.T, as nn.Linear, or x @ W; None if neither is seen."""
    if isinstance(child, OUT_IN):
        return True
    W = child.weight
    if W.dim() != 2 or W.shape[0] != W.shape[1]:
        return None  # its shape will tell
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, len(W), generator=draws).to(W)
    with torch.no_grad():
        try:
            W.copy_(torch.randn(W.shape, generator=draws))
            theirs = child(x) - child(torch.zeros_like(x))
        except Exception:  # it is not called as a layer
            return None
        found = [alike(theirs, x @ way) for way in (W, W.T)]
    return found[1] if any(found) else None


def holders_of(
    module: nn.Module, places: dict[str, list[str]], ways: dict[str, bool | str | None]
) -> list[Holder]:
    """What the weights are loaded into; ``ways`` keeps what was found out."""
    parameters = dict(module.named_parameters())
    candidates = candidates_of(module)
    holders = []
    for parts, paths in for_all_heads(module, places).items():
        slots = [slot_of(module, path) for path in paths]
        biases = [
            x
            for name, x in parameters.items()
            if role_of(name) == parts
            and name not in candidates
            and x.numel() < slots[0].shape.numel()
        ]
        if paths[0] not in parameters:
            own = (getattr(slot.owner, "bias", None) for slot in slots)
            biases = [x for x in own if x is not None]
            if paths[0] not in ways:
                ways[paths[0]] = _keeps_out_in(slots[0].owner)
        way = ways.get(paths[0])
        if isinstance(way, str) and len(way) == 2:  # (D, E) for each head
            way = (way == "de") != (parts == "o")
        told = {"axes": way} if isinstance(way, str) else {"out_in": way}
        holders.append(Holder(parts, slots, biases, **{"out_in": None} | told))
    _give_biases(module, holders)
    return holders


def _give_biases(module: nn.Module, holders: list[Holder]) -> None:
    """Bare biases whose names tell nothing: by their size, else they count as 0."""
    used = [x for holder in holders for x in holder.biases]
    known = {id(x) for x in used} | {id(slot.leaf) for h in holders for slot in h.slots}
    loose = {
        name: x
        for name, x in module.named_parameters()
        if id(x) not in known
        and not hasattr(module.get_submodule(name.rpartition(".")[0]), "weight")
    }
    for name, x in loose.items():
        if re.search(BIAS, name):
            x.data.zero_()
        lacking = [h for h in holders if not h.biases and h.rows == x.numel()]
        alike = [y for y in loose.values() if y.numel() == x.numel()]
        if len(lacking) == len(alike) == 1:
            lacking[0].biases = [x]
