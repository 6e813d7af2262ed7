"""Everybody who is timed, given the same weights.

A contestant builds, from a :class:`benchmarks.problem.Problem`, a module that takes x
(B, T, E) and returns the output and the weights or None. Masks are made beforehand,
once: a caller makes them once for all layers and steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.problem import Problem
from mha_lib import (
    BatchedMHA,
    BuiltinMHA,
    EinsumMHA,
    FusedMHA,
    MultiheadAttention,
    PerHeadMHA,
    SplitConcatMHA,
    convert,
)
from mha_lib.masks import to_sequence_first_mask

Result = tuple[Tensor, Tensor | None]


@dataclass(frozen=True)
class Contestant:
    """A way to compute attention, and where it can compete."""

    name: str
    build: Callable[[Problem], nn.Module]
    weights: str = ""  # returned: "", "averaged" (B, T, S) or "per head" (B, H, T, S)
    makes_map: bool = False  # whether a (T, S) map of a head is ever made
    masks: tuple[bool, ...] = (False, True)  # without, with a causal mask
    passes: tuple[str, ...] = ("forward", "training")
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    devices: tuple[str, ...] = ("cpu", "cuda")
    core: bool = False  # timed in every setting, not in the first one alone
    softmax: bool = True  # False: a yardstick that leaves the softmax out

    def enters(self, causal: bool, run: str, dtype: str, device: str) -> bool:
        """Whether it can compete there at all."""
        return (
            causal in self.masks
            and run in self.passes
            and dtype in self.dtypes
            and device in self.devices
        )


class Layer(nn.Module):
    """A module and the way to call it."""

    def __init__(
        self, module: nn.Module, run: Callable[[nn.Module, Tensor], Result]
    ) -> None:
        super().__init__()
        self.module = module
        self.run = run

    def forward(self, x: Tensor) -> Result:
        return self.run(self.module, x)


# --- the floor ----------------------------------------------------------------


class Floor(nn.Module):
    """Fused linear, F.scaled_dot_product_attention, linear: nothing else."""

    def __init__(self, problem: Problem, *, mask: Tensor | None = None) -> None:
        super().__init__()
        B, T, E, self.H = problem.size
        self.in_weight = nn.Parameter(problem.in_weight.clone())
        self.in_bias = nn.Parameter(problem.in_bias.clone())
        self.out_weight = nn.Parameter(problem.out_weight.clone())
        self.out_bias = nn.Parameter(problem.out_bias.clone())
        self.mask = mask
        self.causal = problem.causal and mask is None

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q, k and v, each (B, H, T, D)."""
        joint = F.linear(x, self.in_weight, self.in_bias)
        return joint.unflatten(-1, (3, self.H, -1)).permute(2, 0, 3, 1, 4).unbind()

    def merge(self, context: Tensor) -> Tensor:
        joined = context.transpose(1, 2).flatten(2)
        return F.linear(joined, self.out_weight, self.out_bias)

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=self.mask, is_causal=self.causal
        )

    def forward(self, x: Tensor) -> Result:
        return self.merge(self.attend(*self.split(x))), None


class Products(Floor):
    """The matrix products alone, no softmax: one head at a time, one buffer."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        B, H, T, D = q.shape
        context = q.new_empty(B, T, H, D).transpose(1, 2)  # as SDPA lays it out
        scores = q.new_empty(T, T)
        for b in range(B):
            for h in range(H):
                torch.mm(q[b, h], k[b, h].T, out=scores)
                context[b, h] = scores @ v[b, h]
        return context


class HeadSlices(Floor):
    """The loop of chapter 3: one map at a time, made, used and dropped."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        q, k, v = q * q.shape[-1] ** -0.5, k.transpose(-2, -1), v
        contexts = []
        for h in range(self.H):
            scores = q[:, h] @ k[:, h]  # (B, T, T)
            if self.mask is not None:
                scores = scores.masked_fill(~self.mask, float("-inf"))
            contexts.append(scores.softmax(-1) @ v[:, h])
        return torch.stack(contexts, dim=1)


# --- ours and torch's -----------------------------------------------------------


def fused(problem: Problem) -> FusedMHA:
    """The source from which :func:`mha_lib.convert` makes every other style."""
    _, _, E, H = problem.size
    with torch.device("meta"):
        layer = FusedMHA(E, H)
    state = {
        "in_proj.weight": problem.in_weight.clone(),
        "in_proj.bias": problem.in_bias.clone(),
        "out_proj.weight": problem.out_weight.clone(),
        "out_proj.bias": problem.out_bias.clone(),
    }
    layer.load_state_dict(state, assign=True)
    return layer.requires_grad_()


