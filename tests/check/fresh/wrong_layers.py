"""Wrong layers as students write them, each in a style of its own.

The first line of each docstring is what a teacher would say; the decorator holds the
names of the catalogue that say the same, and no others, or words of the report that
point to the place. Both were added after the code was written.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

WRONG = []  # (submission, task, sets of names, words)


def wrong(task, *names, either="", says=""):
    """Keep a layer; `either` is another name of the same function."""

    def keep(layer):
        sets = [{*names}] * bool(names) + [{either}] * bool(either)
        WRONG.append((layer, task, sets, says))
        return layer

    return keep


# --- in the manner of the annotated papers --------------------------------------------


@wrong("mha", "merge-no-transpose")
class JoinsWithoutTranspose(nn.Module):
    """The heads are joined while they still stand before the tokens."""

    def __init__(self, d_model, h, dropout=0.0):
        super().__init__()
        assert d_model % h == 0
        self.d_k, self.h = d_model // h, h
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        if mask is not None:
            mask = mask.unsqueeze(-3)
        n = query.size(0)
        query, key, value = [
            lin(x).view(n, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        x = self.dropout(scores.softmax(-1)) @ value
        return self.linears[-1](x.contiguous().view(n, -1, self.h * self.d_k))


class Plain(nn.Module):
    """The frame that many of the following share; right as it stands."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.query = nn.Linear(embed_dim, embed_dim)
        self.key = nn.Linear(embed_dim, embed_dim)
        self.value = nn.Linear(embed_dim, embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def cut(self, x):
        b, n, _ = x.shape
        return x.reshape(b, n, self.num_heads, self.head_dim).permute(0, 2, 1, 3)

    def join(self, x):
        return x.permute(0, 2, 1, 3).flatten(2)

    def project(self, q, k, v):
        return self.query(q), self.key(k), self.value(v)

    def scores(self, q, k):
        return torch.matmul(q, k.transpose(2, 3)) / self.head_dim**0.5

    def hide(self, scores, mask):
        return scores.masked_fill(~mask[:, None], -torch.inf)

    def forward(self, q, k=None, v=None, mask=None):
        k = q if k is None else k
        v = k if v is None else v
        q, k, v = map(self.cut, self.project(q, k, v))
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.hide(scores, mask)
        attention = torch.softmax(scores, dim=-1)
        return self.out(self.join(attention @ v)), attention


@wrong("mha", "scale-embed-dim")
class ScaleOfTheModel(Plain):
    """Divides by the root of the width of the model."""

    def scores(self, q, k):
        return q @ k.mT / math.sqrt(self.query.in_features)


@wrong("mha", "scale-twice")
class ScalesBoth(Plain):
    """Scales the queries, and the scores once more."""

    def scores(self, q, k):
        scale = self.head_dim**-0.5
        q = q * scale
        return torch.einsum("bhid,bhjd->bhij", q, k) * scale


@wrong("mha", says="(here 2D")
class RootByPrecedence(Plain):
    """d ** 1 / 2 is d / 2: what is divided by it is half of what it has to be."""

    def scores(self, q, k):
        return q @ k.mT / self.head_dim**1 / 2


@wrong("mha", "scale-key-length")
class ScaleOfTheKeys(Plain):
    """size(-2) of the keys is their number, not their width."""

    def scores(self, q, k):
        return (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-2)))


@wrong("mha", "no-scale")
class ScaleComputedNotUsed(Plain):
    """The scale is computed and then not used."""

    def scores(self, q, k):
        scale = 1 / math.sqrt(self.head_dim)
        assert scale > 0
        return q @ k.transpose(-1, -2)


@wrong("mha", "key-transposed-by-view")
class TransposesByView(Plain):
    """view gives the keys another shape and moves nothing."""

    def scores(self, q, k):
        b, h, n, d = k.shape
        return q @ k.contiguous().view(b, h, d, n) / d**0.5


@wrong("mha", "softmax-over-heads")
class SoftmaxOverOne(Plain):
    """dim=1 was the keys before there were heads; now it is the heads."""

    def forward(self, q, k, v, mask=None):
        q, k, v = map(self.cut, self.project(q, k, v))
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask.unsqueeze(1) == False, -1e9)  # noqa: E712
        return self.out(self.join(F.softmax(scores, dim=1) @ v))


@wrong("mha", "softmax-over-queries")
class NormalisesColumns(Plain):
    """Divides exp by its sum over the queries."""

    def forward(self, q, k, v, mask=None):
        q, k, v = map(self.cut, self.project(q, k, v))
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.hide(scores, mask)
        e = torch.exp(scores - scores.amax(dim=2, keepdim=True))
        return self.out(self.join(e / e.sum(dim=2, keepdim=True) @ v))


