"""Right layers in ways that are not taught: none of them may be called wrong."""

import math

import torch
import torch.nn.functional as F
from torch import nn

RIGHT = []  # (submission, task)


def right(task):
    def keep(layer):
        RIGHT.append((layer, task))
        return layer

    return keep


def hidden(scores, mask):
    """The scores, -inf where nobody may look."""
    return scores if mask is None else scores.masked_fill(~mask, float("-inf"))


class Four(nn.Module):
    """Four layers under names that tell what they are."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads, self.size = num_heads, embed_dim // num_heads
        self.to_queries = nn.Linear(embed_dim, embed_dim)
        self.to_keys = nn.Linear(embed_dim, embed_dim)
        self.to_values = nn.Linear(embed_dim, embed_dim)
        self.to_out = nn.Linear(embed_dim, embed_dim)

    def projected(self, query, key, value):
        key = query if key is None else key
        value = key if value is None else value
        return self.to_queries(query), self.to_keys(key), self.to_values(value)


@right("mha")
class HidesFeatures(Four):
    """A head is the whole width with all features but its own set to 0."""

    def forward(self, query, key=None, value=None, mask=None):
        q, k, v = self.projected(query, key, value)
        owner = torch.arange(q.shape[-1], device=q.device) // self.size
        total = 0
        for head in range(self.heads):
            own = (owner == head).to(q.dtype)
            scores = (q * own) @ k.mT / math.sqrt(self.size)
            total = total + hidden(scores, mask).softmax(-1) @ (v * own)
        return self.to_out(total)


@right("mha")
class MapsOverHeads(Four):
    """vmap over the heads."""

    def forward(self, query, key=None, value=None, mask=None):
        parts = self.projected(query, key, value)
        q, k, v = (torch.stack(x.split(self.size, -1)) for x in parts)

        def head(q, k, v):
            return hidden(q @ k.mT / self.size**0.5, mask).softmax(-1) @ v

        return self.to_out(torch.cat([*torch.vmap(head)(q, k, v)], -1))


@right("mha")
class QueryByQuery(Four):
    """Two loops, over heads and over queries."""

    def forward(self, query, key=None, value=None, mask=None):
        q, k, v = self.projected(query, key, value)
        rows = []
        for t in range(q.shape[1]):
            heads = []
            for h in range(self.heads):
                own = slice(h * self.size, (h + 1) * self.size)
                scores = (q[:, t : t + 1, own] * k[..., own]).sum(-1) / self.size**0.5
                seen = None if mask is None else mask.expand(-1, q.shape[1], -1)[:, t]
                weights = F.softmax(hidden(scores, seen), -1)
                heads.append((weights[..., None] * v[..., own]).sum(1))
            rows.append(torch.cat(heads, -1))
        return self.to_out(torch.stack(rows, 1))


@right("mha")
class ByLogarithms(Four):
    """The weights are exp(score - logsumexp); an empty row is left to NaN."""

    def forward(self, query, key=None, value=None, mask=None):
        q, k, v = (
            x.unflatten(-1, (self.heads, self.size)).movedim(2, 1)
            for x in self.projected(query, key, value)
        )
        scores = torch.einsum("bhtd,bhsd->bhts", q, k) * self.size**-0.5
        scores = hidden(scores, None if mask is None else mask[:, None])
        weights = (scores - scores.logsumexp(-1, keepdim=True)).exp()
        y = torch.einsum("bhts,bhsd->bthd", weights, v)
        return self.to_out(y.flatten(2)), weights


@right("mha")
class BlockByBlock(Four):
    """A softmax that sees four keys at a time and keeps a running maximum."""

    def forward(self, query, key=None, value=None, mask=None):
        q, k, v = (
            x.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for x in self.projected(query, key, value)
        )
        top = q.new_full((*q.shape[:-1], 1), -1e30)
        total, y = torch.zeros_like(top), torch.zeros_like(q)
        for start in range(0, k.shape[2], 4):
            part = slice(start, start + 4)
            scores = q @ k[:, :, part].mT / self.size**0.5
            seen = None if mask is None else mask[:, None][..., part]
            scores = hidden(scores, seen)
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            e, shrink = (scores - new).exp(), (top - new).exp()
            total = total * shrink + e.sum(-1, keepdim=True)
            y, top = y * shrink + e @ v[:, :, part], new
        return self.to_out((y / total).transpose(1, 2).flatten(2))


@right("mha")
class MatricesOfHeads(nn.Module):
    """Bare matrices (H, E, D) and (H, D, E), met by einsum."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        size = embed_dim // num_heads
        self.num_heads = num_heads
        for name in "qkv":
            weight = nn.Parameter(torch.randn(num_heads, embed_dim, size) / 4)
            self.register_parameter(f"W_{name}", weight)
            bias = nn.Parameter(torch.zeros(num_heads, size))
            self.register_parameter(f"b_{name}", bias)
        self.W_o = nn.Parameter(torch.randn(num_heads, size, embed_dim) / 4)
        self.b_o = nn.Parameter(torch.zeros(embed_dim))

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q = torch.einsum("bte,hed->bhtd", query, self.W_q) + self.b_q[:, None]
        k = torch.einsum("bse,hed->bhsd", key, self.W_k) + self.b_k[:, None]
        v = torch.einsum("bse,hed->bhsd", value, self.W_v) + self.b_v[:, None]
        scores = q @ k.mT / q.shape[-1] ** 0.5
        weights = hidden(scores, None if mask is None else mask[:, None]).softmax(-1)
        y = torch.einsum("bhts,bhsd,hde->bte", weights, v, self.W_o)
        return y + self.b_o, weights


