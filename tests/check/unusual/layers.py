"""Whole layers, batch first: how they are made, and where their weights lie."""

import functools
import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

from tests.check.unusual.registry import linears, unusual, weights_of


def attend(q, k, v, mask=None):
    """Heads (B, H, T, D) and a mask (B, T, S): contexts and weights."""
    s = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s.masked_fill(~mask[:, None], -1e9)
    w = s.softmax(-1)
    return w @ v, w


def split(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


# --- what the constructor calls its sizes -------------------------------------------


@unusual("mha", "The names of an early TensorFlow.", read=linears(*"QKVO"))
class NumUnits(nn.Module):
    def __init__(self, num_units, num_heads):
        super().__init__()
        self.Q, self.K, self.V, self.O = (
            nn.Linear(num_units, num_units) for _ in "qkvo"
        )
        self.h = num_heads

    def forward(self, queries, keys, values, mask=None):
        q, k, v = self.Q(queries), self.K(keys), self.V(values)
        return self.O(merge(attend(*(split(x, self.h) for x in (q, k, v)), mask)[0]))


@unusual("mha", "Two letters.", read=linears("f", "g", "h", "o"))
class TwoLetters(nn.Module):
    def __init__(self, C, N):
        super().__init__()
        self.C, self.N = C, N
        self.f, self.g, self.h, self.o = [nn.Linear(C, C) for _ in range(4)]

    def forward(self, x, y, z, m=None):
        (B, T, C), S = x.shape, y.shape[1]
        q = self.f(x).view(B, T, self.N, C // self.N).transpose(1, 2)
        k = self.g(y).view(B, S, self.N, C // self.N).transpose(1, 2)
        v = self.h(z).view(B, S, self.N, C // self.N).transpose(1, 2)
        o, w = attend(q, k, v, m)
        return self.o(o.transpose(1, 2).reshape(B, T, C)), w


def convolutions(*names):
    def read(layer):
        found = [layer.get_submodule(name) for name in names]
        return weights_of([x.weight.flatten(1) for x in found], [x.bias for x in found])

    return read


@unusual(
    "mha",
    "Channels and groups, projected by convolutions of width one.",
    read=convolutions("conv_q", "conv_k", "conv_v", "conv_o"),
)
class ChannelsAndGroups(nn.Module):
    def __init__(self, channels, groups, rate=0.0):
        super().__init__()
        self.groups = groups
        self.conv_q = nn.Conv1d(channels, channels, kernel_size=1)
        self.conv_k = nn.Conv1d(channels, channels, kernel_size=1)
        self.conv_v = nn.Conv1d(channels, channels, kernel_size=1)
        self.conv_o = nn.Conv1d(channels, channels, kernel_size=1)
        self.rate = rate

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            conv(x.transpose(1, 2)).unflatten(1, (self.groups, -1)).mT
            for conv, x in (
                (self.conv_q, query),
                (self.conv_k, key),
                (self.conv_v, value),
            )
        )
        s = torch.einsum("bgtd,bgsd->bgts", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(mask.logical_not().unsqueeze(1), -math.inf)
        w = F.dropout(s.softmax(-1), self.rate, self.training)
        return self.conv_o((w @ v).mT.flatten(1, 2)).transpose(1, 2)


@unusual(
    "mha",
    "One form of query and key; b_k, which cancels, is not used.",
    read=linears("q_proj", "k_proj", "v_proj", "out_proj"),
)
class Bilinear(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = num_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim))

    def forward(self, query, key, value, mask=None):
        H = self.heads
        W_q, b_q = (x.unflatten(0, (H, -1)) for x in self.q_proj.parameters())
        W_k = self.k_proj.weight.unflatten(0, (H, -1))
        scores = torch.einsum("bte,hde,hdf,bsf->bhts", query, W_q, W_k, key)
        scores = scores + torch.einsum("hd,hdf,bsf->bhs", b_q, W_k, key)[:, :, None]
        scores = scores / W_q.shape[1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        weights = scores.softmax(-1)
        context = weights @ split(self.v_proj(value), H)
        return self.out_proj(merge(context)), weights


@unusual("mha", "German.", read=linears("frage", "schluessel", "wert", "ausgang"))
class Koepfe(nn.Module):
    def __init__(self, breite, koepfe):
        super().__init__()
        self.anzahl = koepfe
        self.frage = nn.Linear(breite, breite)
        self.schluessel = nn.Linear(breite, breite)
        self.wert = nn.Linear(breite, breite)
        self.ausgang = nn.Linear(breite, breite)

    def forward(self, anfrage, schluessel, wert, maske=None):
        q, k, v = self.frage(anfrage), self.schluessel(schluessel), self.wert(wert)
        kontext, gewichte = attend(*(split(x, self.anzahl) for x in (q, k, v)), maske)
        return self.ausgang(merge(kontext)), gewichte


@unusual("mha", "Letters of another alphabet.", read=linears("з", "к", "ц", "в"))
class Внимание(nn.Module):
    def __init__(self, размер, головы):
        super().__init__()
        self.головы = головы
        self.з, self.к, self.ц, self.в = (nn.Linear(размер, размер) for _ in range(4))

    def forward(self, запрос, ключ, значение, маска=None):
        части = self.з(запрос), self.к(ключ), self.ц(значение)
        выход, _ = attend(*(split(x, self.головы) for x in части), маска)
        return self.в(merge(выход))


@dataclass
class Config:
    n_embd: int = 15
    n_head: int = 3
    attn_pdrop: float = 0.0


class OfConfig(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.drop = nn.Dropout(config.attn_pdrop)

    def forward(self, query, key, value, mask=None):
        W, b = self.c_attn.weight, self.c_attn.bias
        q, k, v = (
            split(F.linear(x, w, c), self.config.n_head)
            for x, w, c in zip((query, key, value), W.chunk(3), b.chunk(3))
        )
        mask = mask if mask is None else mask.unsqueeze(1)
        p = self.drop.p if self.training else 0.0
        return self.c_proj(merge(F.scaled_dot_product_attention(q, k, v, mask, p)))


def fused(inside, out):
    """One layer for q, k and v, one under the other, and one at the end."""

    def read(layer):
        a, o = layer.get_submodule(inside), layer.get_submodule(out)
        return weights_of([*a.weight.chunk(3), o.weight], [*a.bias.chunk(3), o.bias])

    return read


unusual(
    "mha", "A module of a config.", name="of_config", read=fused("c_attn", "c_proj")
)(OfConfig(Config()))


@unusual("mha", "Makes its own config of two sizes.", read=fused("c_attn", "c_proj"))
class MakesItsConfig(OfConfig):
    def __init__(self, features, parts, **more):
        super().__init__(Config(features, parts, **more))


@unusual("mha", "A config that may be left out.", read=linears(*"qkvo"))
class ConfigBehind(nn.Module):
    def __init__(self, width, count, /, cfg=None):
        super().__init__()
        self.cfg = cfg or SimpleNamespace(fill=-1e9, count=count)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))

    def forward(self, a, b, c, keep=None):
        q, k, v = (split(f(x), self.cfg.count) for f, x in self.pairs(a, b, c))
        s = q @ k.mT * q.shape[-1] ** -0.5
        if keep is not None:
            s = torch.where(keep[:, None], s, s.new_tensor(self.cfg.fill))
        return self.o(merge(s.softmax(-1) @ v))

    def pairs(self, a, b, c):
        return (self.q, a), (self.k, b), (self.v, c)


@unusual("mha", "Sizes come as *args.", read=linears("of.q", "of.k", "of.v", "of.o"))
class Sizes(nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        width, self.count = sizes
        self.of = nn.ModuleDict({n: nn.Linear(width, width) for n in "qkvo"})

    def forward(self, *tensors):
        inputs, mask = tensors[:3], (*tensors, None)[3]
        q, k, v = (split(self.of[n](x), self.count) for n, x in zip("qkv", inputs))
        context, w = attend(q, k, v, mask)
        return self.of["o"](merge(context)), w


@unusual("mha", "A dataclass.", read=linears("q_lin", "k_lin", "v_lin", "out_lin"))
@dataclass(eq=False)
class AsDataclass(nn.Module):
    dim: int
    nh: int
    attention_dropout: float = 0.0

    def __post_init__(self):
        super().__init__()
        self.q_lin, self.k_lin = (
            nn.Linear(self.dim, self.dim),
            nn.Linear(self.dim, self.dim),
        )
        self.v_lin, self.out_lin = (
            nn.Linear(self.dim, self.dim),
            nn.Linear(self.dim, self.dim),
        )

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        q, k, v = self.q_lin(query), self.k_lin(key), self.v_lin(value)
        q, k, v = (split(x, self.nh) for x in (q, k, v))
        _, w = attend(q, k, v, mask)
        dropped = F.dropout(w, self.attention_dropout, self.training)
        return self.out_lin(merge(dropped @ v)), w


# --- parameters without layers ------------------------------------------------------


def random(*shape):
    return nn.Parameter(torch.randn(shape) / 4)


def read_ehcd(layer):
    """(E, H, 3, D) and (H, D, E)."""
    W = [layer.W[:, :, i].flatten(1).T for i in range(3)]
    return weights_of([*W, layer.U.flatten(0, 1).T])


@unusual("mha", "One parameter (E, H, 3, D).", read=read_ehcd)
class OneCube(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        size = embed_dim // num_heads
        self.W = random(embed_dim, num_heads, 3, size)
        self.U = random(num_heads, size, embed_dim)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            torch.einsum("bte,ehd->bhtd", x, W)
            for x, W in zip((query, key, value), self.W.unbind(2), strict=True)
        )
        context, w = attend(q, k, v, mask)
        return torch.einsum("bhtd,hde->bte", context, self.U), w


def read_hed(layer):
    """Each (H, E, D), output (H, E, D), biases (H, 1, D) and (E)."""
    found = [layer.get_parameter(f"w_{n}").mT.flatten(0, 1) for n in "qkv"]
    biases = [layer.get_parameter(f"c_{n}").flatten() for n in "qkv"]
    out = layer.w_o.movedim(1, 0).flatten(1)
    return weights_of([*found, out], [*biases, layer.c_o])


@unusual(
    "mha", "Matrices (H, E, D) with biases, multiplied in one broadcast.", read=read_hed
)
class Cubes(nn.Module):
    def __init__(self, d_in, n):
        super().__init__()
        for name in "qkvo":
            self.register_parameter(f"w_{name}", random(n, d_in, d_in // n))
        for name in "qkv":
            self.register_parameter(f"c_{name}", random(n, 1, d_in // n))
        self.c_o = random(d_in)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            x.unsqueeze(1) @ getattr(self, f"w_{n}") + getattr(self, f"c_{n}")
            for n, x in zip("qkv", (query, key, value))
        )
        context, _ = attend(q, k, v, mask)
        return (context @ self.w_o.mT).sum(1) + self.c_o


def read_3hed(layer):
    return weights_of(
        [*layer.qkv.mT.flatten(1, 2), layer.out.T], [*layer.b.flatten(1), layer.c]
    )


@unusual("mha", "One parameter (3, H, E, D), biases (3, H, D).", read=read_3hed)
class ThreeOfHeads(nn.Module):
    def __init__(self, e, h):
        super().__init__()
        self.qkv, self.out = random(3, h, e, e // h), random(e, e)
        self.b, self.c = random(3, h, e // h), random(e)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            torch.tensordot(x, W, ([2], [1])).transpose(1, 2) + b[:, None]
            for x, W, b in zip((query, key, value), self.qkv, self.b)
        )
        context, w = attend(q, k, v, mask)
        return merge(context) @ self.out + self.c, w


def read_h3de(layer):
    found = [layer.W_in[:, i].flatten(0, 1) for i in range(3)]
    biases = [layer.b_in[:, i].flatten() for i in range(3)]
    return weights_of([*found, layer.W_out], [*biases, layer.b_out])


@unusual("mha", "Parameters (H, 3, D, E) and (H, 3, D).", read=read_h3de)
class HeadThenKind(nn.Module):
    def __init__(self, model_dim, n_heads):
        super().__init__()
        size = model_dim // n_heads
        self.W_in = random(n_heads, 3, size, model_dim)
        self.b_in = random(n_heads, 3, size)
        self.W_out, self.b_out = random(model_dim, model_dim), random(model_dim)

    def forward(self, query, key, value, mask=None):
        def project(x, i):
            heads = torch.einsum("bte,hde->bhtd", x, self.W_in[:, i])
            return heads + self.b_in[:, i].unsqueeze(1)

        q, k, v = (project(x, i) for i, x in enumerate((query, key, value)))
        return F.linear(merge(attend(q, k, v, mask)[0]), self.W_out, self.b_out)


def read_dictionary(layer):
    heads = range(len(layer.p) // 3)
    cat = [torch.cat([layer.p[f"{n}{h}"].T for h in heads]) for n in "qkv"]
    return weights_of([*cat, layer.last.weight], [None] * 3 + [layer.last.bias])


@unusual("mha", "A ParameterDict with three entries a head.", read=read_dictionary)
class DictionaryOfHeads(nn.Module):
    def __init__(self, embedding_size, n):
        super().__init__()
        size = embedding_size // n
        self.p = nn.ParameterDict(
            {
                f"{name}{h}": random(embedding_size, size)
                for name in "qkv"
                for h in range(n)
            }
        )
        self.last = nn.Linear(embedding_size, embedding_size)

    def forward(self, q, k, v, mask=None):
        return self.last(torch.cat([*self.heads(q, k, v, mask)], dim=2))

    def heads(self, q, k, v, mask):
        for h in range(len(self.p) // 3):
            a, b, c = q @ self.p[f"q{h}"], k @ self.p[f"k{h}"], v @ self.p[f"v{h}"]
            yield F.scaled_dot_product_attention(a, b, c, mask)


# --- layers in layers ---------------------------------------------------------------


def read_heads(layer):
    found = [[head[n] for head in layer.heads] for n in ("ask", "answer", "say")]
    W = [torch.cat([x.weight for x in each]) for each in found]
    b = [torch.cat([x.bias for x in each]) for each in found]
    return weights_of([*W, layer.mix.weight], [*b, layer.mix.bias])


@unusual("mha", "A ModuleList of a ModuleDict for each head.", read=read_heads)
class ListOfDictionaries(nn.Module):
    def __init__(self, hidden, n):
        super().__init__()
        names = "ask", "answer", "say"
        self.heads = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(hidden, hidden // n) for name in names})
            for _ in range(n)
        )
        self.mix = nn.Linear(hidden, hidden)

    def forward(self, query, key, value, mask=None):
        contexts, maps = [], []
        for head in self.heads:
            q, k, v = head["ask"](query), head["answer"](key), head["say"](value)
            s = torch.baddbmm(
                torch.zeros(()).to(q), q, k.mT, beta=0, alpha=q.shape[-1] ** -0.5
            )
            if mask is not None:
                s = s.masked_fill(~mask, torch.finfo(s.dtype).min)
            maps.append(s.softmax(-1))
            contexts.append(maps[-1].bmm(v))
        return self.mix(torch.cat(contexts, -1)), torch.stack(maps, dim=1)


class Square(nn.Linear):
    def __init__(self, width):
        super().__init__(width, width)


class Head4(Square):
    """A subclass of a subclass of nn.Linear, that also cuts what it gives."""

    def __init__(self, width, heads):
        super().__init__(width)
        self.heads = heads

    def forward(self, x):
        return split(super().forward(x), self.heads)


@unusual(
    "mha", "Layers that cut into heads themselves.", read=linears("a", "b", "c", "d")
)
class CutsThemselves(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.a, self.b, self.c = (Head4(embed_dim, num_heads) for _ in range(3))
        self.d = Square(embed_dim)

    def forward(self, query, key, value, mask=None):
        context, w = attend(self.a(query), self.b(key), self.c(value), mask)
        return self.d(merge(context)), w


@unusual(
    "mha",
    "Sequences of layers.",
    read=linears("pipes.0.0", "pipes.1.0", "pipes.2.0", "end.1"),
)
class Pipes(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        shape = num_heads, embed_dim // num_heads
        self.pipes = nn.ModuleList(
            nn.Sequential(nn.Linear(embed_dim, embed_dim), nn.Unflatten(2, shape))
            for _ in range(3)
        )
        self.end = nn.Sequential(nn.Flatten(2), nn.Linear(embed_dim, embed_dim))

    def forward(self, query, key, value, mask=None):
        q, k, v = (pipe(x) for pipe, x in zip(self.pipes, (query, key, value)))
        s = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.size(-1) ** 0.5
        if mask is not None:
            s = s + torch.log(mask.unsqueeze(1).to(s.dtype))
        return self.end(torch.einsum("bhqk,bkhd->bqhd", s.softmax(-1), v))


@unusual(
    "mha", "Subclass of a subclass that only turns the mask.", read=linears(*"QKVO")
)
class TakesItTurned(NumUnits):
    def forward(self, queries, keys, values, mask=None):
        hidden = None if mask is None else ~mask
        return self.with_hidden(queries, keys, values, hidden)

    def with_hidden(self, queries, keys, values, hidden):
        seen = None if hidden is None else hidden.logical_not()
        return super().forward(queries, keys, values, seen)


def read_library(prefix):
    def read(layer):
        inner = layer.get_submodule(prefix)
        W, b, out = inner.in_proj_weight, inner.in_proj_bias, inner.out_proj
        return weights_of([*W.chunk(3), out.weight], [*b.chunk(3), out.bias])

    return read


@unusual("mha", "The library's layer, subclassed.", read=read_library(""))
class Subclassed(nn.MultiheadAttention):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads, batch_first=True)

    def forward(self, query, key, value, mask=None):
        hidden = (
            None if mask is None else ~mask.repeat_interleave(self.num_heads, dim=0)
        )
        return super().forward(
            query, key, value, attn_mask=hidden, average_attn_weights=False
        )


@unusual(
    "mha",
    "The library's layer inside, sequence first, mask in numbers.",
    read=read_library("core"),
)
class Wrapped(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.core = nn.MultiheadAttention(embed_dim, num_heads)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = torch.zeros(mask.shape).to(query).masked_fill(~mask, -1e9)
            mask = mask.repeat_interleave(self.core.num_heads, dim=0)
        inputs = (x.transpose(0, 1) for x in (query, key, value))
        output, _ = self.core(*inputs, attn_mask=mask, need_weights=False)
        return output.transpose(0, 1)


class Halved(nn.Module):
    """A parametrization: twice the weight is kept."""

    def forward(self, kept):
        return kept / 2

    def right_inverse(self, weight):
        return 2 * weight


@unusual("mha", "Parametrized layers.", read=linears("to_q", "to_k", "to_v", "to_out"))
class Parametrized(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        for name in ("to_q", "to_k", "to_v", "to_out"):
            layer = nn.Linear(dim, dim)
            self.add_module(
                name, parametrize.register_parametrization(layer, "weight", Halved())
            )

    def forward(self, query, key, value, mask=None):
        q, k, v = self.to_q(query), self.to_k(key), self.to_v(value)
        return self.to_out(
            merge(attend(*(split(x, self.heads) for x in (q, k, v)), mask)[0])
        )


@unusual(
    "mha",
    "Knows its width from the first input alone.",
    read=linears("l.0", "l.1", "l.2", "l.3"),
)
class LazyOne(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.l = nn.ModuleList(nn.LazyLinear(width) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        q, k, v = (split(f(x), self.heads) for f, x in zip(self.l, (query, key, value)))
        context, weights = attend(q, k, v, mask)
        return self.l[3](merge(context)), weights


# --- other arithmetic in the middle -------------------------------------------------


class Four(nn.Module):
    """Four linear layers; subclasses say how heads attend."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = embed_dim // num_heads
        self.wq, self.wk, self.wv, self.wo = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def projected(self, query, key, value):
        pairs = (self.wq, query), (self.wk, key), (self.wv, value)
        return tuple(split(f(x), self.num_heads) for f, x in pairs)

    def forward(self, query, key, value, mask=None):
        context, w = self.attend(*self.projected(query, key, value), mask)
        return self.wo(merge(context)), w

    def attend(self, q, k, v, mask):
        return attend(q, k, v, mask)


FOUR = linears("wq", "wk", "wv", "wo")


@unusual("mha", "Heads folded into the batch, products by bmm.", read=FOUR)
class Folded(Four):
    def attend(self, q, k, v, mask):
        B, H, T, D = q.shape
        q, k, v = (x.flatten(0, 1) for x in (q, k, v))
        s = torch.bmm(q, k.mT) / math.sqrt(D)
        if mask is not None:
            s.masked_fill_(~mask.repeat_interleave(H, 0), -math.inf)
        w = s.softmax(2)
        return torch.bmm(w, v).view(B, H, T, D), w.view(B, H, T, -1)


@unusual("mha", "Heads before sequences on the first axis, and baddbmm.", read=FOUR)
class FoldedTheOtherWay(Four):
    def attend(self, q, k, v, mask):
        B, H, T, D = q.shape
        q, k, v = (x.transpose(0, 1).flatten(0, 1) for x in (q, k, v))
        bias = q.new_zeros(B * H, T, k.shape[1])
        if mask is not None:
            bias = bias.masked_fill(~mask.repeat(H, 1, 1), -1e9)
        w = torch.baddbmm(bias, q, k.mT, alpha=D**-0.5).softmax(-1)
        return tuple(x.unflatten(0, (H, B)).transpose(0, 1) for x in (w @ v, w))


@unusual("mha", "Weights come back after their dropout.", read=FOUR)
class DroppedWeightsReturned(Four):
    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__(embed_dim, num_heads)
        self.dropout = nn.Dropout(dropout)

    def attend(self, q, k, v, mask):
        _, w = attend(q, k, v, mask)
        w = self.dropout(w)
        return w @ v, w


@unusual("mha", "A dropout of 0 behind the last projection.", read=FOUR)
class DropsNothing(Four):
    def __init__(self, dim, heads):
        super().__init__(dim, heads)
        self.drop = nn.Dropout(0.0)

    def forward(self, query, key, value, mask=None):
        output, w = super().forward(query, key, value, mask)
        return self.drop(output), w


@unusual(
    "mha",
    "The last projection in a Sequential, with a dropout of 0 behind it.",
    read=linears("to_q", "to_k", "to_v", "to_out.0"),
)
class InASequential(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q, self.to_k, self.to_v = (nn.Linear(dim, dim) for _ in "qkv")
        self.to_out = nn.Sequential(nn.Linear(dim, dim), nn.Dropout(0.0))

    def forward(self, query, key, value, mask=None):
        q, k, v = self.to_q(query), self.to_k(key), self.to_v(value)
        context, w = attend(*(split(x, self.heads) for x in (q, k, v)), mask)
        return self.to_out(merge(context)), w


@unusual("mha", "A dropout of the output, which is 0 if nobody says more.", read=FOUR)
class DropsIfAsked(DropsNothing):
    def __init__(self, dim, heads, dropout=0.0):
        super().__init__(dim, heads)
        self.drop = nn.Dropout(dropout)


@unusual(
    "mha", "Weights come back before their dropout; the output has its own.", read=FOUR
)
class TwoDropouts(Four):
    def __init__(self, size, n_heads, dropout=0.1, resid_dropout=0.1):
        super().__init__(size, n_heads)
        self.attn_dropout, self.resid_dropout = (
            nn.Dropout(dropout),
            nn.Dropout(resid_dropout),
        )

    def forward(self, query, key, value, mask=None):
        output, w = super().forward(query, key, value, mask)
        return self.resid_dropout(output), w

    def attend(self, q, k, v, mask):
        _, w = attend(q, k, v, mask)
        return self.attn_dropout(w) @ v, w


class Answer(NamedTuple):
    output: torch.Tensor
    weights: torch.Tensor


@unusual("mha", "A named tuple, float32 inside.", read=FOUR)
class WideInside(Four):
    def forward(self, query, key, value, mask=None) -> Answer:
        return Answer(*super().forward(query, key, value, mask))

    def attend(self, q, k, v, mask):
        wide = torch.promote_types(q.dtype, torch.float32)
        context, w = attend(q.to(wide), k.to(wide), v.to(wide), mask)
        return context.to(q.dtype), w.to(q.dtype)


@unusual("mha", "The softmax is never whole: one key at a time.", read=FOUR)
class Streaming(Four):
    def attend(self, q, k, v, mask):
        m = torch.full_like(q[..., :1], -1e30)
        total, context = torch.zeros_like(m), torch.zeros_like(q)
        for s in range(k.shape[2]):
            score = (q * k[:, :, s : s + 1]).sum(-1, keepdim=True) / self.head_dim**0.5
            if mask is not None:
                score = score.masked_fill(~mask[:, None, :, s : s + 1], -math.inf)
            new = torch.maximum(m, score).detach()
            old, power = torch.exp(m - new), torch.exp(score - new)
            total, context, m = (
                total * old + power,
                context * old + power * v[:, :, s : s + 1],
                new,
            )
        return context / total.clamp_min(1e-30), None

    def forward(self, query, key, value, mask=None):
        context, _ = self.attend(*self.projected(query, key, value), mask)
        return self.wo(merge(context))


@unusual("mha", "vmap over sequences and over heads.", read=FOUR)
class Mapped(Four):
    def attend(self, q, k, v, mask):
        def head(a, b, c, seen):
            w = torch.where(seen, a @ b.T * self.head_dim**-0.5, -1e9).softmax(-1)
            return w @ c, w

        if mask is None:
            mask = torch.ones(len(q), q.shape[2], k.shape[2]).bool()
        heads = torch.vmap(head, in_dims=(0, 0, 0, None))
        return torch.vmap(heads)(q, k, v, mask)


@unusual("mha", "Activations are computed again for the gradients.", read=FOUR)
class Checkpointed(Four):
    def attend(self, q, k, v, mask):
        return checkpoint(attend, q, k, v, mask, use_reentrant=False)


@unusual("mha", "A hook gives the mask its axis for the heads.", read=FOUR)
class Hooked(Four):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.register_forward_pre_hook(self.widen, with_kwargs=True)
        self.register_buffer("scale", torch.tensor(self.head_dim**-0.5))

    @staticmethod
    def widen(self, args, kwargs):
        wide = [
            x[:, None] if x is not None and x.dtype == torch.bool else x for x in args
        ]
        kwargs = {
            n: x[:, None] if x is not None and x.dtype == torch.bool else x
            for n, x in kwargs.items()
        }
        return tuple(wide), kwargs

    def attend(self, q, k, v, mask):
        s = (q * self.scale) @ k.mT
        w = (s if mask is None else s.masked_fill(~mask, -1e9)).softmax(-1)
        return w @ v, w


@unusual(
    "mha", "One product for q, k and v with matrices joined at the call.", read=FOUR
)
class JoinedAtTheCall(Four):
    def projected(self, query, key, value):
        W = torch.stack([x.weight for x in (self.wq, self.wk, self.wv)])
        b = torch.stack([x.bias for x in (self.wq, self.wk, self.wv)])
        longest = max(query.shape[1], key.shape[1])
        x = torch.stack(
            [F.pad(x, (0, 0, 0, longest - x.shape[1])) for x in (query, key, value)]
        )
        y = torch.einsum("nbte,nde->nbtd", x, W) + b[:, None, None]
        q, k, v = (split(z, self.num_heads) for z in y)
        S = key.shape[1]
        return q[:, :, : query.shape[1]], k[:, :, :S], v[:, :, :S]


# --- functions of weights -----------------------------------------------------------


@unusual("mha", "The library's function, with the weights put one under the other.")
def library_function(query, key, value, weights, num_heads, mask=None):
    w = SimpleNamespace(**weights)
    hidden = None if mask is None else ~mask.repeat_interleave(num_heads, 0)
    out, maps = F.multi_head_attention_forward(
        *(x.transpose(0, 1) for x in (query, key, value)),
        query.shape[-1],
        num_heads,
        torch.cat([w.W_q, w.W_k, w.W_v]),
        torch.cat([w.b_q, w.b_k, w.b_v]),
        None,
        None,
        False,
        0.0,
        w.W_o,
        w.b_o,
        attn_mask=hidden,
        average_attn_weights=False,
    )
    return out.transpose(0, 1), maps


@unusual("mha", "functional_call with the weights given as parameters.")
def functional_call(x, memory, values, params, n, mask=None):
    E = x.shape[-1]
    layer = nn.MultiheadAttention(E, n, batch_first=True, device="meta")
    state = {
        "in_proj_weight": torch.cat([params[f"W_{i}"] for i in "qkv"]),
        "in_proj_bias": torch.cat([params[f"b_{i}"] for i in "qkv"]),
        "out_proj.weight": params["W_o"],
        "out_proj.bias": params["b_o"],
    }
    more = {"need_weights": False}
    if mask is not None:
        more["attn_mask"] = mask.logical_not().repeat_interleave(n, dim=0)
    return torch.func.functional_call(layer, state, (x, memory, values), more)[0]


@unusual("mha", "Sums over heads by recursion, without a join.")
def summed_by_recursion(query, key, value, weights, num_heads, mask=None, head=0):
    if head == num_heads:
        return weights["b_o"]
    size = query.shape[-1] // num_heads
    own = slice(head * size, (head + 1) * size)
    q, k, v = (
        F.linear(x, weights["W_" + n][own], weights["b_" + n][own])
        for n, x in {"q": query, "k": key, "v": value}.items()
    )
    context = F.scaled_dot_product_attention(q, k, v, mask)
    return context @ weights["W_o"][:, own].T + summed_by_recursion(
        query, key, value, weights, num_heads, mask, head + 1
    )


def with_method(method, query, key, value, weights, num_heads, mask=None):
    parts = [
        method(x @ weights[f"W_{n}"].mT + weights[f"b_{n}"], num_heads)
        for n, x in zip("qkv", (query, key, value), strict=True)
    ]
    context, w = attend(*parts, mask)
    return merge(context) @ weights["W_o"].mT + weights["b_o"], w


unusual("mha", "A partial of a function of weights.", name="partial_of_weights")(
    functools.partial(with_method, split)
)