@wrong("mha", "mask-inverted")
class HidesWhatIsTrue(Plain):
    """masked_fill fills where the mask is True."""

    def hide(self, scores, mask):
        return scores.masked_fill(mask[:, None], float("-inf"))


@wrong("mha", "mask-added-as-number")
class AddsTheMask(Plain):
    """Adds the boolean mask to the scores."""

    def hide(self, scores, mask):
        return scores + mask.unsqueeze(1)


@wrong("mha", "fill-tiny", either="fill-zero")
class FillsWithTiny(Plain):
    """1e-9 where -1e9 was meant."""

    def hide(self, scores, mask):
        return torch.where(mask.unsqueeze(1), scores, torch.full_like(scores, 1e-9))


@wrong("mha", "mask-after-softmax")
class MultipliesTheWeights(Plain):
    """Hidden weights become 0 after the softmax; the others do not grow."""

    def forward(self, q, k, v, mask=None):
        q, k, v = map(self.cut, self.project(q, k, v))
        attention = self.scores(q, k).softmax(dim=-1)
        if mask is not None:
            attention = attention * mask[:, None]
        return self.out(self.join(attention @ v)), attention


@wrong("mha", "mask-of-first-query")
class OneRowForAll(Plain):
    """Every query gets the mask of query 0."""

    def hide(self, scores, mask):
        return scores.masked_fill(~mask[:, 0, :][:, None, None, :], -torch.inf)


@wrong("mha", "fill-thrown-away")
class ForgetsTheMask(Plain):
    """masked_fill returns a new tensor, which nobody keeps."""

    def hide(self, scores, mask):
        scores.masked_fill(~mask[:, None], float("-inf"))
        return scores


@wrong("mha", "mask-tiled")
class RepeatsTheMask(Plain):
    """Heads are folded as (B·H), and the mask is repeated as (H·B)."""

    def forward(self, q, k, v, mask=None):
        B, T, E = q.shape
        q, k, v = (self.cut(x).flatten(0, 1) for x in self.project(q, k, v))
        scores = torch.bmm(q, k.transpose(1, 2)) / self.head_dim**0.5
        if mask is not None:
            mask = mask.repeat(self.num_heads, 1, 1)
            scores = scores.masked_fill(~mask, float("-inf"))
        x = torch.bmm(scores.softmax(-1), v)
        x = x.view(B, self.num_heads, T, self.head_dim)
        return self.out(self.join(x))


@wrong("mha", says="later keys get the weight 0")
class AlwaysCausal(Plain):
    """A triangle is applied whether a mask is given or not."""

    def scores(self, q, k):
        scores = super().scores(q, k)
        past = torch.ones_like(scores, dtype=torch.bool).tril()
        return scores.masked_fill(~past, -torch.inf)


@wrong("mha", "wq-for-k")
class CopiedALine(Plain):
    """The line of the queries was copied, and one name not changed."""

    def project(self, q, k, v):
        return self.query(q), self.query(k), self.value(v)


@wrong("mha", "v-from-key")
class ValuesOfTheKeys(Plain):
    """The values are computed from the keys."""

    def project(self, q, k, v):
        return self.query(q), self.key(k), self.value(k)


@wrong("mha", "kv-from-query")
class OnlyItself(Plain):
    """Keys and values come from the query, whatever is given."""

    def project(self, q, k, v):
        return self.query(q), self.key(q), self.value(q)


@wrong("mha", "v-not-projected")
class ValuesAsTheyCome(Plain):
    """The values are not projected."""

    def project(self, q, k, v):
        return self.query(q), self.key(k), v


@wrong("mha", "split-by-view")
class CutsByView(Plain):
    """Cut as (B, H, T, D) at once, so that a head holds pieces of tokens."""

    def cut(self, x):
        return x.view(x.size(0), self.num_heads, -1, self.head_dim)


@wrong("mha", "split-interleaved")
class HeadsLast(Plain):
    """(D, H) where (H, D) was meant."""

    def cut(self, x):
        b, n, _ = x.shape
        return x.view(b, n, self.head_dim, self.num_heads).permute(0, 3, 1, 2)


@wrong("mha", "merge-interleaved")
class JoinsFeatureByFeature(Plain):
    """(B, T, D, H) is flattened, so that features of heads alternate."""

    def join(self, x):
        return x.permute(0, 2, 3, 1).reshape(x.size(0), x.size(2), -1)


@wrong("mha", "residual")
class AddsTheInput(Plain):
    """A residual that belongs into the block."""

    def forward(self, q, k, v, mask=None):
        output, _ = super().forward(q, k, v, mask)
        return output + q


