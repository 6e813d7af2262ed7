"""What is wrong with the biases, and with the ReLU after them."""

from collections.abc import Callable

from torch import Tensor

from mha_lib.check.catalogue.mistake import LEFT_OUT, TORCH_LAYERS, Mistake
from mha_lib.check.reference import DEFAULT, LAYERS, Problem


def kept_biases(q: bool, k: bool, v: bool) -> Callable:
    """The stage that adds only these of the biases."""

    def bias(p: Problem, projected: list[Tensor], biases: list[Tensor]) -> list[Tensor]:
        kept = [b * keep for b, keep in zip(biases, (q, k, v))]
        return DEFAULT["bias"].do(p, projected, kept)

    return bias


MISTAKES = (
    Mistake(
        "relu-after-projection",
        "Queries, keys and values have no negative entries",
        "a ReLU follows the projections, which is right in the TensorFlow style alone",
        "08_tensorflow_style#causality-relu-and-the-rest-of-the-block",
        stages={"bias": lambda p, *x: [y.relu() for y in DEFAULT["bias"].do(p, *x)]},
        tasks=TORCH_LAYERS,
    ),
    Mistake(
        "relu-missing",
        "Queries, keys and values have negative entries",
        "the ReLU after the projections is missing",
        "08_tensorflow_style#causality-relu-and-the-rest-of-the-block",
        stages={
            "bias": lambda p, projected, biases: [
                x + b for x, b in zip(projected, biases)
            ]
        },
        tasks=("split_concat",),
    ),
    Mistake(
        "no-bias-q",
        "The bias of the query has no effect",
        "b_q is not added",
        LEFT_OUT,
        stages={"bias": kept_biases(False, True, True)},
        tasks=LAYERS,
    ),
    Mistake(
        "no-bias-v",
        "The bias of the value has no effect",
        "b_v is not added",
        LEFT_OUT,
        stages={"bias": kept_biases(True, True, False)},
        tasks=LAYERS,
    ),
    Mistake(
        "no-bias-qkv",
        "The biases of query, key and value have no effect",
        "b_q, b_k and b_v are not added (a fused weight that is cut has a bias to cut, "
        "too)",
        LEFT_OUT,
        stages={"bias": kept_biases(False, False, False)},
        tasks=LAYERS,
    ),
)
