"""Layers as an early TensorFlow code has them: ReLU, and zero embeddings hide keys."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unusual.registry import linears, unusual, weights_of

TASK = "split_concat"


def hidden_keys(queries, keys, causality):
    """(B, T, S), True is hidden."""
    T, S = queries.shape[1], keys.shape[1]
    hidden = (keys == 0).all(-1)[:, None].expand(-1, T, -1)
    if causality:
        hidden = hidden | torch.ones(T, S, dtype=torch.bool).triu(1)
    return hidden


@unusual(
    TASK,
    "Heads have an axis of their own.",
    read=linears("dense_q", "dense_k", "dense_v", "dense_o"),
)
class OwnAxis(nn.Module):
    def __init__(self, num_units, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.dense_q, self.dense_k, self.dense_v, self.dense_o = (
            nn.Linear(num_units, num_units) for _ in range(4)
        )

    def forward(self, queries, keys, causality=False):
        q, k, v = (
            F.relu(f(x)).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for f, x in (
                (self.dense_q, queries),
                (self.dense_k, keys),
                (self.dense_v, keys),
            )
        )
        hidden = hidden_keys(queries, keys, causality)[:, None]
        s = (q @ k.mT / k.shape[-1] ** 0.5).masked_fill(hidden, -(2.0**33))
        return self.dense_o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


@unusual(
    TASK,
    "Sequences that end in ReLU, and the library's kernel.",
    read=linears("q.0", "k.0", "v.0", "o"),
)
class EndsInRelu(nn.Module):
    def __init__(self, width, parts):
        super().__init__()
        self.parts = parts
        self.q, self.k, self.v = (
            nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in "qkv"
        )
        self.o = nn.Linear(width, width)

    def forward(self, x, memory, causal=False):
        q, k, v = (
            torch.stack(y.chunk(self.parts, -1), 1)
            for y in (self.q(x), self.k(memory), self.v(memory))
        )
        seen = ~hidden_keys(x, memory, causal).unsqueeze(1)
        y = F.scaled_dot_product_attention(q, k, v, seen)
        return self.o(torch.cat(y.unbind(1), -1))


def read_stack(layer):
    return weights_of(layer.W.mT, [*layer.b])


@unusual(TASK, "One parameter (4, E, E), heads on the first axis.", read=read_stack)
class OneStack(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.n = n
        self.W, self.b = (
            nn.Parameter(torch.randn(4, d, d) / 4),
            nn.Parameter(torch.randn(4, d)),
        )

    def forward(self, queries, keys, causality=False):
        q, k, v = (
            (x @ self.W[i] + self.b[i]).clamp(min=0)
            for i, x in enumerate((queries, keys, keys))
        )
        q, k, v = (torch.cat(x.split(x.shape[-1] // self.n, -1)) for x in (q, k, v))
        hidden = hidden_keys(queries, keys, causality).repeat(self.n, 1, 1)
        bias = torch.zeros(hidden.shape).to(q).masked_fill(hidden, -1e9)
        w = torch.baddbmm(bias, q, k.mT, alpha=q.shape[-1] ** -0.5).softmax(-1)
        return torch.cat((w @ v).chunk(self.n), -1) @ self.W[3] + self.b[3]


@unusual(
    TASK,
    "Projections kept in a ModuleDict, head by head.",
    read=linears("p.q", "p.k", "p.v", "p.o"),
)
class HeadByHead(nn.Module):
    def __init__(self, channels, num_blocks):
        super().__init__()
        self.num_blocks = num_blocks
        self.p = nn.ModuleDict(
            {n: nn.Linear(channels, channels) for n in ["q", "k", "v", "o"]}
        )

    def forward(self, queries, keys, causality=False):
        hidden = hidden_keys(queries, keys, causality)
        q, k, v = (self.p[n](x).relu() for n, x in zip("qkv", (queries, keys, keys)))
        parts = zip(*(x.chunk(self.num_blocks, 2) for x in (q, k, v)))
        return self.p["o"](torch.cat([self.head(*part, hidden) for part in parts], 2))

    @staticmethod
    def head(q, k, v, hidden):
        s = torch.einsum("btd,bsd->bts", q, k) / q.shape[2] ** 0.5
        return torch.einsum("bts,bsd->btd", s.masked_fill(hidden, -1e9).softmax(2), v)


def relu_projections(queries, keys, w):
    for n, x in (("q", queries), ("k", keys), ("v", keys)):
        yield torch.relu(F.linear(x, w[f"W_{n}"], w[f"b_{n}"]))


@unusual(TASK, "A function of weights that sums over heads.")
def summed_over_heads(queries, keys, weights, num_heads, causality=False):
    q, k, v = (
        x.unflatten(-1, (num_heads, -1))
        for x in relu_projections(queries, keys, weights)
    )
    seen = keys.abs().sum(-1).ne(0)[:, None, None]
    if causality:
        places = torch.arange(queries.shape[1])[:, None], torch.arange(keys.shape[1])
        seen = seen & (places[0] >= places[1])
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.shape[-1] ** 0.5
    w = s.where(seen, s.new_tensor(-(2.0**32) + 1)).softmax(-1)
    out = weights["W_o"].unflatten(1, (num_heads, -1))
    return torch.einsum("bhts,bshd,ehd->bte", w, v, out) + weights["b_o"]


@unusual(TASK, "A function that goes through all sequences.")
def sequence_by_sequence(a, b, params, h, causal=False):
    q, k, v = relu_projections(a, b, params)
    rows = []
    for i, hidden in enumerate(hidden_keys(a, b, causal)):
        heads = zip(*(x[i].chunk(h, -1) for x in (q, k, v)))
        weights = (
            ((x @ y.T / x.shape[1] ** 0.5).masked_fill(hidden, -1e9).softmax(1), z)
            for x, y, z in heads
        )
        rows.append(torch.hstack([w @ z for w, z in weights]))
    return torch.stack(rows) @ params["W_o"].T + params["b_o"]


@unusual(TASK, "torch's own function for each head, added up.")
def added_up(queries, keys, weights, num_heads, causality=False):
    q, k, v = (
        torch.stack(x.chunk(num_heads, 2))
        for x in relu_projections(queries, keys, weights)
    )
    seen = ~hidden_keys(queries, keys, causality)
    context = F.scaled_dot_product_attention(q, k, v, seen)
    out = torch.stack(weights["W_o"].chunk(num_heads, 1))[:, None]
    return (context @ out.mT).sum(0) + weights["b_o"]
