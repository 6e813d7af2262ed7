"""What is wrong with the scale."""

from collections.abc import Callable

from mha_lib.check.catalogue.mistake import Mistake
from mha_lib.check.reference import LAYERS

_SCALE = "01_attention#the-scale-forgotten-or-taken-from-the-wrong-size"

_IN_FRONT = (
    "q.shape[1] is D only where there is no batch",
    "check calls with two more axes in front, and the scores are divided by the root "
    "of the second of them. Count from the end: D is q.shape[-1]",
)


def _over_root(letter: str) -> Callable:
    return lambda p, width: (getattr(p, letter) ** -0.5, 1.0)


MISTAKES = (
    Mistake(
        "no-scale",
        "The map is too sharp",
        "the scores are not divided by √D",
        _SCALE,
        "huggingface/blog#2893",
        stages={"scale": lambda p, width: (1.0, 1.0)},
    ),
    Mistake(
        "scale-embed-dim",
        "The map is too flat, by the factor √H in the scores",
        "the scores are divided by √E (embed_dim), not by √D (the size of a head)",
        _SCALE,
        "lucidrains/vit-pytorch#65",
        stages={"scale": _over_root("E")},
        tasks=LAYERS,
    ),
    Mistake(
        "scale-num-heads",
        "The differences of scores have the wrong size",
        "the scores are divided by √H, the number of heads, not by √D. Count axes from "
        "the end: D is q.shape[-1], whatever stands before it",
        _SCALE,
        "omihub777/ViT-CIFAR#11",
        stages={"scale": _over_root("H")},
        elsewhere={"attention": _IN_FRONT},
    ),
    Mistake(
        "scale-query-length",
        "The map depends on the number of queries",
        "the scores are divided by √T, a length, not by √D",
        _SCALE,
        stages={"scale": _over_root("T")},
    ),
    Mistake(
        "scale-key-length",
        "The map depends on the number of keys",
        "the scores are divided by √S, a length, not by √D",
        _SCALE,
        stages={"scale": _over_root("S")},
    ),
    Mistake(
        "scale-twice",
        "The map is too flat",
        "the scores are divided by D: √D was applied twice, or its root forgotten",
        _SCALE,
        "juho-lee/set_transformer#18",
        stages={"scale": lambda p, width: (1 / width, 1.0)},
    ),
    Mistake(
        "scale-multiplied",
        "The map is almost one-hot",
        "the scores are multiplied by √D, not divided",
        _SCALE,
        "esceptico/perceiver-io#9",
        stages={"scale": lambda p, width: (width**0.5, 1.0)},
    ),
    Mistake(
        "scale-after-softmax",
        "The rows of your map sum to 1/√D",
        "√D divides the weights after the softmax, not the scores before it",
        _SCALE,
        "FrancescoSaverioZuppichini/ViT#2",
        stages={"scale": lambda p, width: (1.0, width**-0.5)},
    ),
    Mistake(
        "scale-hard-coded",
        "The map is right for heads of one size alone",
        "the scores are divided by a constant, not by √D",
        _SCALE,
        stages={"scale": lambda p, width: (1 / 8, 1.0)},
    ),
)
