"""Right programs, written against probes that called three of them wrong."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import programs

RIGHT, right = programs()


class Layer(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim))

    def heads(self, query, key, value):
        projected = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return [
            x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected
        ]

    def apart(self, projected):
        heads = (x.unflatten(-1, (self.num_heads, -1)) for x in projected)
        return [x.transpose(1, 2) for x in heads]

    def softmax(self, scores):
        return scores.softmax(dim=-1)

    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(query, key, value)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            scores = scores.masked_fill(~mask[..., None, :, :], -torch.inf)
        weights = self.softmax(scores).nan_to_num(0.0)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights


@right("mha")
class ATableOfAThousand(Layer):
    """A causal table as long as its caller asks for, and a thousand by itself."""

    def __init__(self, embed_dim, num_heads, max_len=1024):
        super().__init__(embed_dim, num_heads)
        every = torch.ones(max_len, max_len, dtype=torch.bool)
        self.register_buffer("every", every, persistent=False)

    def forward(self, query, key, value, mask=None):
        if mask is None:
            mask = self.every[: query.shape[1], : key.shape[1]]
        return super().forward(query, key, value, mask)


@right("mha")
class JoinedForReading(Layer):
    """Reading, it keeps one matrix, until a training or a loading changes it."""

    joined = None

    def train(self, mode=True):
        self.joined = None
        return super().train(mode)

    def _load_from_state_dict(self, *arguments):
        self.joined = None
        super()._load_from_state_dict(*arguments)

    def heads(self, query, key, value):
        if self.training or torch.is_grad_enabled():
            return super().heads(query, key, value)
        if self.joined is None:
            parts = self.q_proj, self.k_proj, self.v_proj
            self.joined = [
                torch.cat([getattr(part, name) for part in parts]).detach()
                for name in ("weight", "bias")
            ]
        each = zip((query, key, value), *(x.chunk(3) for x in self.joined))
        projected = [F.linear(x, W, b) for x, W, b in each]
        return [
            x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for x in projected
        ]


class Frees(torch.autograd.Function):
    """A softmax whose way back frees what it needs: it can be gone once."""

    @staticmethod
    def forward(ctx, scores):
        weights = scores.softmax(dim=-1)
        ctx.kept = weights.detach().clone()
        return weights

    @staticmethod
    def backward(ctx, grad):
        weights, ctx.kept = ctx.kept, None
        part = weights * grad
        return part - weights * part.sum(dim=-1, keepdim=True)


@right("mha")
class FreesItsMap(Layer):
    def softmax(self, scores):
        return Frees.apply(scores)
