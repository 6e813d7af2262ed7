"""Right programs of the fourth round, and right answers to the assignments."""

import functools
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.check.unseen.usual import Plain, PlainModel, programs
from tests.check.unseen.wrong_answers import (
    gradients,
    induction_score,
    loss_of,
    strings,
)
from tests.check.unseen.wrong_layers_copied import Layer
from tests.check.unseen.wrong_models_copied import drawn
from tests.check.unseen.wrong_parts_copied import NEVER

RIGHT, right = programs()
RIGHT_ANSWERS, right_answer = programs()


@right("attention")
def attention_by_ln_of_the_mask(q, k, v, mask=None):
    """ln 1 is 0 and ln 0 is -inf."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores + mask.to(q.dtype).log()
    weights = scores.softmax(-1).nan_to_num(0.0)
    return weights @ v, weights


@right("attention")
def attention_in_one_call(q, k, v, mask=None):
    """baddbmm, which adds, multiplies and scales."""
    *lead, T, D = q.shape
    S = k.shape[-2]
    bias = q.new_zeros(*lead, T, S)
    if mask is not None:
        bias = bias.masked_fill(~mask, NEVER)
    scores = torch.baddbmm(
        bias.reshape(-1, T, S),
        q.reshape(-1, T, D),
        k.reshape(-1, S, D).mT,
        alpha=D**-0.5,
    )
    weights = scores.softmax(-1).view(*lead, T, S)
    return weights @ v, weights


@right("attention")
def attention_that_saves_memory(q, k, v, mask=None):
    """Computed again on the way back."""

    def context(q, k, v):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, torch.finfo(q.dtype).min)
        return scores.softmax(-1) @ v

    return checkpoint(context, q, k, v, use_reentrant=False)


@right("causal_mask")
@functools.cache
def causal_kept(T, S):
    """Kept for each pair of sizes."""
    return torch.ones(T, S, dtype=torch.bool).tril()


@right("combine_masks")
def combine_by_einsum(causal, padding):
    """A product of ones and zeros."""
    return torch.einsum("ts,bus->bts", causal.float(), padding.float()) > 0


@right("mha")
class LayerThatFusesOneTensor(Layer):
    """One product where all three are one tensor, as torch's own layer does."""

    def projected(self, query, key, value):
        if query is key and key is value:
            layers = self.q_proj, self.k_proj, self.v_proj
            weight = torch.cat([x.weight for x in layers])
            bias = torch.cat([x.bias for x in layers])
            return F.linear(query, weight, bias).chunk(3, -1)
        return super().projected(query, key, value)


@right("mha")
class LayerInBlocks(Layer):
    """Two queries at a time, each with its rows of the mask."""

    def attend(self, q, k, v, mask):
        parts = []
        for n in range(0, q.shape[2], 2):
            rows = None if mask is None else mask[:, n : n + 2]
            parts.append(super().attend(q[:, :, n : n + 2], k, v, rows))
        contexts, weights = zip(*parts)
        return torch.cat(contexts, 2), torch.cat(weights, 2)


@right("block")
class BlockWithErf(Plain):
    """A GELU of one's own, by its formula."""

    class Gelu(nn.Module):
        def forward(self, x):
            return x * (1 + torch.erf(x / math.sqrt(2))) / 2

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.mlp[1] = self.Gelu()


@right("language_model")
class ModelWithMasksByLength(PlainModel):
    """Kept, one for each T."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.masks = {}

    def mask(self, T):
        if T not in self.masks:
            self.masks[T] = super().mask(T)
        return self.masks[T]


@right("training_step")
def step_by_closure(model, optimizer, tokens, step, rate_of, clip):
    """The optimizer asks for the loss itself."""

    def closure():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        return loss

    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    return float(optimizer.step(closure))


@right("generate")
@torch.inference_mode()
def text_into_one_tensor(model, tokens, new, context, temperature=1.0, top_k=None):
    """The room for all words is made first."""
    before = model.training
    model.eval()
    B, T = tokens.shape
    text = tokens.new_empty(B, T + new)
    text[:, :T] = tokens
    for n, word in enumerate(drawn(model, tokens, new, context, temperature, top_k)):
        text[:, T + n] = word[:, 0]
    model.train(before)
    return text


# --- the assignments ------------------------------------------------------------------


@right_answer("a1 softmax")
def softmax_by_logsumexp(x):
    """exp(x - ln Σ exp x), which torch has."""
    return (x - x.logsumexp(-1, keepdim=True)).exp().nan_to_num(0.0)


@right_answer("a1 influence")
def influence_by_jacobian(f, x):
    """torch's own."""
    return (torch.autograd.functional.jacobian(f, x) != 0).any(-1).any(1)


@right_answer("a1 influence")
def influence_by_random_sums(f, x):
    """A sum with random weights stands for an output."""
    weights = torch.rand(x.shape[-1]).to(x) + 0.5
    return (gradients(f, x, lambda row: row @ weights).abs() > 0).any(-1)


@right_answer("a2 touched")
def touched_by_two_texts(split, s, T=6, E=6, H=3):
    """Ones against zeros."""
    one, two = torch.zeros(2, 1, T, E)
    two[0, s] = 1
    return split(two, H)[0].sub(split(one, H)[0]).abs().amax(-1) > 0


@right_answer("a3 order_of")
@torch.no_grad()
def order_of_a_row_alone(f, embed_dim):
    """Whether the last row needs the first one."""
    x = torch.randn(5, 3, embed_dim)
    other = x.clone()
    other[0] = torch.randn(3, embed_dim)
    moved = (f(other)[1:] - f(x)[1:]).abs().amax() > 1e-6
    return "sequence first" if moved else "batch first"


@right_answer("a6 find_induction_head")
def finder_of_three_lengths(run, letters):
    """First the scores, then the price of each that is left."""
    left = {}
    for length in (5, 8, 11):
        tokens = strings(128, length, letters)
        whole = loss_of(run, tokens, length)
        maps = run(tokens[:, :-1])[1]
        for layer, weights in enumerate(maps):
            for head, score in enumerate(induction_score(weights, tokens[:, :-1])):
                silent = loss_of(lambda x, h=[(layer, head)]: run(x, h), tokens, length)
                good = score >= 0.4 and silent - whole >= 0.1
                score = float(score) if good else -1.0
                left[layer, head] = min(left.get((layer, head), 1.0), score)
    best = max(left, key=left.get)
    return best if left[best] > 0 else None
