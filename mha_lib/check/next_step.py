"""What to do about a mistake that has no name: where it shows, and a next step."""

from mha_lib.check.by_size import BY_SIZE
from mha_lib.check.diagnosis import Diagnosis
from mha_lib.check.words import Fact

__all__ = ["causes", "next_step", "where"]

CASE = "right: "  # begins the property of a case
MOST = 3  # cases that are listed where the cause is known
AFTER = {"weights-right", "not-times-values", "normalised"}  # what is behind the map
BEFORE = {"weights-first", "scores-times", "map-sums", "later-unseen", "some-unseen"}
CAUSES = {  # facts that say what is wrong, and so what to do next
    *("cut-otherwise", "as-if-exchanged", "as-if-inverted", "as-if-folded"),
    *(
        "as-if-equal",
        "as-if-apart",
        "as-if-left",
        "it-remembers",
        "it-makes-layers",
        "fill-leaks",
        "fill-nan",
    ),
    *("padding-at-left", "padding-turned", "padding-of-one"),
    *("heads-and-features", "slices-overlap", "tokens-as-heads", "mask-in-front"),
    *("cut-in-one-view", "cut-and-joined-in-one-view"),
    "hidden-unmasked",
    *("right-in-training", "right-at-first", "sums-alone"),
}
STEPS = {  # of the other tasks
    "split_heads": "next-numbers",
    "merge_heads": "next-numbers",
    "causal_mask": "next-table",
    "padding_mask": "next-table",
    "combine_masks": "next-table",
}
OF_ONE = {  # of attention, which has neither projections nor heads of its own
    "next-after": "next-values",
    "next-stages": "next-one",
}


def causes(found: Diagnosis) -> list[Fact | str]:
    """What was seen that tells what is wrong."""
    return [x for x in found.evidence if getattr(x, "code", "") in CAUSES]


def where(found: Diagnosis) -> list[Fact]:
    """In which calls it is right, and in which it is not."""
    holds = found.properties
    by_size = any(getattr(x, "code", "") in BY_SIZE for x in found.evidence)
    cases = {k.removeprefix(CASE): x for k, x in holds.items() if k.startswith(CASE)}
    facts = []
    if cases:
        right = [name for name, holds in cases.items() if holds]
        wrong = [name for name, holds in cases.items() if not holds]
        short = {"most": MOST} if found.advised or causes(found) else {}
        facts.append(Fact("cases", {"right": right, "wrong": wrong, **short}))
    plain, masked = (holds.get(f"right_{x}_mask") for x in ("without", "with"))
    if None not in (plain, masked) and not (plain and masked) and not by_size:
        facts.append(Fact("with-and-without", {"plain": plain, "masked": masked}))
    if holds.get("rows_sum_to_one") is False:
        facts.append(Fact("rows-lost"))
    return facts


def next_step(found: Diagnosis) -> list[Fact]:
    """What to try first, by what was seen; nothing where that says it already."""
    codes = {fact.code for fact in found.evidence if isinstance(fact, Fact)}
    if found.advised or causes(found):
        return []
    holds = found.properties
    if codes & {*BY_SIZE}:
        return [Fact("next-size")]
    if found.task in STEPS:
        code = STEPS[found.task]
    elif "right_without_mask" not in holds:
        code = "next-smallest"
    elif holds["right_without_mask"] and not holds.get("right_with_mask", True):
        code = "next-mask"
    elif codes & AFTER:
        code = "next-after"
    else:
        code = "next-before" if codes & BEFORE else "next-stages"
    if found.task == "attention":
        code = OF_ONE.get(code, code)
    return [Fact(code)]
