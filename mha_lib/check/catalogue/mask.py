"""What is wrong with how a mask is read."""

from collections.abc import Callable

import torch
from torch import Tensor

from mha_lib.check.catalogue.mistake import (
    GIVEN,
    IS_TRUE_TRUE,
    TORCH_LAYERS,
    WEIGHTED,
    WRONG_MASK,
    Mistake,
)
from mha_lib.check.catalogue.scores import square
from mha_lib.check.reference import DEFAULT, LAYERS, Problem

_REPEAT = "deeper/04_every_form_of_a_mask#the-conversions"


def _reads(do: Callable[[Problem, Tensor], Tensor]) -> Callable:
    return lambda p: do(p, DEFAULT["mask"].do(p))


def _row_masks(p: Problem, mask: Tensor, order: Callable) -> Tensor:
    """The mask of the sequence that stands in each row of a stack of heads."""
    b, h = torch.arange(p.B)[:, None], torch.arange(p.H)
    return mask.expand(p.B, -1, -1, -1)[order(b, h), 0]


def _tiled(p: Problem, mask: Tensor) -> Tensor:
    return _row_masks(p, mask, lambda b, h: (b * p.H + h) % p.B)


def _interleaved(p: Problem, mask: Tensor) -> Tensor:
    return _row_masks(p, mask, lambda b, h: (h * p.B + b) // p.H)


def _as_heads(p: Problem, mask: Tensor) -> Tensor:
    if p.B != p.H:
        raise IndexError("B and H differ")
    return mask.transpose(0, 1)


MISTAKES = (
    Mistake(
        "mask-inverted",
        "Hidden keys are seen and visible keys are hidden",
        "the mask is read or made with True = hidden; here True = may attend",
        IS_TRUE_TRUE,
        "rasbt/LLMs-from-scratch#1061",
        stages={"polarity": lambda mask: ~mask},
        tasks=("causal_mask", "combine_masks", *WEIGHTED),
    ),
    Mistake(
        "mask-transposed",
        "Rows and columns of the mask have changed roles",
        "the mask is transposed before it is used",
        "04_masks#the-causal-mask",
        stages={"mask": _reads(lambda p, mask: square(mask))},
        tasks=GIVEN,
    ),
    Mistake(
        "mask-of-first-sequence",
        "Every sequence is masked like sequence 0",
        "mask[0] is used for the whole batch",
        WRONG_MASK,
        stages={"mask": _reads(lambda p, mask: mask[:1])},
        tasks=GIVEN,
    ),
    Mistake(
        "mask-of-first-query",
        "All queries see what query 0 may see",
        "one row of the mask, its first, is used for all queries",
        "04_masks#an-axis-for-the-heads",
        stages={"mask": _reads(lambda p, mask: mask[..., :1, :])},
        tasks=GIVEN,
    ),
    Mistake(
        "mask-of-last-query",
        "All queries see what the last query may see",
        "one row of the mask, its last, is used for all queries: a padding mask was "
        "expected",
        "04_masks#an-axis-for-the-heads",
        stages={"mask": _reads(lambda p, mask: mask[..., -1:, :])},
        tasks=GIVEN,
    ),
    Mistake(
        "batch-axis-as-heads",
        "Head h is masked like sequence h, and the code fails unless B = H",
        "a mask (B, T, S) meets scores (B, H, T, S) without an axis for H",
        "04_masks#an-axis-for-the-heads",
        stages={"mask": _reads(_as_heads)},
        tasks=TORCH_LAYERS,
    ),
    Mistake(
        "mask-tiled",
        "Some heads use the mask of another sequence",
        "the mask is tiled (repeat) where the rows lie as b·H + h and need "
        "repeat_interleave",
        _REPEAT,
        "ArrowLuo/CLIP4Clip#22",
        stages={"mask": _reads(_tiled)},
        tasks=TORCH_LAYERS,
    ),
    Mistake(
        "mask-interleaved",
        "Some heads use the mask of another sequence",
        "the mask is repeated by repeat_interleave where the rows lie as h·B + b and "
        "need to be tiled",
        _REPEAT,
        "lsdefine/attention-is-all-you-need-keras#36",
        stages={
            "mask": _reads(_interleaved),
            "padding": lambda p: _interleaved(p, DEFAULT["padding"].do(p)),
        },
        tasks=LAYERS,
    ),
)