def fused_call(need_weights: bool) -> Callable[[Problem], nn.Module]:
    def build(problem: Problem) -> nn.Module:
        causal = problem.causal
        return Layer(
            fused(problem),
            lambda layer, x: layer(x, is_causal=causal, need_weights=need_weights),
        )

    return build


def style(target: type[nn.Module]) -> Callable[[Problem], nn.Module]:
    def build(problem: Problem) -> nn.Module:
        layer, mask = convert(fused(problem), target), problem.mask
        return Layer(layer, lambda layer, x: layer(x, mask=mask))

    return build


def einsum(problem: Problem) -> nn.Module:
    """The style whose sequence comes first, with the batch first."""
    B, T, _, H = problem.size
    mask = problem.mask
    if mask is not None:
        mask = to_sequence_first_mask(mask, (B, H, T, T))

    def run(layer: nn.Module, x: Tensor) -> Result:
        output, weights = layer(x.transpose(0, 1), mask=mask)
        return output.transpose(0, 1), weights

    return Layer(convert(fused(problem), EinsumMHA), run)


def torch_call(
    kind: type[nn.Module],
    *,
    need_weights: bool,
    average: bool = True,
    fast_path: bool = True,
) -> Callable[[Problem], nn.Module]:
    """``nn.MultiheadAttention``, or ours with the same interface."""

    def build(problem: Problem) -> nn.Module:
        _, _, E, H = problem.size
        like = {"device": problem.x.device, "dtype": problem.x.dtype}
        layer = kind(E, H, batch_first=True, **like)
        layer.load_state_dict(
            {
                "in_proj_weight": problem.in_weight,
                "in_proj_bias": problem.in_bias,
                "out_proj.weight": problem.out_weight,
                "out_proj.bias": problem.out_bias,
            }
        )
        hidden = None if problem.mask is None else ~problem.mask

        def run(layer: nn.Module, x: Tensor) -> Result:
            return layer(
                x,
                x,
                x,
                need_weights=need_weights,
                average_attn_weights=average,
                attn_mask=hidden,
                is_causal=problem.causal,
            )

        def run_slowly(layer: nn.Module, x: Tensor) -> Result:
            torch.backends.mha.set_fastpath_enabled(False)
            try:
                return run(layer, x)
            finally:
                torch.backends.mha.set_fastpath_enabled(True)

        return Layer(layer, run if fast_path else run_slowly)

    return build


FLOOR = Contestant("floor: fused + SDPA", Floor, core=True)
OURS = MultiheadAttention
THEIRS = nn.MultiheadAttention
MAP = {"weights": "per head", "makes_map": True}
MEAN = {"weights": "averaged", "makes_map": True}

HERE = (
    FLOOR,
    Contestant(
        "bare matrix products",
        Products,
        masks=(False,),
        passes=("forward",),
        softmax=False,
    ),
    Contestant(
        "fused + SDPA, mask as a tensor",
        lambda problem: Floor(problem, mask=problem.mask),
        masks=(True,),
    ),
    Contestant("FusedMHA, no weights", fused_call(False), core=True),
    Contestant(
        "mha_lib.MultiheadAttention, no weights",
        torch_call(OURS, need_weights=False),
        core=True,
    ),
    Contestant(
        "nn.MultiheadAttention, no weights",
        torch_call(THEIRS, need_weights=False),
        core=True,
    ),
    Contestant(
        "nn.MultiheadAttention, no weights, no fast path",
        torch_call(THEIRS, need_weights=False, fast_path=False),
        passes=("forward",),
    ),
    Contestant(
        "loop over head slices",
        lambda problem: HeadSlices(problem, mask=problem.mask),
        makes_map=True,
        core=True,
    ),
    Contestant("FusedMHA, weights per head", fused_call(True), **MAP, core=True),
    Contestant(
        "mha_lib.MultiheadAttention, weights averaged",
        torch_call(OURS, need_weights=True),
        **MEAN,
        core=True,
    ),
    Contestant(
        "mha_lib.MultiheadAttention, weights per head",
        torch_call(OURS, need_weights=True, average=False),
        **MAP,
    ),
    Contestant(
        "nn.MultiheadAttention, weights averaged",
        torch_call(THEIRS, need_weights=True),
        **MEAN,
        core=True,
    ),
    Contestant(
        "nn.MultiheadAttention, weights per head",
        torch_call(THEIRS, need_weights=True, average=False),
        **MAP,
    ),
    Contestant("PerHeadMHA", style(PerHeadMHA), **MAP),
    Contestant("BatchedMHA", style(BatchedMHA), **MAP, core=True),
    Contestant("EinsumMHA", einsum, **MAP),
    Contestant("BuiltinMHA", style(BuiltinMHA), **MAP),
    Contestant("SplitConcatMHA", style(SplitConcatMHA), **MAP),
)
