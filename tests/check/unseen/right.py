"""Right programs that look otherwise than those of a book."""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Attention, Plain, PlainModel, programs

RIGHT, right = programs()


@right("next_token_loss")
def loss_by_cross_entropy(logits, tokens, padding=0):
    """torch's own, told what to ignore."""
    return F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], ignore_index=padding)


@right("next_token_loss")
def loss_by_loops(scores, text, padding=0):
    """One word after the other, in Python."""
    total, count = 0.0, 0
    B, T, W = scores.shape
    for b in range(B):
        for t in range(T):
            y = text[b, t + 1].item()
            if y != padding:
                total = total + torch.logsumexp(scores[b, t], 0) - scores[b, t, y]
                count += 1
    return total / count


@right("next_token_loss")
def loss_by_advanced_index(logits, tokens, padding=0):
    """An index for each axis."""
    b, t = torch.nonzero(tokens[:, 1:] != padding, as_tuple=True)
    y = tokens[b, t + 1]
    z = logits[b, t]
    z = z - z.max(dim=1, keepdim=True).values.detach()
    return (z.exp().sum(1).log() - z[torch.arange(len(y)), y]).sum() / y.numel()


@right("next_token_loss")
def loss_by_weighted_sum(logits, tokens, padding=0):
    """Costs times a table of ones and zeros."""
    y = tokens[:, 1:]
    real = y.ne(padding).to(logits.dtype)
    hot = F.one_hot(y, logits.size(-1)).to(logits.dtype)
    return -(F.log_softmax(logits, 2) * hot).sum(2).mul(real).sum() / real.sum()


@right("next_token_loss")
def loss_of_double(logits, tokens, padding=0):
    """Computed in float64, returned in the dtype that came."""
    y = tokens[..., 1:].reshape(-1)
    p = logits.double().reshape(-1, logits.shape[-1]).log_softmax(-1)
    return F.nll_loss(p[y != padding], y[y != padding]).to(logits.dtype)


class HandNorm(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.ones(n)),
            nn.Parameter(torch.zeros(n)),
        )

    def forward(self, x):
        m = x.mean(-1, keepdim=True)
        s = (x - m).pow(2).mean(-1, keepdim=True)
        return (x - m) * torch.rsqrt(s + 1e-5) * self.weight + self.bias


@right("block")
class BlockByHand(nn.Module):
    """A norm by hand; a class for the mlp; kwargs at the call."""

    def __init__(self, d_model, heads):
        super().__init__()
        self.norm1, self.norm2 = HandNorm(d_model), HandNorm(d_model)
        self.attention = Attention(d_model, heads)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )

    def forward(self, x, mask):
        y = self.norm1(x)
        y, _ = self.attention(y, y, y, mask=mask)
        x = torch.add(x, y)
        return self.mlp(self.norm2(x)).add(x)


@right("block")
class BlockWithDefaultMask(Plain):
    """The mask has a default, dropout is 0."""

    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__(embed_dim, num_heads)
        self.drop = nn.Dropout(dropout)

    def forward(self, x, mask=None):
        h = self.norm1(x)
        a, w = self.attention(query=h, key=h, value=h, mask=mask)
        x = x + self.drop(a)
        return x + self.drop(self.mlp(self.norm2(x)))


