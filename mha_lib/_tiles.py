"""A map in tiles: how it is cut, and the weights of one tile at a time."""

import math
import threading
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

TILE = 2**19  # numbers in a tile for each thread, twice as many short ones: 2 MiB
MASKED_ROWS = 128
LOG2_E = math.log2(math.e)
EXPONENT = 100  # sums of 2^−100 to 2^100 leave room for their terms in float32
_of_this_thread = threading.local()
Index = tuple[slice, slice, slice, slice]  # sequences, heads, queries, keys


def fits_in(tiles: int, shape: Sequence[int]) -> bool:
    """Whether so many tiles hold a map of this shape."""
    return math.prod(shape) <= tiles * TILE


class Tiles:
    """How the map is cut, and what is left out because it is hidden."""

    def __init__(
        self, q: Tensor, k: Tensor, mask: Tensor | None, is_causal: bool
    ) -> None:
        self.shape = (*q.shape[:-1], k.shape[-2])  # (B, H, T, S)
        masked = is_causal or mask is not None
        self.batches, self.heads, self.rows = cut(self.shape, is_short(q), masked)
        self.is_causal = is_causal
        self.seen = None
        if mask is not None:
            mask = mask.reshape(-1, *mask.shape[-2:])
            self.seen = mask.any(0).expand(self.shape[-2:])  # (T, S): by any head

    def in_one_piece(self, x: Tensor) -> Tensor:
        """Sequences of one tile are one batch; short numbers are faster so."""
        return x.contiguous() if self.batches > 1 or is_short(x) else x

    def __iter__(self) -> Iterator[Index]:
        """A tile holds heads of one sequence, or whole sequences.

        So its first two axes can be seen as one.
        """
        B, H, T, S = self.shape
        rows, heads, batches = self.rows, self.heads, self.batches
        for t in range(0, T, rows):
            columns = S
            if self.is_causal:
                columns = min(S, t + rows)
            elif self.seen is not None:
                keys = self.seen[t : t + rows].any(0).nonzero()
                columns = int(keys[-1]) + 1 if len(keys) else 0
            for b in range(0, B, batches):
                for h in range(0, H, heads):
                    yield (
                        slice(b, b + batches),
                        slice(h, h + heads),
                        slice(t, t + rows),
                        slice(columns),
                    )


