"""Which routes may give an answer, by a few numbers of it: a screening.

Weights are shared by all prefixes with the same queries and keys, and computed for all
scores, scales and softmaxes at once. What passes is judged by `search`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import product

import torch
from torch import Tensor

from mha_lib.check.equal import TOLERANCE
from mha_lib.check.reference import (
    DEFAULT,
    Problem,
    Route,
    Stage,
    Undefined,
    chosen,
    context_of,
    front,
)

__all__ = ["screen"]

PEEK = 4  # numbers of a token that a screening looks at


def screen(
    stages: dict, p: Problem, output: Tensor, prefixes: list[Route]
) -> dict[Route, list[Route]]:
    """Everything after each prefix at once, compared at a few numbers of one token.

    Many prefixes have the same queries and keys, and so share all weights.
    """
    p.policy = "nan"
    alike: dict[tuple, list] = defaultdict(list)
    for prefix in prefixes:
        with suppress(Undefined, RuntimeError, IndexError):
            q, k, v, query = front(p, prefix)
            if query is None or _may_be_of(output, query):
                do = chosen(prefix)
                numbers = ((x.shape, x.numpy().tobytes()) for x in (q, k))
                same = *numbers, v.shape, do["split"].undo, do["inputs"]
                alike[same].append((prefix, q, k, v, query))
    found: dict[Route, list] = defaultdict(list)
    for group in alike.values():
        with suppress(Undefined, RuntimeError, IndexError):
            for prefix, route in _alike(stages, p, output, group):
                found[prefix].append(prefix + route)
    return found


def _alike(
    stages: dict, p: Problem, target: Tensor, group: list[tuple]
) -> Iterator[tuple[Route, Route]]:
    """Of prefixes that differ in their values alone: each, and what may follow it."""
    prefix, q, k, _, query = group[0]
    # Half the work in float32; who passes is judged in float64.
    values = torch.stack([v for *_, v, _ in group]).float()
    pick, contexts = _contexts(stages, p, q.float(), k.float(), values, prefix)
    tolerance = 3 * max(TOLERANCE.get(target.dtype, 0.0), TOLERANCE[torch.float32])
    sizes = target.double().abs()
    # One huge number would let everything pass.
    size = min(sizes.square().mean().sqrt(), 30 * sizes.median())
    target, tolerance = target.float(), tolerance * size
    if query is None:
        if contexts.shape[2:] == target.shape:
            gap = (contexts - target).flatten(2).abs().amax(-1)
            for one, n in (gap <= tolerance).nonzero().tolist():
                yield group[one][0], pick(n)
        return
    tails = list(product(stages["out"], stages["merge"]))
    rows, rest = _tail(stages, p, contexts[0, :1].shape, query, prefix)
    wanted = target[0, 0, :PEEK] - rest  # (ways, PEEK)
    contexts = contexts.flatten(2)
    near = torch.tensor(True)
    for row, number in zip(rows, wanted.mT):
        near = near & ((contexts @ row.mT - number).abs() <= tolerance)
        if not near.any():  # the first two numbers rule out nearly all
            return
    for one, n, way in near.nonzero().tolist():
        yield group[one][0], pick(n) + _replaced(*reversed(tails[way]))


def _may_be_of(output: Tensor, query: Tensor) -> bool:
    """Whether the shapes agree, in either order: batch or sequence first."""
    return output.dim() == 3 and output.shape in (
        query.shape,
        query.transpose(0, 1).shape,
    )


def _tokens(stages: dict, p: Problem, context: Tensor, query: Tensor) -> Tensor:
    """The first numbers of the output's first token, for each way out: (ways, PEEK)."""
    tokens = []
    for stage in stages["merge"]:
        merged = stage.do(context).reshape(*query.shape[:2], -1)[0, 0]
        tokens.append(torch.cat([merged] * (p.E // len(merged))))
    merged = torch.stack(tokens)  # (merges, E)
    outputs = [stage.do(p, merged, query[0, 0])[..., :PEEK] for stage in stages["out"]]
    return torch.stack(outputs).flatten(0, 1)


def _tail(
    stages: dict, p: Problem, shape: torch.Size, query: Tensor, prefix: Route
) -> tuple[Tensor, Tensor]:
    """`_tokens` as a matrix and what it adds, which few prefixes change."""
    key = shape, query.shape
    if key not in p.tails:
        x = torch.zeros(shape, dtype=query.dtype, requires_grad=True)
        numbers = _tokens(stages, p, x, query).flatten()
        each = torch.eye(len(numbers), dtype=numbers.dtype)
        (rows,) = torch.autograd.grad(numbers, x, each, is_grads_batched=True)
        ways = len(stages["out"]) * len(stages["merge"])
        rows = rows.flatten(1).unflatten(0, (ways, -1)).transpose(0, 1)
        p.tails[key] = rows.contiguous().float()  # (PEEK, ways, numbers of a context)
    own = *key, chosen(prefix)["inputs"]
    if own not in p.tails:
        nothing = torch.zeros(shape, dtype=query.dtype)
        p.tails[own] = _tokens(stages, p, nothing, query).float()
    return p.tails[key], p.tails[own]


def _contexts(stages, p, q, k, values, prefix) -> tuple[Callable[[int], Route], Tensor]:
    """All contexts, (values, N, B, H, T, D), and what made the n-th of them."""
    scores, scales, factors = [], [], []
    for stage in stages["scores"]:
        with suppress(IndexError):
            scores.append((stage, stage.do(p, q, k)))
    for stage in stages["scale"]:
        with suppress(IndexError):
            factors.append(stage.do(p, q.shape[-1]))
            scales.append(stage)
    before, after = torch.tensor(factors, dtype=q.dtype).T.unflatten(
        1, (-1, 1, 1, 1, 1)
    )
    scaled = torch.stack([x for _, x in scores])[:, None] * before
    weights = torch.stack([x.do(scaled) * after for x in stages["softmax"]])
    contexts, mixes = [], []
    for mix in stages["mix"]:
        with suppress(IndexError):
            route = (*prefix, mix)
            contexts.append(_mixed(p, weights.flatten(1, 2), values, route))
            mixes.append(mix)

    def pick(n: int) -> Route:
        n, scale = divmod(n, len(scales))
        n, score = divmod(n, len(scores))
        softmax, mix = divmod(n, len(mixes))
        last = stages["softmax"][softmax], mixes[mix]
        return _replaced(scores[score][0], scales[scale], *last)

    return pick, torch.stack(contexts, 2).flatten(1, 3)


def _mixed(p: Problem, weights: Tensor, values: Tensor, route: Route) -> Tensor:
    """Contexts (values, M, N, B, H, T, D) of weights (M, N, B, H, T, S)."""
    do = chosen(route)
    if do["mix"] is not DEFAULT["mix"]:
        return context_of(p, weights, values[:, None, None], route)
    # All maps of a head as one tall map: a large product takes less than many small.
    M, N, *_, T, _ = weights.shape
    tall = weights.flatten(0, 1).movedim(0, 2).flatten(2, 3)
    mixed = do["mix"].do(tall, values).unflatten(-2, (M, N, T)).movedim((3, 4), (1, 2))
    return mixed if (undo := do["split"].undo) is None else undo(mixed)


def _replaced(*stages: Stage) -> Route:
    return tuple(stage for stage in stages if stage is not DEFAULT[stage.stage])