@right("block")
class BlockOfOrderedParts(nn.Module):
    """Parts made in another order; a function for the sum."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, 4 * embed_dim),
            nn.GELU(),
            nn.Linear(4 * embed_dim, embed_dim),
        )
        self.norm2 = nn.LayerNorm(embed_dim)
        self.attention = Attention(embed_dim, num_heads)
        self.norm1 = nn.LayerNorm(embed_dim)

    def residual(self, x, f):
        return x + f(x)

    def forward(self, x, mask):
        def attend(x):
            h = self.norm1(x)
            return self.attention(h, h, h, mask)[0]

        x = self.residual(x, attend)
        return self.residual(x, lambda x: self.mlp(self.norm2(x)))


@right("language_model")
class ModelByFunction(PlainModel):
    """The output by matmul with the table; the mask as a buffer of the context."""

    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        self.register_buffer("table", torch.ones(context, context).tril().bool())

    def forward(self, tokens):
        B, T = tokens.size()
        x = self.word(tokens) + self.place.weight[:T]
        for block in self.blocks:
            x = block(x, self.table[:T, :T])
        return self.norm(x) @ self.word.weight.t()


@right("language_model")
class ModelOfPositions(PlainModel):
    """Places expanded to (B, T); mask from a comparison."""

    def embed(self, tokens):
        at = torch.arange(tokens.shape[-1], device=tokens.device).expand_as(tokens)
        return self.word(tokens).add(self.place(at))

    def mask(self, T):
        i = torch.arange(T)
        return i[None, :] <= i[:, None]


@right("language_model")
class ModelInitialised(PlainModel):
    """Small numbers at the start, as GPT-2 has them."""

    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers, std=0.02):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        self.apply(
            lambda m: (
                nn.init.normal_(m.weight, std=std)
                if isinstance(m, (nn.Linear, nn.Embedding))
                else None
            )
        )


@right("training_step")
def step_by_parameters(model, optimizer, tokens, step, rate_of, clip):
    """The parameters of the optimizer's groups are clipped by hand."""
    model.train(True)
    lr = rate_of(step)
    for g in optimizer.param_groups:
        g.update(lr=lr)
    model.zero_grad(set_to_none=True)
    x, y = tokens[:, :-1], tokens[:, 1:]
    z = model(x)
    loss = F.cross_entropy(z.reshape(-1, z.size(-1)), y.reshape(-1))
    loss.backward()
    grads = [
        p.grad
        for g in optimizer.param_groups
        for p in g["params"]
        if p.grad is not None
    ]
    norm = math.sqrt(sum(float((g**2).sum()) for g in grads))
    if norm > clip:
        for g in grads:
            g *= clip / norm
    optimizer.step()
    return float(loss)


@right("training_step")
def step_by_autograd(model, optimizer, tokens, step, rate_of, clip):
    """torch.autograd.grad in place of backward."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    parameters = [p for p in model.parameters() if p.requires_grad]
    loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
    for p, g in zip(
        parameters, torch.autograd.grad(loss, parameters, allow_unused=True)
    ):
        p.grad = g
    torch.nn.utils.clip_grad_norm_(parameters, max_norm=clip)
    optimizer.step()
    return loss.detach().item()


@right("training_step")
def step_that_clears_twice(model, optimizer, tokens, step, rate_of, clip):
    """Slopes are cleared after the step as well; float() makes the number."""
    model.train()
    optimizer.zero_grad()
    loss = -model(tokens[:, :-1]).log_softmax(-1).gather(-1, tokens[:, 1:, None]).mean()
    loss.backward()
    for i in range(len(optimizer.param_groups)):
        optimizer.param_groups[i]["lr"] = rate_of(step)
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)


@right("generate")
def text_by_categorical(model, tokens, new, context, temperature=1.0, top_k=None):
    """torch.distributions; a try/finally; inference mode."""
    mode = model.training
    model.eval()
    try:
        with torch.inference_mode():
            for _ in range(new):
                window = tokens if tokens.size(1) <= context else tokens[:, -context:]
                z = model(window)[:, -1, :] / temperature
                if top_k:
                    v, i = torch.topk(z, top_k)
                    z = torch.full_like(z, -torch.inf).scatter(-1, i, v)
                nxt = torch.distributions.Categorical(logits=z).sample()
                tokens = torch.cat((tokens, nxt.unsqueeze(1)), 1)
    finally:
        model.train(mode)
    return tokens


@right("generate")
@torch.no_grad()
def text_by_gumbel(model, tokens, new, context, temperature=1.0, top_k=None):
    """The Gumbel trick, and an array that is filled."""
    was = model.training
    model.eval()
    B, T = tokens.shape
    out = torch.zeros(B, T + new, dtype=torch.long)
    out[:, :T] = tokens
    for n in range(T, T + new):
        z = model(out[:, max(0, n - context) : n])[:, -1] / temperature
        if top_k is not None:
            z = z.masked_fill(
                z < z.sort(descending=True).values[:, top_k - 1 : top_k], -math.inf
            )
        u = torch.rand_like(z).clamp_min(1e-20)
        out[:, n] = (z - (-u.log()).log()).argmax(-1)
    model.train(was)
    return out


@right("generate")
@torch.no_grad()
def text_by_numpy(model, tokens, new, context, temperature=1.0, top_k=None):
    """numpy's choice, row by row; top-k after the softmax, then made 1 again."""
    training = model.training
    model.eval()
    rows = tokens.tolist()
    for _ in range(new):
        z = model(torch.tensor([r[-context:] for r in rows]))[:, -1].double()
        p = (z / temperature).softmax(-1)
        for r, q in zip(rows, p):
            if top_k is not None:
                keep = q.topk(top_k).indices
                q = torch.zeros_like(q).index_put((keep,), q[keep])
            q = (q / q.sum()).numpy()
            r.append(int(np.random.choice(len(q), p=q / q.sum())))
    model.train(training)
    return torch.tensor(rows)