@wrong("mha", says="is there a LayerNorm behind")
class NormAtTheEnd(Plain):
    """A LayerNorm that belongs into the block."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.norm = nn.LayerNorm(embed_dim)

    def forward(self, q, k, v, mask=None):
        output, attention = super().forward(q, k, v, mask)
        return self.norm(output), attention


@wrong("mha", "no-output-projection")
class LeavesOutTheWayOut(Plain):
    """self.out is made and not called."""

    def forward(self, q, k, v, mask=None):
        q, k, v = map(self.cut, self.project(q, k, v))
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.hide(scores, mask)
        return self.join(scores.softmax(-1) @ v)


@wrong("mha", "dropout-in-eval")
class DropsAlways(Plain):
    """F.dropout drops unless it is told that nobody trains."""

    def forward(self, q, k, v, mask=None):
        q, k, v = map(self.cut, self.project(q, k, v))
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.hide(scores, mask)
        return self.out(self.join(F.dropout(scores.softmax(-1), 0.2) @ v))


@wrong("mha", "inputs-changed")
class TurnsTheMask(Plain):
    """logical_not_ turns the caller's mask round."""

    def forward(self, q, k, v, mask=None):
        if mask is not None:
            mask.logical_not_()
        q, k, v = map(self.cut, self.project(q, k, v))
        scores = self.scores(q, k)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None], -torch.inf)
        return self.out(self.join(scores.softmax(-1) @ v))


@wrong("mha", says="each call makes a layer")
class ProjectsAnew(Plain):
    """The output projection is made in forward, so it never learns."""

    def forward(self, q, k, v, mask=None):
        q, k, v = map(self.cut, self.project(q, k, v))
        scores = self.scores(q, k)
        if mask is not None:
            scores = self.hide(scores, mask)
        x = self.join(scores.softmax(-1) @ v)
        return nn.Linear(x.shape[-1], x.shape[-1])(x)


@wrong("mha", says="the output comes first")
class WeightsFirst(Plain):
    """Returns the weights before the output."""

    def forward(self, q, k, v, mask=None):
        output, attention = super().forward(q, k, v, mask)
        return attention, output


# --- fused, in the manner of small GPTs -----------------------------------------------


class Small(nn.Module):
    """A fused layer that attends to itself or, with a part of its matrix, to others."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)
        self.n_head = n_head

    def thirds(self, q, k, v):
        weights = self.c_attn.weight.chunk(3)
        biases = self.c_attn.bias.chunk(3)
        return [F.linear(*x) for x in zip((q, k, v), weights, biases)]

    def heads(self, x):
        return x.unflatten(-1, (self.n_head, -1)).transpose(1, 2)

    def attend(self, q, k, v, mask):
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        if mask is not None:
            att = att.masked_fill(mask[:, None] == 0, float("-inf"))
        return F.softmax(att, dim=-1) @ v

    def forward(self, query, key, value, attn_mask=None):
        q, k, v = map(self.heads, self.thirds(query, key, value))
        y = self.attend(q, k, v, attn_mask)
        return self.c_proj(y.transpose(1, 2).contiguous().flatten(2))


@wrong("mha", "no-bias-qkv")
class LosesTheBias(Small):
    """F.linear with a part of the weight, and without the bias."""

    def thirds(self, q, k, v):
        w_q, w_k, w_v = self.c_attn.weight.chunk(3, dim=0)
        return q @ w_q.T, k @ w_k.T, v @ w_v.T


@wrong("mha", "softmax-twice")
class SoftmaxTwice(Small):
    """The weights go through a second softmax before the values."""

    def attend(self, q, k, v, mask):
        att = (q @ k.mT) / k.size(-1) ** 0.5
        if mask is not None:
            att = att.masked_fill(~mask[:, None], float("-inf"))
        weights = F.softmax(att, dim=-1)
        return torch.softmax(weights, -1) @ v


@wrong("mha", "heads-ignored")
class OneHead(Small):
    """n_head is kept and never used."""

    def heads(self, x):
        return x.unsqueeze(1)


@wrong("mha", says="split_with_sizes")
class CutsInThrees(Small):
    """split(3) gives parts of three features, not three parts."""

    def forward(self, query, key, value, attn_mask=None):
        parts = [self.c_attn(x) for x in (query, key, value)]
        q, k, v = (
            x.split_with_sizes([3, 3, 3], dim=-1)[i] for i, x in enumerate(parts)
        )
        y = self.attend(*map(self.heads, (q, k, v)), attn_mask)
        return self.c_proj(y.transpose(1, 2).flatten(2))


@wrong("mha", says="are those of v, q, k; q, k, v is expected")
class ValuesFirst(nn.Module):
    """One fused layer whose thirds are v, q, k, without a word about it."""

    def __init__(self, n_embd, n_head):
        super().__init__()
        self.n_head = n_head
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        self.c_proj = nn.Linear(n_embd, n_embd)

    def forward(self, query, key=None, value=None, mask=None):
        key = query if key is None else key
        value = key if value is None else value
        e = query.shape[-1]
        v = self.c_attn(value)[..., :e]
        q = self.c_attn(query)[..., e : 2 * e]
        k = self.c_attn(key)[..., 2 * e :]
        q, k, v = (
            x.unflatten(-1, (self.n_head, -1)).transpose(1, 2) for x in (q, k, v)
        )
        seen = None if mask is None else mask[:, None]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        return self.c_proj(y.transpose(1, 2).flatten(-2))


# --- one matrix a head, in a loop -----------------------------------------------------


class Loop(nn.Module):
    """A small attention for each head."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        size = embed_dim // num_heads
        self.num_heads = num_heads

        def one():
            return nn.ModuleList(nn.Linear(embed_dim, size) for _ in range(num_heads))

        self.q, self.k, self.v = one(), one(), one()
        self.o = nn.Linear(embed_dim, embed_dim)

    def head(self, i, query, key, value, mask):
        q, k, v = self.q[i](query), self.k[i](key), self.v[i](value)
        scores = torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return scores.softmax(2) @ v

    def gather(self, parts):
        return torch.cat(parts, dim=-1)

    def forward(self, query, key, value, mask=None):
        parts = [self.head(i, query, key, value, mask) for i in range(self.num_heads)]
        return self.o(self.gather(parts))


