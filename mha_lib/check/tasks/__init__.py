"""What can be checked, and the probes that do it. Probes are data; no answers here.

A probe is a dictionary that travels to the submission and back::

    {"name": "plain",                       what it is for
     "call": "mha",                         the task, so how to call
     "sizes": {"B": 2, "H": 3, ...},        B T S H D E, or those that it has
     "inputs": {"query": tensor, ...},      a mask under "mask", if there is one
     "options": {"repeat": True, ...},      see `beside.run`
     "weights": {"W_q": ..., "b_o": ...},   (out, in) as in nn.Linear; or None
     "masks": False}                        where masks are still to come

Sizes and numbers are drawn anew for each probe of each seed. The small probes come
first: a search looks at them, and the large ones at the end confirm what it found.
Its modules import in one direction::

    draw ← layers, parts ← here
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch

from mha_lib.check.conduct import conduct
from mha_lib.check.tasks.draw import Draw, Probe, plainly
from mha_lib.check.tasks.layers import attention, mha, split_concat
from mha_lib.check.tasks.parts import causal_mask, combine_masks, heads, padding_mask

__all__ = ["TASKS", "Task"]


@dataclass(frozen=True)
class Task:
    """One thing to implement: what it is called with, and with which probes.

    Attributes:
        name: as ``check(..., task=name)`` takes it.
        title: the same in words.
        signature: how the submission is called and what it returns.
        options: the options that its probes may have.
        make: draws the probes; call `probes` instead.
        axes: what a row and what a column of its answer is for, in words; or "".
        shape: of its answer, in letters; "" where that is not fixed.
        conclude: judges the outcomes where no search for stages of attention does.
        mistakes: what such a task can name, with a sentence each.
        of_class: the part of its signature that concerns a class; "" where that is all.
        unmasked: its signature before there are masks; "" where there is none.
        masks: whether any of its probes has a mask.
    """

    name: str
    title: str
    signature: str
    options: tuple[str, ...]
    make: Callable[..., list[Probe]]
    axes: tuple[str, str] = ("query", "feature")
    shape: str = ""
    conclude: Callable | None = None
    mistakes: Mapping[str, str] = field(default_factory=dict, compare=False)
    of_class: str = ""
    unmasked: str = ""
    masks: bool = True

    def without_mask(self) -> "Task":
        """The same task before there are masks.

        Raises:
            ValueError: it has no such form.
        """
        if not self.unmasked:
            raise ValueError(f"mask=False is for attention and mha; got {self.name}")
        title = f"{self.title} (no mask)"
        own = {"title": title, "signature": self.unmasked, "of_class": ""}
        return replace(self, masks=False, **own)

    def for_class(self) -> "Task":
        """The same task, where a class was given."""
        return replace(self, signature=self.of_class or self.signature)

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
        with plainly():
            probes = self.make(Draw(seed, dtype, embed_dim, num_heads))
            probes += conduct(self.name, probes)
        told = {"call": self.name}
        if not self.masks:
            calls = ((p, [p, *p.get("before", ())]) for p in probes)
            probes = [
                p for p, of in calls if not any("mask" in x["inputs"] for x in of)
            ]
            told["masks"] = False
        return [probe | told for probe in probes]


_CLASS = "A class made as Class(embed_dim, num_heads)"
_MHA = (
    f"{_CLASS}, a module, or a function f(query, key, value, weights, num_heads, "
    "mask=None) with weights W_q, b_q, …, W_o, b_o as nn.Linear keeps them. "
)
_BATCH_FIRST = (
    "It is called with query (B, T, E), key and value (B, S, E) and a "
    "boolean mask (B, T, S), True = may attend, or without, and returns "
    "the output (B, T, E), or (output, weights) with weights (B, H, T, S)."
)
_SEQUENCE_FIRST = (
    "It is called with query (T, B, E), key and value (S, B, E) and a "
    "boolean mask (T, S, B), True = may attend, or without, and returns "
    "the output (T, B, E), or (output, weights) with weights (B, H, T, S)."
)
_AS_IN_TENSORFLOW = (
    "ReLU on the three projections, values from the keys, heads concatenated "
    "on the batch axis, keys hidden whose embedding is all zero, with "
    "causality also the later ones; then W_o. No residual, no norm."
)
_LAYER = ("repeat", "grad", "dtype", "device", "train", "dropout")

TASKS = {
    task.name: task
    for task in (
        Task(
            "attention",
            "scaled dot-product attention",
            "attention(q, k, v, mask=None) -> context, or (context, weights); q is "
            "(..., T, D), k is (..., S, D), v is (..., S, V); mask boolean, True = may "
            "attend, broadcasts to (..., T, S)",
            ("repeat", "grad", "dtype", "device"),
            attention,
            shape="(B, H, T, V)",
            unmasked="attention(q, k, v) -> context, or (context, weights); q is "
            "(..., T, D), k is (..., S, D), v is (..., S, V)",
        ),
        Task(
            "split_heads",
            "split into heads",
            "split_heads(x, num_heads) -> (B, H, T, D); x is (B, T, E)",
            ("repeat",),
            lambda draw: heads(draw, merge=False),
            ("token", "feature"),
            "(B, H, T, D)",
        ),
        Task(
            "merge_heads",
            "merge of the heads",
            "merge_heads(x) -> (B, T, E); x is (B, H, T, D)",
            ("repeat",),
            lambda draw: heads(draw, merge=True),
            ("token", "feature"),
            "(B, T, E)",
        ),
        Task(
            "causal_mask",
            "causal mask",
            "causal_mask(T, S) -> boolean (T, S), True = may attend: s ≤ t",
            ("repeat",),
            causal_mask,
            ("query", "key"),
            "(T, S)",
        ),
        Task(
            "padding_mask",
            "padding mask",
            "padding_mask(lengths, S) -> boolean (B, 1, S), True = may attend: "
            "s < lengths[b]",
            (),
            padding_mask,
            ("query", "key"),
            "(B, 1, S)",
        ),
        Task(
            "combine_masks",
            "combination of masks",
            "combine_masks(causal, padding) -> boolean (B, T, S), True = may attend; "
            "causal is (T, S), padding is (B, 1, S), boolean tables of any kind",
            (),
            combine_masks,
            ("query", "key"),
            "(B, T, S)",
        ),
        Task(
            "mha",
            "multi-head attention, batch first",
            _MHA + _BATCH_FIRST,
            _LAYER,
            mha,
            shape="(B, T, E)",
            of_class=f"{_CLASS}. {_BATCH_FIRST}",
            unmasked=f"{_CLASS}. It is called with query (B, T, E), key and value "
            "(B, S, E) and returns the output (B, T, E), or (output, weights) with "
            "weights (B, H, T, S).",
        ),
        Task(
            "mha_sequence_first",
            "multi-head attention, sequence first",
            _MHA + _SEQUENCE_FIRST,
            _LAYER,
            lambda draw: mha(draw, sequence_first=True),
            shape="(T, B, E)",
            of_class=f"{_CLASS}. {_SEQUENCE_FIRST}",
        ),
        Task(
            "split_concat",
            "multi-head attention as in TensorFlow",
            "A class, a module called with (queries, keys, causality), or a function "
            "f(queries, keys, weights, num_heads, causality=False) -> (B, T, E). "
            + _AS_IN_TENSORFLOW,
            _LAYER[:4],
            split_concat,
            shape="(B, T, E)",
            of_class=f"{_CLASS}. It is called with (queries, keys, causality) and "
            f"returns (B, T, E). {_AS_IN_TENSORFLOW}",
        ),
    )
}
