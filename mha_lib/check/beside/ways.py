"""How a submission may want to be called: as its task says, or otherwise."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .observe import outcome_of

NAMES = {  # the arguments of each task, in order
    "attention": ("q", "k", "v"),
    "split_heads": ("x", "num_heads"),
    "merge_heads": ("x",),
    "causal_mask": ("T", "S"),
    "padding_mask": ("lengths", "S"),
    "combine_masks": ("causal", "padding"),
    "mha": ("query", "key", "value"),
    "mha_sequence_first": ("query", "key", "value"),
    "split_concat": ("queries", "keys"),
}
LAYERS = ("mha", "mha_sequence_first", "split_concat")


@dataclass(frozen=True)
class Way:
    """How a call differs from what the task says; not at all by default.

    Attributes:
        mask: the shape in which the mask comes, in letters.
        numbers: the mask holds 0 and 1.
        added: there is a mask, all True, where the task gives none.
        folded: the heads are folded into the batch.
    """

    mask: str = ""
    numbers: bool = False
    added: bool = False
    folded: bool = False


def ways_to_call(probe: dict) -> dict[Way, Callable[[dict], dict]]:
    """Inputs as the task says, then as other right code may want them."""
    inputs = probe["inputs"]
    adapted = probe["call"] in ("attention", "mha", "mha_sequence_first")
    if not adapted or probe["options"].get("as_called"):
        return {Way(): lambda probe: probe["inputs"]}
    forms: dict[str, Callable[[Tensor], Tensor]] = {"": lambda mask: mask}
    if probe["call"] == "mha":
        forms["(B, 1, T, S)"] = lambda mask: mask[:, None]
    elif probe["call"] == "mha_sequence_first":
        forms["(T, S, B, 1)"] = lambda mask: mask[..., None]
        forms["(B, T, S)"] = lambda mask: mask.permute(2, 0, 1)
        forms["(B, 1, T, S)"] = lambda mask: mask.permute(2, 0, 1)[:, None]
    else:
        H = probe["sizes"]["H"]
        forms["(B, H, T, S)"] = lambda mask: mask.expand(-1, H, -1, -1)
    like = probe["weights"]["W_q"] if probe["weights"] else inputs["q"]
    added = "mask" not in inputs

    ways: dict[Way, Callable[[dict], dict]] = {}
    if added:
        ways[Way()] = lambda probe: probe["inputs"]
    for numbers in (False, True) if probe.get("masks", True) else ():
        for shape, form in forms.items():

            def change(probe, form=form, dtype=like.dtype if numbers else torch.bool):
                return probe["inputs"] | {"mask": form(_mask(probe)).to(dtype)}

            ways[Way(shape, numbers, added)] = change
    if probe["call"] == "attention":
        for way, change in list(ways.items()):
            ways[replace(way, folded=True)] = lambda probe, change=change: {
                key: x.expand(-1, probe["sizes"]["H"], -1, -1).flatten(0, 1)
                for key, x in change(probe).items()
            }
    return ways


def _mask(probe: dict) -> Tensor:
    """The mask of the probe, or one that allows everything."""
    if "mask" in probe["inputs"]:
        return probe["inputs"]["mask"]
    B, T, S = (probe["sizes"][x] for x in "BTS")
    forms = {"attention": (B, 1, T, S), "mha_sequence_first": (T, S, B)}
    return torch.ones(forms.get(probe["call"], (B, T, S)), dtype=torch.bool)


def try_ways(call: Callable, probe: dict) -> None:
    """Call in one way after the other until one works."""
    for way in ways_to_call(probe).values():
        try:
            outcome_of(call, way(probe), {}, {})
            return
        except Exception:  # the real call will tell
            continue
