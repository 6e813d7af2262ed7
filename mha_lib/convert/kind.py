"""A kind of layer that ``convert`` knows: how to read one, and how to make one.

A class of another framework is looked up in ``sys.modules``: whoever has such an object
or class has imported its framework, and nobody else has to.
"""

import sys
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mha_lib.convert.format import Format
from mha_lib.convert.weights import Projection, Weights

__all__ = ["Kind", "any_bias"]


class Kind:
    """A class that keeps its weights in a format. As it stands: one of our styles.

    Args:
        path: "module:class".
        formats: those that it may have, the preferred one first.
        prefix: what stands before the names of the format.
        holds: the fields of `Weights` beside the arrays that the class has too.
    """

    def __init__(
        self,
        path: str,
        *formats: Format,
        prefix: str = "",
        holds: tuple[str, ...] = ("dropout",),
    ) -> None:
        self.module, self.name = path.split(":")
        self.formats, self.prefix, self.holds = formats, prefix, holds

    @property
    def type(self) -> type | None:
        """The class, if its module has been imported."""
        return getattr(sys.modules.get(self.module), self.name, None)

    @property
    def title(self) -> str:
        """What messages call it: its name, with the module where two share one."""
        unique = self.module.startswith(("mha_lib.", "transformers."))
        return self.name if unique else f"{self.module}.{self.name}"

    def read(self, module: Any) -> Weights:
        """The weights of a module of this class, or ValueError."""
        settings = self.settings(module)
        heads = settings.pop("num_heads")
        format, arrays = self.format_of(module), self.arrays(module)
        return replace(format.read(arrays, heads, prefix=self.prefix), **settings)

    def objection(self, weights: Weights) -> str | None:
        """Why no module of this class can hold the weights; None if one can."""
        reasons = [format.objection(weights) for format in self.formats]
        if None not in reasons:
            return reasons[-1]  # the last format is the roomiest
        if weights.output_dropout and "output_dropout" not in self.holds:
            p = weights.output_dropout
            return f"it has no dropout on its output, which is {p} (make it 0 first)"
        return None

    def make(self, weights: Weights, source: Any) -> Any:
        """A new module with these weights, which it can hold."""
        format = next(x for x in self.formats if x.objection(weights) is None)
        module = self.new(weights, source)
        self.load(module, format.write(self.complete(weights), prefix=self.prefix))
        return module

    # What the other kinds do in their own way:

    def format_of(self, module: Any) -> Format:
        """The format that this module has."""
        return self.formats[0]

    def settings(self, module: Any) -> dict[str, Any]:
        """What `Weights` holds beside the arrays."""
        return {name: getattr(module, name) for name in ("num_heads", *self.holds)}

    def arrays(self, module: Any) -> dict[str, Any]:
        """All arrays of the module by name."""
        return module.state_dict()

    def complete(self, weights: Weights) -> Weights:
        """With a bias everywhere, if there is one anywhere."""
        if all(bias is None for bias in weights.biases):
            return weights

        def fill(x: Projection) -> Projection:
            missing = x.bias is None
            bias = x.weight.new_zeros(len(x.weight)) if missing else x.bias
            return Projection(x.weight, bias)

        filled = {name: fill(getattr(weights, name)) for name in ("q", "k", "v", "out")}
        return replace(weights, **filled)

    def new(self, weights: Weights, source: Any) -> Any:
        """A module of the right sizes whose numbers are still to come."""
        E, H = weights.sizes["E"], weights.num_heads
        with torch.device("meta"):  # draws no random number
            module = self.type(E, H, weights.dropout, any_bias(weights))
        if "output_dropout" in self.holds:
            module.output_dropout = weights.output_dropout
        return module

    def load(self, module: Any, arrays: dict[str, Tensor]) -> None:
        """Put the arrays into the new module."""
        module.load_state_dict(arrays, assign=True)

    def training(self, module: Any) -> bool | None:
        """Whether the module drops out; None if it does not know by itself."""
        return module.training

    def set_training(self, module: Any, training: bool) -> None:
        """Switch dropout on or off."""
        module.train(training)


def any_bias(weights: Weights) -> bool:
    """Whether a projection has a bias."""
    return any(bias is not None for bias in weights.biases)
