"""What is wrong with a padding mask."""

import torch
from torch import Tensor

from mha_lib.check.catalogue.mistake import IS_TRUE_TRUE, WRONG_MASK, Mistake
from mha_lib.check.reference import Problem, Stage, real_keys

_PADDING = "04_masks#the-padding-mask"
_RAW = "08_tensorflow_style#a-key-mask-from-raw-embeddings"
_MAKES_PADDING = ("padding_mask", "split_concat")


def _real_queries(p: Problem) -> Tensor:
    """(B, 1, T, 1)."""
    real = (p.x["queries"] != 0).any(-1) if "queries" in p.x else real_keys(p)
    return real[:, None, :, None]


def _keys(p: Problem) -> Tensor:
    return real_keys(p)[:, None, None]


def _at_the_left(p: Problem) -> Tensor:
    seen = torch.arange(p.S) >= p.S - p.x["lengths"][:, None]
    return seen[:, None, None]


# A way to make the mask without a name, by the fact that tells it.
WAYS = {"padding-at-left": Stage("padding", (), _at_the_left)}

MISTAKES = (
    Mistake(
        "padding-on-queries",
        "Padded queries are hidden, padded keys are seen",
        "the padding mask has the shape (B, T, 1), not (B, 1, S)",
        WRONG_MASK,
        "hyunwoongko/transformer#40",
        stages={"padding": _real_queries},
        tasks=_MAKES_PADDING,
    ),
    Mistake(
        "padding-on-both",
        "Padded queries see nothing",
        "the padding hides rows and columns; it has to hide columns, the keys",
        WRONG_MASK,
        stages={"padding": lambda p: _keys(p) & _real_queries(p)},
        tasks=_MAKES_PADDING,
    ),
    Mistake(
        "padding-inverted",
        "The padding is seen and the real keys are hidden",
        "the padding mask is True for padding; here True = may attend",
        IS_TRUE_TRUE,
        "rasbt/LLMs-from-scratch#1061",
        stages={"padding": lambda p: ~_keys(p)},
        tasks=_MAKES_PADDING,
    ),
    Mistake(
        "padding-of-first-sequence",
        "Every sequence is padded like sequence 0",
        "the length of sequence 0 is used for the whole batch",
        _PADDING,
        stages={"padding": lambda p: _keys(p)[:1].expand(p.B, -1, -1, -1)},
        tasks=_MAKES_PADDING,
    ),
    Mistake(
        "padding-ignored",
        "The padding is seen",
        "the padding mask is not applied, or is all True",
        _PADDING,
        stages={"padding": lambda p: torch.ones_like(_keys(p))},
        tasks=_MAKES_PADDING,
    ),
    Mistake(
        "padding-off-by-one",
        "One padded key of each sequence is seen",
        "the mask is s ≤ length, not s < length",
        _PADDING,
        stages={
            "padding": lambda p: (torch.arange(p.S) <= p.x["lengths"][:, None])[
                :, None, None
            ]
        },
        tasks=("padding_mask",),
    ),
    Mistake(
        "padding-last-key-lost",
        "The last real key of each sequence is hidden",
        "the mask is s < length - 1, not s < length",
        _PADDING,
        stages={
            "padding": lambda p: (torch.arange(p.S) < p.x["lengths"][:, None] - 1)[
                :, None, None
            ]
        },
        tasks=("padding_mask",),
    ),
    Mistake(
        "padding-rank-two",
        "The mask is (B, S) and would be read as (T, S)",
        "the axis of the queries is missing: (B, 1, S) is needed",
        "deeper/04_masks_of_every_rank#what-the-library-refuses",
        stages={"padding": lambda p: real_keys(p)[:, None]},
        tasks=("padding_mask",),
    ),
    Mistake(
        "key-mask-from-sum",
        "A real key whose features sum to 0 is hidden",
        "the key mask asks for the sum of the features, not for each of them",
        _RAW,
        "kang205/SASRec#14",
        stages={"padding": lambda p: (p.x["keys"].sum(-1).abs() > 1e-4)[:, None, None]},
        tasks=("split_concat",),
    ),
)
