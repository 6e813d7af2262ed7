"""Right attention in many styles, none of which may ever be faulted."""

import functools
import math
from collections import namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RIGHT = []  # (submission, task)
ADAPTED = []  # right if called in its own way: (submission, task, what it lacks)


def right(task):
    def keep(submission):
        RIGHT.append((submission, task))
        return submission

    return keep


def adapted(task, *lacks):
    def keep(submission):
        ADAPTED.append((submission, task, {*lacks}))
        return submission

    return keep


# --- scaled dot-product attention ---------------------------------------------------


@adapted("attention", "leading_axes", "mask_broadcasts", "large_scores")
def three_loops(q, k, v, mask=None):
    B, H, T, D = q.shape
    context = torch.zeros(B, H, T, v.shape[-1], dtype=q.dtype)
    for b in range(B):
        for h in range(H):
            for t in range(T):
                scores = (q[b, h, t] * k[b, h]).sum(-1) / math.sqrt(D)
                if mask is not None:
                    scores = scores.masked_fill(mask[b, 0, t] == 0, -math.inf)
                powers = scores.exp()
                context[b, h, t] = (powers[:, None] * v[b, h]).sum(0) / powers.sum()
    return context


@right("attention")
def with_einsum(q, k, v, mask=None):
    scores = torch.einsum("...td,...sd->...ts", q, k) * q.shape[-1] ** -0.5
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    weights = torch.softmax(scores, dim=-1)
    return torch.einsum("...ts,...sd->...td", weights, v), weights


@adapted("attention", "leading_axes", "mask_broadcasts")
def with_baddbmm(q, k, v, mask=None):
    """Three axes only: heads are more sequences."""
    n, t, d = q.shape
    bias = q.new_zeros(n, t, k.shape[1])
    if mask is not None:
        bias = bias.masked_fill(~mask, float("-inf"))
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), beta=1.0, alpha=d**-0.5)
    return torch.bmm(scores.softmax(-1), v)


