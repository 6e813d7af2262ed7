"""What can be checked, and the probes that do it. Probes are data; no answers here.

A probe is a dictionary that travels to the submission and back::

    {"name": "plain",                       what it is for
     "call": "mha",                         the task, so how to call
     "sizes": {"B": 2, "H": 3, ...},        B T S H D E
     "inputs": {"query": tensor, ...},      a mask under "mask", if there is one
     "options": {"repeat": True, ...},      see `beside.run`
     "weights": {"W_q": ..., "b_o": ...}}   (out, in) as in nn.Linear; or None

Sizes all differ, except where a probe asks what happens if two agree: equal sizes hide
mistakes.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["TASKS", "Task"]

Probe = dict
SMALL = (2, 3, 4, 7, 5, 9, 11, 13, 6, 8)  # sizes to choose from, in this order
HEADS, HEAD_SIZE = 3, 5  # where the submission leaves the choice to us


@dataclass(frozen=True)
class Task:
    """One thing to implement: what it is called with, and with which probes.

    Attributes:
        name: as ``check(..., task=name)`` takes it.
        title: the same in words.
        signature: how the submission is called and what it returns.
        options: the options that its probes may have.
        make: draws the probes; call `probes` instead.
        axes: what a row and what a column of its answer is for, in words.
    """

    name: str
    title: str
    signature: str
    options: tuple[str, ...]
    make: Callable[..., list[Probe]]
    axes: tuple[str, str] = ("query", "feature")

    def probes(
        self,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        embed_dim: int | None = None,
        num_heads: int | None = None,
    ) -> list[Probe]:
        """Draw the probes: the same for the same arguments.

        Args:
            seed: of all random numbers.
            dtype: of all floating tensors.
            embed_dim: E of a layer that exists already; None leaves it to us.
            num_heads: H of such a layer.

        Returns:
            Probes in the order in which they should run.
        """
        generator = torch.Generator().manual_seed(seed)
        H = num_heads or HEADS
        D = HEAD_SIZE if embed_dim is None else embed_dim // H
        draw = _Draw(generator, dtype, H, D, fixed=embed_dim is not None)
        return [probe | {"call": self.name} for probe in self.make(draw)]


class _Draw:
    """Draws tensors and picks sizes for one set of probes."""

    def __init__(self, generator, dtype, H: int, D: int, fixed: bool) -> None:
        self.generator, self.dtype = generator, dtype
        self.H, self.D, self.E, self.fixed = H, D, H * D, fixed

    def sizes(self, **given: int) -> dict[str, int]:
        """B, T, S, H, D, E, all different but where ``given`` says otherwise."""
        sizes = {"H": self.H, "D": self.D, "E": self.E} | given
        taken = {*sizes.values(), int(sizes["E"] ** 0.5)}
        for letter in "BTS":
            if letter not in sizes:
                sizes[letter] = next(n for n in SMALL if n not in taken)
                taken.add(sizes[letter])
        return sizes

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        x = torch.randn(*shape, generator=self.generator, dtype=torch.float64)
        return (x * scale).to(self.dtype)

    def weights(self, E: int) -> dict[str, Tensor]:
        weights = {}
        for role in "qkvo":
            weights[f"W_{role}"] = self.normal(E, E, scale=1.3 / E**0.5)
            weights[f"b_{role}"] = self.normal(E, scale=0.5)
        return weights

    def low(self) -> float:
        """A score far below 0 whose power the dtype still holds."""
        return -14.0 if self.dtype == torch.float16 else -60.0

    def lengths(self, B: int, S: int) -> Tensor:
        """Real keys of each sequence: they differ, the second has no padding."""
        return torch.tensor([max(1, S - (2, 0, 3, 1)[b % 4]) for b in range(B)])

    def masks(self, s: dict[str, int]) -> dict[str, Tensor]:
        """Boolean (B, T, S), True = may attend, by name; every row sees key 0."""
        B, T, S = s["B"], s["T"], s["S"]
        causal = torch.ones(T, S, dtype=torch.bool).tril().expand(B, T, S)
        real = torch.arange(S) < self.lengths(B, S)[:, None]
        padding = real[:, None].expand(B, T, S)
        holes = torch.rand(B, T, S, generator=self.generator) < 0.6
        holes[..., 0] = True
        empty = causal & padding & True
        empty[0, T // 2] = False  # one query of one sequence sees nothing
        empty[-1, 0] = False
        return {
            "causal": causal,
            "padding": padding,
            "holes": holes,
            "empty": empty,
        }


def _probe(name, sizes, inputs, weights=None, **options) -> Probe:
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


# --- attention itself --------------------------------------------------------------


def _attention(draw: _Draw) -> list[Probe]:
    def probe(name, mask=None, sizes=None, **options):
        s = sizes or draw.sizes()
        B, T, S, H, D = (s[x] for x in "BTSHD")
        inputs = {
            "q": draw.normal(B, H, T, D, scale=1.2),
            "k": draw.normal(B, H, S, D, scale=1.2),
            "v": draw.normal(B, H, S, D),
        }
        if mask is not None:
            inputs["mask"] = draw.masks(s)[mask][:, None]
            inputs["k"][..., 0, :] = 0.0  # an allowed score that is exactly 0
        return _probe(name, s, inputs, **options)

    def low():
        """All scores are one number, which no fill may come near."""
        found = probe("low scores", "holes")
        q, k = found["inputs"]["q"], found["inputs"]["k"]
        q[:] = found["sizes"]["D"] ** -0.25
        k[:] = draw.low() * q[0, 0, 0]
        return found

    def reveal():
        s = draw.sizes(D=11, E=11 * draw.H)
        plain = probe("reveal", sizes=s)
        plain["inputs"]["v"] = _one_hot(s, draw.dtype).expand(s["B"], s["H"], -1, -1)
        return plain

    return [
        probe("plain", repeat=True),
        probe("square", sizes=draw.sizes(T=6, S=6)),
        probe("T = H", sizes=draw.sizes(T=draw.H)),
        probe("holes", "holes", repeat=True),
        probe("causal", "causal", draw.sizes(T=6, S=6)),
        probe("padding", "padding"),
        probe("B = H", "holes", draw.sizes(B=draw.H, T=6, S=6)),
        probe("one query", "holes", draw.sizes(T=1)),
        probe("one sequence", "holes", draw.sizes(B=1)),
        probe("long", "holes", draw.sizes(T=20, S=40)),
        probe("empty row", "empty"),
        reveal(),
        probe("gradient", "holes", grad=True),
        probe("half", "holes", dtype="float16"),
        probe("device", "holes", device="meta"),
        low(),
    ]


def _one_hot(s: dict[str, int], dtype: torch.dtype) -> Tensor:
    """Values (S, D) that turn the context into the map, twice side by side."""
    S, D = s["S"], s["D"]
    values = torch.zeros(S, D, dtype=dtype)
    for s_ in range(S):
        for start in range(0, min(2 * S, D - S + 1), S):
            values[s_, start + s_] = 1.0
    return values


# --- whole layers ------------------------------------------------------------------


def _mha(draw: _Draw, sequence_first: bool = False) -> list[Probe]:
    def probe(name, mask=None, sizes=None, **options):
        s = sizes or draw.sizes()
        B, T, S, E = (s[x] for x in "BTSE")
        inputs = {"query": draw.normal(B, T, E)}
        inputs |= {name: draw.normal(B, S, E) for name in ("key", "value")}
        weights = draw.weights(E)
        if mask is not None:
            inputs["mask"] = draw.masks(s)[mask]
            inputs["key"][:, 0] = weights["b_k"][:] = 0.0  # a score of exactly 0
        return _probe(name, s, inputs, weights, **options)

    def reveal(name, **options):
        s = draw.sizes(S=4) if draw.fixed else draw.sizes(D=11, E=11 * draw.H, S=4)
        found = probe(name, sizes=s, **options)
        values = _one_hot(s, draw.dtype).repeat(1, s["H"])  # (S, E)
        found["inputs"]["value"] = values.expand(s["B"], -1, -1).clone()
        eye, zero = torch.eye(s["E"], dtype=draw.dtype), torch.zeros(s["E"])
        for role in "vo":
            found["weights"][f"W_{role}"] = eye.clone()
            found["weights"][f"b_{role}"] = zero.to(draw.dtype)
        return found

    def low():
        """All scores are one number, which no fill may come near."""
        found = probe("low scores", "holes")
        x, W = found["inputs"], found["weights"]
        H, D = found["sizes"]["H"], found["sizes"]["D"]
        x["query"][:] = x["key"][:] = x["query"][0, 0]
        W["b_q"][:] = W["b_k"][:] = 0.0
        heads = W["W_q"].double().unflatten(0, (H, D))
        lengths = (heads @ x["query"][0, 0].double()).norm(dim=-1)[:, None, None]
        heads = (heads / lengths * D**0.25).flatten(0, 1)
        W["W_q"], W["W_k"] = (y.to(draw.dtype) for y in (heads, draw.low() * heads))
        return found

    probes = [
        probe("plain", repeat=True),
        probe("square", sizes=draw.sizes(T=6, S=6)),
        probe("T = H", sizes=draw.sizes(T=draw.H)),
        probe("holes", "holes", repeat=True),
        probe("causal", "causal", draw.sizes(T=6, S=6)),
        probe("padding", "padding"),
        probe("B = H", "holes", draw.sizes(B=draw.H, T=6, S=6)),
        probe("one query", "holes", draw.sizes(T=1)),
        probe("one sequence", "holes", draw.sizes(B=1)),
        probe("empty row", "empty"),
        probe("gradient", "holes", grad=True),
        probe("half", "holes", dtype="float16"),
        probe("device", "holes", device="meta"),
    ]
    if not draw.fixed or draw.D >= 8:
        probes += [reveal("reveal"), reveal("training", train=True, dropout=0.5)]
    probes.append(low())
    if sequence_first:
        for x in probes:
            for name, tensor in x["inputs"].items():
                order = (1, 2, 0) if name == "mask" else (1, 0, 2)
                x["inputs"][name] = tensor.permute(order).contiguous()
    return probes


def _split_concat(draw: _Draw) -> list[Probe]:
    def probe(name, causality=False, padding=False, sizes=None, empty=False, **options):
        s = sizes or draw.sizes()
        B, T, S, E = (s[x] for x in "BTSE")
        queries, keys = draw.normal(B, T, E), draw.normal(B, S, E)
        if padding:
            keys[torch.arange(S) >= draw.lengths(B, S)[:, None]] = 0.0
            queries[torch.arange(T) >= draw.lengths(B, T)[:, None]] = 0.0
            keys[:, 1, 0] = -keys[:, 1, 1:].sum(-1)  # real, though its sum is 0
        if empty:
            keys[-1, 0] = 0.0
        inputs = {"queries": queries, "keys": keys, "causality": causality}
        return _probe(name, s, inputs, draw.weights(E), **options)

    def other_padding():
        """In sequence 1, not 0; without causality though T = S; no sum is 0."""
        found = probe("padding, T = S", padding=True, sizes=draw.sizes(T=6, S=6))
        x = found["inputs"]
        x |= {name: x[name].flip(0) for name in ("queries", "keys")}
        x["keys"][:, 1, 0] += 1.0
        return found

    return [
        probe("plain", repeat=True),
        probe("square", sizes=draw.sizes(T=6, S=6)),
        probe("T = H", sizes=draw.sizes(T=draw.H)),
        probe("causal", causality=True, sizes=draw.sizes(T=6, S=6)),
        probe("causal, T ≠ S", causality=True),
        probe("padding", padding=True),
        probe("B = H", True, True, draw.sizes(B=draw.H, T=6, S=6)),
        probe("empty row", True, True, empty=True),
        probe("gradient", True, True, grad=True),
        probe("half", True, True, dtype="float16"),
        probe("device", True, True, device="meta"),
        other_padding(),
    ]


# --- parts -------------------------------------------------------------------------


def _heads(draw: _Draw, merge: bool) -> list[Probe]:
    def probe(name, sizes, **options):
        B, T, H, D, E = (sizes[x] for x in "BTHDE")
        if merge:
            return _probe(name, sizes, {"x": draw.normal(B, H, T, D)}, **options)
        inputs = {"x": draw.normal(B, T, E), "num_heads": H}
        return _probe(name, sizes, inputs, **options)

    return [
        probe("plain", draw.sizes(), repeat=True),
        probe("B = H", draw.sizes(B=draw.H)),
        probe("T = H", draw.sizes(T=draw.H)),
    ]


def _causal_mask(draw: _Draw) -> list[Probe]:
    return [
        _probe(name, draw.sizes(T=T, S=S), {"T": T, "S": S}, repeat=name == "plain")
        for name, T, S in (("plain", 6, 6), ("T < S", 4, 7), ("T > S", 7, 4))
    ]


def _padding_mask(draw: _Draw) -> list[Probe]:
    def probe(name, lengths, S):
        sizes = draw.sizes(B=len(lengths), S=S)
        return _probe(name, sizes, {"lengths": torch.tensor(lengths), "S": S})

    return [
        probe("plain", [7, 2, 5], 7),
        probe("B = S", [4, 1, 3, 2], 4),
        probe("none full", [3, 1], 5),
        probe("empty", [0, 6], 6),
    ]


def _combine_masks(draw: _Draw) -> list[Probe]:
    def probe(name, sizes):
        masks = draw.masks(sizes)
        inputs = {"causal": masks["causal"][0], "padding": masks["padding"][:, :1]}
        return _probe(name, sizes, inputs)

    return [
        probe("plain", draw.sizes()),
        probe("square", draw.sizes(T=6, S=6)),
        probe("B = T", draw.sizes(B=4, T=4, S=4)),
    ]


_MHA = (
    "A class made as Class(embed_dim, num_heads), a module, or a function "
    "f(query, key, value, weights, num_heads, mask=None) with weights W_q, b_q, …, "
    "W_o, b_o as nn.Linear keeps them. "
)
_LAYER = ("repeat", "grad", "dtype", "device", "train", "dropout")

TASKS = {
    task.name: task
    for task in (
        Task(
            "attention",
            "scaled dot-product attention",
            "attention(q, k, v, mask=None) -> context, or (context, weights); q is "
            "(..., T, D), k and v are (..., S, D); mask boolean, True = may attend, "
            "broadcasts to (..., T, S)",
            ("repeat", "grad", "dtype", "device"),
            _attention,
        ),
        Task(
            "split_heads",
            "split into heads",
            "split_heads(x, num_heads) -> (B, H, T, D); x is (B, T, E)",
            ("repeat",),
            lambda draw: _heads(draw, merge=False),
            ("token", "feature"),
        ),
        Task(
            "merge_heads",
            "merge of the heads",
            "merge_heads(x) -> (B, T, E); x is (B, H, T, D)",
            ("repeat",),
            lambda draw: _heads(draw, merge=True),
            ("token", "feature"),
        ),
        Task(
            "causal_mask",
            "causal mask",
            "causal_mask(T, S) -> boolean (T, S), True = may attend: s ≤ t",
            ("repeat",),
            _causal_mask,
            ("query", "key"),
        ),
        Task(
            "padding_mask",
            "padding mask",
            "padding_mask(lengths, S) -> boolean (B, 1, S), True = may attend: "
            "s < lengths[b]",
            (),
            _padding_mask,
            ("query", "key"),
        ),
        Task(
            "combine_masks",
            "combination of masks",
            "combine_masks(causal, padding) -> boolean (B, T, S), True = may attend; "
            "causal is (T, S), padding is (B, 1, S)",
            (),
            _combine_masks,
            ("query", "key"),
        ),
        Task(
            "mha",
            "multi-head attention, batch first",
            _MHA + "It is called with query (B, T, E), key and value (B, S, E) and a "
            "boolean mask (B, T, S), True = may attend, and returns the output "
            "(B, T, E), or (output, weights) with weights (B, H, T, S).",
            _LAYER,
            _mha,
        ),
        Task(
            "mha_sequence_first",
            "multi-head attention, sequence first",
            _MHA + "It is called with query (T, B, E), key and value (S, B, E) and a "
            "boolean mask (T, S, B), True = may attend, and returns the output "
            "(T, B, E), or (output, weights) with weights (B, H, T, S).",
            _LAYER,
            lambda draw: _mha(draw, sequence_first=True),
        ),
        Task(
            "split_concat",
            "multi-head attention as in TensorFlow",
            "A class, a module called with (queries, keys, causality), or a function "
            "f(queries, keys, weights, num_heads, causality=False) -> (B, T, E). "
            "ReLU on the three projections, values from the keys, heads concatenated "
            "on the batch axis, keys hidden whose embedding is all zero, with "
            "causality also the later ones; then W_o. No residual, no norm.",
            _LAYER[:4],
            _split_concat,
        ),
    )
}
