"""What people get wrong, each as a small replacement of a stage of the reference.

`MISTAKES` maps names to mistakes, a module of them for each stage. A name never
changes. A mistake with stages is found by comparing numbers; one without is found by
what the submission does beside that: inputs that changed, dropout, dtypes.
"""

import re
from difflib import get_close_matches

from mha_lib.check.catalogue import (
    axes,
    bias,
    causal,
    combine,
    conduct,
    fill,
    inputs,
    mask,
    merge,
    out,
    padding,
    project,
    scale,
    scores,
    softmax,
    split,
)
from mha_lib.check.catalogue.combine import WAYS as COMBINED
from mha_lib.check.catalogue.mistake import (
    GIVEN,
    MASKS,
    TORCH_LAYERS,
    WEIGHTED,
    Mistake,
)
from mha_lib.check.catalogue.padding import WAYS as PADDED
from mha_lib.check.catalogue.project import CUTS
from mha_lib.check.catalogue.split import WAYS as SPLITS
from mha_lib.check.reference import DEFAULT, LAYERS, Problem, Stage

__all__ = [
    "COMBINED",
    "CUTS",
    "MASKS",
    "MISTAKES",
    "SAME_FUNCTION",
    "SPLITS",
    "OF_A_HEAD",
    "PADDED",
    "WEIGHTED",
    "Mistake",
    "check_name",
    "stages_for",
]

ROOMS = (softmax, scale, scores, split, merge, inputs, project, bias, out)
ROOMS += (axes, fill, mask, causal, padding, combine, conduct)
MISTAKES = {mistake.name: mistake for room in ROOMS for mistake in room.MISTAKES}
MADE = ("causal", "padding", "combine")  # stages that make a mask

# The same function under two names: the check says "X or Y".
SAME_FUNCTION = (
    ("fill-zero", "fill-tiny"),  # they differ by 1e-9
    ("causal-ignored", "mask-overwritten-by-padding"),  # in a whole layer
)


def check_name(name: str) -> None:
    """Nothing, if a mistake has this name.

    Raises:
        ValueError: none has; the message holds the names that are near.

    Example:
        >>> from mha_lib.check import check_name
        >>> check_name("no-scale")
        >>> check_name("no_scal")
        Traceback (most recent call last):
        ValueError: 'no_scal' is not in the list; near it: no-scale
    """
    if not isinstance(name, str):
        raise ValueError(f"write a name of the list, such as 'no-scale'; got {name!r}")
    if name not in MISTAKES:
        near = ", ".join(_near(name)) or "none, so look at the list again"
        raise ValueError(f"{name!r} is not in the list; near it: {near}")


def _near(name: str) -> list[str]:
    """Names written nearly so; else those that have a word in common."""
    plain = "-".join(re.findall(r"\w+", name.lower().replace("_", " ")))
    written = get_close_matches(plain, MISTAKES, n=3, cutoff=0.7)
    words = {word for word in plain.split("-") if len(word) > 2}
    return written or [x for x in MISTAKES if words & {*x.split("-")}]


def _scale_of_a_head(p: Problem, width: int) -> tuple[float, float]:
    if width == p.D:
        raise IndexError("the right way")
    return p.D**-0.5, 1.0


# Other ways that are no mistakes of their own: no bias in k, which the softmax does not
# see unless a ReLU follows; √D of a head where the heads are ignored, or cut otherwise.
OF_A_HEAD = Stage("scale", (), _scale_of_a_head)
NO_BIAS_K = Stage("bias", (), bias.kept_biases(True, False, True))
HARMLESS = {NO_BIAS_K: TORCH_LAYERS, OF_A_HEAD: LAYERS}


def stages_for(call: str) -> dict[str, list[Stage]]:
    """For each stage of a task the right way and then all wrong ones."""
    unused = MADE if call in GIVEN else ("mask",)
    found: dict[str, list[Stage]] = {}
    for way, tasks in HARMLESS.items():
        if call in tasks:
            found.setdefault(way.stage, [DEFAULT[way.stage]]).append(way)
    for mistake in MISTAKES.values():
        if call in mistake.tasks:
            for stage, do in mistake.stages.items():
                if stage in unused:
                    continue
                others = found.setdefault(stage, [DEFAULT[stage]])
                others.append(Stage(stage, (mistake.name,), do, mistake.undo))
    return found
