"""What is wrong where x is cut into heads."""

import torch
from torch import Tensor

from mha_lib.check.catalogue.mistake import TORCH_LAYERS, Mistake
from mha_lib.check.reference import (
    LAYERS,
    Problem,
    Route,
    Stage,
    Undefined,
    merge_plain,
)

_SPLIT = ("split_heads", *LAYERS)
_TWO_CUTS = "deeper/03_what_a_wrong_cut_costs#two-more-cuts"


def _exchanged(p: Problem, x: Tensor) -> Tensor:
    return x.unflatten(-1, (p.D, p.H)).transpose(-3, -2)


def _overlapping(p: Problem, x: Tensor) -> Tensor:
    return torch.stack([x[..., h : h + p.D] for h in range(p.H)], -3)


def _in_one_view(p: Problem, x: Tensor) -> Tensor:
    if p.call != "mha_sequence_first":
        raise Undefined("a name of its own says it: split-by-view")
    return x.transpose(0, 1).reshape(len(x), p.H, -1, p.D)  # (T, B, E) as it lies


def _reshaped(output: Tensor) -> Tensor:
    return output.reshape(*output.shape[1::-1], -1)


# Ways to cut without a name, by the fact that tells them.
_IN_ONE_VIEW = Stage("split", (), _in_one_view)
WAYS: dict[str, Route] = {
    "heads-and-features": (Stage("split", (), _exchanged),),
    "slices-overlap": (Stage("split", (), _overlapping),),
    "cut-in-one-view": (_IN_ONE_VIEW,),
    "cut-and-joined-in-one-view": (
        _IN_ONE_VIEW,
        Stage("merge", (), merge_plain),
        Stage("layout", (), _reshaped),
    ),
}

MISTAKES = (
    Mistake(
        "split-by-view",
        "A head holds pieces of several tokens",
        "x was cut by view(B, H, T, D) or view(B*H, -1, D) with no transpose",
        "03_all_heads_at_once#heads-cut-without-a-transpose",
        "reczoo/FuxiCTR#30",
        stages={"split": lambda p, x: x.reshape(len(x), p.H, -1, p.D)},
        tasks=_SPLIT,
    ),
    Mistake(
        "split-interleaved",
        "Head h holds every H-th feature, not D neighbours",
        "x was cut by view(B, T, D, H), with the heads as the last axis",
        _TWO_CUTS,
        stages={"split": lambda p, x: x.unflatten(-1, (p.D, p.H)).movedim(-1, -3)},
        tasks=_SPLIT,
    ),
    Mistake(
        "split-axis-left",
        "The heads of one token attend to each other, no token sees another",
        "after view(B, T, H, D) the transpose(1, 2) is missing",
        _TWO_CUTS,
        stages={"split": lambda p, x: x.unflatten(-1, (p.H, p.D))},
        tasks=("split_heads", *TORCH_LAYERS),
        undo=lambda context: context.transpose(-3, -2),
    ),
    Mistake(
        "heads-ignored",
        "The layer has one head, whatever num_heads says",
        "q, k and v are never cut into heads (the scale may be √E or √D)",
        "02_heads_in_a_loop#the-number-of-heads-ignored",
        stages={"split": lambda p, x: x.unsqueeze(-3)},
        tasks=LAYERS,
    ),
)
