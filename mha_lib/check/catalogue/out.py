"""What is wrong after the heads are merged."""

from mha_lib.check.catalogue.mistake import LEFT_OUT, Mistake
from mha_lib.check.reference import DEFAULT, LAYERS

_OUT = "02_heads_in_a_loop#what-the-output-projection-does"


MISTAKES = (
    Mistake(
        "no-output-projection",
        "Feature e of the output comes from one head alone",
        "the merged heads are returned without the output projection W_o",
        _OUT,
        "Kyubyong/transformer#117",
        stages={"out": lambda p, merged, query: merged},
        tasks=LAYERS,
    ),
    Mistake(
        "output-projection-twice",
        "The output is projected once too often",
        "W_o is applied twice",
        _OUT,
        stages={
            "out": lambda p, merged, query: DEFAULT["out"].do(
                p, DEFAULT["out"].do(p, merged, query), query
            )
        },
        tasks=LAYERS,
    ),
    Mistake(
        "no-bias-out",
        "The bias of the output has no effect",
        "b_o is not added",
        LEFT_OUT,
        stages={"out": lambda p, merged, query: merged @ p.W["W_o"].mT},
        tasks=LAYERS,
    ),
    Mistake(
        "residual",
        "The query is contained in the output",
        "a residual connection stands inside the layer: query + output",
        "08_tensorflow_style#causality-relu-and-the-rest-of-the-block",
        stages={
            "out": lambda p, merged, query: DEFAULT["out"].do(p, merged, query) + query
        },
        tasks=LAYERS,
    ),
)
