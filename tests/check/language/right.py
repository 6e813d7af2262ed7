"""Right programs for the tasks of a language model, in styles that people use."""

import math
from collections import OrderedDict

import torch
import torch.nn.functional as F
from torch import nn

# --- the loss -----------------------------------------------------------------------


def plain(logits, tokens, padding=0):
    targets = tokens[:, 1:]
    return F.cross_entropy(logits.mT, targets, ignore_index=padding)


def flattened(logits, tokens, padding=0):
    return F.cross_entropy(
        logits.reshape(-1, logits.size(-1)),
        tokens[:, 1:].flatten(),
        ignore_index=padding,
    )


def nll(logits, tokens, padding=0):
    logp = F.log_softmax(logits, dim=-1).transpose(1, 2)
    return F.nll_loss(logp, tokens[:, 1:], ignore_index=padding)


def one_hot(logits, tokens, padding=0):
    answers = F.one_hot(tokens[:, 1:], logits.shape[-1]).to(logits.dtype)
    counts = (tokens[:, 1:] != padding).to(logits.dtype)
    cost = -(answers * (logits - logits.logsumexp(-1, keepdim=True))).sum(-1)
    return (cost * counts).sum() / counts.sum()


def in_loops(logits, tokens, padding=0):
    costs = []
    for row, text in zip(logits, tokens):
        for x, answer in zip(row, text[1:]):
            if answer != padding:
                largest = x.max()
                costs.append((x - largest).exp().sum().log() + largest - x[answer])
    return torch.stack(costs).mean()


def in_double(logits, tokens, padding=0):
    B, T, _ = logits.shape
    logp = logits.double().log_softmax(2)
    rows, places = torch.meshgrid(torch.arange(B), torch.arange(T), indexing="ij")
    picked = logp[rows, places, tokens[:, 1:]]
    mean = picked.masked_select(tokens[:, 1:].ne(padding)).mean()
    return -mean.to(logits.dtype)


def filled(logits, tokens, padding=0):
    targets = tokens[:, 1:].masked_fill(tokens[:, 1:] == padding, -100)
    return nn.CrossEntropyLoss()(logits.permute(0, 2, 1), targets)


# --- the block ----------------------------------------------------------------------


class Heads(nn.Module):
    """A student's attention: four layers and a loop over the heads."""

    def __init__(self, E, H):
        super().__init__()
        self.H = H
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(E, E) for _ in range(4)
        )

    def forward(self, query, key, value, mask=None):
        heads, maps = [], []
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        for q_h, k_h, v_h in zip(*(x.chunk(self.H, -1) for x in (q, k, v))):
            scores = q_h @ k_h.mT / math.sqrt(q_h.shape[-1])
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf)
            maps.append(scores.softmax(-1))
            heads.append(maps[-1] @ v_h)
        return self.out_proj(torch.cat(heads, -1)), torch.stack(maps, 1)


class Usual(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(embed_dim)
        self.attention = Heads(embed_dim, num_heads)
        self.norm2 = nn.LayerNorm(embed_dim)
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, 4 * embed_dim),
            nn.GELU(),
            nn.Linear(4 * embed_dim, embed_dim),
        )

    def forward(self, x, mask):
        h = self.norm1(x)
        out, _ = self.attention(h, h, h, mask)
        x = x + out
        return x + self.mlp(self.norm2(x))


