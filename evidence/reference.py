"""Multi-head attention by the definition: Python loops and math.exp, no torch.

It shares no code with mha_lib; the tests hold every style to it.
"""

import math

Matrix = list[list[float]]


def linear(x: Matrix, weight: Matrix, bias: list[float]) -> Matrix:
    """Rows of x times weight transposed, plus bias."""
    return [
        [b + sum(a * w for a, w in zip(row, column)) for column, b in zip(weight, bias)]
        for row in x
    ]


def attend(q: Matrix, k: Matrix, v: Matrix, allowed: list[list[bool]]):
    """Context and weights of one head of one sequence."""
    context, weights = [], []
    for query, visible in zip(q, allowed):
        scores = [sum(a * b for a, b in zip(query, key)) for key in k]
        scores = [score / math.sqrt(len(query)) for score in scores]
        powers = [math.exp(x) if see else 0.0 for x, see in zip(scores, visible)]
        total = sum(powers) or 1.0  # nothing visible: all weights stay 0
        row = [power / total for power in powers]
        weights.append(row)
        mixed = [sum(w * x for w, x in zip(row, column)) for column in zip(*v)]
        context.append(mixed)
    return context, weights


def multi_head_attention(query, key, value, parameters, num_heads, mask):
    """Output (B, T, E) and weights (B, H, T, S) as nested lists.

    ``parameters`` maps q, k, v, out to (weight, bias); ``mask`` is (B, H, T, S).
    """
    outputs, all_weights = [], []
    for b in range(len(query)):
        q, k, v = (
            linear(x[b], *parameters[name])
            for name, x in (("q", query), ("k", key), ("v", value))
        )
        size = len(q[0]) // num_heads
        joined, maps = [[] for _ in q], []
        for h in range(num_heads):
            cut = slice(h * size, (h + 1) * size)
            slices = [[row[cut] for row in x] for x in (q, k, v)]
            context, weights = attend(*slices, mask[b][h])
            joined = [left + right for left, right in zip(joined, context)]
            maps.append(weights)
        outputs.append(linear(joined, *parameters["out"]))
        all_weights.append(maps)
    return outputs, all_weights
