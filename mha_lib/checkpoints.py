"""Checkpoint layouts: what the arrays of one attention layer are called and hold.

Every framework keeps the same four projections under other names, in other shapes and
in another order. A `Layout` says so in one table. With it, it reads a dictionary of
named arrays into `Weights`, and writes `Weights` into such a dictionary. Both
directions only move numbers: nothing is rounded.

A line of the table gives a name, the parts that the array holds, and where each number
lies. The parts are ``Wq bq Wk bk Wv bv Wo bo``, weights and biases of the projections
of query, key, value and output, which we keep as ``nn.Linear`` does: (out, in). ::

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
from dataclasses import dataclass, replace
from functools import cache
from math import prod

import numpy as np
import torch
from torch import Tensor

__all__ = ["LAYOUTS", "Layout", "Projection", "Weights"]


@dataclass(frozen=True)
class Projection:
    """x → x weightᵀ + bias, as in ``nn.Linear``: weight (out, in), bias or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Weights:
    """What a multi-head attention layer is, whatever its style: four projections.

    Attributes:
        q: weight (H·D, E), bias (H·D) or None.
        k: weight (H·D, K), bias (H·D) or None.
        v: weight (H·V, W), bias (H·V) or None.
        out: weight (O, H·V), bias (O) or None.
        num_heads: H.
        dropout: probability of dropping an attention weight in training.
        output_dropout: probability of dropping a number of the output in training.
        bias_k: (H·D), a learned key appended to the projected keys; or None.
        bias_v: (H·V), the value that belongs to it; or None.
        add_zero_attn: append a key and a value of zeros.
    """

    q: Projection
    k: Projection
    v: Projection
    out: Projection
    num_heads: int
    dropout: float = 0.0
    output_dropout: float = 0.0
    bias_k: Tensor | None = None
    bias_v: Tensor | None = None
    add_zero_attn: bool = False

    @property
    def biases(self) -> tuple[Tensor | None, ...]:
        """The biases of q, k, v and out."""
        return (self.q.bias, self.k.bias, self.v.bias, self.out.bias)

    @property
    def sizes(self) -> dict[str, int]:
        """H, D, V, E, K, W and O."""
        (rows, E), K = self.q.weight.shape, self.k.weight.shape[1]
        W, (out, columns) = self.v.weight.shape[1], self.out.weight.shape
        H = self.num_heads
        D, V = rows // H, columns // H
        return {"H": H, "D": D, "V": V, "E": E, "K": K, "W": W, "O": out}

    @property
    def parts(self) -> dict[str, Tensor | None]:
        """All arrays by the names that a `Layout` gives them: Wq, bq, …, bias_v."""
        parts = {}
        for x, projection in zip("qkvo", (self.q, self.k, self.v, self.out)):
            parts |= {f"W{x}": projection.weight, f"b{x}": projection.bias}
        return parts | {"bias_k": self.bias_k, "bias_v": self.bias_v}


# --- the notation -----------------------------------------------------------------

_PARTS = ("Wq", "bq", "Wk", "bk", "Wv", "bv", "Wo", "bo", "bias_k", "bias_v")
_Axes = tuple[tuple[str, ...], ...]  # "E (H D)" is (("E",), ("H", "D"))


@dataclass(frozen=True)
class _Line:
    """One line of a table: the parts, the axes of each, the axes as stored."""

    parts: tuple[str, ...]
    ours: _Axes
    stored: _Axes

    @property
    def stacked(self) -> _Axes:
        """Our axes with the one along which several parts are stacked."""
        several = len(self.parts) > 1
        return ((str(len(self.parts)),), *self.ours) if several else self.ours


@cache
def _parse(text: str) -> _Line:
    found = re.fullmatch(r"([\w ]+): (.+) -> (.+)", text)
    if found is None or not set(found[1].split()) <= set(_PARTS):
        raise ValueError(
            "a line must read 'parts: our axes -> stored axes' with parts out of "
            f"{' '.join(_PARTS)}; got {text!r}"
        )
    parts, ours, stored = tuple(found[1].split()), _axes(found[2]), _axes(found[3])
    line = _Line(parts, ours[len(parts) > 1 :], stored)
    if line.stacked != ours or sorted(_flat(ours)) != sorted(_flat(stored)):
        raise ValueError(
            "the two sides of a line must have the same axes, and several parts a "
            f"first axis with their number; got {text!r}"
        )
    return line