class Twice(Usual):
    """The mlp's other order of making, and a keyword for the mask."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        layers = [
            ("up", nn.Linear(embed_dim, 4 * embed_dim)),
            ("act", nn.GELU()),
            ("down", nn.Linear(4 * embed_dim, embed_dim)),
            ("drop", nn.Dropout(0.0)),
        ]
        self.mlp = nn.Sequential(OrderedDict(layers))

    def forward(self, x, mask=None):
        residual = x
        x = self.norm1(x)
        x = self.attention(query=x, key=x, value=x, mask=mask)[0]
        x = residual = residual + x
        x = self.mlp(self.norm2(x))
        return residual.add(x)


class OwnNorm(nn.Module):
    """It keeps its bias first."""

    def __init__(self, E):
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(E))
        self.weight = nn.Parameter(torch.ones(E))

    def forward(self, x):
        var, mean = torch.var_mean(x, dim=-1, correction=0, keepdim=True)
        return (x - mean) * torch.rsqrt(var + 1e-5) * self.weight + self.bias


class MLP(nn.Module):
    def __init__(self, E):
        super().__init__()
        self.fc, self.proj = nn.Linear(E, 4 * E), nn.Linear(4 * E, E)

    def forward(self, x):
        x = self.fc(x)
        x = x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))
        return self.proj(x)


class ByHand(Usual):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.norm1, self.norm2 = OwnNorm(embed_dim), OwnNorm(embed_dim)
        self.mlp = MLP(embed_dim)


class Fused(Usual):
    """torch's attention in a coat that takes our masks."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.attention = Coat(embed_dim, num_heads)


class Coat(nn.Module):
    def __init__(self, E, H):
        super().__init__()
        self.inner = nn.MultiheadAttention(E, H, batch_first=True)

    def forward(self, q, k, v, mask=None):
        return self.inner(q, k, v, attn_mask=None if mask is None else ~mask)


# --- the model ----------------------------------------------------------------------


class Model(nn.Module):
    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__()
        self.word = nn.Embedding(vocabulary, embed_dim)
        self.place = nn.Embedding(context, embed_dim)
        self.blocks = nn.ModuleList(
            [Usual(embed_dim, num_heads) for _ in range(num_layers)]
        )
        self.norm = nn.LayerNorm(embed_dim)
        self.output = nn.Linear(embed_dim, vocabulary, bias=False)
        self.output.weight = self.word.weight

    def forward(self, tokens):
        T = tokens.size(1)
        x = self.word(tokens) + self.place(torch.arange(T, device=tokens.device))
        mask = torch.tril(torch.ones(T, T)).bool()
        for block in self.blocks:
            x = block(x, mask)
        return self.output(self.norm(x))


class OtherWay(Model):
    """Tied from the output to the words; places and mask kept ready."""

    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        self.output = nn.Linear(embed_dim, vocabulary, bias=False)
        self.word.weight = self.output.weight
        self.place = nn.Parameter(torch.zeros(1, context, embed_dim))
        triangle = torch.arange(context)[:, None] >= torch.arange(context)
        self.register_buffer("mask", triangle)

    def forward(self, tokens):
        _, T = tokens.shape
        x = F.embedding(tokens, self.word.weight) + self.place[:, :T]
        for block in self.blocks:
            x = block(x, mask=self.mask[:T, :T])
        return self.output(self.norm(x))


class ByEinsum(Model):
    """Its output is multiplied by hand, by einsum; a mask of four axes."""

    def forward(self, tokens):
        B, T = tokens.shape
        places = self.place.weight[:T].expand(B, T, -1)
        x = torch.stack([self.word(tokens), places]).sum(0)
        mask = ~torch.ones(T, T, dtype=torch.bool).triu(1)[None]
        for n in range(len(self.blocks)):
            x = self.blocks[n](x, mask)
        return torch.einsum("bte,we->btw", self.norm(x), self.output.weight)


