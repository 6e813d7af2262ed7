"""How a submission may want to be called: as its task says, or otherwise."""

from collections.abc import Callable

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
FOLDED = "the heads folded into the batch (B·H, T, D)"


def ways_to_call(probe: dict) -> dict[str, Callable[[dict], dict]]:
    """Inputs as the task says, then as other right code may want them."""
    inputs = probe["inputs"]
    if probe["call"] not in ("attention", "mha", "mha_sequence_first"):
        return {"": lambda probe: probe["inputs"]}
    forms: dict[str, Callable[[Tensor], Tensor]] = {"": lambda mask: mask}
    if probe["call"] == "mha":
        forms["a mask (B, 1, T, S)"] = lambda mask: mask[:, None]
    elif probe["call"] == "mha_sequence_first":
        forms["a mask (T, S, B, 1)"] = lambda mask: mask[..., None]
        forms["a mask (B, T, S)"] = lambda mask: mask.permute(2, 0, 1)
        forms["a mask (B, 1, T, S)"] = lambda mask: mask.permute(2, 0, 1)[:, None]
    else:
        H = probe["sizes"]["H"]
        forms["a mask (B, H, T, S)"] = lambda mask: mask.expand(-1, H, -1, -1)
    numbers = probe["weights"]["W_q"] if probe["weights"] else inputs["q"]
    for name, form in list(forms.items()):
        words = f"{name or 'a mask'} of numbers 0 and 1"
        forms[words] = lambda mask, form=form: form(mask).to(numbers.dtype)

    ways: dict[str, Callable[[dict], dict]] = {}
    if "mask" not in inputs:
        ways[""] = lambda probe: probe["inputs"]
    for name, form in forms.items():
        if "mask" not in inputs:
            name = f"{name or 'a mask'} that is all True"

        def change(probe, form=form):
            return probe["inputs"] | {"mask": form(_mask(probe))}

        ways[name] = change
    if probe["call"] == "attention":
        for name, way in list(ways.items()):
            ways[f"{FOLDED}, {name}".strip(", ")] = lambda probe, way=way: {
                key: x.expand(-1, probe["sizes"]["H"], -1, -1).flatten(0, 1)
                for key, x in way(probe).items()
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
        except Exception:  # noqa: S112 (the real call will tell)
            continue
