"""Draws the sizes, tensors and masks of one set of probes, all from one seed."""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from math import isqrt

import torch
from torch import Tensor

__all__ = [
    *("BYTES", "ENDLESS", "ENDLESS_KEYS", "FAR", "LONG", "MANY"),
    *("Draw", "Probe", "plainly", "probe"),
]

Probe = dict
EVEN, ODD = (2, 4), (3, 5)  # heads, taken in turn
SIZES = {"B": range(2, 5), "T": range(3, 9), "S": range(3, 9), "D": range(3, 8)}
MANY, LONG = range(5, 10), range(65, 81)  # more than what some programs take at once
WIDE = ((2, 32), (4, 16))  # H and D of 64 features, a width that is in use
# Longer than the tables that people make once; and who makes a square of it and cuts
# it, which is right, still has the memory.
ENDLESS, ENDLESS_KEYS = range(4097, 4113), range(4113, 4129)
BYTES = range(513, 529)  # of two axes: a byte and bfloat16 count to 256, not to this
FAR = range(1025, 1041)  # of one axis, where the other one is short


@contextmanager
def plainly() -> Iterator[None]:
    """Whatever a notebook has set: float32 as the default, gradients can be asked."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(before)


class Draw:
    """Draws for one set of probes; the same for the same arguments.

    Args:
        seed: of all random numbers.
        dtype: of all floating tensors.
        embed_dim: E of a layer that exists already; None leaves it to us.
        num_heads: H of such a layer.
    """

    def __init__(
        self,
        seed: int,
        dtype: torch.dtype,
        embed_dim: int | None = None,
        num_heads: int | None = None,
    ) -> None:
        self.generator, self.dtype = torch.Generator().manual_seed(seed), dtype
        self.fixed = embed_dim is not None
        self.own: dict[str, int] = {}
        if embed_dim is not None and num_heads is not None:
            self.own = {"H": num_heads, "D": embed_dim // num_heads, "E": embed_dim}
        self.turns = [EVEN, ODD] if self.pick((True, False)) else [ODD, EVEN]

    def pick(self, among: Iterable[int], taken: Collection[int] = ()) -> int:
        """One of these numbers that is not taken yet."""
        left = [n for n in among if n not in taken]
        return left[int(torch.randint(len(left), (), generator=self.generator))]

    def sizes(self, *equal: str, **given: int | range) -> dict[str, int]:
        """B, T, S, H, D, E: all differ but where two are to be equal.

        Args:
            equal: pairs of letters that agree: "TS", "TH", "TD", "BH", "BS" or "BT".
            given: a size, or a range from which to take it. H and D of a layer that
                exists already stay as they are.
        """
        sizes = {k: n for k, n in given.items() if isinstance(n, int)} | self.own
        ranges = SIZES | {k: n for k, n in given.items() if isinstance(n, range)}
        ranges.setdefault("H", self.turns[0])
        self.turns.reverse()
        copies = {one: other for one, other in equal}
        for letter in [x for x in "HDBTS" if x not in copies]:
            taken = {*sizes.values()}
            if "E" in sizes:  # nor may one pass for the size of a head
                taken.add(isqrt(sizes["E"]))
            if letter not in sizes:
                sizes[letter] = self.pick(ranges[letter], taken)
            if {"H", "D"} <= sizes.keys():
                sizes.setdefault("E", sizes["H"] * sizes["D"])
        for letter in [x for x in "TB" if x in copies]:
            sizes[letter] = sizes[copies[letter]]
        return {letter: sizes[letter] for letter in "BTSHDE"}

    def wide(self) -> dict[str, int]:
        """Sizes with 64 features in all, and fewer in a head."""
        H, D = WIDE[self.pick(range(len(WIDE)))]
        return self.sizes(H=H, D=D)

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """Normal numbers."""
        x = torch.randn(*shape, generator=self.generator, dtype=torch.float64)
        return (x * scale).to(self.dtype)

    def weights(self, E: int) -> dict[str, Tensor]:
        """The four matrices of a layer and their biases."""
        weights = {}
        for role in "qkvo":
            weights[f"W_{role}"] = self.normal(E, E, scale=1.3 / E**0.5)
            weights[f"b_{role}"] = self.normal(E, scale=0.5)
        return weights

    def low(self) -> float:
        """A score far below 0 whose power the dtype still holds."""
        return -14.0 if self.dtype == torch.float16 else -60.0

    def table(self, *shape: int) -> Tensor:
        """A boolean table of any kind; not all True, not all False."""
        found = torch.rand(*shape, generator=self.generator) < 0.6
        flat = found.view(-1)
        flat[self.pick(range(len(flat)))] = True
        flat[self.pick(range(len(flat)), [int(flat.byte().argmax())])] = False
        return found

    def lengths(
        self, B: int, S: int, least: int = 1, full: tuple[int, ...] = (-1,)
    ) -> Tensor:
        """Real tokens of B sequences.

        Args:
            B: sequences; one of them is short, so they are not all alike.
            S: tokens, with the padding.
            least: the fewest that are real.
            full: the sequences without padding; of so many, one has to be left.
        """
        found = [self.pick(range(least, S)) for _ in range(B)]
        full = full if len(full) < B else ()
        free = [b for b in range(B) if b not in {b % B for b in full}]
        found[self.pick(free)] = self.pick(range(least, max(least, S // 2) + 1))
        for b in full:
            found[b] = S
        return torch.tensor(found)

    def real(self, B: int, S: int, left: bool = False, **given: object) -> Tensor:
        """(B, S), True for a token and False for padding, on the right or the left."""
        real = torch.arange(S) < self.lengths(B, S, **given)[:, None]
        return real.flip(1) if left else real

    def masks(self, s: dict[str, int]) -> dict[str, Tensor]:
        """Boolean (B, T, S), True = may attend, by name.

        Every row sees a key, but two of "empty"; key 0, but in "left padding". Those of
        "open" see all.
        """
        B, T, S = s["B"], s["T"], s["S"]
        causal = torch.ones(T, S, dtype=torch.bool).tril().expand(B, T, S)
        holes = torch.rand(B, T, S, generator=self.generator) < 0.6
        found = {"causal": causal, "holes": holes, "open": torch.ones_like(holes)}
        if S > 1:
            for row in holes:  # each sequence hides something
                row[self.pick(range(min(1, T - 1), T)), self.pick(range(1, S))] = False
            ends = (0, -1)[B < 3 :]  # who looks at one of them alone sees no padding
            padding, left = self.real(B, S, full=ends), self.real(B, S, left=True)
            found["padding"] = padding[:, None].expand(B, T, S)
            found["left padding"] = left[:, None].expand(B, T, S)
            found["empty"] = causal & found["padding"]
            for b in (1 if B > 2 else 0, -1):  # one query of two sequences
                found["empty"][b, self.pick(range(T))] = False  # the first is causal
        if T in LONG:  # the last query sees all, or of one sequence the first
            holes[:, -1] = True
        elif B == 1 and T > 1:
            holes[0, 0] = True
        holes[..., 0] = True
        return found


def probe(name: str, sizes: dict, inputs: dict, weights=None, **options) -> Probe:
    """A probe that shares no memory between its tensors."""
    return {
        "name": name,
        "sizes": sizes,
        "inputs": {
            k: x.clone() if isinstance(x, Tensor) else x for k, x in inputs.items()
        },
        "weights": weights,
        "options": options,
    }
