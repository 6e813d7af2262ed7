"""Right programs of the eighth round: vmap, complex numbers, halves, other orders."""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Attention, programs
from tests.check.unseen.wrong_eighth import attended

RIGHT, right = programs()


@right("attention")
def attention_by_vmap(q, k, v, mask=None):
    """One query at a time, and each as if it were the only one."""
    (*lead, T, _), S = q.shape, k.shape[-2]
    seen = torch.ones(T, S).bool() if mask is None else mask

    def one(q, k, v, seen):
        scores = torch.mv(k, q) / len(q) ** 0.5
        weights = torch.where(seen, scores, -torch.inf).softmax(0)
        return weights @ v, weights

    all_of_one = torch.func.vmap(torch.func.vmap(one, in_dims=(0, None, None, 0)))
    given = (q, k, v, seen.expand(*lead, T, S))
    found = all_of_one(*(x.reshape(-1, *x.shape[-2:]) for x in given))
    return tuple(x.view(*lead, T, x.shape[-1]) for x in found)


@right("attention")
def attention_of_complex_numbers(q, k, v, mask=None):
    """Two features are one number; a score is the real part of a product."""
    odd = q.shape[-1] % 2
    a, b = (
        torch.view_as_complex(F.pad(x, (0, odd)).unflatten(-1, (-1, 2)).contiguous())
        for x in (q, k)
    )
    scores = (a @ b.mH).real / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.where(mask, -torch.inf)
    weights = scores.softmax(-1)
    return weights @ v, weights


@right("attention")
def attention_of_halves(q, k, v, mask=None):
    """Each half of the keys for itself; their sums are joined as logarithms."""

    def halved(k, mask):
        S = k.shape[-2]
        if S == 1:
            scores = (q * k).sum(-1, keepdim=True) / q.shape[-1] ** 0.5
            if mask is not None:
                scores = scores.masked_fill(~mask, -1e30)
            return torch.ones_like(scores), scores
        (left, a), (right, b) = (
            halved(k[..., at, :], mask if mask is None else mask[..., at])
            for at in (slice(S // 2), slice(S // 2, S))
        )
        total = torch.logaddexp(a, b)
        return torch.cat(
            [left * (a - total).exp(), right * (b - total).exp()], -1
        ), total

    if mask is not None:
        mask = mask.expand(*mask.shape[:-1], k.shape[-2])
    weights = halved(k, mask)[0]
    weights = weights if mask is None else weights * mask
    return weights @ v, weights


@right("attention")
def attention_of_sorted_keys(q, k, v, mask=None):
    """What is seen goes in front, and is brought back when it is weighed."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is None:
        mask = torch.ones_like(scores).bool()
    mask = mask.expand_as(scores)
    order = mask.int().argsort(dim=-1, descending=True, stable=True)
    hidden = torch.arange(k.shape[-2]) >= mask.sum(-1, keepdim=True)
    moved = scores.gather(-1, order).masked_fill(hidden, -torch.inf).softmax(-1)
    weights = torch.zeros_like(moved).scatter(-1, order, moved)
    return weights @ v, weights


@right("split_heads")
def split_head_by_head(x, num_heads):
    if num_heads == 1:
        return x[:, None]
    D = x.shape[-1] // num_heads
    rest = split_head_by_head(x[..., D:], num_heads - 1)
    return torch.cat([x[:, None, :, :D], rest], 1)


@right("merge_heads")
def merged_by_reduce(x):
    def joined(heads):
        return functools.reduce(lambda a, b: torch.cat([a, b], -1), heads.unbind(0))

    return torch.func.vmap(joined)(x)


@right("padding_mask")
def padding_by_one_hot(lengths, S):
    """A last class that no key has, and a running sum from the right."""
    ends = F.one_hot(lengths.long(), S + 1).flip(-1).cumsum(-1).flip(-1)
    return ends[:, None, 1:] > 0


@right("mha")
class ProjectsNoKey(Attention):
    """The queries go through W_k, and the means of the values through W_v."""

    def forward(self, query, key, value, mask=None):
        def heads(x):
            return x.unflatten(0, (self.num_heads, -1))

        q = self.q_proj(query).unflatten(-1, (self.num_heads, -1))
        turned = torch.einsum("bthd,hde->bhte", q, heads(self.k_proj.weight))
        shift = torch.einsum("bthd,hd->bht", q, heads(self.k_proj.bias))
        scores = torch.einsum("bhte,bse->bhts", turned, key) + shift[..., None]
        scores = scores / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        weights = scores.softmax(-1)
        means = torch.einsum("bhts,bse->bhte", weights, value)
        z = torch.einsum("bhte,hde->bthd", means, heads(self.v_proj.weight))
        return self.out_proj(z.flatten(2) + self.v_proj.bias), weights


@right("mha")
class KeysOfEachHeadBesideZeros(Attention):
    """All heads are one product with H · S keys, each zero but for its own head."""

    def forward(self, query, key, value, mask=None):
        H, E = self.num_heads, query.shape[-1]
        own = torch.eye(H, dtype=query.dtype).repeat_interleave(E // H, 1)[:, None]
        k = (self.k_proj(key)[:, None] * own).flatten(1, 2)
        scores = self.q_proj(query) @ k.mT / (E // H) ** 0.5
        scores = scores.unflatten(-1, (H, -1)).transpose(1, 2)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        weights = scores.softmax(-1)
        return self.out_proj(
            (weights @ (self.v_proj(value)[:, None] * own)).sum(1)
        ), weights


@right("mha")
class OneLayerHeadByHead(nn.Module):
    """q, k and v of a head lie side by side: (H, 3, D)."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.dense = nn.Linear(embed_dim, embed_dim)

    def part(self, x, n):
        return self.qkv(x).unflatten(-1, (self.heads, 3, -1))[..., n, :].transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        parts = [self.part(x, n) for n, x in enumerate((query, key, value))]
        output, weights = attended(*parts, mask if mask is None else mask[:, None])
        return self.dense(output.transpose(1, 2).flatten(2)), weights


@right("mha_sequence_first")
class KeysInFront(Attention):
    """Scores (S, T, B, H), a softmax over the first axis."""

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1))
            for layer, x in zip(
                (self.q_proj, self.k_proj, self.v_proj), (query, key, value)
            )
        )
        scores = torch.einsum("tbhd,sbhd->stbh", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask.movedim(1, 0)[..., None], -torch.inf)
        weights = scores.softmax(0)
        means = torch.einsum("stbh,sbhd->tbhd", weights, v)
        return self.out_proj(means.flatten(2)), weights.permute(2, 3, 1, 0)


@right("generate")
@torch.no_grad()
def writes_by_recursion(model, tokens, new, context, temperature=1.0, top_k=None):
    """One word, and then a text that is shorter by one; the best are scattered back."""
    if new == 0:
        return tokens
    was = model.training
    model.eval()
    logits = model(tokens[:, -context:])[:, -1].div(temperature)
    if top_k is not None:
        values, words = logits.topk(top_k)
        logits = torch.full_like(logits, -torch.inf).scatter(1, words, values)
    word = torch.distributions.Categorical(logits=logits).sample()[:, None]
    model.train(was)
    tokens = torch.hstack([tokens, word])
    return writes_by_recursion(model, tokens, new - 1, context, temperature, top_k)
