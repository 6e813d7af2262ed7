"""A block and a model as they are asked for, of which others are made; and a list."""

import torch
from torch import nn


def programs():
    """A list of (task, program), and what puts a program under its task into it."""
    found = []

    def of(task):
        def keep(program):
            found.append((task, program))
            return program

        return keep

    return found, of


class Attention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, mask=None):
        def split(x):
            return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        q, k, v = split(q), split(k), split(v)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[..., None, :, :], float("-inf"))
        weights = scores.softmax(dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights


class Plain(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim)
        self.attention = Attention(embed_dim, num_heads)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, 4 * embed_dim),
            nn.GELU(),
            nn.Linear(4 * embed_dim, embed_dim),
        )

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, mask)[0]
        return x + self.mlp(self.norm2(x))


class PlainModel(nn.Module):
    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__()
        self.word = nn.Embedding(vocabulary, embed_dim)
        self.place = nn.Embedding(context, embed_dim)
        self.blocks = nn.ModuleList(
            Plain(embed_dim, num_heads) for _ in range(num_layers)
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.output = nn.Linear(embed_dim, vocabulary, bias=False)
        self.output.weight = self.word.weight

    def embed(self, tokens):
        return self.word(tokens) + self.place(torch.arange(tokens.shape[1]))

    def mask(self, T):
        return torch.ones(T, T, dtype=torch.bool).tril()

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.mask(tokens.shape[1]))
        return self.output(self.norm(x))