class OtherNames(Model):
    """Its blocks lie in a plain list, and are its parts under names of their own."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        blocks = [*self.blocks]
        del self.blocks
        self.blocks = blocks
        for number, block in enumerate(blocks):
            self.add_module(f"block_{number}", block)


class Given(Model):
    """Its mask is made by whoever makes it."""

    def __init__(self, *sizes, mask_of=lambda T, S: torch.ones(T, S).tril() > 0):
        super().__init__(*sizes)
        self.mask_of = mask_of

    def forward(self, tokens):
        T = tokens.shape[1]
        x = self.word(tokens) + self.place(torch.arange(T))
        for block in self.blocks:
            x = block(x, self.mask_of(T, T))
        return self.output(self.norm(x))


# --- a step -------------------------------------------------------------------------


def usual(model, optimizer, tokens, step, rate_of, clip):
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=clip)
    optimizer.step()
    return loss.item()


def by_hand(model, optimizer, tokens, step, rate_of, clip):
    """Gradients asked for, clipped by hand, and forgotten afterwards."""
    model.train()
    numbers = list(model.parameters())
    loss = plain(model(tokens[:, :-1]), tokens, padding=-1)
    grads = torch.autograd.grad(loss, numbers)
    norm = math.sqrt(sum(float(g.square().sum()) for g in grads))
    for x, g in zip(numbers, grads):
        x.grad = g * min(1.0, clip / (norm + 1e-6))
    for group in optimizer.param_groups:
        group["lr"] = float(rate_of(step))
    optimizer.step()
    for x in numbers:
        x.grad = None
    return float(loss)


def with_closure(model, optimizer, tokens, step, rate_of, clip):
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)

    def closure():
        optimizer.zero_grad()
        loss = nll(model(tokens[:, :-1]), tokens, -1)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        return loss

    return optimizer.step(closure).item()


# --- writing ------------------------------------------------------------------------


@torch.no_grad()
def writes(model, tokens, new, context, temperature=1.0, top_k=None):
    was = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            least = logits.topk(top_k).values[:, [-1]]
            logits[logits < least] = -float("inf")
        p = F.softmax(logits, dim=-1)
        tokens = torch.cat((tokens, torch.multinomial(p, num_samples=1)), dim=1)
    model.train(was)
    return tokens


@torch.inference_mode()
def by_gumbel(model, tokens, new, context, temperature=1.0, top_k=None):
    before = model.training
    model.train(False)
    for _ in range(new):
        read = tokens if tokens.shape[1] <= context else tokens[:, -context:]
        logits = model(read)[:, -1]
        if top_k:
            values, indices = logits.topk(top_k, dim=-1)
        else:
            values, indices = logits, torch.arange(logits.shape[1]).expand_as(logits)
        noise = -torch.log(-torch.log(torch.rand_like(values)))
        best = (values / temperature + noise).argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, indices.gather(1, best)], dim=-1)
    if before:
        model.train()
    return tokens


def by_distribution(model, tokens, new, context, temperature=1.0, top_k=None):
    mode, out = model.training, list(tokens.unbind(1))
    model.eval()
    with torch.no_grad():
        while len(out) < tokens.shape[1] + new:
            read = torch.stack(out[-context:], dim=1)
            p = (model(read)[:, -1] / temperature).softmax(-1)
            if top_k is not None:
                kept = torch.zeros_like(p).scatter(1, p.topk(top_k).indices, 1.0)
                p = p * kept
            out.append(torch.distributions.Categorical(probs=p).sample())
    model.train(mode)
    return torch.stack(out, 1)


def by_cumulated(model, tokens, new, context, temperature=1.0, top_k=None):
    """A table made beforehand, and one uniform number for each row."""
    B, T = tokens.shape
    text = tokens.new_zeros(B, T + new)
    text[:, :T] = tokens
    before = model.training
    model.eval()
    with torch.no_grad():
        for t in range(T, T + new):
            logits = model(text[:, max(0, t - context) : t])[:, -1]
            order = logits.argsort(-1, descending=True)
            p = (logits.gather(1, order) / temperature).softmax(-1)
            p[:, top_k or len(p[0]) :] = 0
            reached = p.cumsum(-1) / p.sum(-1, keepdim=True)
            drawn = (torch.rand(B, 1) > reached).sum(-1, keepdim=True)
            text[:, t] = order.gather(1, drawn.clamp(max=len(p[0]) - 1))[:, 0]
    model.train(before)
    return text


RIGHT = {
    "next_token_loss": [plain, flattened, nll, one_hot, in_loops, in_double, filled],
    "block": [Usual, Twice, ByHand, Fused],
    "language_model": [Model, OtherWay, ByEinsum, OtherNames, Given],
    "training_step": [usual, by_hand, with_closure],
    "generate": [writes, by_gumbel, by_distribution, by_cumulated],
}