class Weights:
    """softmax(q kᵀ / √D), any tile of it at a time.

    First as 2^x / Σ 2^x with x = score · log₂ e: without a maximum to find and to
    take off it takes half the time. From the first sum on that is too large or too
    small for it, as in ``attention``.
    """

    def __init__(
        self,
        tiles: Tiles,
        q: Tensor,
        k: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
    ) -> None:
        self.q, self.keys = tiles.in_one_piece(q), tiles.in_one_piece(k).mT
        self.scale = q.shape[-1] ** -0.5
        self.by_powers = True
        self.hidden = self.empty = self.later = None
        added = bias
        if mask is not None:
            added = q.new_zeros(1) if bias is None else bias
            added = added.masked_fill(~mask, -math.inf)
            empty = added.amax(-1) == -math.inf
            if empty.any():
                self.empty = empty.expand(tiles.shape[:-1])
            self.hidden = (~mask).expand(tiles.shape)
        self.bias = None if bias is None else bias.expand(tiles.shape)
        self.added = None if added is None else (added * LOG2_E).expand(tiles.shape)
        if tiles.is_causal:
            self.later = q.new_full((tiles.rows, tiles.rows), -math.inf).triu(1)
        self.scores, self.wide = _scratch(q.dtype), _scratch(accumulator(q.dtype))

    def tile(self, index: Index) -> Tensor:
        """The weights in float32 at least, until the next call."""
        if self.by_powers:
            tile = self._powers(index)
            if tile is not None:
                return tile
            self.by_powers = False
        return self._softmax(index)

    def _powers(self, index: Index) -> Tensor | None:
        """2^x / Σ 2^x, or None if a sum is not one of ordinary size."""
        scores = self._products(self.q[index[:3]], index, self.scale * LOG2_E)
        # Adding −inf is several times cheaper than filling, and does the same
        # unless a hidden score is itself inf or NaN: then the sum is NaN.
        if self.added is not None:
            scores += self.added[index]
        if self.later is not None:
            corner, later = self._corner(scores, index)
            corner += later
        powers = self._widened(scores)
        torch.exp2(powers, out=powers)
        sums = powers.sum(-1, keepdim=True)
        if self.empty is not None:
            sums[self.empty[index[:-1]]] += 1.0  # 0 before, or NaN
        least, largest = (float(sum_) for sum_ in sums.aminmax())
        if least >= 2.0**-EXPONENT and largest <= 2.0**EXPONENT:  # false for NaN
            return powers.mul_(sums.reciprocal_())
        return None

    def _softmax(self, index: Index) -> Tensor:
        """As in ``attention``: q scaled first, hidden scores replaced."""
        scores = self._products(self.q[index[:3]] * self.scale, index, 1.0)
        if self.bias is not None:
            scores += self.bias[index]
        if self.hidden is not None:
            scores.masked_fill_(self.hidden[index], -math.inf)
        if self.later is not None:
            corner, later = self._corner(scores, index)
            corner.masked_fill_(later < 0, -math.inf)
        scores = self._widened(scores)
        weights = torch.softmax(scores, -1, out=scores)
        if self.empty is not None:
            weights[self.empty[index[:-1]]] = 0.0
        return weights

    def _products(self, q: Tensor, index: Index, scale: float) -> Tensor:
        b, heads, _, columns = index
        keys = self.keys[b, heads, :, columns]
        scores = self.scores.resize_(*q.shape[:-1], keys.shape[-1])
        flat = scores.view(q.shape[0] * q.shape[1], *scores.shape[-2:])
        operands = (flat, q.flatten(0, 1), keys.flatten(0, 1))
        torch.baddbmm(*operands, beta=0, alpha=scale, out=flat)
        return scores

    def _corner(self, scores: Tensor, index: Index) -> tuple[Tensor, Tensor]:
        """Keys from the first query of the tile on; −inf where a key comes later."""
        corner = scores[..., index[2].start :]  # before it every key is seen
        return corner, self.later[: corner.shape[-2], : corner.shape[-1]]

    def _widened(self, scores: Tensor) -> Tensor:
        if is_short(self.q):
            return self.wide.resize_(scores.shape).copy_(scores)
        return scores

    def rounded(self, tile: Tensor) -> Tensor:
        """The tile as it meets the values, in their dtype."""
        return self.scores.copy_(tile) if is_short(self.q) else tile


def _scratch(dtype: torch.dtype) -> Tensor:
    """Memory for a tile, one piece a thread and dtype, kept from call to call.

    Freed and allocated again it would often come as pages never touched before:
    at a million weights their faults took as long as the arithmetic.
    """
    kept = vars(_of_this_thread)
    if dtype not in kept:
        with torch.inference_mode(False):  # else it could serve in that mode alone
            kept[dtype] = torch.empty(0, dtype=dtype, device="cpu")
    return kept[dtype]


def cut(shape: tuple[int, ...], short: bool, masked: bool) -> tuple[int, int, int]:
    """How many sequences, heads and queries a tile takes."""
    B, H, T, S = shape
    size = 2 * TILE if short else TILE
    # Under a mask few rows, so that many columns can be left out.
    rows = min(T, max(1, size // S), MASKED_ROWS if masked else T)
    size *= min(H, torch.get_num_threads())  # a product takes a thread a head
    heads = min(H, max(1, size // (rows * S)))
    batches = min(B, max(1, size // (H * rows * S)))
    return batches, heads, rows


def is_short(x: Tensor) -> bool:
    return x.itemsize == 2


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """Sums over many tiles are kept in float32 at least."""
    return torch.promote_types(dtype, torch.float32)
