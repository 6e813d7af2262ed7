"""Wrong attention as students write it: each with the mistakes that it holds.

Written before the catalogue of `mha_lib.check` and without its code, in other styles.
An empty set of names means that no entry of the catalogue describes the fault: the
check has to say that it does not know.
"""

import math
from collections import defaultdict

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

WRONG = defaultdict(list)  # names of the catalogue -> (submission, task)


def wrong(task, *names):
    def keep(submission):
        WRONG[frozenset(names)].append((submission, task))
        return submission

    return keep


# --- scaled dot-product attention ---------------------------------------------------


@wrong("attention", "softmax-over-queries")
def column_softmax(q, k, v, mask=None):
    d_k = q.size(-1)
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    attn = F.softmax(scores, dim=-2)
    return torch.matmul(attn, v), attn


@wrong("attention", "no-scale")
def forgot_to_scale(q, k, v, mask=None):
    logits = torch.einsum("...td,...sd->...ts", q, k)
    if mask is not None:
        logits = torch.where(mask, logits, torch.full_like(logits, float("-inf")))
    return torch.einsum("...ts,...sd->...td", logits.softmax(-1), v)


@wrong("attention", "scale-twice")
def divides_by_d(q, k, v, mask=None):
    B, H, T, D = q.shape
    energy = q @ k.permute(0, 1, 3, 2)
    energy = energy / D
    if mask is not None:
        energy = energy.masked_fill(~mask, float("-1e20"))
    attention = torch.softmax(energy, dim=3)
    return attention @ v


@wrong("attention", "scale-multiplied")
def scales_up(q, k, v, mask=None):
    w = q @ k.mT * q.shape[-1] ** 0.5
    if mask is not None:
        w = w + torch.zeros_like(w).masked_fill(~mask, -torch.inf)
    return w.softmax(-1) @ v


@wrong("attention", "mask-inverted")
def pytorch_layer_habit(q, k, v, mask=None):
    att = (q @ k.transpose(-1, -2)) * (1.0 / math.sqrt(k.size(-1)))
    if mask is not None:
        att = att.masked_fill(mask, float("-inf"))
    att = F.softmax(att, dim=-1)
    return att @ v, att


@wrong("attention", "mask-after-softmax")
def zeroes_the_weights(q, k, v, mask=None):
    p = F.softmax(q @ k.transpose(-2, -1) / np.sqrt(q.shape[-1]), -1)
    if mask is not None:
        p = p * mask
    return p @ v


@wrong("attention", "fill-thrown-away")
def out_of_place(q, k, v, mask=None):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        s.masked_fill(~mask, -1e9)
    return F.softmax(s, dim=-1) @ v


@wrong("attention", "fill-zero")
def multiplies_scores(q, k, v, mask=None):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s * mask.float()
    return F.softmax(s, dim=-1) @ v


@wrong("attention", "fill-tiny")
def tiny_fill(q, k, v, mask=None):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s.masked_fill(mask == False, 1e-9)  # noqa: E712
    return F.softmax(s, dim=-1) @ v


@wrong("attention", "fill-positive")
def published_fill(q, k, v, mask=None):
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s.masked_fill(mask == 0, 1e10)
    return F.softmax(s, dim=-1) @ v


@wrong("attention")
def softmax_twice_with_a_temperature(q, k, v, mask=None):
    """Softmax twice and a temperature of 0.7, which no entry has."""
    s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) / 0.7
    if mask is not None:
        s = s.masked_fill(~mask, float("-inf"))
    return s.softmax(-1).softmax(-1) @ v


@wrong("attention")
def sigmoid_weights(q, k, v, mask=None):
    gates = torch.sigmoid(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]))
    if mask is not None:
        gates = gates * mask
    return (gates / gates.sum(-1, keepdim=True)) @ v


@wrong("attention")
def negative_distance(q, k, v, mask=None):
    s = -torch.cdist(q, k)
    if mask is not None:
        s = s.masked_fill(~mask, -1e9)
    return s.softmax(-1) @ v


@wrong("attention", "cosine-scores")
def cosine(q, k, v, mask=None):
    s = F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)
    s = s / math.sqrt(q.shape[-1])
    if mask is not None:
        s = s.masked_fill(~mask, -1e9)
    return s.softmax(-1) @ v


