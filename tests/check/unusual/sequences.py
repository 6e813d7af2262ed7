"""Layers whose first axis is the sequence; masks are (T, S, B)."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unusual.layers import random
from tests.check.unusual.registry import linears, unusual, weights_of

TASK = "mha_sequence_first"


@unusual(TASK, "Turned to batch first and back.", read=linears("wq", "wk", "wv", "wo"))
class TurnedTwice(nn.Module):
    def __init__(self, units, attention_heads):
        super().__init__()
        self.n = attention_heads
        self.wq, self.wk, self.wv, self.wo = (nn.Linear(units, units) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            f(x).permute(1, 0, 2).unflatten(2, (self.n, -1)).permute(0, 2, 1, 3)
            for f, x in ((self.wq, query), (self.wk, key), (self.wv, value))
        )
        seen = None if mask is None else mask.permute(2, 0, 1)[:, None]
        y = F.scaled_dot_product_attention(q, k, v, seen)
        return self.wo(y.permute(2, 0, 1, 3).flatten(2))


@unusual(
    TASK,
    "Heads folded into the second axis, as fairseq has them.",
    read=linears(*"qkvo"),
)
class FoldedSequences(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, embed_dim // num_heads
        self.q, self.k, self.v, self.o = (
            nn.Linear(embed_dim, embed_dim) for _ in "qkvo"
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        T, B, E = query.shape
        q, k, v = (
            f(x)
            .contiguous()
            .view(-1, B * self.num_heads, self.head_dim)
            .transpose(0, 1)
            for f, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        s = torch.bmm(q * self.head_dim**-0.5, k.transpose(1, 2))
        if mask is not None:
            hidden = ~mask.permute(2, 0, 1).repeat_interleave(self.num_heads, dim=0)
            s = s.masked_fill(hidden, float("-inf"))
        w = self.dropout(F.softmax(s, dim=-1))
        y = torch.bmm(w, v).transpose(0, 1).reshape(T, B, E)
        return self.o(y), w.view(B, self.num_heads, T, -1)


def read_cube(layer):
    W = [x.flatten(1).T for x in layer.cube.unbind(-1)]
    return weights_of([*W, layer.back.weight], [None] * 3 + [layer.back.bias])


@unusual(TASK, "One parameter (E, H, D, 3), scores (T, S, B, H).", read=read_cube)
class CubeOverSequences(nn.Module):
    def __init__(self, m, h):
        super().__init__()
        self.cube = random(m, h, m // h, 3)
        self.back = nn.Linear(m, m)

    def forward(self, q, k, v, allowed=None):
        q, k, v = (
            torch.einsum("tbe,ehd->tbhd", x, W)
            for x, W in zip((q, k, v), self.cube.unbind(-1))
        )
        s = torch.einsum("tbhd,sbhd->tsbh", q, k) / math.sqrt(q.shape[-1])
        if allowed is not None:
            s = torch.where(allowed[..., None], s, torch.finfo(s.dtype).min)
        a = F.softmax(s, 1)
        return self.back(torch.einsum("tsbh,sbhd->tbhd", a, v).flatten(2)), a.permute(
            2, 3, 0, 1
        )


@unusual(
    TASK,
    "The library's layer, which has the sequence first too.",
    read=lambda x: x.read(),
)
class SequenceLibrary(nn.Module):
    def __init__(self, dim, n, dropout=0.0):
        super().__init__()
        self.n = n
        self.inner = nn.MultiheadAttention(dim, n, dropout=dropout)

    def read(self):
        W, b = self.inner.in_proj_weight, self.inner.in_proj_bias
        out = self.inner.out_proj
        return weights_of([*W.chunk(3), out.weight], [*b.chunk(3), out.bias])

    def forward(self, query, key, value, mask=None):
        hidden = None
        if mask is not None:
            hidden = mask.logical_not().movedim(-1, 0).repeat_interleave(self.n, 0)
        return self.inner(
            query, key, value, attn_mask=hidden, average_attn_weights=False
        )


@unusual(
    TASK, "vmap over the sequences, on the axis where they are.", read=linears(*"qkvo")
)
class SequencesMapped(nn.Module):
    def __init__(self, breadth, count):
        super().__init__()
        self.count = count
        self.q, self.k, self.v, self.o = (nn.Linear(breadth, breadth) for _ in "qkvo")

    def one(self, q, k, v, seen):
        q, k, v = (x.view(len(x), self.count, -1).transpose(0, 1) for x in (q, k, v))
        w = (q @ k.mT / q.shape[-1] ** 0.5).where(seen, -1e9).softmax(-1)
        return (w @ v).transpose(0, 1).flatten(1), w

    def forward(self, x, y, z, mask=None):
        if mask is None:
            mask = torch.ones(len(x), len(y), x.shape[1], dtype=torch.bool)
        one = torch.vmap(self.one, in_dims=(1, 1, 1, 2), out_dims=(1, 0))
        context, w = one(self.q(x), self.k(y), self.v(z), mask)
        return self.o(context), w


@unusual(TASK, "A function that goes through the sequences and the heads.")
def loops_over_sequences(query, key, value, weights, num_heads, mask=None):
    T, B, E = query.shape
    D = E // num_heads
    q, k, v = (
        (x @ weights[f"W_{n}"].T + weights[f"b_{n}"]).view(-1, B, num_heads, D)
        for n, x in (("q", query), ("k", key), ("v", value))
    )
    columns = []
    for b in range(B):
        seen = None if mask is None else mask[:, :, b]
        heads = [
            F.scaled_dot_product_attention(q[:, b, h], k[:, b, h], v[:, b, h], seen)
            for h in range(num_heads)
        ]
        columns.append(torch.cat(heads, dim=1))
    return torch.stack(columns, dim=1) @ weights["W_o"].T + weights["b_o"]


@unusual(TASK, "Softmax over the axis of the keys, which is the first.")
def keys_on_the_first_axis(q, k, v, w, heads, keep=None):
    q, k, v = (
        F.linear(x, w[f"W_{n}"], w[f"b_{n}"]).unflatten(2, (heads, -1))
        for n, x in zip("qkv", (q, k, v))
    )
    s = torch.einsum("sbhd,tbhd->stbh", k, q).div(q.size(-1) ** 0.5)
    if keep is not None:
        s = s.masked_fill(~keep.transpose(0, 1)[..., None], -1e9)
    a = s.softmax(dim=0)
    y = torch.einsum("stbh,sbhd->tbhd", a, v).reshape(*q.shape[:2], -1)
    return F.linear(y, w["W_o"], w["b_o"]), torch.einsum("stbh->bhts", a)
