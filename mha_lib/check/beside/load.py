"""Load weights into what was found, however it keeps them."""

import re
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor, nn

from .find import BIAS, OUT_IN, Slot, candidates_of, role_of, slot_of
from .observe import alike
from .words import Advice

ORDERS = {  # of the axes (3, H, D) in the rows of a fused matrix, if not that
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

    @property
    def either_way(self) -> bool:
        """Whether nothing tells in which of two ways its matrices lie."""
        shape = self.slots[0].shape
        square = shape[-1] == shape[-2]
        return self.out_in is None and square and (len(shape) == 2 or self.stacked)

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

    def load(self, given: dict[str, Tensor], sizes: dict, loading: str) -> None:
        """Put the weights of a probe in, in one of the ways in which they may lie."""
        H, D, E = (sizes[x] for x in "HDE")
        n, count = len(self.parts), len(self.slots)
        W = torch.cat([given[f"W_{part}"] for part in self.parts])
        b = torch.cat([given[f"b_{part}"] for part in self.parts])
        loading = "head by head" if count > 1 else loading
        if n > 1 and not self.stacked and loading in ORDERS:
            order = ORDERS[loading]
            W = W.view(n, H, D, E).permute(*order, 3).reshape(n * E, E)
            b = b.view(n, H, D).permute(order).reshape(n * E)
        axis = int(self.parts == "o")  # the heads are columns of W_o
        for slot, value in zip(self.slots, W.chunk(count, axis)):
            slot.put(self._fit(value, slot.shape, sizes, loading))
        count = len(self.biases) or 1
        parts = [b / count] * count if self.parts == "o" else b.chunk(count)
        for x, value in zip(self.biases, parts):
            x.data.copy_(value.reshape(x.shape))

    def _fit(self, W: Tensor, shape: torch.Size, sizes: dict, loading: str) -> Tensor:
        H, D, E = (sizes[x] for x in "HDE")
        if self.stacked:
            W = W.view(-1, E, E)
            fitting = [W.mT if self.either_way and loading != "transposed" else W]
        elif len(shape) == 3:  # a bare (H, E, D), or in another order
            W = W.view(E, H, D) if self.parts == "o" else W.view(H, D, E)
            fitting = [W.permute(order) for order in permutations(range(3))]
        elif self.out_in or (self.either_way and loading == "transposed"):
            fitting = [W]
        else:  # x @ W is what bare matrices are mostly made for
            fitting = [W.T] if self.either_way or self.out_in is False else [W, W.T]
        for turned in fitting:
            if turned.shape == shape:
                return turned
        shapes = {"required": tuple(W.shape), "got": tuple(shape)}
        raise Advice("weights-of-another-shape", parts=self.parts, **shapes)


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
    module: nn.Module, places: dict[str, list[str]], ways: dict[str, bool | None]
) -> list[Holder]:
    """What the weights are loaded into; ``ways`` keeps what was found out."""
    parameters = dict(module.named_parameters())
    candidates = candidates_of(module)
    holders = []
    for parts, paths in places.items():
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
        holders.append(Holder(parts, slots, biases, ways.get(paths[0])))
    _give_biases(module, holders)
    return holders


def _give_biases(module: nn.Module, holders: list[Holder]) -> None:
    """Bare biases whose names tell nothing: by their size, else they count as 0."""
    used = [x for holder in holders for x in holder.biases]
    loose = [
        x
        for name, x in module.named_parameters()
        if re.search(BIAS, name)
        and not hasattr(module.get_submodule(name.rpartition(".")[0]), "weight")
        and not any(x is y for y in used)
    ]
    for x in loose:
        x.data.zero_()
        lacking = [h for h in holders if not h.biases and h.rows == x.numel()]
        alike = [y for y in loose if y.numel() == x.numel()]
        if len(lacking) == len(alike) == 1:
            lacking[0].biases = [x]
