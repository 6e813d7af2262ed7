"""What is wrong where queries meet keys, and weights meet values."""

from torch import Tensor
from torch.nn import functional as F

from mha_lib.check.catalogue.mistake import Mistake

_EXCHANGES = "deeper/01_right_shape_wrong_numbers#two-exchanges"


def square(x: Tensor) -> Tensor:
    """The transpose of a map, which fits nowhere unless T = S."""
    if x.shape[-1] != x.shape[-2]:
        raise IndexError("T and S differ")
    return x.mT


MISTAKES = (
    Mistake(
        "scores-transposed",
        "Query and key change roles, and the code fails unless T = S",
        "the scores are K Qᵀ, not Q Kᵀ",
        _EXCHANGES,
        stages={"scores": lambda p, q, k: square(q @ k.mT)},
    ),
    Mistake(
        "weights-transposed",
        "Values go to the keys, not to the queries, and the code fails unless T = S",
        "the weights are transposed before they meet V",
        _EXCHANGES,
        stages={"mix": lambda weights, v: square(weights) @ v},
    ),
    Mistake(
        "cosine-scores",
        "The lengths of queries and keys have no effect",
        "the scores are cosines: q and k are normalised before the product",
        "01_attention#why-divide-by-d",
        stages={
            "scores": lambda p, q, k: F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT
        },
    ),
    Mistake(
        "key-transposed-by-view",
        "Shuffling keys and values together changes the output",
        "k was brought to (…, D, S) by view or reshape, which moves nothing; "
        "transpose(-2, -1) is needed",
        "03_all_heads_at_once#the-key-transposed-by-its-shape",
        "hyunwoongko/transformer#4",
        stages={
            "scores": lambda p, q, k: (
                q @ k.reshape(*k.shape[:-2], k.shape[-1], k.shape[-2])
            )
        },
    ),
)
