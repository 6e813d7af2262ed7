"""What is wrong with the matrices of q, k and v."""

from collections.abc import Callable

import torch

from mha_lib.check.catalogue.mistake import Mistake
from mha_lib.check.reference import DEFAULT, LAYERS, Layer, Problem, Stage

_OFFER = "01_attention#one-head-ask-offer-hand-over"
_THIRDS = "05_one_matrix_for_qkv#what-goes-wrong"


def _layers(roles: str) -> Callable:
    """The layers of these roles, biases and all; "-" for none."""

    def layers(p: Problem) -> list[Layer]:
        none = None, torch.zeros(())
        return [none if r == "-" else (p.W[f"W_{r}"], p.W[f"b_{r}"]) for r in roles]

    return layers


# How a fused projection may be cut: routes without a name, by the order of the thirds.
# The other orders leave one part in its place and have names below.
CUTS = {
    "vqk": (Stage("project", (), _layers("kvq")),),
    "kvq": (Stage("project", (), _layers("vqk")),),
    "vkq": (Stage("project", (), _layers("vkq")),),
}

MISTAKES = (
    Mistake(
        "wq-wk-swapped",
        "The matrices of q and k have changed roles",
        "W_k is applied to the query and W_q to the key",
        _THIRDS,
        stages={"project": _layers("kqv")},
        tasks=LAYERS,
    ),
    Mistake(
        "wk-wv-swapped",
        "The matrices of k and v have changed roles",
        "W_v is applied to the key and W_k to the value: a fused projection cut in "
        "another order",
        _THIRDS,
        stages={"project": _layers("qvk")},
        tasks=LAYERS,
    ),
    Mistake(
        "one-matrix-q",
        "W_k and W_v have no effect",
        "one matrix, W_q, projects query, key and value",
        _THIRDS,
        stages={"project": _layers("qqq")},
        tasks=LAYERS,
    ),
    Mistake(
        "one-matrix-k",
        "W_q and W_v have no effect",
        "one matrix, W_k, projects query, key and value",
        _THIRDS,
        stages={"project": _layers("kkk")},
        tasks=LAYERS,
    ),
    Mistake(
        "one-matrix-v",
        "W_q and W_k have no effect",
        "one matrix, W_v, projects query, key and value",
        _THIRDS,
        stages={"project": _layers("vvv")},
        tasks=LAYERS,
    ),
    Mistake(
        "wk-for-v",
        "W_v has no effect",
        "the values are projected with W_k",
        _THIRDS,
        stages={"project": _layers("qkk")},
        tasks=LAYERS,
    ),
    Mistake(
        "wq-for-k",
        "W_k has no effect",
        "the keys are projected with W_q",
        _THIRDS,
        stages={"project": _layers("qqv")},
        tasks=LAYERS,
    ),
    Mistake(
        "no-projection",
        "W_q, W_k and W_v have no effect",
        "query, key and value are used without projections",
        _OFFER,
        stages={"project": _layers("---")},
        tasks=LAYERS,
    ),
    Mistake(
        "v-not-projected",
        "W_v has no effect",
        "the value input is used without a projection",
        _OFFER,
        stages={"project": _layers("qk-")},
        tasks=LAYERS,
    ),
    Mistake(
        "weights-not-transposed",
        "A projection is that of the transposed matrix",
        "x @ W was computed where the weights, kept as (out, in), need x @ W.T",
        "02_heads_in_a_loop#what-the-output-projection-does",
        stages={
            "project": lambda p: [(W.mT, b) for W, b in DEFAULT["project"].do(p)],
            "out": lambda p, merged, query: merged @ p.W["W_o"] + p.W["b_o"],
        },
        tasks=LAYERS,
    ),
)
