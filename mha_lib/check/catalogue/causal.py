"""What is wrong with a causal mask."""

from mha_lib.check.catalogue.mistake import Mistake
from mha_lib.check.reference import ones

_CAUSAL = "04_masks#the-causal-mask"
_MAKES_CAUSAL = ("causal_mask", "split_concat")


MISTAKES = (
    Mistake(
        "causal-transposed",
        "Queries see the future and not the past",
        "the causal mask is the upper triangle (triu), not the lower one (tril)",
        _CAUSAL,
        stages={"causal": lambda p: ones(p.T, p.S).triu()},
        tasks=_MAKES_CAUSAL,
    ),
    Mistake(
        "causal-blocks-diagonal",
        "No query sees its own position",
        "the causal mask is s < t (tril(-1)), not s ≤ t",
        _CAUSAL,
        stages={"causal": lambda p: ones(p.T, p.S).tril(-1)},
        tasks=_MAKES_CAUSAL,
    ),
    Mistake(
        "causal-sees-next",
        "Query t sees key t + 1, the token that it should predict",
        "the causal mask is s ≤ t + 1 (tril(1)), not s ≤ t",
        _CAUSAL,
        stages={"causal": lambda p: ones(p.T, p.S).tril(1)},
        tasks=_MAKES_CAUSAL,
    ),
    Mistake(
        "causal-only-diagonal",
        "Every query sees its own position alone",
        "the causal mask is the unit matrix, not a triangle",
        _CAUSAL,
        stages={"causal": lambda p: ones(p.T, p.S).tril().triu()},
        tasks=_MAKES_CAUSAL,
    ),
    Mistake(
        "causal-ignored",
        "Every query sees the future",
        "the causal mask is not applied, or is all True",
        _CAUSAL,
        stages={"causal": lambda p: ones(p.T, p.S)},
        tasks=_MAKES_CAUSAL,
    ),
    Mistake(
        "causal-bottom-right",
        "With T ≠ S the diagonal ends in the bottom-right corner",
        "the mask is shifted by S - T, as a cache of earlier keys needs it",
        "deeper/04_which_corner#top-left-or-bottom-right",
        stages={"causal": lambda p: ones(p.T, p.S).tril(p.S - p.T)},
        tasks=_MAKES_CAUSAL,
    ),
    Mistake(
        "causal-square",
        "The mask has as many columns as rows",
        "the mask is made as (T, T), and S is not used",
        "deeper/04_which_corner#top-left-or-bottom-right",
        stages={"causal": lambda p: ones(p.T, p.T).tril()},
        tasks=("causal_mask",),
    ),
)
