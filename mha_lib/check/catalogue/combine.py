"""What is wrong where two masks become one."""

from mha_lib.check.catalogue.mistake import Mistake
from mha_lib.check.reference import Stage

_COMBINES = ("combine_masks", "split_concat")


# Ways to join two masks without a name, by the fact that tells them.
WAYS = {
    "padding-turned": Stage("combine", (), lambda causal, padding: causal & ~padding),
    "padding-of-one": Stage(
        "combine", (), lambda causal, padding: causal & padding[:1]
    ),
}

MISTAKES = (
    Mistake(
        "masks-or",
        "A key is seen if one of the masks allows it",
        "the masks are joined by OR (|); with True = may attend it has to be AND (&)",
        "04_masks#both-at-once",
        stages={"combine": lambda causal, padding: causal | padding},
        tasks=_COMBINES,
    ),
    Mistake(
        "mask-overwritten-by-padding",
        "The future is seen as soon as there is a padding mask",
        "the second mask overwrites the first: only the padding mask acts",
        "04_masks#both-at-once",
        stages={"combine": lambda causal, padding: padding},
        tasks=_COMBINES,
    ),
    Mistake(
        "mask-overwritten-by-causal",
        "The padding is seen as soon as there is a causal mask",
        "the second mask overwrites the first: only the causal mask acts",
        "04_masks#both-at-once",
        stages={"combine": lambda causal, padding: causal},
        tasks=_COMBINES,
    ),
    Mistake(
        "masks-xor",
        "A key is seen if exactly one of the masks allows it",
        "the masks are compared (^ or !=), not joined by AND (&)",
        "04_masks#both-at-once",
        stages={"combine": lambda causal, padding: causal ^ padding},
        tasks=_COMBINES,
    ),
)