def _axes(text: str) -> _Axes:
    """'E (H D)' → (("E",), ("H", "D"))."""
    groups = re.findall(r"\([^)]*\)|\S+", text)
    return tuple(tuple(group.strip("()").split()) for group in groups)


def _flat(axes: _Axes) -> list[str]:
    """The axes one by one; 1 says nothing about where a number lies."""
    return [letter for group in axes for letter in group if letter != "1"]


def _size(group: Iterable[str], sizes: Mapping[str, int]) -> int:
    return prod(int(x) if x.isdigit() else sizes[x] for x in group)


def _solve(axes: _Axes, shape: tuple, sizes: dict[str, int]) -> dict[str, int] | None:
    """The sizes with those that ``shape`` tells; None if it cannot have these axes."""
    if len(axes) != len(shape):
        return None
    sizes = dict(sizes)
    for group, length in zip(axes, shape):
        unknown = [x for x in group if not x.isdigit() and x not in sizes]
        known = _size((x for x in group if x not in unknown), sizes)
        if length == 0 or length % known or len(unknown) > 1:
            return None
        if not unknown and length != known:
            return None
        sizes |= {x: length // known for x in unknown}
    return sizes


def _move(x: Tensor, axes: _Axes, to: _Axes, sizes: dict[str, int]) -> Tensor:
    """The same numbers with their axes in another order."""
    names = _flat(axes)
    x = x.reshape([_size([name], sizes) for name in names])
    x = x.permute([names.index(name) for name in _flat(to)])
    return x.reshape([_size(group, sizes) for group in to])


def _shape(axes: _Axes, sizes: dict[str, int]) -> str:
    """'(H·D, E) = (6, 6)', or with as much as is known."""
    text = ", ".join("·".join(group) for group in axes) + "," * (len(axes) == 1)
    letters = [x for x in dict.fromkeys(_flat(axes)) if not x.isdigit()]
    if set(letters) <= set(sizes):
        return f"({text}) = {tuple(_size(group, sizes) for group in axes)}"
    known = ", ".join(f"{x} = {sizes[x]}" for x in letters if x in sizes)
    return f"({text})" + (f" with {known}" if known else "")


def _tensor(x: object) -> Tensor:
    """A tensor without history, of a tensor or of anything that NumPy can read."""
    x = getattr(x, "value", x)  # of a Keras variable, a flax parameter
    if isinstance(x, Tensor):
        return x.detach()
    array = np.asarray(x).copy()  # JAX's may not be written to, which torch asks for
    if array.dtype.name == "bfloat16":  # JAX's type: NumPy itself has none
        return torch.from_numpy(array.astype(np.float32)).bfloat16()
    return torch.from_numpy(array)


def _listed(items: Iterable[str], most: int = 4) -> str:
    items = list(items)
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more


# --- layouts ----------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Where each number of W^Q, W^K, W^V, W^O lies in the arrays of a checkpoint.

    Args:
        name: what messages call it.
        arrays: {name: "parts: our axes -> stored axes"}, as the module explains.
        optional: groups of names that may be absent, those of a group together.
        ignored: names that may stand beside them and are not attention's.
        square: the heads fill the width, H·D = E.

    Raises:
        ValueError: a line of ``arrays`` that cannot be read.

    Note:
        **Shapes tell little.** ``fused_3hd`` and ``fused_h3d`` both store (3·H·D, E):
        the first all queries, then all keys, then all values; the second query, key
        and value of head 0, then of head 1, and so on. Nothing in the arrays tells
        them apart, and reading one as the other gives a wrong layer without an error
        (chapter 9 shows it). Nor do shapes betray a wrong ``num_heads`` that divides
        the width, or a square matrix that lies transposed. The layout has to be known
        from the code that wrote the checkpoint; then compare one output. Position
        encodings (rotary, ALiBi) are no weights: no layout carries them.

    Example:
        >>> import torch
        >>> from mha_lib.checkpoints import LAYOUTS
        >>> gpt2 = {"c_attn.weight": torch.randn(6, 18), "c_attn.bias": torch.ones(18)}
        >>> gpt2 |= {"c_proj.weight": torch.randn(6, 6), "c_proj.bias": torch.ones(6)}
        >>> weights = LAYOUTS["gpt2"].read(gpt2, num_heads=3)
        >>> weights.k.weight.shape
        torch.Size([6, 6])
        >>> keras = LAYOUTS["keras"].write(weights)
        >>> {name: tuple(keras[name].shape) for name in ("key/kernel", "key/bias")}
        {'key/kernel': (6, 3, 2), 'key/bias': (3, 2)}

    Source:
        The names and shapes are those of the classes themselves, which the tests
        build; labml's and timm's are those of their published code.
    """

    name: str
    arrays: Mapping[str, str]
    optional: tuple[tuple[str, ...], ...] = ()
    ignored: tuple[str, ...] = ()
    square: bool = True

    def __post_init__(self) -> None:
        for text in self.arrays.values():
            _parse(text)

    @property
    def _lines(self) -> dict[str, _Line]:
        return {name: _parse(text) for name, text in self.arrays.items()}

    def renamed(self, stems: Mapping[str, str]) -> "Layout":
        """The same layout under other names.

        Args:
            stems: {stem: new stem}; a stem is a name without its final ``.weight`` or
                ``.bias``.

        Returns:
            A new layout.

        Raises:
            ValueError: a stem that this layout does not have.

        Example:
            >>> from mha_lib.checkpoints import LAYOUTS
            >>> mpt = LAYOUTS["fused_3hd"].renamed({"qkv": "Wqkv", "proj": "out_proj"})
            >>> list(mpt.arrays)
            ['Wqkv.weight', 'Wqkv.bias', 'out_proj.weight', 'out_proj.bias']
        """
        known = dict.fromkeys(name.rpartition(".")[0] for name in self.arrays)
        if not set(stems) <= set(known):
            raise ValueError(
                f"layout {self.name!r} has the stems {', '.join(known)}; "
                f"got {', '.join(stems)}"
            )

        def new(name: str) -> str:
            stem, dot, kind = name.rpartition(".")
            return stems.get(stem, stem) + dot + kind

        return replace(
            self,
            arrays={new(name): text for name, text in self.arrays.items()},
            optional=tuple(tuple(map(new, group)) for group in self.optional),
        )

    def read(
        self,
        arrays: Mapping[str, object],
        num_heads: int | None = None,
        *,
        prefix: str = "",
    ) -> Weights:
        """Named arrays → `Weights`.

        Args:
            arrays: {name: tensor or array}, such as a state dict.
            num_heads: H; may be left out where shapes tell it (Keras, flax).
            prefix: what stands before each name, such as "encoder.layer.0.attention.";
                names that do not begin with it are left alone.

        Returns:
            The weights, views of the given tensors where possible. Checkpoints hold
            no dropout, so it is 0.

        Raises:
            ValueError: a name is missing or not known, a shape does not fit, the
                number of heads is needed, or dtypes or devices differ. The message
                says what was expected and what came.
        """
        if num_heads is not None and num_heads < 1:
            raise ValueError(f"num_heads must be at least 1; got {num_heads}")
        stored = [line.stored for line in self._lines.values()]
        if num_heads is None and not any(("H",) in axes for axes in stored):
            raise ValueError(
                f"layout {self.name!r} requires num_heads, which its shapes do not "
                "tell; got None"
            )
        found = {
            name.removeprefix(prefix): _tensor(x)
            for name, x in arrays.items()
            if name.startswith(prefix) and name.removeprefix(prefix) not in self.ignored
        }
        sizes = {} if num_heads is None else {"H": num_heads}
        if not self._fits(found):
            raise ValueError(self._say_names(found, sizes, prefix, arrays))
        _check_kind(found)
        for name in self._required(found):
            line, shape = self._lines[name], tuple(found[name].shape)
            solved = _solve(line.stored, shape, sizes)
            if solved is None:
                expected = _shape(line.stored, sizes)
                hint = _grouped(line, shape, sizes)
                raise ValueError(
                    f"layout {self.name!r}: {prefix}{name} must be {expected}; "
                    f"got {shape}{hint}"
                )
            sizes = solved
        if not self._is_square(sizes):
            raise ValueError(self._say_square(sizes))
        parts: dict[str, Tensor | None] = dict.fromkeys(_PARTS)
        for name, x in found.items():
            line = self._lines[name]
            x = _move(x, line.stored, line.stacked, sizes)
            parts |= zip(line.parts, x if len(line.parts) > 1 else (x,))
        q, k, v, out = (Projection(parts[f"W{x}"], parts[f"b{x}"]) for x in "qkvo")
        tokens = {name: parts[name] for name in ("bias_k", "bias_v")}
        return Weights(q, k, v, out, sizes["H"], **tokens)

    def write(self, weights: Weights, *, prefix: str = "") -> dict[str, Tensor]:
        """`Weights` → named arrays.

        Args:
            weights: the weights; their dropout has no place in an array.
            prefix: what to put before each name.

        Returns:
            {name: tensor}: new and contiguous, with the same dtype on the same
            device. Where the layout needs a bias that the weights lack, it is zero.

        Raises:
            ValueError: the layout cannot hold the weights. The message says what was
                expected, what came, and which layouts can.
        """
        objection = self.objection(weights)
        if objection:
            able = [x.name for x in LAYOUTS.values() if not x.objection(weights)]
            raise ValueError(f"{objection}; {', '.join(able) or 'no layout'} could")
        parts, sizes, lines = weights.parts, weights.sizes, self._lines
        present = [
            name
            for name, line in lines.items()
            if any(parts[part] is not None for part in line.parts)
        ]
        written = {}
        for name in self._required(present):
            line = lines[name]
            shape = [_size(group, sizes) for group in line.ours]
            zeros = weights.q.weight.new_zeros(shape)
            own = [zeros if (x := parts[part]) is None else x for part in line.parts]
            x = _move(torch.stack(own), line.stacked, line.stored, sizes)
            written[prefix + name] = x.clone(memory_format=torch.contiguous_format)
        return written

    def objection(self, weights: Weights) -> str | None:
        """Why this layout cannot hold the weights; None if it can.

        Args:
            weights: the weights.

        Returns:
            What the layout requires and what the weights have, or None.
        """
        sizes, parts = {"H": weights.num_heads}, weights.parts
        lines = {part: line for line in self._lines.values() for part in line.parts}
        for part, x in parts.items():
            if x is None:
                continue
            if part not in lines:
                return f"layout {self.name!r} has no place for {part}"
            axes, shape = lines[part].ours, tuple(x.shape)
            solved = _solve(axes, shape, sizes)
            if solved is None:
                expected = _shape(axes, sizes)
                return f"layout {self.name!r}: {part} must be {expected}; got {shape}"
            sizes = solved
        if weights.add_zero_attn and "bias_k" not in lines:
            return f"layout {self.name!r} has no add_zero_attn"
        return None if self._is_square(sizes) else self._say_square(sizes)

    def _required(self, found: Iterable[str]) -> list[str]:
        """The names that must be there beside those that are, in our order."""
        absent = {
            name
            for group in self.optional
            if not set(group) & set(found)
            for name in group
        }
        return [name for name in self.arrays if name not in absent]

    def _fits(self, found: Iterable[str]) -> bool:
        return set(found) == set(self._required(found))

    def _is_square(self, sizes: dict[str, int]) -> bool:
        return not self.square or sizes["H"] * sizes["D"] == sizes["E"]

    def _say_square(self, sizes: dict[str, int]) -> str:
        H, D, E = sizes["H"], sizes["D"], sizes["E"]
        return f"layout {self.name!r} must have H·D = E; got {H}·{D} and E = {E}"

    def _say_names(
        self, found: dict[str, Tensor], sizes: dict, prefix: str, arrays: Mapping
    ) -> str:
        """What was expected, what came, and where it might be found."""
        for name, line in self._lines.items():
            if name in found:
                sizes = _solve(line.stored, found[name].shape, sizes) or sizes
        missing = [
            f"{prefix}{name} {_shape(self._lines[name].stored, sizes)}"
            for name in self._required(found)
            if name not in found
        ]
        unknown = [
            f"{prefix}{name} {tuple(x.shape)}"
            for name, x in found.items()
            if name not in self.arrays
        ]
        said = f"layout {self.name!r} expects other names"
        said += f"; missing: {_listed(missing)}" if missing else ""
        said += f"; not known: {_listed(unknown)}" if unknown else ""
        first = self._required(())[0]
        places = [repr(x.removesuffix(first)) for x in arrays if x.endswith(first)]
        if places and repr(prefix) not in places:
            return f"{said}; prefixes with {first}: {_listed(places)}"
        twins = [repr(x.name) for x in LAYOUTS.values() if x._fits(found)]
        return f"{said}; these are the names of layout {twins[0]}" if twins else said


def _check_kind(found: dict[str, Tensor]) -> None:
    """Floating point everywhere, and one dtype and device."""
    first, x = next(iter(found.items()))
    for name, y in found.items():
        if not y.is_floating_point():
            raise ValueError(f"{name} must hold floating-point numbers; got {y.dtype}")
        if (y.dtype, y.device) != (x.dtype, x.device):
            raise ValueError(
                f"all arrays must share one dtype and device; got {x.dtype} on "
                f"{x.device} for {first}, {y.dtype} on {y.device} for {name}"
            )


def _grouped(line: _Line, shape: tuple, sizes: dict[str, int]) -> str:
    """What to say where the rows of a key or value would be right for fewer heads."""
    rows, D = shape[0] if shape else 0, sizes.get("D", 0)
    fewer = D and rows and rows % D == 0 and rows < sizes["H"] * D
    if not fewer or line.parts[0] not in ("Wk", "bk", "Wv", "bv"):
        return ""
    return (
        f". Grouped heads ({rows // D} of keys for {sizes['H']} of queries) fit no "
        "layout: repeat the rows of each first"
    )


# --- the registry -----------------------------------------------------------------

_SEPARATE = Layout(  # our BatchedMHA; Hugging Face's BART, OPT and CLIP
    "separate",
    {
        "q_proj.weight": "Wq: (H D) E -> (H D) E",
        "q_proj.bias": "bq: (H D) -> (H D)",
        "k_proj.weight": "Wk: (H D) E -> (H D) E",
        "k_proj.bias": "bk: (H D) -> (H D)",
        "v_proj.weight": "Wv: (H D) E -> (H D) E",
        "v_proj.bias": "bv: (H D) -> (H D)",
        "out_proj.weight": "Wo: E (H D) -> E (H D)",
        "out_proj.bias": "bo: E -> E",
    },
    optional=(("q_proj.bias",), ("k_proj.bias",), ("v_proj.bias",), ("out_proj.bias",)),
)

_TORCH_END = {  # what nn.MultiheadAttention calls the same in both of its forms
    "in_proj_bias": "bq bk bv: 3 (H D) -> (3 H D)",
    "bias_k": "bias_k: (H D) -> 1 1 (H D)",
    "bias_v": "bias_v: (H D) -> 1 1 (H D)",
    "out_proj.weight": "Wo: E (H D) -> E (H D)",
    "out_proj.bias": "bo: E -> E",
}
_TORCH = Layout(
    "torch",
    {"in_proj_weight": "Wq Wk Wv: 3 (H D) E -> (3 H D) E"} | _TORCH_END,
    optional=(("in_proj_bias", "out_proj.bias"), ("bias_k", "bias_v")),
)
_TORCH_SEPARATE = Layout(  # where kdim or vdim is not embed_dim
    "torch_separate",
    {
        "q_proj_weight": "Wq: (H D) E -> (H D) E",
        "k_proj_weight": "Wk: (H D) K -> (H D) K",
        "v_proj_weight": "Wv: (H D) W -> (H D) W",
    }
    | _TORCH_END,
    optional=(("in_proj_bias", "out_proj.bias"), ("bias_k", "bias_v")),
)

_KERAS = Layout(  # Keras 3, and 2; the names are the ends of the variables' paths
    "keras",
    {
        "query/kernel": "Wq: (H D) E -> E H D",
        "query/bias": "bq: (H D) -> H D",
        "key/kernel": "Wk: (H D) K -> K H D",
        "key/bias": "bk: (H D) -> H D",
        "value/kernel": "Wv: (H V) W -> W H V",
        "value/bias": "bv: (H V) -> H V",
        "attention_output/kernel": "Wo: O (H V) -> H V O",
        "attention_output/bias": "bo: O -> O",
    },
    optional=(("query/bias", "key/bias", "value/bias", "attention_output/bias"),),
    square=False,
)
_FLAX = Layout(  # flax.nnx and flax.linen; key and value have one width, K
    "flax",
    {
        "query.kernel": "Wq: (H D) E -> E H D",
        "query.bias": "bq: (H D) -> H D",
        "key.kernel": "Wk: (H D) K -> K H D",
        "key.bias": "bk: (H D) -> H D",
        "value.kernel": "Wv: (H D) K -> K H D",
        "value.bias": "bv: (H D) -> H D",
        "out.kernel": "Wo: O (H D) -> H D O",
        "out.bias": "bo: O -> O",
    },
    optional=(("query.bias", "key.bias", "value.bias", "out.bias"),),
    square=False,
)

_LABML = Layout(  # labml.ai's module; value and output always have a bias
    "labml",
    {
        "query.linear.weight": "Wq: (H D) E -> (H D) E",
        "query.linear.bias": "bq: (H D) -> (H D)",
        "key.linear.weight": "Wk: (H D) E -> (H D) E",
        "key.linear.bias": "bk: (H D) -> (H D)",
        "value.linear.weight": "Wv: (H D) E -> (H D) E",
        "value.linear.bias": "bv: (H D) -> (H D)",
        "output.weight": "Wo: E (H D) -> E (H D)",
        "output.bias": "bo: E -> E",
    },
    optional=(("query.linear.bias", "key.linear.bias"),),
)

_BERT = Layout(  # Hugging Face, RoBERTa and others too; all biases, always
    "bert",
    {
        "self.query.weight": "Wq: (H D) E -> (H D) E",
        "self.query.bias": "bq: (H D) -> (H D)",
        "self.key.weight": "Wk: (H D) E -> (H D) E",
        "self.key.bias": "bk: (H D) -> (H D)",
        "self.value.weight": "Wv: (H D) E -> (H D) E",
        "self.value.bias": "bv: (H D) -> (H D)",
        "output.dense.weight": "Wo: E (H D) -> E (H D)",
        "output.dense.bias": "bo: E -> E",
    },
    ignored=(  # the norm after the residual; older checkpoints say gamma and beta
        "output.LayerNorm.weight",
        "output.LayerNorm.bias",
        "output.LayerNorm.gamma",
        "output.LayerNorm.beta",
    ),
)

_GPT2 = Layout(  # Hugging Face; Conv1D keeps (in, out); all biases, always
    "gpt2",
    {
        "c_attn.weight": "Wq Wk Wv: 3 (H D) E -> E (3 H D)",
        "c_attn.bias": "bq bk bv: 3 (H D) -> (3 H D)",
        "c_proj.weight": "Wo: E (H D) -> (H D) E",
        "c_proj.bias": "bo: E -> E",
    },
    ignored=("bias", "masked_bias"),  # the causal mask, in older checkpoints
)
_GPT2_CROSS = Layout(  # its cross-attention cuts c_attn in two and has q_attn
    "gpt2_cross",
    {
        "q_attn.weight": "Wq: (H D) E -> E (H D)",
        "q_attn.bias": "bq: (H D) -> (H D)",
        "c_attn.weight": "Wk Wv: 2 (H D) E -> E (2 H D)",
        "c_attn.bias": "bk bv: 2 (H D) -> (2 H D)",
        "c_proj.weight": "Wo: E (H D) -> (H D) E",
        "c_proj.bias": "bo: E -> E",
    },
    ignored=("bias", "masked_bias"),
)

_FUSED_3HD = Layout(  # timm's vision transformers; with other names, many more
    "fused_3hd",
    {
        "qkv.weight": "Wq Wk Wv: 3 (H D) E -> (3 H D) E",
        "qkv.bias": "bq bk bv: 3 (H D) -> (3 H D)",
        "proj.weight": "Wo: E (H D) -> E (H D)",
        "proj.bias": "bo: E -> E",
    },
    optional=(("qkv.bias",), ("proj.bias",)),
)
_FUSED_H3D = Layout(  # GPT-NeoX and BLOOM; the same shapes, the rows in another order
    "fused_h3d",
    {
        "query_key_value.weight": "Wq Wk Wv: 3 (H D) E -> (H 3 D) E",
        "query_key_value.bias": "bq bk bv: 3 (H D) -> (H 3 D)",
        "dense.weight": "Wo: E (H D) -> E (H D)",
        "dense.bias": "bo: E -> E",
    },
    optional=(("query_key_value.bias",), ("dense.bias",)),
    ignored=("bias", "masked_bias"),
)

LAYOUTS: Mapping[str, Layout] = {
    layout.name: layout
    for layout in (
        _SEPARATE,
        _TORCH,
        _TORCH_SEPARATE,
        _KERAS,
        _FLAX,
        _LABML,
        _BERT,
        _GPT2,
        _GPT2_CROSS,
        _FUSED_3HD,
        _FUSED_H3D,
    )
}
