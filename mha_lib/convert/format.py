"""A format of checkpoints: what the arrays of one attention layer are called and hold.

Every framework keeps the same four projections under other names, in other shapes and
in another order. A `Format` says so in one table. With it, it reads a dictionary of
named arrays into `Weights`, and writes `Weights` into such a dictionary. Both
directions only move numbers: nothing is rounded.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from mha_lib.convert.notation import (
    PARTS,
    Line,
    axes_in_words,
    move,
    parse,
    size,
    solve,
)
from mha_lib.convert.weights import Projection, Weights

__all__ = ["Format", "OtherNamesError"]


class OtherNamesError(ValueError):
    """Arrays that have other names than the format asked for.

    Attributes:
        names: theirs, without the prefix, so that a caller can look for them in
            other formats: see `Format.fits`.
    """

    def __init__(self, message: str, names: Iterable[str] = ()) -> None:
        super().__init__(message)
        self.names = tuple(names)


@dataclass(frozen=True)
class Format:
    """Where each number of W^Q, W^K, W^V, W^O lies in the arrays of a checkpoint.

    Args:
        name: what messages call it.
        arrays: {name: "parts: our axes -> stored axes"}, as
            `mha_lib.convert.notation` explains.
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
        the width, or a square matrix that lies transposed. The format has to be known
        from the code that wrote the checkpoint; then compare one output. Position
        encodings (rotary, ALiBi) are no weights: no format carries them.

    Example:
        >>> import torch
        >>> from mha_lib.convert import FORMATS
        >>> gpt2 = {"c_attn.weight": torch.randn(6, 18), "c_attn.bias": torch.ones(18)}
        >>> gpt2 |= {"c_proj.weight": torch.randn(6, 6), "c_proj.bias": torch.ones(6)}
        >>> weights = FORMATS["gpt2"].read(gpt2, num_heads=3)
        >>> weights.k.weight.shape
        torch.Size([6, 6])
        >>> keras = FORMATS["keras"].write(weights)
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
            parse(text)

    @property
    def _lines(self) -> dict[str, Line]:
        return {name: parse(text) for name, text in self.arrays.items()}

    def renamed(self, stems: Mapping[str, str]) -> "Format":
        """The same format under other names.

        Args:
            stems: {stem: new stem}; a stem is a name without its final ``.weight`` or
                ``.bias``.

        Returns:
            A new format.

        Raises:
            ValueError: a stem that this format does not have.

        Example:
            >>> from mha_lib.convert import FORMATS
            >>> mpt = FORMATS["fused_3hd"].renamed({"qkv": "Wqkv", "proj": "out_proj"})
            >>> list(mpt.arrays)
            ['Wqkv.weight', 'Wqkv.bias', 'out_proj.weight', 'out_proj.bias']
        """
        known = dict.fromkeys(name.rpartition(".")[0] for name in self.arrays)
        if not set(stems) <= set(known):
            raise ValueError(
                f"format {self.name!r} has the stems {', '.join(known)}; "
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
            OtherNamesError: a name is missing or not known.
            ValueError: a shape does not fit, the number of heads is needed, or dtypes
                or devices differ. Each message says what was expected and what came.
        """
        given = num_heads is not None
        if given and not (isinstance(num_heads, Integral) and num_heads > 0):
            raise ValueError(
                f"num_heads must be a whole number of at least 1; got {num_heads!r}"
            )
        stored = [line.stored for line in self._lines.values()]
        if num_heads is None and not any(("H",) in axes for axes in stored):
            raise ValueError(
                f"format {self.name!r} requires num_heads, which its shapes do not "
                "tell; got None"
            )
        found = {
            name.removeprefix(prefix): _tensor(x)
            for name, x in arrays.items()
            if name.startswith(prefix) and name.removeprefix(prefix) not in self.ignored
        }
        sizes = {} if num_heads is None else {"H": num_heads}
        if not self.fits(found):
            raise OtherNamesError(self._say_names(found, sizes, prefix, arrays), found)
        _check_numbers(found)
        for name in self._required(found):
            line, shape = self._lines[name], tuple(found[name].shape)
            solved = solve(line.stored, shape, sizes)
            if solved is None:
                expected = axes_in_words(line.stored, sizes)
                hint = _grouped(line, shape, sizes)
                raise ValueError(
                    f"format {self.name!r}: {prefix}{name} must be {expected}; "
                    f"got {shape}{hint}"
                )
            sizes = solved
        if not self._is_square(sizes):
            raise ValueError(self._say_square(sizes))
        parts: dict[str, Tensor | None] = dict.fromkeys(PARTS)
        for name, x in found.items():
            line = self._lines[name]
            x = move(x, line.stored, line.stacked, sizes)
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
            device. Where the format needs a bias that the weights lack, it is zero.

        Raises:
            ValueError: the format cannot hold the weights. The message says what was
                expected and what came.
        """
        objection = self.objection(weights)
        if objection:
            raise ValueError(objection)
        parts, sizes, lines = weights.parts, weights.sizes, self._lines
        present = [
            name
            for name, line in lines.items()
            if any(parts[part] is not None for part in line.parts)
        ]
        written = {}
        for name in self._required(present):
            line = lines[name]
            shape = [size(group, sizes) for group in line.ours]
            zeros = weights.q.weight.new_zeros(shape)
            own = [zeros if (x := parts[part]) is None else x for part in line.parts]
            x = move(torch.stack(own), line.stacked, line.stored, sizes)
            written[prefix + name] = x.clone(memory_format=torch.contiguous_format)
        return written

    def objection(self, weights: Weights) -> str | None:
        """Why this format cannot hold the weights; None if it can.

        Args:
            weights: the weights.

        Returns:
            What the format requires and what the weights have, or None.
        """
        sizes, parts = {"H": weights.num_heads}, weights.parts
        lines = {part: line for line in self._lines.values() for part in line.parts}
        for part, x in parts.items():
            if x is None:
                continue
            if part not in lines:
                return f"format {self.name!r} has no place for {part}"
            axes, shape = lines[part].ours, tuple(x.shape)
            solved = solve(axes, shape, sizes)
            if solved is None:
                expected = axes_in_words(axes, sizes)
                return f"format {self.name!r}: {part} must be {expected}; got {shape}"
            sizes = solved
        if weights.add_zero_attn and "bias_k" not in lines:
            return f"format {self.name!r} has no add_zero_attn"
        return None if self._is_square(sizes) else self._say_square(sizes)

    def fits(self, names: Iterable[str]) -> bool:
        """Whether an attention layer in this format has exactly these names.

        Args:
            names: those of its arrays, without what this format ignores.

        Returns:
            True if none is missing and none is another's.

        Example:
            >>> from mha_lib.convert import FORMATS
            >>> names = ("c_attn.weight", "c_attn.bias", "c_proj.weight", "c_proj.bias")
            >>> [format.name for format in FORMATS.values() if format.fits(names)]
            ['gpt2']
        """
        return set(names) == set(self._required(names))

    def _required(self, found: Iterable[str]) -> list[str]:
        """The names that must be there beside those that are, in our order."""
        absent = {
            name
            for group in self.optional
            if not set(group) & set(found)
            for name in group
        }
        return [name for name in self.arrays if name not in absent]

    def _is_square(self, sizes: dict[str, int]) -> bool:
        return not self.square or sizes["H"] * sizes["D"] == sizes["E"]

    def _say_square(self, sizes: dict[str, int]) -> str:
        H, D, E = sizes["H"], sizes["D"], sizes["E"]
        return f"format {self.name!r} must have H·D = E; got {H}·{D} and E = {E}"

    def _say_names(
        self, found: dict[str, Tensor], sizes: dict, prefix: str, arrays: Mapping
    ) -> str:
        """What was expected, what came, and where it might be found."""
        for name, line in self._lines.items():
            if name in found:
                sizes = solve(line.stored, found[name].shape, sizes) or sizes
        missing = [
            f"{prefix}{name} {axes_in_words(self._lines[name].stored, sizes)}"
            for name in self._required(found)
            if name not in found
        ]
        unknown = [
            f"{prefix}{name} {tuple(x.shape)}"
            for name, x in found.items()
            if name not in self.arrays
        ]
        said = f"format {self.name!r} expects other names"
        said += f"; missing: {_listed(missing)}" if missing else ""
        said += f"; not known: {_listed(unknown)}" if unknown else ""
        first = self._required(())[0]
        places = [repr(x.removesuffix(first)) for x in arrays if x.endswith(first)]
        if places and repr(prefix) not in places:
            said += f"; prefixes with {first}: {_listed(places)}"
        return said


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


def _check_numbers(found: dict[str, Tensor]) -> None:
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


def _grouped(line: Line, shape: tuple, sizes: dict[str, int]) -> str:
    """What to say where the rows of a key or value would be right for fewer heads."""
    rows, D = shape[0] if shape else 0, sizes.get("D", 0)
    fewer = D and rows and rows % D == 0 and rows < sizes["H"] * D
    if not fewer or line.parts[0] not in ("Wk", "bk", "Wv", "bv"):
        return ""
    return (
        f". Grouped heads ({rows // D} of keys for {sizes['H']} of queries) fit no "
        "format: repeat the rows of each first"
    )