@wrong("mha", "merge-first-head")
class AlwaysHeadZero(Loop):
    """The index of the loop is not used: every head is the first one."""

    def head(self, i, query, key, value, mask):
        return super().head(0, query, key, value, mask)


@wrong("mha", "merge-reversed")
class FromTheLastHead(Loop):
    """The heads are put in front of each other."""

    def forward(self, query, key, value, mask=None):
        found = None
        for i in range(self.num_heads):
            x = self.head(i, query, key, value, mask)
            found = x if found is None else torch.cat([x, found], dim=-1)
        return self.o(found)


@wrong("mha", "merge-interleaved")
class StacksHeads(Loop):
    """stack makes a new last axis, and flatten mixes the heads."""

    def gather(self, parts):
        return torch.stack(parts, dim=-1).flatten(-2)


# --- sequence first -------------------------------------------------------------------


class First(nn.Module):
    """Tokens first, the heads folded into the batch as torch does it."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.h, self.dk = num_heads, embed_dim // num_heads
        self.w_q = nn.Linear(embed_dim, embed_dim)
        self.w_k = nn.Linear(embed_dim, embed_dim)
        self.w_v = nn.Linear(embed_dim, embed_dim)
        self.w_o = nn.Linear(embed_dim, embed_dim)

    def fold(self, x):
        return x.reshape(x.shape[0], -1, self.dk).transpose(0, 1)

    def masks(self, mask):
        return mask.permute(2, 0, 1).repeat_interleave(self.h, 0)

    def unfold(self, x, T, B):
        return x.transpose(0, 1).reshape(T, B, -1)

    def forward(self, query, key, value, mask=None):
        T, B, _ = query.shape
        q, k, v = self.w_q(query), self.w_k(key), self.w_v(value)
        scores = self.fold(q) @ self.fold(k).mT / self.dk**0.5
        if mask is not None:
            scores = scores.masked_fill(~self.masks(mask), -torch.inf)
        return self.w_o(self.unfold(scores.softmax(-1) @ self.fold(v), T, B))


@wrong("mha_sequence_first", says="is the transpose(0, 1) before it missing?")
class FlattensFolded(First):
    """(B·H, T, D) is reshaped to (T, B, E) without a transpose."""

    def unfold(self, x, T, B):
        return x.reshape(T, B, -1)


@wrong("mha_sequence_first", "mask-tiled")
class TilesTheMask(First):
    """The mask is repeated sequence by sequence, the heads are not."""

    def masks(self, mask):
        return mask.permute(2, 0, 1).repeat(self.h, 1, 1)


@wrong("mha_sequence_first", "layout-exchanged", "fill-thrown-away")
class ReadsBatchFirst(Plain):
    """A layer for (B, T, E), handed (T, B, E), that hides nothing."""

    def hide(self, scores, mask):
        return scores


@wrong("mha", "layout-exchanged")
class WithoutBatchFirst(nn.Module):
    """nn.MultiheadAttention without batch_first=True; with a mask it fails."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads)

    def forward(self, query, key, value, mask=None):
        hidden = None if mask is None else ~mask
        return self.attn(query, key, value, attn_mask=hidden)[0]


@wrong("mha", "mask-inverted")
class HandsTheMaskOn(nn.Module):
    """torch's attn_mask is True where nobody may look."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads, batch_first=True)
        self.num_heads = num_heads

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.repeat_interleave(self.num_heads, 0)
        found = self.attn(query, key, value, attn_mask=mask, need_weights=False)
        return found[0]
