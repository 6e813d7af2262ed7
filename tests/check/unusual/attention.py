"""Attention for any leading axes, in ways that no textbook shares with another."""

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unusual.registry import unusual


@unusual("attention", "A running maximum and a running sum: no row of scores is whole.")
def streaming(q, k, v, mask=None):
    shape = *q.shape[:-1], k.shape[-2]
    seen = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    top = q.new_full(shape[:-1], torch.finfo(q.dtype).min)
    total = q.new_zeros(shape[:-1])
    context = q.new_zeros(*shape[:-1], v.shape[-1])
    for s in range(shape[-1]):
        score = (q * k[..., s, None, :]).sum(-1) / math.sqrt(q.shape[-1])
        score = score.masked_fill(~seen[..., s], -math.inf)
        higher = torch.maximum(top, score)
        shrink, power = (top - higher).exp(), (score - higher).exp()
        total = total * shrink + power
        context = context * shrink[..., None] + power[..., None] * v[..., s, None, :]
        top = higher
    return context / total[..., None]


@unusual("attention", "Four keys at a time, joined by their log-sum-exps.")
def in_chunks(xs, ys, zs, allowed=None, *, chunk=4):
    logits = xs @ ys.mT / xs.shape[-1] ** 0.5
    if allowed is not None:
        logits = logits.masked_fill(~allowed, torch.finfo(logits.dtype).min)
    parts, sums = [], []
    for piece, rows in zip(logits.split(chunk, -1), zs.split(chunk, -2)):
        sums.append(piece.logsumexp(-1, keepdim=True))
        parts.append(piece.softmax(-1) @ rows)
    shares = torch.cat(sums, -1).softmax(-1)
    return sum(share[..., None] * part for share, part in zip(shares.unbind(-1), parts))


@unusual("attention", "Halves the keys until one is left and merges what comes back.")
def halved(q, k, v, mask=None):
    scale = q.shape[-1] ** -0.5

    def solve(low, high):
        if high - low == 1:
            score = (q @ k[..., low:high, :].mT * scale).squeeze(-1)
            if mask is not None:
                score = score.masked_fill(
                    ~mask.expand(*q.shape[:-1], n)[..., low], -1e30
                )
            return score, v[..., low : low + 1, :].expand(*q.shape[:-1], v.shape[-1])
        middle = (low + high) // 2
        (a, x), (b, y) = solve(low, middle), solve(middle, high)
        share = torch.sigmoid(a - b)[..., None]
        return torch.logaddexp(a, b), share * x + (1 - share) * y

    n = k.shape[-2]
    return solve(0, n)[1]


def one_matrix(q, k, v, m):
    w = torch.where(m, q @ k.T / math.sqrt(q.shape[1]), -torch.inf).softmax(1)
    return w @ v, w


@unusual("attention", "Written for one matrix; vmap adds the other axes.")
def vmapped(q, k, v, mask=None):
    if mask is None:
        mask = torch.ones((), dtype=torch.bool)
    mask = mask.expand(*q.shape[:-1], k.shape[-2])
    one = one_matrix
    for _ in q.shape[:-2]:
        one = torch.vmap(one)
    return one(q, k, v, mask)


@unusual("attention", "vmap over the rows of the queries alone.")
def rows_vmapped(Q, K, V, M=None):
    shape = *Q.shape[:-1], K.shape[-2]
    M = Q.new_ones(shape).bool() if M is None else M.expand(shape)

    def row(query, seen):
        score = (K * query.unsqueeze(-2)).sum(-1) / Q.shape[-1] ** 0.5
        weight = score.masked_fill(seen.logical_not(), -1e9).softmax(-1)
        return (weight.unsqueeze(-1) * V).sum(-2)

    return torch.vmap(row, in_dims=-2, out_dims=-2)(Q, M)