@wrong("attention", "no-scale", "mask-inverted")
def two_at_once(q, k, v, mask=None):
    batch, heads, length, _ = q.shape
    out = torch.zeros(batch, heads, length, v.shape[-1])
    for b in range(batch):
        for h in range(heads):
            for t in range(length):
                row = k[b, h] @ q[b, h, t]
                if mask is not None:
                    row[mask.expand(batch, heads, -1, -1)[b, h, t]] = -1e9
                out[b, h, t] = torch.softmax(row, 0) @ v[b, h]
    return out


# --- parts --------------------------------------------------------------------------


@wrong("split_heads", "split-by-view")
def cut_with_one_view(x, num_heads):
    b, t, e = x.shape
    return x.view(b, num_heads, t, e // num_heads)


@wrong("split_heads", "split-by-view")
def cut_through_the_batch(x, num_heads):
    b, t, e = x.shape
    return x.reshape(b * num_heads, -1, e // num_heads).reshape(
        b, num_heads, t, e // num_heads
    )


@wrong("split_heads", "split-interleaved")
def every_third_feature(x, num_heads):
    return torch.stack([x[..., h::num_heads] for h in range(num_heads)], dim=1)


@wrong("split_heads", "split-axis-left")
def no_permute(x, num_heads):
    return x.unflatten(-1, (num_heads, -1))


@wrong("merge_heads", "merge-no-transpose")
def flat(x):
    b, h, t, d = x.size()
    return x.contiguous().view(b, t, h * d)


@wrong("merge_heads", "merge-interleaved")
def zips(x):
    return torch.stack(list(x.unbind(1)), dim=-1).flatten(2)


@wrong("merge_heads", "merge-mean")
def averages(x):
    return x.mean(dim=1)


@wrong("merge_heads", "merge-reversed")
def from_the_back(x):
    heads = [x[:, h] for h in range(x.shape[1])]
    return torch.cat(heads[::-1], dim=-1)


@wrong("causal_mask", "causal-transposed")
def upper(T, S):
    return torch.triu(torch.ones(T, S)).bool()


@wrong("causal_mask", "causal-blocks-diagonal")
def strictly_before(T, S):
    m = torch.zeros(T, S, dtype=torch.bool)
    for i in range(T):
        m[i, :i] = True
    return m


@wrong("causal_mask", "mask-inverted")
def true_hides(T, S):
    return torch.triu(torch.ones(T, S, dtype=torch.bool), diagonal=1)


@wrong("causal_mask", "causal-bottom-right")
def cache_corner(T, S):
    return torch.arange(S)[None] <= torch.arange(T)[:, None] + (S - T)


@wrong("causal_mask", "causal-square")
def square_only(size):
    return torch.tril(torch.ones(size, size)) == 1


@wrong("causal_mask", "causal-transposed", "causal-square")
def upper_square(size):
    return torch.triu(torch.ones(size, size)) == 1


@wrong("padding_mask", "padding-off-by-one")
def includes_the_next(lengths, S):
    return (torch.arange(S)[None, :] <= lengths[:, None]).unsqueeze(1)


@wrong("padding_mask", "padding-inverted")
def marks_padding(lengths, S):
    return torch.stack([torch.arange(S) >= n for n in lengths.tolist()])[:, None, :]


@wrong("combine_masks", "masks-or")
def either(causal, padding):
    return torch.logical_or(causal[None], padding)


@wrong("combine_masks", "mask-overwritten-by-padding")
def last_one_wins(causal, padding):
    mask = causal.expand(padding.shape[0], -1, -1)
    mask = padding.expand_as(mask)
    return mask


# --- whole layers -------------------------------------------------------------------


class Base(nn.Module):
    """What most of the layers below share: four linear layers."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.h, self.d_k = num_heads, embed_dim // num_heads
        self.w_q = nn.Linear(embed_dim, embed_dim)
        self.w_k = nn.Linear(embed_dim, embed_dim)
        self.w_v = nn.Linear(embed_dim, embed_dim)
        self.w_o = nn.Linear(embed_dim, embed_dim)

    def heads(self, x):
        return x.view(x.size(0), -1, self.h, self.d_k).transpose(1, 2)

    def join(self, x):
        return x.transpose(1, 2).contiguous().view(x.size(0), -1, self.h * self.d_k)


@wrong("mha", "scale-embed-dim")
class ScaledByModelWidth(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.heads, (self.w_q(query), self.w_k(key), self.w_v(value)))
        scores = q @ k.transpose(-2, -1) / math.sqrt(query.size(-1))
        if mask is not None:
            scores = scores.masked_fill(~mask.unsqueeze(1), -1e9)
        return self.w_o(self.join(scores.softmax(-1) @ v))


@wrong("mha", "kv-from-query")
class FusedFromQuery(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__()
        self.num_heads = num_heads
        self.qkv_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.o_proj = nn.Linear(embed_dim, embed_dim)
        self.drop = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        B, T, E = query.shape
        q, k, v = self.qkv_proj(query).chunk(3, dim=-1)
        q, k, v = (
            x.reshape(B, T, self.num_heads, -1).permute(0, 2, 1, 3) for x in (q, k, v)
        )
        att = q @ k.mT / (E // self.num_heads) ** 0.5
        if mask is not None and mask.shape[-1] == T:
            att = att.masked_fill(~mask[:, None], float("-inf"))
        p = self.drop(att.softmax(-1))
        return self.o_proj((p @ v).permute(0, 2, 1, 3).reshape(B, T, E)), p


@wrong("mha", "merge-no-transpose")
class ReshapedBack(Base):
    def forward(self, query, key, value, mask=None):
        b, t, e = query.shape
        q = self.heads(self.w_q(query))
        k = self.heads(self.w_k(key))
        v = self.heads(self.w_v(value))
        attn = torch.einsum("bhqd,bhkd->bhqk", [q, k]) / self.d_k**0.5
        if mask is not None:
            attn = attn.masked_fill(mask.unsqueeze(1) == 0, float("-1e20"))
        out = torch.einsum("bhqk,bhkd->bhqd", [attn.softmax(dim=-1), v])
        return self.w_o(out.reshape(b, t, e))


@wrong("mha", "split-by-view", "merge-no-transpose")
class ViewsOnly(Base):
    """The way of the click-prediction and text-classification repositories."""

    def forward(self, query, key, value, mask=None):
        B = query.size(0)
        Q = self.w_q(query).view(B * self.h, -1, self.d_k)
        K = self.w_k(key).view(B * self.h, -1, self.d_k)
        V = self.w_v(value).view(B * self.h, -1, self.d_k)
        scores = torch.bmm(Q, K.permute(0, 2, 1)) * self.d_k**-0.5
        if mask is not None:
            scores = scores.masked_fill(~mask.repeat_interleave(self.h, 0), -1e9)
        context = torch.bmm(F.softmax(scores, dim=-1), V)
        return self.w_o(context.view(B, -1, self.h * self.d_k))


@wrong("mha", "no-output-projection")
class ForgotWo(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = (
            self.heads(f(x))
            for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        )
        attn_mask = None if mask is None else mask[:, None]
        return self.join(F.scaled_dot_product_attention(q, k, v, attn_mask))


@wrong("mha", "wq-wk-swapped")
class SwappedNames(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.w_k(query), self.w_q(key), self.w_v(value)
        outs = []
        for q_h, k_h, v_h in zip(*(x.chunk(self.h, -1) for x in (q, k, v))):
            s = torch.bmm(q_h, k_h.mT) / math.sqrt(self.d_k)
            if mask is not None:
                s.masked_fill_(~mask, -1e30)
            outs.append(torch.bmm(torch.softmax(s, -1), v_h))
        return self.w_o(torch.cat(outs, -1))


@wrong("mha", "v-from-key")
class ValuesFromMemory(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = self.w_q(query), self.w_k(key), self.w_v(key)
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        s = q.matmul(k.transpose(2, 3)).div(math.sqrt(self.d_k))
        if mask is not None:
            s = s - 1e9 * (~mask).unsqueeze(1)
        return self.w_o(self.join(s.softmax(3).matmul(v)))


@wrong("mha", "residual")
class AddsTheQuery(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.heads, (self.w_q(query), self.w_k(key), self.w_v(value)))
        s = (q / self.d_k**0.5) @ k.mT
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -torch.inf)
        return query + self.w_o(self.join(s.softmax(-1) @ v))


@wrong("mha", "softmax-over-heads")
class BhtsMixedUp(Base):
    def forward(self, query, key, value, mask=None):
        B, T, E = query.shape
        q = self.w_q(query).view(B, T, self.h, self.d_k)
        k = self.w_k(key).view(B, -1, self.h, self.d_k)
        v = self.w_v(value).view(B, -1, self.h, self.d_k)
        energy = torch.einsum("nqhd,nkhd->nhqk", q, k)
        if mask is not None:
            energy = energy.masked_fill(mask[:, None] == 0, float("-1e20"))
        attention = torch.softmax(energy / self.d_k ** (1 / 2), dim=1)
        return self.w_o(torch.einsum("nhql,nlhd->nqhd", attention, v).reshape(B, T, E))


@wrong("mha", "mask-tiled")
class TilesTheMask(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = (
            self.heads(f(x)).flatten(0, 1)
            for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        )
        s = torch.bmm(q, k.mT) / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(~mask.repeat(self.h, 1, 1), float("-inf"))
        out = torch.bmm(s.softmax(-1), v).unflatten(0, (-1, self.h))
        return self.w_o(self.join(out))


@wrong("mha", "dropout-in-eval")
class AlwaysDrops(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.heads, (self.w_q(query), self.w_k(key), self.w_v(value)))
        s = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)
        return self.w_o(self.join(F.dropout(s.softmax(-1), 0.1) @ v))


@wrong("mha", "dropout-on-scores")
class DropsScores(Base):
    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__(embed_dim, num_heads)
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.heads, (self.w_q(query), self.w_k(key), self.w_v(value)))
        s = self.dropout(q @ k.mT / math.sqrt(self.d_k))
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)
        return self.w_o(self.join(s.softmax(-1) @ v))


@wrong("mha", "inputs-changed")
class ScalesInPlace(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.heads, (self.w_q(query), self.w_k(key), self.w_v(value)))
        s = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            mask.logical_not_()
            s = s.masked_fill(mask[:, None], -1e9)
        return self.w_o(self.join(s.softmax(-1) @ v))


@wrong("mha", "weights-not-transposed")
def functional_without_transposes(query, key, value, weights, num_heads, mask=None):
    def project(x, name):
        y = x @ weights[f"W_{name}"] + weights[f"b_{name}"]
        return y

    q, k, v = project(query, "q"), project(key, "k"), project(value, "v")
    B, T, E = q.shape
    D = E // num_heads
    out = torch.zeros(B, T, E)
    for i in range(num_heads):
        part = slice(i * D, (i + 1) * D)
        s = q[..., part] @ k[..., part].mT / math.sqrt(D)
        if mask is not None:
            s = s.masked_fill(~mask, -1e9)
        out[..., part] = s.softmax(-1) @ v[..., part]
    return project(out, "o")


@wrong("mha", "no-bias-q")
def forgets_one_bias(query, key, value, weights, num_heads, mask=None):
    w = weights
    q = torch.einsum("bte,oe->bto", query, w["W_q"])
    k = torch.einsum("bse,oe->bso", key, w["W_k"])
    v = torch.einsum("bse,oe->bso", value, w["W_v"]) + w["b_v"]
    q, k, v = (x.unflatten(2, (num_heads, -1)) for x in (q, k, v))
    s = torch.einsum("bthd,bshd->bhts", q, k) / q.size(-1) ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask[:, None], -1e9)
    c = torch.einsum("bhts,bshd->bthd", s.softmax(-1), v).flatten(2)
    return F.linear(c, w["W_o"], w["b_o"])


@wrong("mha", "no-scale", "merge-no-transpose", "no-output-projection")
class FirstCommit(Base):
    def forward(self, query, key, value, mask=None):
        b, t, _ = query.shape
        q = self.heads(self.w_q(query))
        k = self.heads(self.w_k(key))
        v = self.heads(self.w_v(value))
        p = torch.softmax(
            (q @ k.transpose(3, 2)).masked_fill(
                torch.zeros(1, dtype=torch.bool) if mask is None else ~mask[:, None],
                -1e9,
            ),
            -1,
        )
        return (p @ v).reshape(b, t, -1)


@wrong("mha")
class SwapsTwoHeads(Base):
    """Heads 0 and 1 change places on the way back: in no catalogue."""

    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.heads, (self.w_q(query), self.w_k(key), self.w_v(value)))
        s = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)
        c = s.softmax(-1) @ v
        c = torch.cat([c[:, 1:2], c[:, :1], c[:, 2:]], 1)
        return self.w_o(self.join(c))


@wrong("mha")
class TanhAtTheEnd(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.heads, (self.w_q(query), self.w_k(key), self.w_v(value)))
        s = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)
        return torch.tanh(self.w_o(self.join(s.softmax(-1) @ v)))


@wrong("mha")
class PenaltyForDistance(Base):
    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.heads, (self.w_q(query), self.w_k(key), self.w_v(value)))
        s = q @ k.mT / math.sqrt(self.d_k)
        far = torch.arange(s.shape[-2])[:, None] - torch.arange(s.shape[-1])
        s = s - 0.3 * far.abs()
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -1e9)
        return self.w_o(self.join(s.softmax(-1) @ v))


# --- sequence first, TensorFlow -----------------------------------------------------


@wrong("mha_sequence_first", "softmax-over-heads")
class LastAxisFromHabit(nn.Module):
    def __init__(self, heads, d_model):
        super().__init__()
        self.heads, self.d = heads, d_model // heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, *, query, key, value, mask=None):
        q, k, v = (
            f(x).view(*x.shape[:-1], self.heads, self.d)
            for f, x in ((self.query, query), (self.key, key), (self.value, value))
        )
        s = torch.einsum("ibhd,jbhd->ijbh", q, k) / self.d**0.5
        if mask is not None:
            s = s.masked_fill(~mask.unsqueeze(-1), -1e9)
        x = torch.einsum("ijbh,jbhd->ibhd", s.softmax(dim=-1), v)
        return self.output(x.flatten(2))


@wrong("mha_sequence_first", "output-reshaped")
class BackByReshape(Base):
    def forward(self, query, key, value, mask=None):
        T, B, E = query.shape
        q, k, v = (
            self.heads(f(x.transpose(0, 1)))
            for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        )
        s = q @ k.mT / math.sqrt(self.d_k)
        if mask is not None:
            s = s.masked_fill(~mask.permute(2, 0, 1)[:, None], -1e9)
        return self.w_o(self.join(s.softmax(-1) @ v)).reshape(T, B, E)


@wrong("split_concat", "relu-missing")
def linear_tensorflow(queries, keys, weights, num_heads, causality=False):
    Q = F.linear(queries, weights["W_q"], weights["b_q"])
    K = F.linear(keys, weights["W_k"], weights["b_k"])
    V = F.linear(keys, weights["W_v"], weights["b_v"])
    Q_ = torch.cat(torch.chunk(Q, num_heads, dim=2), dim=0)
    K_ = torch.cat(torch.chunk(K, num_heads, dim=2), dim=0)
    V_ = torch.cat(torch.chunk(V, num_heads, dim=2), dim=0)
    outputs = torch.matmul(Q_, K_.transpose(1, 2)) / (K_.shape[-1] ** 0.5)
    key_masks = (keys != 0).any(-1).repeat(num_heads, 1)[:, None, :]
    paddings = torch.ones_like(outputs) * (-(2**32) + 1)
    outputs = torch.where(key_masks, outputs, paddings)
    if causality:
        tril = torch.tril(torch.ones_like(outputs[0]))[None].expand_as(outputs)
        outputs = torch.where(tril == 0, paddings, outputs)
    outputs = torch.matmul(torch.softmax(outputs, -1), V_)
    outputs = torch.cat(torch.chunk(outputs, num_heads, dim=0), dim=2)
    return F.linear(outputs, weights["W_o"], weights["b_o"])


@wrong("split_concat", "mask-interleaved")
def wrong_repeat(queries, keys, weights, num_heads, causality=False):
    Q, K, V = (
        torch.relu(F.linear(x, weights[f"W_{n}"], weights[f"b_{n}"]))
        for n, x in (("q", queries), ("k", keys), ("v", keys))
    )
    Q_, K_, V_ = (torch.cat(x.chunk(num_heads, 2), 0) for x in (Q, K, V))
    scores = Q_ @ K_.mT / K_.shape[-1] ** 0.5
    hidden = (keys.abs().sum(-1) == 0).repeat_interleave(num_heads, 0)
    scores = scores.masked_fill(hidden[:, None, :], -1e9)
    if causality:
        later = torch.ones(scores.shape[1:]).triu(1).bool()
        scores = scores.masked_fill(later, -1e9)
    out = torch.softmax(scores, -1) @ V_
    out = torch.cat(out.chunk(num_heads, 0), 2)
    return out @ weights["W_o"].T + weights["b_o"]


@wrong("split_concat", "key-mask-from-sum")
def published_sum(queries, keys, weights, num_heads, causality=False):
    H, B = num_heads, keys.size(0)
    Q, K, V = (
        torch.relu(x @ weights[f"W_{n}"].T + weights[f"b_{n}"])
        for n, x in (("q", queries), ("k", keys), ("v", keys))
    )
    rows = []
    for h in range(H):
        for b in range(B):
            D = Q.size(-1) // H
            cut = slice(h * D, h * D + D)
            s = Q[b, :, cut] @ K[b, :, cut].T / math.sqrt(D)
            key_mask = torch.sign(torch.abs(keys[b].sum(-1)).round(decimals=4))
            s = torch.where(key_mask[None] == 0, torch.tensor(-(2.0**32)), s)
            if causality:
                s = torch.where(torch.ones_like(s).tril() == 0, -(2.0**32), s)
            rows.append(torch.softmax(s, -1) @ V[b, :, cut])
    out = torch.stack(rows).unflatten(0, (H, B)).permute(1, 2, 0, 3).flatten(2)
    return out @ weights["W_o"].T + weights["b_o"]


# --- what the numbers of one call do not show ---------------------------------------


@wrong("mha", "dropout-unused")
class Drops(Base):
    """A right layer, but for what its dropout does."""

    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__(embed_dim, num_heads)
        self.p = dropout

    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(self.w_q(query)), self.w_k(key), self.w_v(value)
        k, v = self.heads(k), self.heads(v)
        s = self.scores(q @ k.mT / self.d_k**0.5)
        s = s if mask is None else s.masked_fill(~mask[:, None], -torch.inf)
        w = s.softmax(-1)
        dropped = self.weights(w)
        out = self.output(self.w_o(self.join(dropped @ v)))
        return out, self.returned(w, dropped)

    def scores(self, s):
        return s

    weights = output = scores

    def returned(self, w, dropped):
        return w

    def drop(self, x):
        return F.dropout(x, self.p, self.training)


@wrong("mha", "dropout-not-rescaled")
class NoFactor(Drops):
    def weights(self, w):
        return w * (torch.rand_like(w) > self.p) if self.training else w


@wrong("mha", "dropout-on-scores")
class OnScores(Drops):
    scores = Drops.drop


@wrong("mha", "dropout-on-output")
class OnOutput(Drops):
    output = Drops.drop


@wrong("mha", "dropout-in-eval")
class AlwaysOn(Drops):
    def weights(self, w):
        return F.dropout(w, self.p)


@wrong("mha", "weights-returned-wrong", "dropout-unused")
class ReturnsScores(Drops):
    def returned(self, w, dropped):
        return w.log()


@wrong("attention", "inputs-changed")
def changes_q(q, k, v, mask=None):
    q *= q.shape[-1] ** -0.5
    s = q @ k.mT
    s = s if mask is None else s.masked_fill(~mask, -torch.inf)
    return s.softmax(-1) @ v


@wrong("attention", "wrong-output-dtype")
def answers_in_float64(q, k, v, mask=None):
    return F.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), mask)


@wrong("causal_mask", "mask-not-boolean")
def causal_numbers(T, S):
    return torch.ones(T, S).tril()


@wrong("attention", "needs-equal-sizes")
def only_square(q, k, v, mask=None):
    T = q.shape[-2]
    return F.scaled_dot_product_attention(q, k.reshape(*k.shape[:2], T, -1), v, mask)