@right("attention")
def sdpa(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@right("attention")
def additive(q, k, v, mask=None):
    logits = (q @ k.mT).div(math.sqrt(q.size(-1)))
    if mask is not None:
        logits = logits + torch.log(mask.to(logits.dtype))
    return logits.softmax(-1).matmul(v)


@adapted("attention", "mask_as_given", "leading_axes", "mask_broadcasts")
def additive_big(q, k, v, mask=None):
    logits = (q @ k.mT) / math.sqrt(q.size(-1))
    if mask is not None:
        logits = logits + (1 - mask) * -1e9  # numbers 0 and 1 wanted
    return torch.softmax(logits, -1) @ v


@right("attention")
def allowed_plus_one(q, k, v, mask=None):
    logits = (q @ k.mT) / math.sqrt(q.size(-1))
    if mask is not None:
        logits = torch.where(mask, logits + 1, -torch.inf)
    return torch.softmax(logits, -1) @ v


@right("attention")
def float64_inside(q, k, v, mask=None):
    a, b, c = (x.double() for x in (q, k, v))
    s = a @ b.mT / np.sqrt(a.shape[-1])
    if mask is not None:
        s[~mask.expand_as(s)] = -np.inf
    p = torch.exp(s - s.max(-1, keepdim=True).values)
    p = p / p.sum(-1, keepdim=True)
    return (p @ c).to(q.dtype), p.to(q.dtype)


@right("attention")
def float32_inside(q, k, v, mask=None):
    s = (q.float() / math.sqrt(q.shape[-1])) @ k.float().mT
    if mask is not None:
        s = s.masked_fill(~mask, torch.finfo(s.dtype).min)
    return (s.softmax(-1) @ v.float()).to(q.dtype)


@right("attention")
def keys_first_inside(q, k, v, mask=None):
    """Scores (..., S, T), softmax over their rows, and back."""
    s = k @ q.mT / math.sqrt(k.shape[-1])
    if mask is not None:
        s = s.masked_fill(~mask.mT, -1e9)
    p = s.softmax(-2)
    return (v.mT @ p).mT, p.mT


@right("attention")
def zeros_for_empty_rows(q, k, v, mask=None):
    s = q @ k.mT / math.sqrt(k.shape[-1])
    if mask is None:
        return s.softmax(-1) @ v
    p = torch.nan_to_num(s.masked_fill(~mask, -torch.inf).softmax(-1))
    return p @ v


@right("attention")
class AsModule(nn.Module):
    def forward(self, q, k, v, mask=None):
        s = torch.matmul(q, k.transpose(-1, -2)) / k.shape[-1] ** 0.5
        if mask is not None:
            s.masked_fill_(mask.logical_not(), -1e4)
        return s.softmax(-1) @ v


@right("split_heads")
def by_slices(x, num_heads):
    d = x.shape[-1] // num_heads
    return torch.stack([x[:, :, h * d : (h + 1) * d] for h in range(num_heads)], 1)


@right("split_heads")
def by_view(x, num_heads):
    B, T, E = x.shape
    return x.view(B, T, num_heads, E // num_heads).permute(0, 2, 1, 3).contiguous()


@right("merge_heads")
def by_cat(x):
    return torch.cat(x.unbind(1), dim=-1)


@right("causal_mask")
def compares(T, S):
    return torch.arange(T).unsqueeze(1) >= torch.arange(S)


@right("padding_mask")
def loops(lengths, S):
    mask = torch.zeros(len(lengths), 1, S, dtype=torch.bool)
    for b, n in enumerate(lengths):
        mask[b, :, :n] = True
    return mask


@right("combine_masks")
def both(causal, padding):
    return causal & padding


# --- whole layers -------------------------------------------------------------------


@right("mha")
class Annotated(nn.Module):
    """Four linear layers in a list: only what flows in tells which is which."""

    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = nn.ModuleList([nn.Linear(d_model, d_model) for _ in range(4)])
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        n = query.size(0)
        query, key, value = [
            lin(x).view(n, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        self.attn = scores.softmax(dim=-1)
        x = self.dropout(self.attn) @ value
        x = x.transpose(1, 2).contiguous().view(n, -1, self.h * self.d_k)
        return self.linears[-1](x)


@right("mha")
class Fused(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = nn.Linear(embed_dim, 3 * embed_dim)
        self.c_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, mask=None):
        W, b = self.c_attn.weight.chunk(3), self.c_attn.bias.chunk(3)
        q, k, v = (
            F.linear(x, *p).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for x, *p in zip((query, key, value), W, b)
        )
        if mask is not None and mask.dim() == 3:
            mask = mask.unsqueeze(1)
        y = F.scaled_dot_product_attention(q, k, v, mask)
        return self.c_proj(y.transpose(1, 2).flatten(2))


@right("mha")
class FusedHeadByHead(nn.Module):
    """The rows of one matrix lie head by head: q, k, v of head 0, then of head 1."""

    def __init__(self, input_dim, num_heads):
        super().__init__()
        self.n_heads, self.head_dim = num_heads, input_dim // num_heads
        self.qkv = nn.Linear(input_dim, 3 * input_dim)
        self.proj = nn.Linear(input_dim, input_dim)

    def forward(self, query, key, value, mask=None):
        shape = (-1, self.n_heads, 3, self.head_dim)
        q, k, v = (
            self.qkv(x).view(x.size(0), *shape)[..., i, :].permute(0, 2, 1, 3)
            for i, x in enumerate((query, key, value))
        )
        s = q @ k.mT * self.head_dim**-0.5
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -9e15)
        return self.proj((s.softmax(-1) @ v).permute(0, 2, 1, 3).flatten(2))


class OneHead(nn.Module):
    def __init__(self, n_embd, head_size):
        super().__init__()
        self.query = nn.Linear(n_embd, head_size)
        self.key = nn.Linear(n_embd, head_size, bias=False)  # never penalised
        self.value = nn.Linear(n_embd, head_size)

    def forward(self, x, m, w, mask):
        q, k, v = self.query(x), self.key(m), self.value(w)
        wei = q @ k.transpose(-2, -1) * q.size(-1) ** -0.5
        if mask is not None:
            wei = wei.masked_fill(mask == 0, float("-inf"))
        return F.softmax(wei, dim=-1) @ v


@right("mha")
class ManyHeads(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.heads = nn.ModuleList(
            [OneHead(n_embd, n_embd // n_head) for _ in range(n_head)]
        )
        self.proj = nn.Linear(n_embd, n_embd)

    def forward(self, q, k, v, mask=None):
        return self.proj(torch.cat([head(q, k, v, mask) for head in self.heads], -1))


@right("mha")
class BareMatrices(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            setattr(self, name, nn.Parameter(torch.randn(embed_dim, embed_dim)))

    def forward(self, Q, K, V, mask=None):
        Q, K, V = Q @ self.W_Q, K @ self.W_K, V @ self.W_V
        Q, K, V = (torch.stack(x.chunk(self.num_heads, -1)) for x in (Q, K, V))
        A = Q @ K.mT / math.sqrt(Q.size(-1))  # (H, B, T, S)
        if mask is not None:
            A = A.masked_fill(~mask, -1e9)
        return torch.cat(list(torch.softmax(A, -1) @ V), -1) @ self.W_O


@right("mha")
class BareCubes(nn.Module):
    """W_q (H, E, D), as the formula has it."""

    def __init__(self, dim, heads):
        super().__init__()
        d = dim // heads
        self.wq = nn.Parameter(torch.zeros(heads, dim, d))
        self.wk = nn.Parameter(torch.zeros(heads, dim, d))
        self.wv = nn.Parameter(torch.zeros(heads, dim, d))
        self.wo = nn.Parameter(torch.zeros(heads, d, dim))

    def forward(self, query, key, value, mask=None):
        q = torch.einsum("bte,hed->bhtd", query, self.wq)
        k = torch.einsum("bse,hed->bhsd", key, self.wk)
        v = torch.einsum("bse,hed->bhsd", value, self.wv)
        a = torch.einsum("bhtd,bhsd->bhts", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            a = a.masked_fill(~mask[:, None], -1e9)
        a = a.softmax(-1)
        return torch.einsum("bhts,bhsd,hde->bte", a, v, self.wo), a


@right("mha")
class Builtin(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__()
        self.num_heads = num_heads
        self.mha = nn.MultiheadAttention(
            embed_dim, num_heads, dropout=dropout, batch_first=True
        )

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = ~mask.repeat_interleave(self.num_heads, dim=0)
        return self.mha(query, key, value, attn_mask=mask)  # weights are averaged


@right("mha")
class HeadsLast(nn.Module):
    """Scores (B, T, S, H): a softmax over axis 2 is right here."""

    def __init__(self, d_model, n_heads, dropout=0.1):
        super().__init__()
        self.n_heads = n_heads
        self.to_q = nn.Linear(d_model, d_model)
        self.to_kv = nn.Linear(d_model, 2 * d_model)
        self.to_out = nn.Sequential(nn.Linear(d_model, d_model), nn.Dropout(dropout))

    def forward(self, query, key, value, mask=None):
        q = self.to_q(query).unflatten(-1, (self.n_heads, -1))
        k = self.to_kv(key).chunk(2, -1)[0].unflatten(-1, (self.n_heads, -1))
        v = self.to_kv(value).chunk(2, -1)[1].unflatten(-1, (self.n_heads, -1))
        s = torch.einsum("bthd,bshd->btsh", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(~mask.unsqueeze(-1), -1e9)
        w = F.dropout(s.softmax(2), self.to_out[1].p, self.training)
        return self.to_out(torch.einsum("btsh,bshd->bthd", w, v).flatten(2))


@adapted("mha", "mask_as_given", "mask_optional")
class BookMaskOfRankFour(nn.Module):
    """Wants (B, 1, T, S), as a decoder that makes its own mask does."""

    def __init__(self, d_model, num_heads, dropout=0.1, bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(d_model, d_model, bias=bias) for _ in range(4)
        )
        self.p = dropout

    def forward(self, q, k, v, mask):
        b, t, _ = q.shape
        q, k, v = (
            f(x).view(b, x.size(1), self.num_heads, -1).transpose(1, 2)
            for f, x in ((self.wq, q), (self.wk, k), (self.wv, v))
        )
        _, one, _, _ = mask.shape
        assert one == 1
        a = (q @ k.mT / q.size(-1) ** 0.5).masked_fill(~mask, -1e9).softmax(-1)
        o = F.dropout(a, self.p, self.training) @ v
        return self.wo(o.transpose(1, 2).reshape(b, t, -1))


@right("mha")
def functional(query, key, value, weights, num_heads, mask=None):
    F_ = {n: (weights[f"W_{n}"], weights[f"b_{n}"]) for n in "qkvo"}
    q, k, v = (
        F.linear(x, *F_[n]).unflatten(-1, (num_heads, -1)).transpose(1, 2)
        for n, x in zip("qkv", (query, key, value))
    )
    mask = None if mask is None else mask.unsqueeze(1)
    context = F.scaled_dot_product_attention(q, k, v, mask)
    return F.linear(context.transpose(1, 2).flatten(2), *F_["o"])


@right("mha")
class FusedThatReturnsItsMap(FusedHeadByHead):
    """The map belongs to the output: it was made with the same order of the rows."""

    def forward(self, query, key, value, mask=None):
        shape = (self.n_heads, 3, -1)
        q, k, v = (
            self.qkv(x).unflatten(-1, shape)[..., i, :].transpose(1, 2)
            for i, x in enumerate((query, key, value))
        )
        s = q @ k.mT / math.sqrt(self.head_dim)
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -torch.inf)
        w = s.softmax(-1)
        return self.proj((w @ v).transpose(1, 2).flatten(2)), w


@right("mha")
class OutputHeadByHead(nn.Module):
    """Each head has a projection of its own, and their results are summed."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        d = embed_dim // num_heads
        self.q, self.k, self.v = (
            nn.ModuleList(nn.Linear(embed_dim, d) for _ in range(num_heads))
            for _ in range(3)
        )
        self.o = nn.ModuleList(
            nn.Linear(d, embed_dim, bias=False) for _ in range(num_heads)
        )

    def forward(self, query, key, value, mask=None):
        heads = zip(self.q, self.k, self.v, self.o)
        return sum(
            o(F.scaled_dot_product_attention(q(query), k(key), v(value), mask))
            for q, k, v, o in heads
        )


class Projects(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.number = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = self.made(embed_dim)

    def made(self, width):
        return (nn.Linear(width, width) for _ in range(4))

    def attend(self, query, key, value, mask):
        q, k, v = (
            f(x).unflatten(-1, (self.number, -1)).transpose(1, 2)
            for f, x in ((self.q_proj, query), (self.k_proj, key), (self.v_proj, value))
        )
        return self.attended(q, k, v, mask)

    def attended(self, q, k, v, mask):
        s = q @ k.mT / math.sqrt(q.shape[-1])
        if mask is not None:
            s = s.masked_fill(~mask.unsqueeze(1), -torch.inf)
        self.maps = (s.softmax(-1),)
        return self.out_proj((self.maps[0] @ v).transpose(1, 2).flatten(2))


class Positional(Projects):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.num_heads = num_heads

    def forward(self, query, key, value, mask=None):
        return self.attend(query, key, value, mask)


@right("mha")
class TwoMasksByKeyword(Projects):
    def forward(self, *, query, key, value, key_padding_mask=None, attn_mask=None):
        return self.attend(query, key, value, attn_mask)


@right("mha")
class ValueKeyQuery(Projects):
    def forward(self, value, key, query, mask=None, key_padding_mask=None):
        return self.attend(query, key, value, mask)


@right("mha")
class Lazy(Projects):
    """Knows the width of its inputs when the first one comes."""

    def made(self, width):
        return (nn.LazyLinear(width, bias=False) for _ in range(4))

    def forward(self, queries, keys, values, mask=None):
        return self.attend(queries, keys, values, mask)


@right("attention")
def by_keyword(*, query, key, value, attn_mask=None):
    return F.scaled_dot_product_attention(query, key, value, attn_mask)


@right("attention")
def value_key_query(v, k, q, mask=None):
    return F.scaled_dot_product_attention(q, k, v, mask)


# --- where weights may lie ----------------------------------------------------------


class Cuts(Projects):
    """One matrix for q, k and v; subclasses say what makes it and how it is cut."""

    order = "3hd"  # its rows
    names = ("query_key_value", "dense")

    def __init__(self, embed_dim, num_heads):
        nn.Module.__init__(self)
        self.num_heads = self.number = num_heads
        for name, width in zip(self.names, (3 * embed_dim, embed_dim)):
            setattr(self, name, self.layer(embed_dim, width))

    def layer(self, width, out):
        return nn.Linear(width, out)

    def forward(self, query, key, value, mask=None):
        fused, self.out_proj = (getattr(self, name) for name in self.names)
        sizes = {"3": 3, "h": self.number, "d": query.shape[-1] // self.number}
        shape = [sizes[x] for x in self.order]
        axis = self.order.index("3") + 2
        h, d = (self.order.replace("3", "").index(x) + 2 for x in "hd")
        q, k, v = (
            fused(x).unflatten(-1, shape).select(axis, i).permute(0, h, 1, d)
            for i, x in enumerate((query, key, value))
        )
        return self.attended(q, k, v, mask)


def cuts(order="3hd", *names, **more):
    body = {"order": order, "names": names or Cuts.names} | more
    return type("Cuts_" + "_".join((order, *names, *more)), (Cuts,), body)


class Conv1D(nn.Module):
    """The linear layer of GPT-2: its weight is (in, out)."""

    def __init__(self, nf, nx):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(nx, nf).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        flat = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight)
        return flat.view(*x.shape[:-1], -1)


class OwnLinear(nn.Module):
    """As nn.Linear, written by hand."""

    def __init__(self, n, m):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(m, n))
        self.bias = nn.Parameter(torch.zeros(m))

    def forward(self, x):
        return x @ self.weight.T + self.bias


def of(kind):
    return lambda self, width, out: kind(out, width)


def normed(self, width, out):
    return nn.utils.parametrizations.weight_norm(nn.Linear(width, out))


for layer in (
    cuts(),
    cuts("3hd", "Wqkv", "out_proj"),
    cuts("3hd", "W_pack", "o_proj"),
    cuts("3hd", "input_projection", "output_projection"),
    cuts("h3d"),  # GPT-NeoX
    cuts("hd3"),
    cuts("d3h"),
    cuts("3hd", "c_attn", "c_proj", layer=of(Conv1D)),
    cuts("h3d", "c_attn", "c_proj", layer=of(Conv1D)),
    cuts("h3d", "qkv", "proj", layer=lambda self, n, m: OwnLinear(n, m)),
    cuts("3hd", "qkv", "proj", layer=normed),
):
    right("mha")(layer)
right("mha")(cuts("h3d")(16, 2))
right("mha")(cuts("3hd", "c_attn", "c_proj", layer=of(Conv1D))(16, 2))
right("mha")(cuts("3hd", "qkv", "proj", layer=normed)(16, 2))


@right("mha")
class MixedLayers(Positional):
    """Two conventions in one layer."""

    def made(self, width):
        yield from (Conv1D(width, width) for _ in range(3))
        yield OwnLinear(width, width)


@right("mha")
class Normed(Positional):
    def made(self, width):
        return (normed(self, width, width) for _ in range(4))


@right("mha")
class OverOneToken(Positional):
    """Convolutions with a kernel of 1."""

    def made(self, width):
        return (Channels(width, width, 1) for _ in range(4))


class Channels(nn.Conv1d):
    def forward(self, x):
        return super().forward(x.mT).mT


class Bare(Projects):
    """Matrices without layers; ``turned`` says which are used as x @ W.T."""

    turned = ()

    def __init__(self, embed_dim, num_heads):
        nn.Module.__init__(self)
        self.number = num_heads
        self.make(lambda *n: nn.Parameter(torch.zeros(*n, embed_dim, embed_dim)))

    def make(self, square):
        self.W = square(3)
        self.W_o = square()

    def all(self):
        return dict(zip("qkvo", (*self.W, self.W_o)))

    def forward(self, query, key, value, mask=None):
        W = {n: x.T if n in self.turned else x for n, x in self.all().items()}
        b = dict(zip("qkvo", self.biases()))
        q, k, v = (
            (x @ W[n] + b[n]).unflatten(-1, (self.number, -1)).transpose(1, 2)
            for n, x in zip("qkv", (query, key, value))
        )
        return self.attended(q, k, v, mask) @ W["o"] + b["o"]

    def biases(self):
        return 0, 0, 0, 0

    def out_proj(self, x):
        return x


@right("mha")
class Stacked(Bare):
    pass


@right("mha")
class StackedTurned(Bare):
    turned = "qkvo"


@right("mha")
class StackedMixed(Bare):
    turned = "o"


@right("mha")
class StackedWithBiases(Bare):
    def make(self, square):
        super().make(square)
        width = len(self.W_o)
        self.b = nn.Parameter(torch.ones(3, width))
        self.b_o = nn.Parameter(torch.ones(width))

    def biases(self):
        return *self.b, self.b_o


@right("mha")
class ListedWithBiases(StackedWithBiases):
    def make(self, square):
        self.W = nn.ParameterList(square() for _ in range(3))
        self.W_o = square()
        width = len(self.W_o)
        self.b = nn.ParameterList(torch.ones(width) for _ in range(3))
        self.b_o = nn.Parameter(torch.ones(width))


@right("mha")
class StackedFour(Bare):
    def make(self, square):
        self.P = square(4)

    def all(self):
        return dict(zip("qkvo", self.P))


@right("mha")
class Listed(Bare):
    """Nothing but what they meet tells which is which."""

    turned = "qkv"

    def make(self, square):
        self.P = nn.ParameterList(square() for _ in range(4))

    def all(self):
        return dict(zip("ovkq", self.P))


@right("mha")
class InADictionary(Bare):
    def make(self, square):
        self.P = nn.ParameterDict({f"W_{n}": square() for n in "qkvo"})

    def all(self):
        return {n: self.P[f"W_{n}"] for n in "qkvo"}


# --- what may come back -------------------------------------------------------------


Pair = namedtuple("Pair", "context attention")


class Returns(Projects):
    def forward(self, query, key, value, mask=None):
        return self.answer(self.attend(query, key, value, mask), *self.maps)


for answer in (
    lambda self, out, w: [out, w],
    lambda self, out, w: Pair(out, w),
):
    right("mha")(type("Returns", (Returns,), {"answer": answer}))


# --- how it may be called -----------------------------------------------------------


@right("mha")
class OthersByKeyword(Projects):
    def forward(self, x, *, context=None, values=None, attention_mask=None):
        return self.attend(x, context, values, attention_mask)


@right("attention")
def allowed_by_keyword(q, k, v, *, allowed=None):
    return F.scaled_dot_product_attention(q, k, v, allowed)


@right("mha")
def all_by_keyword(*, query, key, value, weights, num_heads, mask=None):
    return functional(query, key, value, weights, num_heads, mask)


@right("mha")
def weights_last(q, k, v, mask=None, *, params=None, heads=None):
    return functional(q, k, v, params, heads, mask)


@right("mha")
def heads_before_weights(q, k, v, h, w, mask=None):
    return functional(q, k, v, w, h, mask)


def with_temperature(temperature, q, k, v, mask=None):
    return F.scaled_dot_product_attention(q / temperature, k, v, mask)


right("attention")(functools.partial(with_temperature, 1.0))
right("attention")(functools.partial(with_temperature, temperature=1.0))
right("mha")(functools.partial(all_by_keyword))


@right("mha")
class SizesWithDefaults(Positional):
    def __init__(self, d_model=512, nhead=8, verbose=None):
        super().__init__(d_model, nhead)


right("mha")(functools.partial(SizesWithDefaults, verbose=True))
right("mha")(functools.partial(SizesWithDefaults, 16, nhead=2))
right("mha")(functools.partial(SizesWithDefaults, d_model=16, nhead=2))
right("mha")(torch.compile(Positional(16, 2), backend="eager"))
right("attention")(torch.compile(value_key_query, backend="eager"))


HEAD_COUNTS = """
nhead heads H num_attention_heads attention_heads number_of_heads num_of_heads
n_attn_heads head_num head_count heads_count nb_heads
"""


def counted(name):
    """A layer that calls its number of heads so, as an argument and afterwards."""
    source = f"""
def __init__(self, embed_dim, {name}):
    super(Projects, self).__init__()
    self.{name} = {name}
    self.q_proj, self.k_proj, self.v_proj, self.out_proj = self.made(embed_dim)
"""
    names = {"Projects": Projects}
    exec(source, names)  # the name of an argument is to vary
    number = property(lambda self: getattr(self, name))
    body = {"__init__": names["__init__"], "number": number}
    return type(f"Counts_{name}", (ValueKeyQuery,), body)


@right("mha_sequence_first")
class EinsumOverSequences(nn.Module):
    def __init__(self, heads: int, d_model: int, dropout_prob: float = 0.1):
        super().__init__()
        self.heads, self.d_k = heads, d_model // heads
        self.query = nn.Sequential(nn.Linear(d_model, d_model))
        self.key = nn.Sequential(nn.Linear(d_model, d_model, bias=False))
        self.value = nn.Sequential(nn.Linear(d_model, d_model))
        self.output = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout_prob)

    def forward(self, *, query, key, value, mask=None):
        T, B, _ = query.shape
        q, k, v = (
            f(x).view(x.shape[0], B, self.heads, self.d_k)
            for f, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        s = torch.einsum("ibhd,jbhd->ijbh", q, k) * self.d_k**-0.5
        if mask is not None:
            s = s.masked_fill(mask.unsqueeze(-1) == 0, float("-inf"))
        a = self.dropout(torch.softmax(s, dim=1))
        return self.output(torch.einsum("ijbh,jbhd->ibhd", a, v).reshape(T, B, -1))


@right("split_concat")
def tensorflow_way(queries, keys, weights, num_heads, causality=False):
    Q, K, V = (
        torch.relu(F.linear(x, weights[f"W_{n}"], weights[f"b_{n}"]))
        for n, x in (("q", queries), ("k", keys), ("v", keys))
    )
    Q_, K_, V_ = (torch.cat(x.chunk(num_heads, 2), 0) for x in (Q, K, V))
    scores = torch.bmm(Q_, K_.transpose(1, 2)) / K_.shape[-1] ** 0.5
    paddings = torch.full_like(scores, -(2.0**32) + 1)
    key_masks = torch.sign(torch.sum(torch.abs(keys), -1)).repeat(num_heads, 1)
    scores = torch.where(key_masks[:, None] == 0, paddings, scores)
    if causality:
        tril = torch.tril(torch.ones_like(scores))
        scores = torch.where(tril == 0, paddings, scores)
    out = torch.cat(torch.bmm(scores.softmax(-1), V_).chunk(num_heads, 0), 2)
    return F.linear(out, weights["W_o"], weights["b_o"])