@unusual("attention", "Calls itself until no leading axis is left.")
def recursive(q, k, v, mask=None):
    if q.dim() == 2:
        bias = 0.0 if mask is None else torch.where(mask, 0.0, -math.inf).to(q.dtype)
        return F.softmax(q @ k.t() / math.sqrt(q.size(1)) + bias, dim=1) @ v
    if mask is not None:
        mask = mask.expand(*q.shape[:-1], k.size(-2))
    masks = itertools.repeat(None) if mask is None else mask
    return torch.stack([recursive(*x) for x in zip(q, k, v, masks)])


class ByNumpy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, mask):
        a, b, c = (x.detach().numpy() for x in (q, k, v))
        s = np.matmul(a, b.swapaxes(-1, -2)) / np.sqrt(a.shape[-1]).astype(a.dtype)
        s = np.where(mask.numpy(), s, np.finfo(a.dtype).min)
        w = np.exp(s - s.max(-1, keepdims=True))
        w = torch.from_numpy(w / w.sum(-1, keepdims=True))
        ctx.save_for_backward(q, k, v, w)
        return torch.from_numpy(np.matmul(w.numpy(), c))

    @staticmethod
    def backward(ctx, g):
        q, k, v, w = ctx.saved_tensors
        gw = g @ v.mT
        gs = w * (gw - (gw * w).sum(-1, keepdim=True)) / math.sqrt(q.shape[-1])
        return gs @ k, gs.mT @ q, w.mT @ g, None


@unusual("attention", "NumPy forward, and a backward pass written by hand.")
def numpy_with_backward(q, k, v, mask=None):
    mask = torch.tensor(True) if mask is None else mask
    return ByNumpy.apply(q, k, v, mask)


@unusual("attention", "Powers of two instead of e.")
def base_two(q, k, v, mask=None):
    s = torch.einsum("...id,...jd->...ij", q, k) * (
        math.log2(math.e) / q.size(-1) ** 0.5
    )
    if mask is not None:
        s = s.where(mask, s.new_tensor(torch.finfo(s.dtype).min))
    p = torch.exp2(s - s.amax(-1, keepdim=True).detach())
    return torch.einsum("...ij,...jv->...iv", p / p.sum(-1, True), v)


@unusual(
    "attention", "Each factor gets the fourth root of D; weights from log_softmax."
)
def fourth_roots(q, k, v, mask=None):
    root = q.shape[-1] ** -0.25
    s = (q * root) @ (k * root).movedim(-1, -2)
    if mask is not None:
        s = s + torch.zeros_like(mask, dtype=s.dtype).masked_fill(~mask, -1e30)
    w = s.log_softmax(-1).exp()
    return w @ v, w


@unusual("attention", "Normalised in the exponent, by logsumexp; NaN for an empty row.")
def normalised_in_the_exponent(q, k, v, mask=None):
    s = torch.matmul(q, k.transpose(-2, -1)).mul(q.size(-1) ** -0.5)
    if mask is not None:
        s = s.masked_fill(~mask, float("-inf"))
    return torch.exp(s - s.logsumexp(-1, keepdim=True)) @ v


@unusual("attention", "No matrix product: products are written out and summed.")
def no_matrix_product(q, k, v, mask=None):
    s = (q[..., :, None, :] * k[..., None, :, :]).sum(-1) / math.sqrt(q.shape[-1])
    if mask is not None:
        s[~mask.broadcast_to(s.shape)] = -1e9
    w = nn.Softmax(dim=-1)(s)
    return (w[..., None] * v[..., None, :, :]).sum(-2)


class Attend:
    """Not a module, but an object to be called."""

    def __init__(self, temperature):
        self.temperature = temperature

    def __call__(self, queries, keys, values, mask=None):
        s = queries @ keys.mT / (self.temperature * queries.size(-1) ** 0.5)
        if mask is not None:
            s = s.masked_fill(mask == 0, -1e20)
        return s.softmax(-1) @ values


unusual("attention", "An object with __call__.", name="object")(Attend(1.0))


