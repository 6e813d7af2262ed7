"""What is wrong with which input goes where."""

from collections.abc import Callable

from mha_lib.check.catalogue.mistake import TORCH_LAYERS, Mistake
from mha_lib.check.reference import LAYERS

_FUSED = "05_one_matrix_for_qkv#a-published-fault"
_EACH = "05_one_matrix_for_qkv#each-third-meets-its-own-input"


def _takes(*names: str) -> Callable:
    return lambda p: tuple(p.x[name] for name in names)


MISTAKES = (
    Mistake(
        "kv-from-query",
        "Key and value have no effect on the output",
        "k and v are computed from the query, as q is; where one fused projection is "
        "cut in three, each third needs its own input",
        _FUSED,
        stages={"inputs": _takes("query", "query", "query")},
        tasks=LAYERS,
    ),
    Mistake(
        "k-from-query",
        "The key has no effect on the output",
        "k is computed from the query",
        _FUSED,
        stages={"inputs": _takes("query", "query", "value")},
        tasks=TORCH_LAYERS,
    ),
    Mistake(
        "k-from-value",
        "The key has no effect on the output",
        "k is computed from the value input",
        _EACH,
        stages={"inputs": _takes("query", "value", "value")},
        tasks=TORCH_LAYERS,
    ),
    Mistake(
        "q-from-key",
        "The query has no effect on the output",
        "q is computed from the key input",
        _EACH,
        stages={"inputs": _takes("key", "key", "value")},
        tasks=TORCH_LAYERS,
    ),
    Mistake(
        "v-from-key",
        "The value input has no effect on the output",
        "v is computed from the key input",
        _EACH,
        stages={"inputs": _takes("query", "key", "key")},
        tasks=TORCH_LAYERS,
    ),
    Mistake(
        "v-from-query",
        "The value input has no effect on the output",
        "v is computed from the query",
        _FUSED,
        stages={"inputs": _takes("query", "key", "query")},
        tasks=LAYERS,
    ),
    Mistake(
        "key-value-inputs-swapped",
        "Keys act as values and values as keys",
        "the inputs key and value are exchanged (Keras takes query, value, key)",
        _EACH,
        stages={"inputs": _takes("query", "value", "key")},
        tasks=TORCH_LAYERS,
    ),
)