@right("mha")
class KeysAndValuesTogether(nn.Module):
    """One layer for the queries, one for keys and values."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q_proj = nn.Linear(dim, dim)
        self.kv_proj = nn.Linear(dim, 2 * dim)
        self.out_proj = nn.Linear(dim, dim)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        E = query.shape[-1]
        k, v = self.kv_proj(key)[..., :E], self.kv_proj(value)[..., E:]
        q, k, v = (
            x.view(*x.shape[:2], self.heads, E // self.heads).transpose(1, 2)
            for x in (self.q_proj(query), k, v)
        )
        bias = torch.zeros(1, dtype=q.dtype, device=q.device)
        if mask is not None:
            bias = bias.expand(mask.shape).masked_fill(~mask, float("-inf"))[:, None]
        weights = (q @ k.mT / (E // self.heads) ** 0.5 + bias).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights


@right("mha")
class Convolutions(nn.Module):
    """A convolution over one token is a linear layer."""

    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.q = nn.Conv1d(channels, channels, 1)
        self.k = nn.Conv1d(channels, channels, 1)
        self.v = nn.Conv1d(channels, channels, 1)
        self.proj = nn.Conv1d(channels, channels, 1)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = (
            layer(x.mT).unflatten(1, (self.heads, -1))  # (B, H, D, T)
            for layer, x in ((self.q, query), (self.k, key), (self.v, value))
        )
        scores = q.mT @ k / q.shape[2] ** 0.5
        weights = hidden(scores, None if mask is None else mask[:, None]).softmax(-1)
        return self.proj((v @ weights.mT).flatten(1, 2)).mT, weights


@right("mha")
class TorchsOwn(nn.Module):
    """nn.MultiheadAttention, its mask turned round, its weights for each head."""

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        self.inner = nn.MultiheadAttention(
            embed_dim, num_heads, dropout=dropout, batch_first=True
        )

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        if mask is not None:
            shape = (len(query), query.shape[1], key.shape[1])
            mask = ~mask.expand(shape).repeat_interleave(self.inner.num_heads, 0)
        return self.inner(query, key, value, attn_mask=mask, average_attn_weights=False)


@right("mha_sequence_first")
class Folded(Four):
    """Tokens first, the heads folded into the batch, additive mask by baddbmm."""

    def forward(self, query, key=None, value=None, mask=None):
        T, B, E = query.shape
        q, k, v = (
            x.reshape(len(x), B * self.heads, self.size).transpose(0, 1)
            for x in self.projected(query, key, value)
        )
        bias = q.new_zeros(1, 1, 1)
        if mask is not None:
            bias = q.new_zeros(mask.shape).masked_fill(~mask, float("-inf"))
            bias = bias.expand(T, len(k[0]), B).permute(2, 0, 1)
            bias = bias.repeat_interleave(self.heads, 0)
        weights = torch.baddbmm(bias, q, k.mT, alpha=self.size**-0.5).softmax(-1)
        y = torch.bmm(weights, v).transpose(0, 1).reshape(T, B, E)
        return self.to_out(y), weights.unflatten(0, (B, self.heads))


@right("mha")
def from_weights(query, key, value, weights, num_heads, mask=None):
    """A function of the weights; the heads are gathered and scattered by index."""
    E = query.shape[-1]
    columns = torch.arange(E, device=query.device).view(num_heads, -1)  # (H, D)

    def heads(x, role):
        y = F.linear(x, weights[f"W_{role}"], weights[f"b_{role}"])
        return y[:, :, columns].permute(0, 2, 1, 3)

    q, k, v = heads(query, "q"), heads(key, "k"), heads(value, "v")
    scores = (q[..., :, None, :] * k[..., None, :, :]).sum(-1)
    scores = scores / columns.shape[1] ** 0.5
    mixed = hidden(scores, None if mask is None else mask[:, None]).softmax(-1) @ v
    joined = mixed.new_zeros(*query.shape)
    joined[:, :, columns.flatten()] = mixed.transpose(1, 2).flatten(2)
    return F.linear(joined, weights["W_o"], weights["b_o"])
