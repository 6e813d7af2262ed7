"""What the properties are checked on: random cases, and every way to attend.

A subject turns a plain layer of four projections into one way of computing it. To
hold another one to all properties, add a line to SUBJECTS.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import inf
from unittest.mock import patch

import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from evidence.helpers import call
from mha_lib import (
    BatchedMHA,
    BuiltinMHA,
    EinsumMHA,
    FusedMHA,
    MultiheadAttention,
    PerHeadMHA,
    SplitConcatMHA,
    _tiles,
    attention,
    convert,
)
from mha_lib.masks import to_torch_mask

# The same examples on every run and every machine; nothing is timed or stored.
# A loaded machine may be slow at drawing: that is no fault of the code.
examples = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=int(os.environ.get("EXAMPLES", 15)),  # `make quick` tries fewer
    suppress_health_check=[HealthCheck.too_slow],
)

# --- cases ----------------------------------------------------------------------


def _some(shape: tuple[int, ...], generator: torch.Generator, share: float) -> Tensor:
    return torch.rand(shape, generator=generator) < share


def _start(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Keys up to a random length, which may be 0, for each sequence."""
    batch = shape[:1] if len(shape) > 2 else (1,)
    lengths = torch.randint(shape[-1] + 1, batch, generator=generator)
    size = (*batch, *(1 for _ in shape[1:]))
    return (torch.arange(shape[-1]) < lengths.reshape(size)).expand(shape)


def _ones(shape: tuple[int, ...]) -> Tensor:
    return torch.ones(shape, dtype=torch.bool)


# Each makes a boolean mask, True = may attend, that can be expanded to the shape.
MASKS: dict[str, Callable[[tuple[int, ...], torch.Generator], Tensor]] = {
    "random": lambda shape, g: _some(shape, g, 0.6),
    "sparse": lambda shape, g: _some(shape, g, 0.2),  # many rows see nothing
    "rows": lambda shape, g: _some((*shape[:-1], 1), g, 0.6),
    "columns": lambda shape, g: _some(shape[-1:], g, 0.6),
    "padding": _start,
    "causal": lambda shape, g: _ones(shape).tril(),
    "last sees all": lambda shape, g: _ones(shape).tril(shape[-1] - shape[-2]),
    "causal and padding": lambda shape, g: _start(shape, g).tril(),
    "all": lambda shape, g: _ones(shape),
    "nothing": lambda shape, g: ~_ones(shape),
}

# Where the numbers of an input (B, length, E) lie in memory.
MEMORY: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x,
    "sequence first": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "features first": lambda x: x.mT.contiguous().mT,
    "every second": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda x: x[:1].expand_as(x),  # one sequence, seen B times
}


