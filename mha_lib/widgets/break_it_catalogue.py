"""The mistakes that the break-it machine hosts, as the reference of `check` makes them.

The machine shows what no shape shows: a mistake is in it if it can stand in each of the
six programs, leaves every shape as it is and changes numbers.
"""

from torch import Tensor

from mha_lib.check.catalogue import MISTAKES
from mha_lib.check.reference import Problem, Stage, compute

LEFT_OUT = {  # of those that numbers show
    "heads-ignored": "the map has one head: its shape tells",
    "split-axis-left": "the map is (B, T, H, H): its shape tells",
    "layout-exchanged": "the mask does not fit the map: the code fails",
    "batch-axis-as-heads": "the code fails unless B = H",
    "padding-rank-two": "the mask does not fit the map: the code fails",
    "causal-square": "with T = S it is no mistake",
    "causal-bottom-right": "with T = S it is no mistake",
    "zero-scores-hidden": "it takes a score of exactly 0",
    "relu-missing": "the ReLU belongs to one published style alone",
    "key-mask-from-sum": "raw embeddings belong to one published style alone",
    "output-reshaped": "it belongs to sequence first alone",
}
HOSTED = tuple(x for x in MISTAKES if MISTAKES[x].stages and x not in LEFT_OUT)
MAKES = {"causal": "causal_mask", "padding": "padding_mask", "combine": "combine_masks"}


def _stages(name: str) -> dict[str, Stage]:
    if not name:
        return {}
    stages = MISTAKES[name].stages
    return {x: Stage(x, (name,), do, MISTAKES[name].undo) for x, do in stages.items()}


def _in_layer(name: str) -> dict[str, Stage]:
    """Its stages in the layer: where it has some, the making of masks is right."""
    return {x: stage for x, stage in _stages(name).items() if x not in MAKES}


def mask_with(name: str, sizes: dict[str, int], lengths: Tensor) -> Tensor:
    """Causal & padding (B, T, S), with the mistake if it is one of making masks.

    Args:
        name: of the catalogue; "" for none.
        sizes: B, T and S.
        lengths: (B,), how many keys of each sequence are real.
    """
    made = {} if _in_layer(name) else _stages(name)
    x: dict[str, object] = {"lengths": lengths}
    for stage, task in MAKES.items():
        route = tuple(made[key] for key in (stage,) if key in made)
        x[stage] = compute(Problem(task, sizes, x), route)["output"]
    return x["combine"]


def layer_with(
    name: str,
    sizes: dict[str, int],
    inputs: tuple[Tensor, Tensor, Tensor],
    W: dict[str, Tensor],
    mask: Tensor,
) -> dict[str, Tensor]:
    """Output (B, T, E) and weights (B, H, T, S) of the reference with the mistake.

    Args:
        name: of the catalogue; "" for none.
        sizes: B, T, S, H, D and E.
        inputs: query, key and value, (B, T, E) or (B, S, E).
        W: W_q, W_k, W_v, W_o (E, E) and b_q, b_k, b_v, b_o (E,).
        mask: boolean (B, T, S), True = may attend; an empty row gives zeros.
    """
    x = dict(zip(("query", "key", "value"), inputs)) | {"mask": mask}
    route = tuple(_in_layer(name).values())
    return compute(Problem("mha", sizes, x, W), route, "zeros")
