"""How long `check` takes. Goals on two cores: 1 s for a pair, 3 s for a stack.

    python -m benchmarks.timers.check

Every mistake of the catalogue alone, some pairs, stacks of three to six and a fault
that is in no catalogue, as a whole layer. The submission is the reference with stages
replaced, so what is timed is the check.
"""

import time
from statistics import median

import torch

from mha_lib.check import check
from mha_lib.check.catalogue import stages_for
from mha_lib.check.reference import Problem, compute

STACKS = (
    ("split-interleaved", "no-scale", "mask-inverted"),
    ("wq-wk-swapped", "scale-num-heads", "merge-reversed", "no-bias-out"),
    ("v-from-key", "no-bias-q", "split-by-view", "no-scale", "merge-no-transpose"),
    (
        "no-bias-q",
        "cosine-scores",
        "scale-hard-coded",
        "softmax-twice",
        "merge-interleaved",
        "residual",
    ),
)


def submission(path):
    """A function of the task "mha" that makes the mistakes of a path."""

    def layer(query, key, value, weights, num_heads, mask=None):
        (B, T, E), S = query.shape, key.shape[1]
        sizes = dict(B=B, T=T, S=S, H=num_heads, D=E // num_heads, E=E)
        inputs = {"query": query, "key": key, "value": value}
        if mask is not None:
            inputs["mask"] = mask
        found = compute(Problem("mha", sizes, inputs, weights), path)
        if not found:
            raise RuntimeError("shapes")
        return found["output"]

    return layer


def unknown(query, key, value, weights, num_heads, mask=None):
    found = submission(())(query, key, value, weights, num_heads, mask)
    return torch.tanh(found)


def seconds(layer) -> float:
    start = time.perf_counter()
    check(layer, "mha")
    return time.perf_counter() - start


def main() -> None:
    options = stages_for("mha")
    wrong = [s for stages in options.values() for s in stages if s.names]
    by_name = {name: stage for stage in wrong for name in stage.names}
    pairs = [
        pair
        for pair in zip(wrong, wrong[len(wrong) // 2 :])
        if pair[0].stage != pair[1].stage
    ]
    stacks = [tuple(by_name[name] for name in names) for names in STACKS]
    seconds(submission(()))  # the first call loads what torch loads late
    for title, layers, goal in (
        ("right", [submission(())], 1),
        ("one mistake", [submission((stage,)) for stage in wrong], 1),
        ("two", [submission(pair) for pair in pairs], 1),
        ("three to six", [submission(stack) for stack in stacks], 3),
        ("in no catalogue", [unknown], 3),
    ):
        times = [seconds(layer) for layer in layers]
        print(
            f"{title}: median {median(times):.2f} s, longest {max(times):.2f} s of "
            f"{len(times)} (goal: {goal} s)"
        )


if __name__ == "__main__":
    main()