@dataclass(frozen=True)
class Case:
    """Sizes, numbers and a mask; the numbers follow from the seed."""

    B: int
    T: int
    S: int
    H: int
    D: int
    seed: int
    dtype: torch.dtype
    size: float
    memory: str
    mask: Tensor | None

    @property
    def E(self) -> int:
        return self.H * self.D

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return self.B, self.H, self.T, self.S

    @property
    def visible(self) -> Tensor:
        """The mask with all its axes: (B, H, T, S)."""
        return whole(self.mask, self.shape)

    def random(self, *shape: int, salt: int = 0) -> Tensor:
        """Normal numbers, others for every salt."""
        generator = torch.Generator().manual_seed(1000 * self.seed + salt)
        numbers = torch.randn(shape, dtype=torch.float64, generator=generator)
        return numbers.to(self.dtype)

    def permutation(self, size: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed)
        return torch.randperm(size, generator=generator)

    @cached_property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Three different inputs (B, T, E), (B, S, E), (B, S, E)."""
        return tuple(
            MEMORY[self.memory](self.size * self.random(self.B, n, self.E, salt=i))
            for i, n in enumerate((self.T, self.S, self.S), start=1)
        )

    @cached_property
    def upstream(self) -> tuple[Tensor, Tensor]:
        """What meets the output and the weights on the way back."""
        output = self.random(self.B, self.T, self.E, salt=4)
        return output, self.random(*self.shape, salt=5)

    @property
    def plain(self) -> BatchedMHA:
        """A layer with biases; a projected number is about as large as an input."""
        layer = BatchedMHA(self.E, self.H).to(self.dtype).eval()
        with torch.no_grad():
            for i, parameter in enumerate(layer.parameters(), start=6):
                numbers = self.random(*parameter.shape, salt=i)
                parameter.copy_(numbers / parameter.shape[-1] ** 0.5)
        return layer


def whole(mask: Tensor | None, shape: tuple[int, int, int, int]) -> Tensor:
    """A mask of any rank as (B, H, T, S); shares no code with the library."""
    if mask is None:
        return torch.ones(shape, dtype=torch.bool)
    if mask.dim() == 3:
        mask = mask[:, None]
    return mask.expand(shape)


# No two of these sequences are equal, for hypothesis spends most of a small budget on
# repeating one choice in the place of another like it, and sizes have to differ.
_B, _T, _S = (1, 2, 3, 2, 3), range(1, 6), range(1, 7)
_H, _D = (1, 2, 3, 4, 2, 3), range(1, 5)
_EMPTY = (*[""] * 13, "B", "T", "S")
_DTYPES = [torch.float64] * 5 + [torch.float32, torch.bfloat16, torch.float16]
_RANKS = (4, 3, 2)


@st.composite
def masks(draw, shape: tuple[int, int, int, int], kinds=tuple(MASKS), ranks=_RANKS):
    """A mask of rank 2, 3 or 4 that fits (B, H, T, S), or None if that is a kind."""
    B, H, T, S = shape
    kind = draw(st.sampled_from(tuple(kinds)))
    rank = draw(st.sampled_from(tuple(ranks)))
    seed = draw(st.sampled_from(range(1000)))
    thin = draw(st.sampled_from((False, True)))
    if kind is None:
        return None
    axes = {2: (T, S), 3: (B, T, S), 4: (B, H, T, S)}[rank]
    mask = MASKS[kind](axes, torch.Generator().manual_seed(seed)).expand(axes)
    for axis in range(rank if thin else 0):  # where nothing changes, size 1 is enough
        first = mask[(slice(None),) * axis + (slice(1),)]
        mask = first if torch.equal(first.expand_as(mask), mask) else mask
    return mask


@st.composite
def cases(
    draw, *, kinds=(None, None, *MASKS), ranks=_RANKS, square=False, may_be_empty=True
):
    """Small sizes, now and then B, T or S is 0. `square` makes S equal T."""
    B, T, S, H, D = (draw(st.sampled_from(sizes)) for sizes in (_B, _T, _S, _H, _D))
    empty = draw(st.sampled_from(_EMPTY)) if may_be_empty else ""
    B, T, S = (0 if empty == name else n for name, n in (("B", B), ("T", T), ("S", S)))
    S = T if square else S
    seed = draw(st.sampled_from(range(999)))
    dtype = draw(st.sampled_from(_DTYPES))
    # Large inputs give weights near 0 and 1; half precision cannot hold those.
    size = draw(st.sampled_from((1.0, 6.0))) if dtype == torch.float64 else 1.0
    memory = draw(st.sampled_from(tuple(MEMORY)))
    mask = draw(masks((B, H, T, S), kinds, ranks))
    return Case(B, T, S, H, D, seed, dtype, size, memory, mask)


# --- subjects -------------------------------------------------------------------


class Around(nn.Module):
    """`attention` between plain projections, its operands in one of three layouts."""

    def __init__(self, plain: BatchedMHA, layout: str) -> None:
        super().__init__()
        self.plain, self.layout = plain, layout

    def forward(self, query, key=None, value=None, mask=None, **options):
        key = query if key is None else key
        value = key if value is None else value
        plain, (B, T, E), H = self.plain, query.shape, self.plain.num_heads
        q = self.split(plain.q_proj(query), H)
        k = self.split(plain.k_proj(key), H)
        v = self.split(plain.v_proj(value), H)
        if mask is not None:
            mask = whole(mask, (B, H, T, key.shape[1]))
            if self.layout == "heads on the batch axis":
                mask = mask.transpose(0, 1).flatten(0, 1)
        context, weights = attention(q, k, v, mask, **options)
        if self.layout == "heads on the batch axis":
            context = context.unflatten(0, (H, B)).transpose(0, 1)
            if weights is not None:
                weights = weights.unflatten(0, (H, B)).transpose(0, 1)
        context = context.permute(0, 2, 1, 3).reshape(B, T, E)
        return plain.out_proj(context), weights

    def split(self, x: Tensor, H: int) -> Tensor:
        B, n, E = x.shape
        heads = x.reshape(B, n, H, E // H)
        if self.layout == "batch first":
            return heads.permute(0, 2, 1, 3).contiguous()
        if self.layout == "sequence first":  # the memory of (n, B, H, D)
            return heads.permute(1, 0, 2, 3).contiguous().permute(1, 2, 0, 3)
        return heads.permute(2, 0, 1, 3).reshape(H * B, n, E // H)


@dataclass(frozen=True)
class Subject:
    """One way to attend.

    `build` makes a module with the weights of a plain layer, and `call` calls it
    batch first, with our masks: (module, query, key, value, mask) → (output, weights
    or None). Where `causal` is true, `call` takes `is_causal` as well.
    """

    name: str
    build: Callable[[BatchedMHA], nn.Module]
    call: Callable[..., tuple[Tensor, Tensor | None]] = call
    causal: bool = False
    heads_share_a_mask: bool = False
    kernel: str = "never"  # torch's fused one is taken "always", or "under a mask"

    def __repr__(self) -> str:
        return self.name

    def fit(self, mask: Tensor | None) -> Tensor | None:
        """The mask, or that of head 0 where all heads have to share one."""
        if self.heads_share_a_mask and mask is not None and mask.dim() == 4:
            return mask[:, :1]
        return mask

    def take(self, case: Case) -> tuple[Callable, Case]:
        """What computes with the weights of the case, and the case as it fits."""
        return self.on(case.plain), replace(case, mask=self.fit(case.mask))

    def on(self, plain: BatchedMHA) -> Callable:
        return partial(self.call, self.build(plain))


def drop_in(plain: BatchedMHA, **options) -> MultiheadAttention:
    E, H, dtype = plain.embed_dim, plain.num_heads, plain.out_proj.weight.dtype
    layer = MultiheadAttention(E, H, dtype=dtype, **options).eval()
    layer.load_state_dict(convert(plain, "torch"))
    return layer


def call_drop_in(layer, query, key=None, value=None, mask=None, **options):
    """Turn inputs and masks as torch wants them: a padding mask, or any other one."""
    key = query if key is None else key
    value = key if value is None else value
    padding = None
    if mask is not None and mask.dim() == 3 and mask.shape[1] == 1:
        B, S = key.shape[:2]
        padding, mask = ~mask[:, 0].expand(B, S), None
    if mask is not None:
        shape = (query.shape[0], layer.num_heads, query.shape[1], key.shape[1])
        mask = to_torch_mask(mask, shape)
        if not layer.batch_first:  # here as numbers, 0 or −∞
            mask = torch.zeros(mask.shape, dtype=query.dtype).masked_fill(mask, -inf)
    if not layer.batch_first:
        turned = {}  # one object stays one object
        for x in (query, key, value):
            turned.setdefault(id(x), x.transpose(0, 1))
        query, key, value = (turned[id(x)] for x in (query, key, value))
    output, weights = layer(
        query,
        key,
        value,
        padding,
        attn_mask=mask,
        average_attn_weights=False,
        **options,
    )
    return output if layer.batch_first else output.transpose(0, 1), weights


_directly = nn.Module.__call__
_weightless = {"call": partial(_directly, need_weights=False), "kernel": "always"}

SUBJECTS = [
    *(
        Subject(f"attention, {layout}", partial(Around, layout=layout), _directly, True)
        for layout in ("batch first", "sequence first", "heads on the batch axis")
    ),
    Subject(
        "attention, no weights",
        partial(Around, layout="batch first"),
        causal=True,
        **_weightless,
    ),
    Subject("PerHeadMHA", partial(convert, target=PerHeadMHA)),
    Subject("BatchedMHA", partial(convert, target=BatchedMHA)),
    Subject("FusedMHA", partial(convert, target=FusedMHA), _directly, causal=True),
    Subject(
        "FusedMHA, no weights",
        partial(convert, target=FusedMHA),
        causal=True,
        **_weightless,
    ),
    Subject("EinsumMHA", partial(convert, target=EinsumMHA), heads_share_a_mask=True),
    Subject("BuiltinMHA", partial(convert, target=BuiltinMHA), kernel="under a mask"),
    Subject("SplitConcatMHA", partial(convert, target=SplitConcatMHA)),
    Subject("MultiheadAttention", partial(drop_in, batch_first=True), call_drop_in),
    Subject("MultiheadAttention, sequence first", drop_in, call_drop_in),
    Subject(
        "MultiheadAttention, no weights",
        partial(drop_in, batch_first=True),
        partial(call_drop_in, need_weights=False),
        kernel="always",
    ),
]


def small_tiles() -> AbstractContextManager:
    """Cut small maps into tiles as well, so that the code for large ones runs."""
    return patch.object(_tiles, "TILE", 12)
