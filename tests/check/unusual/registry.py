"""Where the unusual right programs are kept, and the arithmetic they must equal."""

import math
from collections.abc import Callable
from operator import attrgetter
from typing import NamedTuple

import torch


class Program(NamedTuple):
    """``read`` says of a layer which matrices and vectors its linear maps use."""

    task: str
    sentence: str
    make: object
    read: Callable | None


PROGRAMS = {}


def unusual(task, sentence, *, name=None, read=None):
    def keep(program):
        key = f"{task}-{name or program.__name__}"
        if key in PROGRAMS:
            raise ValueError(f"two programs are called {key}")
        PROGRAMS[key] = Program(task, sentence, program, read)
        return program

    return keep


# --- how a layer's weights are read: {"W_q": as nn.Linear keeps it, "b_q": …} -------


def weights_of(matrices, biases=None):
    """From four (out, in) matrices, for q, k, v and o, and their biases or None."""
    found = {}
    for n, W, b in zip("qkvo", matrices, biases or [None] * 4, strict=True):
        found[f"W_{n}"] = W.detach()
        found[f"b_{n}"] = W.new_zeros(len(W)) if b is None else b.detach()
    return found


def linears(*names):
    """Four linear layers under these names."""

    def read(layer):
        found = [attrgetter(name)(layer) for name in names]
        return weights_of([x.weight for x in found], [x.bias for x in found])

    return read


# --- the formula alone, in float64, one head and one row at a time ------


def plain_attention(q, k, v, mask=None):
    """(T, D), (S, D), (S, V), (T, S): context and weights; an empty row is NaN."""
    rows = []
    for t, query in enumerate(q.double()):
        scores = [float(query @ key) / math.sqrt(len(query)) for key in k.double()]
        seen = [mask is None or bool(mask[t, s]) for s in range(len(k))]
        top = max((x for x, can in zip(scores, seen) if can), default=0.0)
        powers = [math.exp(x - top) if can else 0.0 for x, can in zip(scores, seen)]
        total = sum(powers)
        rows.append([p / total if total else math.nan for p in powers])
    weights = torch.tensor(rows, dtype=torch.float64)
    return weights @ v.double(), weights


def plain_layer(query, key, value, weights, num_heads, mask=None, activation=None):
    """(B, T, E), (B, S, E), (B, S, E), (B, T, S): output and weights (B, H, T, S)."""
    W = {name: x.double() for name, x in weights.items()}
    size = len(W["W_q"]) // num_heads
    maps, outputs = [], []
    for b in range(len(query)):
        contexts = []
        for h in range(num_heads):
            rows = slice(h * size, (h + 1) * size)
            q, k, v = (
                x[b].double() @ W[f"W_{n}"][rows].T + W[f"b_{n}"][rows]
                for n, x in zip("qkv", (query, key, value), strict=True)
            )
            if activation:
                q, k, v = activation(q), activation(k), activation(v)
            seen = None if mask is None else mask[b]
            context, map_ = plain_attention(q, k, v, seen)
            contexts.append(context)
            maps.append(map_)
        outputs.append(torch.cat(contexts, -1) @ W["W_o"].T + W["b_o"])
    shape = len(query), num_heads, *maps[0].shape
    return torch.stack(outputs), torch.stack(maps).view(shape)