class Tools:
    @staticmethod
    def attend(q, k, v, mask=None):
        w = Tools._weights(q, k, mask)
        return torch.matmul(w, v), w

    @classmethod
    def _weights(cls, q, k, mask):
        s = cls.scale(q) @ k.mT
        return F.softmax(s if mask is None else s.masked_fill(~mask, -9e15), -1)

    @staticmethod
    def scale(q):
        return q / torch.sqrt(torch.tensor(q.shape[-1], dtype=q.dtype))


unusual("attention", "A static method.", name="static_method")(Tools.attend)


def general(weigh, q, k, v, mask=None, *, fill):
    return weigh(q @ k.mT / q.shape[-1] ** 0.5, mask, fill) @ v


def weigh(scores, mask, fill):
    if mask is not None:
        scores = scores.masked_fill(~mask, fill)
    return scores.softmax(-1)


unusual(
    "attention", "A partial with an argument in front and one behind.", name="partial"
)(functools.partial(general, weigh, fill=-1e10))


def maker(fill):
    """The function that comes back remembers the value for hidden keys."""

    def attend(first, second, third, visible=None):
        nonlocal calls
        calls += 1
        logits = first.matmul(second.mT).div(first.size(-1) ** 0.5)
        if visible is not None:
            logits.masked_fill_(visible.bitwise_not(), fill)
        return logits.softmax(dim=-1).matmul(third)

    calls = 0
    return attend


unusual("attention", "A closure that counts its calls.", name="closure")(maker(-1e10))

unusual("attention", "One lambda.", name="one_lambda")(
    lambda q, k, v, mask=None: (
        (q @ k.mT * q.shape[-1] ** -0.5)
        .masked_fill(torch.zeros(()).bool() if mask is None else ~mask, -1e9)
        .softmax(-1)
        .matmul(v)
    )
)


@unusual("attention", "One query after the other, in a generator.")
def query_by_query(q, k, v, mask=None):
    steps = range(q.shape[-2])
    masks = None if mask is None else mask.expand(*q.shape[:-1], k.shape[-2])

    def row(t):
        s = k @ q[..., t, :, None] / k.shape[-1] ** 0.5
        if masks is not None:
            s = s.masked_fill(~masks[..., t, :, None], float("-inf"))
        return (s.softmax(-2) * v).sum(-2)

    return torch.stack(tuple(row(t) for t in steps), dim=-2)


@functools.singledispatch
def visible(mask, scores):
    raise TypeError(f"a mask is a tensor or None; got {type(mask).__name__}")


@visible.register
def _(mask: None, scores):
    return scores


@visible.register
def _(mask: torch.Tensor, scores):
    return scores.where(mask, float("-inf"))


@unusual("attention", "The type of the mask chooses the function.")
def dispatched(q, k, v, mask=None):
    return torch.softmax(visible(mask, q @ k.mT / math.sqrt(k.shape[-1])), -1) @ v


@unusual(
    "attention", "The softmax runs over the visible keys alone; an empty row is 0."
)
def visible_keys_alone(q, k, v, mask=None):
    shape = *q.shape[:-1], k.shape[-2]
    scores = torch.einsum("...td,...sd->...ts", q, k) / math.sqrt(q.shape[-1])
    if mask is None:
        mask = torch.ones(shape, dtype=torch.bool)
    weights = torch.zeros(shape, dtype=q.dtype)
    for place in np.ndindex(*shape[:-1]):
        seen = mask.expand(shape)[place].nonzero().squeeze(-1)
        weights[place] = weights[place].index_put(
            (seen,), scores[place][seen].softmax(0)
        )
    return weights @ v, weights


@unusual("attention", "A last column that no value belongs to catches the empty rows.")
def with_a_sink(q, k, v, mask=None):
    s = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    s = F.pad(s, (0, 1), value=torch.finfo(s.dtype).min)
    return s.softmax(-1)[..., :-1] @ v


class Attended(NamedTuple):
    context: torch.Tensor
    weights: torch.Tensor