@right("generate")
@torch.no_grad()
def text_by_inverse(model, tokens, new, context, temperature=1.0, top_k=None):
    """A throw for each row, held against the running sum."""
    training = model.training
    model.eval()
    for _ in range(new):
        z = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            _, order = z.sort(descending=True)
            z = z.scatter(1, order[:, top_k:], float("-inf"))
        c = z.softmax(-1).cumsum(-1)
        u = torch.rand(len(z), 1) * c[:, -1:]
        tokens = torch.cat([tokens, (c <= u).sum(-1, keepdim=True)], 1)
    model.train(training)
    return tokens


# --- the older tasks ---


@right("attention")
def by_scaled_keys(queries, keys, values, mask=None):
    """Queries and keys are each divided by the fourth root of D."""
    r = queries.shape[-1] ** 0.25
    z = torch.einsum("...td,...sd->...ts", queries / r, keys / r)
    if mask is not None:
        z = z + torch.zeros_like(z).masked_fill(mask.logical_not(), -torch.inf)
    w = F.softmax(z, dim=-1).nan_to_num(0.0)
    return torch.einsum("...ts,...sv->...tv", w, values), w


@right("attention")
def by_log_sum(q, k, v, mask=None):
    """exp of the difference to the logarithm of the sum."""
    z = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        z = z.masked_fill(mask == False, -float("inf"))  # noqa: E712
    total = z.logsumexp(-1, keepdim=True)
    total = total.masked_fill(total.isinf(), 0.0)
    w = (z - total).exp()
    return w.matmul(v), w


@right("attention")
def by_rows_of_keys(q, k, v, mask=None):
    """One query after the other."""
    T = q.shape[-2]
    if mask is not None:
        mask = mask.expand(*mask.shape[:-2], T, k.shape[-2])
    rows = []
    for t in range(T):
        z = (q[..., t, None, :] * k).sum(-1) / q.shape[-1] ** 0.5
        if mask is not None:
            z = z.masked_fill(~mask[..., t, :], float("-inf"))
        rows.append((z.softmax(-1).nan_to_num()[..., None] * v).sum(-2))
    return torch.stack(rows, -2)


@right("split_heads")
def split_by_list(x, num_heads):
    """Slices of the features in a list."""
    D = x.shape[2] // num_heads
    return torch.stack([x[..., h * D : (h + 1) * D] for h in range(num_heads)], dim=1)


@right("split_heads")
def split_by_unfold(x, n):
    """A window of D features that moves by D."""
    D = x.shape[-1] // n
    return x.unfold(-1, D, D).permute(0, 2, 1, 3)


@right("merge_heads")
def merge_by_cat(x):
    """Heads are unbound and laid side by side."""
    return torch.cat(x.unbind(1), dim=-1)


@right("merge_heads")
def merge_by_einsum(x):
    """Each head through its own columns of the identity."""
    B, H, T, D = x.shape
    eye = torch.eye(H * D, dtype=x.dtype).view(H, D, H * D)
    return torch.einsum("bhtd,hde->bte", x, eye)


@right("causal_mask")
def causal_by_sum(T, S):
    """A running sum of ones on the diagonal."""
    return torch.ones(T, S).cumsum(0).ge(torch.ones(T, S).cumsum(1))


@right("causal_mask")
def causal_by_indices(rows, columns):
    """tril_indices fill a table."""
    m = torch.zeros(rows, columns, dtype=torch.bool)
    m[tuple(torch.tril_indices(rows, columns))] = True
    return m


@right("padding_mask")
def padding_by_loop(lengths, S):
    """Row by row."""
    m = torch.zeros(len(lengths), 1, S, dtype=torch.bool)
    for row, n in zip(m, lengths.tolist()):
        row[..., :n] = True
    return m


@right("combine_masks")
def combine_by_min(causal, padding):
    """The smaller of two numbers."""
    return torch.minimum(causal.int()[None], padding.int()).bool()


