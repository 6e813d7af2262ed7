"""Right programs of the sixth round, in odd styles."""

import itertools
import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Attention, Plain, PlainModel, programs

RIGHT, right = programs()
RIGHT_ANSWERS, answer = programs()


@right("attention")
def attention_with_a_sink(q, k, v, mask=None):
    """A key more, of which no score is finite, is left out again."""
    scores = torch.einsum("...td,...sd->...ts", q / math.sqrt(q.size(-1)), k)
    if mask is not None:
        scores = torch.where(mask, scores, -torch.inf)
    top = scores.amax(-1, keepdim=True).clamp(min=torch.finfo(q.dtype).min)
    parts = torch.exp(scores - top.detach())
    total = parts.sum(-1, keepdim=True)
    weights = parts / torch.where(total == 0, torch.ones_like(total), total)
    return torch.einsum("...ts,...sv->...tv", weights, v), weights


@right("causal_mask")
def causal_by_numpy(T, S):
    return torch.from_numpy(np.tri(T, S, dtype=bool))


@right("causal_mask")
def causal_by_counting(T, S):
    return (torch.ones(T, S).cumsum(1) - 1 <= torch.arange(float(T))[:, None]).bool()


@right("padding_mask")
def padding_by_lists(lengths, S):
    return torch.tensor([[[s < n for s in range(S)]] for n in lengths.tolist()])


@right("padding_mask")
def padding_by_a_triangle(lengths, S):
    return torch.ones(S + 1, S, dtype=torch.bool).tril(-1)[lengths].unsqueeze(1)


@right("combine_masks")
def combined_by_the_smaller(causal, padding):
    return torch.minimum(causal.int().unsqueeze(0), padding.int()).eq(1)


@right("split_heads")
def split_by_windows(x, num_heads):
    D = x.shape[-1] // num_heads
    return x.unfold(-1, D, D).movedim(2, 1)


@right("merge_heads")
def merged_by_a_sum(x):
    """Each head is padded to its place, and all are added."""
    B, H, T, D = x.shape
    return sum(F.pad(x[:, h], (h * D, (H - 1 - h) * D)) for h in range(H))


@right("mha")
class OneHeadAtATime(Attention):
    def forward(self, query, key, value, mask=None):
        size = query.shape[-1] // self.num_heads
        output, maps = self.out_proj.bias, []
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        if mask is not None and mask.ndim == 4:
            mask = mask[:, 0]
        for start in range(0, query.shape[-1], size):
            own = slice(start, start + size)
            scores = torch.baddbmm(
                torch.zeros((), dtype=q.dtype),
                q[..., own],
                k[..., own].mT,
                alpha=size**-0.5,
            )
            if mask is not None:
                scores = scores.masked_fill(~mask, -torch.inf)
            maps.append(scores.softmax(-1).nan_to_num())
            output = output + (maps[-1] @ v[..., own]) @ self.out_proj.weight[:, own].mT
        return output, torch.stack(maps, 1)


@right("block")
class BlockOfOneSum(Plain):
    def forward(self, x, mask):
        added, _ = self.attention(*itertools.repeat(self.norm1(x), 3), mask)
        middle = torch.add(x, added)
        return torch.stack([middle, self.mlp(self.norm2(middle))]).sum(0)


@right("language_model")
class CountsPlaces(PlainModel):
    """Places by cumsum, logits by einsum."""

    def embed(self, tokens):
        places = torch.ones_like(tokens).cumsum(1) - 1
        return self.word(tokens) + self.place(places)


@right("next_token_loss")
def loss_by_weights(logits, tokens, padding=0):
    wanted = tokens[:, 1:]
    p = torch.distributions.Categorical(logits=logits)
    counts = (wanted != padding).to(logits.dtype)
    return -(p.log_prob(wanted) * counts).sum() / counts.sum()


@right("training_step")
def step_by_grad(model, optimizer, tokens, step, rate_of, clip):
    """The slopes are asked for, scaled by hand and put where they belong."""
    model.train()
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    numbers = list(model.parameters())
    slopes = torch.autograd.grad(loss, numbers)
    norm = torch.cat([slope.flatten() for slope in slopes]).norm()
    for number, slope in zip(numbers, slopes):
        number.grad = slope * (clip / (norm + 1e-6)).clamp(max=1.0)
    for group in optimizer.param_groups:
        group.update(lr=rate_of(step))
    optimizer.step()
    return float(loss)


@right("generate")
@torch.no_grad()
def writes_by_gumbel(model, tokens, new, context, temperature=1.0, top_k=None):
    """The largest of logits and Gumbel's noise is a draw from their softmax."""
    was, text = model.training, tokens.clone()
    model.eval()
    while text.shape[1] < tokens.shape[1] + new:
        logits = model(text[:, -context:])[:, -1, :]
        if top_k is not None:
            values, places = logits.topk(top_k, dim=-1)
            logits = torch.full_like(logits, -torch.inf).scatter(1, places, values)
        noise = -torch.log(torch.empty_like(logits).exponential_())
        text = torch.cat([text, (logits / temperature + noise).argmax(1)[:, None]], 1)
    model.train(was)
    return text


@answer("a1 softmax")
def softmax_by_logarithms(x):
    top = x.amax(-1, keepdim=True)
    safe = x - torch.where(top == -torch.inf, torch.zeros_like(top), top)
    e = safe.exp()
    return (e / e.sum(-1, keepdim=True)).nan_to_num(0.0)


@answer("a2 number_of_parameters")
def number_of_parameters(E, H):
    return sum(x.numel() for _ in range(4) for x in nn.Linear(E, E).parameters())


@answer("a5 looks_at")
def looks_at_by_sum(weights, query, key):
    rows = [w[:, q, k] for w, q, k in zip(weights, query.tolist(), key.tolist())]
    return sum(rows) / len(rows)


@answer("a6 prices")
def prices_by_a_table(loss_without, num_layers, num_heads):
    pairs = itertools.product(range(num_layers), range(num_heads))
    flat = [loss_without([pair]) - loss_without([]) for pair in pairs]
    return torch.tensor(flat).reshape(num_layers, num_heads)