@unusual("attention", "Comes back as a named tuple.")
def with_names(q, k, v, mask=None) -> Attended:
    s = q @ k.mT / q.shape[-1] ** 0.5
    w = torch.softmax(s if mask is None else torch.where(mask, s, -1e9), dim=-1)
    return Attended(weights=w, context=w @ v)


@unusual("attention", "Masked once before the softmax and once more behind it.")
def masked_twice(Q, K, V, attention_mask=None):
    energy = Q @ K.swapaxes(-1, -2) / np.sqrt(Q.shape[-1])
    if attention_mask is None:
        return torch.softmax(energy, -1) @ V
    low = torch.finfo(energy.dtype).min
    p = torch.softmax(energy.masked_fill(~attention_mask, low), -1)
    return (p * attention_mask) @ V


@unusual("attention", "Exponentials of what is visible, over their sum plus nothing.")
def masked_softmax(q, k, v, mask=None):
    s = q @ k.mT / q.shape[-1] ** 0.5
    keep = torch.ones_like(s, dtype=torch.bool) if mask is None else mask.expand_as(s)
    top = s.masked_fill(~keep, -math.inf).amax(-1, keepdim=True)
    top = top.masked_fill(top == -math.inf, 0).detach()
    e = (s - top).masked_fill(~keep, 0).exp() * keep
    w = e / e.sum(-1, keepdim=True).clamp_min(torch.finfo(s.dtype).tiny)
    return w @ v, w


@unusual("attention", "The leading axes are groups of a convolution.")
def as_convolution(q, k, v, mask=None):
    *lead, T, D = q.shape
    S, n = k.shape[-2], math.prod(lead)
    rows = q.reshape(n, T, D).mT.reshape(1, n * D, T)
    s = F.conv1d(rows, k.reshape(n * S, D, 1), groups=n).view(n, S, T).mT / D**0.5
    if mask is not None:
        s = s.masked_fill(~mask.expand(*lead, T, S).reshape(n, T, S), -1e9)
    return torch.bmm(s.softmax(2), v.reshape(n, S, -1)).view(*lead, T, -1)


@unusual("attention", "The library's kernel, with a mask of numbers and its own scale.")
def library_with_numbers(q, k, v, mask=None):
    bias = None
    if mask is not None:
        bias = (
            q.new_zeros(()).expand(*q.shape[:-1], k.shape[-2]).masked_fill(~mask, -1e9)
        )
    scale = 1 / math.sqrt(k.shape[-1])
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale)


@unusual("attention", "float64 inside, and what comes back is cast to what came.")
def wider_inside(query_states, key_states, value_states, mask=None):
    dtype = query_states.dtype
    q, k, v = map(torch.Tensor.double, (query_states, key_states, value_states))
    s = q @ k.mT * k.shape[-1] ** -0.5
    if mask is not None:
        s = s + (~mask).to(s) * torch.finfo(s.dtype).min
    w = F.softmax(s, dim=-1, dtype=torch.float64)
    return tuple(x.to(dtype) for x in (w @ v, w))


class Scores(nn.Module):
    def forward(self, q, k):
        return q @ k.mT / q.shape[-1] ** 0.5


class Weights(nn.Softmax):
    def forward(self, s, mask):
        return super().forward(s if mask is None else s.masked_fill(~mask, -1e9))


@unusual("attention", "A module of modules without weights.")
class Modular(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores, self.weights = Scores(), Weights(dim=-1)

    def forward(self, q, k, v, mask=None):
        return torch.matmul(w := self.weights(self.scores(q, k), mask), v), w


@unusual("attention", "Parameters in a language other than English.")
def aufmerksamkeit(anfragen, schluessel, werte, maske=None):
    punkte = anfragen @ schluessel.mT / anfragen.shape[-1] ** 0.5
    if maske is not None:
        punkte = punkte.masked_fill(~maske, -float("inf"))
    gewichte = punkte.softmax(-1).nan_to_num(0.0)
    return gewichte @ werte, gewichte
