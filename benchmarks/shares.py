"""Where the time goes: the shares of the steps, from torch's profiler."""

from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.contestants import Contestant
from benchmarks.workload import Workload

STEPS = ("linear", "scores", "softmax", "values", "fused attention", "copies", "rest")
FIRST_OPERAND = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}
SOFTMAX = {"_softmax", "softmax"}
COPIES = {"copy_", "clone", "contiguous", "cat", "stack"}
CALLS = 3


def shares(contestant: Contestant, workload: Workload) -> dict[str, float]:
    """The part of a forward pass's time that each step takes; they sum to 1."""
    if len({*workload.size[1:3], workload.size.D}) < 3:
        raise ValueError(
            f"T, E and D must differ to be told apart; got {workload.size}"
        )
    layer = contestant.build(workload).eval()
    with torch.inference_mode():
        layer(workload.x)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
            for _ in range(CALLS):
                layer(workload.x)
    spent = Counter()
    for event in seen.key_averages(group_by_input_shape=True):
        name = event.key.removeprefix("aten::")
        step = step_of(name, event.input_shapes, workload)
        spent[step] += event.self_cpu_time_total
    return {step: round(spent[step] / spent.total(), 4) for step in STEPS}


def step_of(name: str, shapes: list[list[int]], workload: Workload) -> str:
    """The step to which an operation belongs, from its name and its operands.

    The axis over which a product sums tells what it is for: the width of a head makes
    scores, the number of keys a context, the width of the model a projection.
    """
    if name in FIRST_OPERAND:
        _, T, E, _ = workload.size
        summed = shapes[FIRST_OPERAND[name]][-1]
        return {workload.size.D: "scores", T: "values", E: "linear"}[summed]
    if name.startswith("_scaled_dot_product"):
        return "fused attention"
    if name in SOFTMAX:
        return "softmax"
    return "copies" if name in COPIES else "rest"