@right("combine_masks")
def combine_by_de_morgan(a, b):
    """Not (not a or not b)."""
    return ~(~a | ~b)


@right("mha")
class OneTable(nn.Module):
    """A single parameter (4, E, E) and a bias (4, E)."""

    def __init__(self, width, heads):
        super().__init__()
        self.h = heads
        self.w = nn.Parameter(torch.randn(4, width, width) / width**0.5)
        self.b = nn.Parameter(torch.zeros(4, width))

    def forward(self, query, key, value, mask=None):
        B, T, E = query.shape

        def heads(n, x):
            y = F.linear(x, self.w[n], self.b[n])
            return y.view(B, -1, self.h, E // self.h).permute(0, 2, 1, 3)

        q, k, v = heads(0, query), heads(1, key), heads(2, value)
        z = q @ k.mT / (E // self.h) ** 0.5
        if mask is not None:
            z = z.masked_fill(~mask.unsqueeze(1), -torch.inf)
        a = z.softmax(-1).nan_to_num()
        return F.linear(
            (a @ v).permute(0, 2, 1, 3).reshape(B, T, E), self.w[3], self.b[3]
        ), a


@right("mha")
class HeadModules(nn.Module):
    """Each head a module that writes back to E by itself; the outputs are added."""

    class Head(nn.Module):
        def __init__(self, E, D):
            super().__init__()
            self.to_q, self.to_k, self.to_v = (nn.Linear(E, D) for _ in range(3))

        def forward(self, q, k, v, mask):
            q, k, v = self.to_q(q), self.to_k(k), self.to_v(v)
            z = q @ k.mT * k.shape[-1] ** -0.5
            if mask is not None:
                z = z.masked_fill(~mask, -torch.inf)
            return z.softmax(-1).nan_to_num() @ v

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        D = embed_dim // num_heads
        self.heads = nn.ModuleList(self.Head(embed_dim, D) for _ in range(num_heads))
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, mask=None):
        D = self.heads[0].to_q.out_features
        out = self.proj.bias
        for n, head in enumerate(self.heads):
            block = self.proj.weight[:, n * D : (n + 1) * D]
            out = out + head(query, key, value, mask) @ block.mT
        return out


@right("mha_sequence_first")
class BmmLayer(nn.Module):
    """As torch's own: heads in the batch of a bmm."""

    def __init__(self, E, H):
        super().__init__()
        self.E, self.H = E, H
        self.q, self.k, self.v, self.o = (nn.Linear(E, E) for _ in range(4))

    def forward(self, query, key, value, mask=None):
        T, B, E = query.shape
        S, H, D = key.shape[0], self.H, E // self.H
        q = self.q(query).contiguous().view(T, B * H, D).transpose(0, 1)
        k = self.k(key).contiguous().view(S, B * H, D).transpose(0, 1)
        v = self.v(value).contiguous().view(S, B * H, D).transpose(0, 1)
        z = torch.bmm(q / D**0.5, k.transpose(1, 2))
        if mask is not None:
            m = mask.permute(2, 0, 1).repeat_interleave(H, dim=0)
            z = z.masked_fill(~m, -torch.inf)
        a = z.softmax(-1).nan_to_num()
        out = torch.bmm(a, v).transpose(0, 1).contiguous().view(T, B, E)
        return self.o(out), a.view(B, H, T, S)


@right("split_concat")
def split_concat_by_heads(queries, keys, weights, num_heads, causality=False):
    """A loop over heads instead of the batch axis."""
    w = weights
    q = F.linear(queries, w["W_q"], w["b_q"]).clamp(min=0)
    k = F.linear(keys, w["W_k"], w["b_k"]).clamp(min=0)
    v = F.linear(keys, w["W_v"], w["b_v"]).clamp(min=0)
    visible = keys.ne(0).any(-1)[:, None, :]
    T, S = q.shape[1], k.shape[1]
    if causality:
        visible = visible & (torch.arange(S) <= torch.arange(T)[:, None])
    outs = []
    for a, b, c in zip(*(x.chunk(num_heads, -1) for x in (q, k, v))):
        z = (a @ b.mT / a.shape[-1] ** 0.5).masked_fill(~visible, -torch.inf)
        outs.append(z.softmax(-1).nan_to_num() @ c)
    return F.linear(torch.cat(outs, -1), w["W_o"], w["b_o"])
