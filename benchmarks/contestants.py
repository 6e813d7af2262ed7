"""Everybody who is timed, given the same weights.

A contestant builds, from a :class:`benchmarks.workload.Workload`, a module that takes x
(B, T, E) and returns the output and the weights or None. Masks are made beforehand,
once: a caller makes them once for all layers and steps.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.workload import Workload
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
    build: Callable[[Workload], nn.Module]
    weights: str = ""  # returned: "", "averaged" (B, T, S) or "per head" (B, H, T, S)
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

    def __init__(self, workload: Workload, *, mask: Tensor | None = None) -> None:
        super().__init__()
        B, T, E, self.H = workload.size
        self.in_weight = nn.Parameter(workload.in_weight.clone())
        self.in_bias = nn.Parameter(workload.in_bias.clone())
        self.out_weight = nn.Parameter(workload.out_weight.clone())
        self.out_bias = nn.Parameter(workload.out_bias.clone())
        self.mask = mask
        self.causal = workload.causal and mask is None

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


def fused(workload: Workload) -> FusedMHA:
    """The source from which :func:`mha_lib.convert` makes every other style."""
    _, _, E, H = workload.size
    with torch.device("meta"):
        layer = FusedMHA(E, H)
    state = {
        "in_proj.weight": workload.in_weight.clone(),
        "in_proj.bias": workload.in_bias.clone(),
        "out_proj.weight": workload.out_weight.clone(),
        "out_proj.bias": workload.out_bias.clone(),
    }
    layer.load_state_dict(state, assign=True)
    return layer.requires_grad_()


def fused_call(need_weights: bool) -> Callable[[Workload], nn.Module]:
    def build(workload: Workload) -> nn.Module:
        causal = workload.causal
        return Layer(
            fused(workload),
            lambda layer, x: layer(x, is_causal=causal, need_weights=need_weights),
        )

    return build


def style(target: type[nn.Module]) -> Callable[[Workload], nn.Module]:
    def build(workload: Workload) -> nn.Module:
        layer, mask = convert(fused(workload), target), workload.mask
        return Layer(layer, lambda layer, x: layer(x, mask=mask))

    return build


def einsum(workload: Workload) -> nn.Module:
    """The style whose sequence comes first, with the batch first."""
    B, T, _, H = workload.size
    mask = workload.mask
    if mask is not None:
        mask = to_sequence_first_mask(mask, (B, H, T, T))

    def run(layer: nn.Module, x: Tensor) -> Result:
        output, weights = layer(x.transpose(0, 1), mask=mask)
        return output.transpose(0, 1), weights

    return Layer(convert(fused(workload), EinsumMHA), run)


def torch_call(
    kind: type[nn.Module],
    *,
    need_weights: bool,
    average: bool = True,
    fast_path: bool = True,
) -> Callable[[Workload], nn.Module]:
    """``nn.MultiheadAttention``, or ours with the same interface."""

    def build(workload: Workload) -> nn.Module:
        _, _, E, H = workload.size
        like = {"device": workload.x.device, "dtype": workload.x.dtype}
        layer = kind(E, H, batch_first=True, **like)
        layer.load_state_dict(
            {
                "in_proj_weight": workload.in_weight,
                "in_proj_bias": workload.in_bias,
                "out_proj.weight": workload.out_weight,
                "out_proj.bias": workload.out_bias,
            }
        )
        hidden = None if workload.mask is None else ~workload.mask

        def run(layer: nn.Module, x: Tensor) -> Result:
            return layer(
                x,
                x,
                x,
                need_weights=need_weights,
                average_attn_weights=average,
                attn_mask=hidden,
                is_causal=workload.causal,
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
        lambda workload: Floor(workload, mask=workload.mask),
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
        lambda workload: HeadSlices(workload, mask=workload.mask),
        core=True,
    ),
    Contestant(
        "FusedMHA, weights per head", fused_call(True), weights="per head", core=True
    ),
    Contestant(
        "mha_lib.MultiheadAttention, weights averaged",
        torch_call(OURS, need_weights=True),
        weights="averaged",
        core=True,
    ),
    Contestant(
        "mha_lib.MultiheadAttention, weights per head",
        torch_call(OURS, need_weights=True, average=False),
        weights="per head",
    ),
    Contestant(
        "nn.MultiheadAttention, weights averaged",
        torch_call(THEIRS, need_weights=True),
        weights="averaged",
        core=True,
    ),
    Contestant(
        "nn.MultiheadAttention, weights per head",
        torch_call(THEIRS, need_weights=True, average=False),
        weights="per head",
    ),
    Contestant("PerHeadMHA", style(PerHeadMHA), weights="per head"),
    Contestant("BatchedMHA", style(BatchedMHA), weights="per head", core=True),
    Contestant("EinsumMHA", einsum, weights="per head"),
    Contestant("BuiltinMHA", style(BuiltinMHA), weights="per head"),
    Contestant("SplitConcatMHA", style(SplitConcatMHA), weights="per head"),
)
