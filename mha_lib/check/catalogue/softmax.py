"""What is wrong with the softmax."""

import torch
from torch import Tensor

from mha_lib.check.catalogue.mistake import Mistake
from mha_lib.check.reference import over_keys

_AXIS = "01_attention#the-softmax-over-the-wrong-axis"
_CALLED = "deeper/01_right_shape_wrong_numbers#weights-that-are-called-scores"


_BY_COLUMNS = "The columns of your map sum to 1, its rows do not"
_BY_HEADS = "For each query and key the weights of the heads sum to 1"
_BY_SEQUENCES = "The weights of one place sum to 1 over the sequences of the batch"
_IN_FRONT = (
    "dim=1 is the keys only where there is no batch",
    "check calls with two more axes in front, and the softmax ran over the second of "
    "them. Count from the end: the keys are dim=-1",
)


def _by_letters(symptom: str, axis: str) -> dict[str, tuple[str, str]]:
    """Where scores may be tsbh as well as bhts, no number tells which axis it was."""
    cause = f"the softmax ran over {axis}, not over the keys, s. The letters of your "
    cause += "scores say which axis that is: dim=1 of tsbh"
    return {"mha_sequence_first": (symptom, cause)}


_softmax = over_keys(torch.softmax)


def _flat_softmax(scores: Tensor) -> Tensor:
    return scores.flatten(-2).softmax(-1).view_as(scores)


MISTAKES = (
    Mistake(
        "softmax-over-queries",
        _BY_COLUMNS,
        "the softmax ran over dim=-2, the queries, not over dim=-1, the keys",
        _AXIS,
        "PetrochukM/PyTorch-NLP#2",
        stages={"softmax": lambda scores: scores.softmax(-2)},
        elsewhere=_by_letters(_BY_COLUMNS, "the queries, t"),
    ),
    Mistake(
        "softmax-over-heads",
        _BY_HEADS,
        "the softmax ran over the axis of the heads, dim=1 of (B, H, T, S). Count axes "
        "from the end: the keys are dim=-1",
        _AXIS,
        stages={"softmax": lambda scores: scores.softmax(-3)},
        elsewhere=_by_letters(_BY_HEADS, "the heads, h") | {"attention": _IN_FRONT},
    ),
    Mistake(
        "softmax-over-batch",
        _BY_SEQUENCES,
        "the softmax ran over dim=0, the batch",
        _AXIS,
        "nerminnuraydogan/vision-transformer#1",
        stages={"softmax": lambda scores: scores.softmax(-4)},
        elsewhere=_by_letters(_BY_SEQUENCES, "the batch, b"),
    ),
    Mistake(
        "softmax-over-map",
        "Each map as a whole sums to 1, not each of its rows",
        "the softmax ran over queries and keys together, a flattened map",
        _AXIS,
        stages={"softmax": _flat_softmax},
    ),
    Mistake(
        "softmax-twice",
        "The map is almost flat, though its rows sum to 1",
        "a second softmax was applied to the weights",
        _CALLED,
        stages={"softmax": lambda scores: _softmax(_softmax(scores))},
    ),
    Mistake(
        "log-softmax",
        "The weights are negative",
        "log_softmax was used, whose logarithms are no weights",
        _AXIS,
        stages={"softmax": over_keys(torch.log_softmax)},
    ),
    Mistake(
        "no-softmax",
        "The rows of your map sum to anything",
        "the scores met the values without a softmax",
        _CALLED,
        stages={"softmax": lambda scores: scores},
    ),
)
