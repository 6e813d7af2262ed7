"""The seventh round: right for most inputs, wrong at an edge that few examples have.

Rows that see one key, more queries than keys, axes of one size, two rows of a batch, a
tied pair of words, a second layer.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Attention, Plain, PlainModel, programs

WRONG, wrong = programs()
ANSWERS, answer = programs()


# --- attention and its parts ----------------------------------------------------------


def weighed(q, k, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    return weights if mask is None else weights.masked_fill(~mask, 0.0)


@wrong("attention")
def attention_to_two_at_least(q, k, v, mask=None):
    """A row that sees one key alone is taken for an empty one."""
    weights = weighed(q, k, mask)
    if mask is not None:
        weights = weights * (mask.sum(-1, keepdim=True) > 1)
    return weights @ v, weights


@wrong("attention")
def attention_that_trusts_open_rows(q, k, v, mask=None):
    """A mask with a row that sees all keys is taken for none."""
    if mask is not None and mask.all(-1).any():
        mask = None
    weights = weighed(q, k, mask)
    return weights @ v, weights


@wrong("attention")
def attention_in_a_window(q, k, v, mask=None):
    """In long texts a query sees the 48 keys before and behind it."""
    T, S = q.shape[-2], k.shape[-2]
    if min(T, S) > 48:
        near = (torch.arange(T)[:, None] - torch.arange(S)).abs() <= 48
        mask = near if mask is None else mask & near
    weights = weighed(q, k, mask)
    return weights @ v, weights


@wrong("attention")
def attention_with_one_maximum(q, k, v, mask=None):
    """The largest score of all rows is subtracted, so that quiet rows vanish."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    e = (scores - scores.max()).exp()
    if mask is not None:
        e = e * mask
    weights = e / e.sum(-1, keepdim=True).clamp(min=1e-30)
    return weights @ v, weights


@wrong("split_heads")
def split_that_looks_for_an_axis(x, num_heads):
    """The axis of the heads is the first of their size."""
    y = x.unflatten(-1, (num_heads, -1))
    return y.movedim(y.shape.index(num_heads), 1)


@wrong("merge_heads")
def merged_and_squeezed(x):
    """One token, or one feature, loses its axis."""
    return x.transpose(1, 2).flatten(2).squeeze(-1)


@wrong("causal_mask")
def causal_by_sums_of_a_diagonal(T, S):
    """Later queries than there are keys find nothing on the diagonal."""
    return torch.eye(T, S).flip(1).cumsum(1).flip(1).bool()


@functools.lru_cache
def places(area):
    return {}


@wrong("causal_mask")
def causal_kept_by_area(T, S):
    """A table of twelve places is kept: (3, 4), and then (4, 3) of the same numbers."""
    kept = places(T * S)
    made = (torch.arange(S) <= torch.arange(T)[:, None]).flatten()
    return kept.setdefault("mask", made).view(T, S)


@wrong("combine_masks")
def combined_without_empty_rows(causal, padding):
    """A query that would see nothing sees all."""
    both = causal & padding
    return both | ~both.any(-1, keepdim=True)


@wrong("padding_mask")
def padding_counted_in_half(lengths, S):
    """Places are halves, which know whole numbers up to 2,048."""
    return (torch.arange(S).half() < lengths.half()[:, None])[:, None]


PLACES = torch.arange(4_096)


@wrong("padding_mask")
def padding_of_a_table(lengths, S):
    """The places are kept, as many as a context is long."""
    return (PLACES[:S] < lengths[:, None])[:, None]


@wrong("causal_mask")
def causal_of_a_table(T, S):
    return PLACES[:S] <= PLACES[:T, None]


# --- layers ---------------------------------------------------------------------------


@wrong("mha")
class ScalesBeforeTheBias(Attention):
    """The product is scaled, the bias of q is not."""

    def forward(self, query, key, value, mask=None):
        scale = (query.shape[-1] // self.num_heads) ** -0.5
        q = query @ self.q_proj.weight.T * scale + self.q_proj.bias
        split = lambda x: x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # noqa: E731
        scores = split(q) @ split(self.k_proj(key)).mT
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        weights = scores.softmax(-1).nan_to_num()
        context = (weights @ split(self.v_proj(value))).transpose(1, 2).flatten(2)
        return self.out_proj(context), weights


@wrong("mha")
class HidesAlsoWhatIsZero(Attention):
    """Keys whose embedding is all zero are padding, whatever the mask says."""

    def forward(self, query, key, value, mask=None):
        there = (key != 0).any(-1)[:, None].expand(-1, query.shape[1], -1)
        both = there if mask is None else there & mask
        return super().forward(query, key, value, both)


@wrong("mha")
class KeepsWhatItReadWith(Attention):
    """Reading without gradients, it keeps the first weights of its values."""

    kept = None

    def forward(self, query, key, value, mask=None):
        if self.training or torch.is_grad_enabled():
            return super().forward(query, key, value, mask)
        if self.kept is None:
            self.kept = self.v_proj.weight.clone(), self.v_proj.bias.clone()
        now = self.v_proj.weight.data, self.v_proj.bias.data
        self.v_proj.weight.data, self.v_proj.bias.data = self.kept
        output = super().forward(query, key, value, mask)
        self.v_proj.weight.data, self.v_proj.bias.data = now
        return output


@wrong("mha_sequence_first")
class TurnsSquares(nn.Module):
    """A mask of as many queries as keys is turned once too often."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = Attention(embed_dim, num_heads)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.permute(2, 0, 1)
            mask = mask.mT if mask.shape[1] == mask.shape[2] else mask
        turned = [x.transpose(0, 1) for x in (query, key, value)]
        output, weights = self.inner(*turned, mask)
        return output.transpose(0, 1), weights


@wrong("split_concat")
def split_concat_by_sums(queries, keys, weights, num_heads, causality=False):
    """Padding is an embedding of which the features sum to zero."""

    def part(x, name):
        made = F.relu(F.linear(x, weights[f"W_{name}"], weights[f"b_{name}"]))
        return torch.cat(made.chunk(num_heads, -1))

    q, k, v = part(queries, "q"), part(keys, "k"), part(keys, "v")
    scores = q @ k.mT / q.shape[-1] ** 0.5
    seen = (keys.sum(-1) != 0).repeat(num_heads, 1)[:, None].expand_as(scores)
    seen = seen.tril() if causality else seen
    w = scores.masked_fill(~seen, -torch.inf).softmax(-1).nan_to_num()
    joined = torch.cat((w @ v).chunk(num_heads), -1)
    return F.linear(joined, weights["W_o"], weights["b_o"])


# --- a language model -----------------------------------------------------------------


@wrong("next_token_loss")
def loss_up_to_the_first_padding(logits, tokens, padding=0):
    """What stands behind a padding does not count, either."""
    wanted = tokens[:, 1:]
    counts = (wanted != padding).long().cumprod(1).bool()
    costs = F.cross_entropy(logits.mT, wanted, reduction="none")
    return costs[counts].mean()


@wrong("block")
class OneNormForBoth(Plain):
    """norm1 and norm2 are one object."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.norm2 = self.norm1


@wrong("block")
class SumsInPlace(Plain):
    """x += writes into what was given."""

    def forward(self, x, mask):
        h = self.norm1(x)
        with torch.no_grad():
            x += self.attention(h, h, h, mask)[0]
        return x + self.mlp(self.norm2(x))


@wrong("language_model")
class OneBlockManyTimes(PlainModel):
    """[block] * n holds one block n times."""

    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        self.blocks = nn.ModuleList([Plain(embed_dim, num_heads)] * num_layers)


@wrong("language_model")
class PlacesFromTheEnd(PlainModel):
    """The last token has the last place of the context."""

    def embed(self, tokens):
        context = self.place.num_embeddings
        return self.word(tokens) + self.place.weight[context - tokens.shape[1] :]


@wrong("training_step")
def step_that_clips_too_early(model, optimizer, tokens, step, rate_of, clip):
    """There is nothing to clip yet."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    logits = model(tokens[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    optimizer.zero_grad()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    loss.backward()
    optimizer.step()
    return loss.item()


@wrong("generate")
@torch.no_grad()
def writes_of_the_prompt_alone(
    model, tokens, new, context, temperature=1.0, top_k=None
):
    """What was written is not read again."""
    before, text = model.training, [tokens]
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            edge = logits.topk(top_k).values[:, -1:]
            logits = logits.masked_fill(logits < edge, -torch.inf)
        text.append(torch.multinomial(logits.softmax(-1), 1))
    model.train(before)
    return torch.cat(text, 1)


# --- answers to the assignments -------------------------------------------------------


@answer("a1 softmax")
def softmax_of_one_maximum(x):
    """The largest of all is subtracted."""
    e = (x - x.max().clamp(min=-1e30)).exp()
    return e / e.sum(-1, keepdim=True).clamp(min=1e-30)


@answer("a2 touched")
def touched_by_doubling(split, s, T=6, E=6, H=3):
    """Twice zero is zero: the first feature of the first token does not move."""
    x = torch.arange(float(T * E)).view(1, T, E)
    other = x.clone()
    other[:, s] *= 2
    return (split(other, H) != split(x, H)).any(dim=-1)[0]


@answer("a5 bigram")
def bigram_over_the_edge(tokens, size):
    """The last word of a text is followed by the first of the next one."""
    counts = torch.ones(size, size)
    flat = tokens.flatten().tolist()
    for before, after in zip(flat, flat[1:]):
        if after != 0:
            counts[before, after] += 1
    return (counts / counts.sum(dim=1, keepdim=True)).log()


@answer("a5 honest_loss")
@torch.no_grad()
def honest_mean_of_means(model, tokens):
    """A mean at each place, then the mean of these: late places count more."""
    costs = []
    for t in range(1, tokens.shape[1]):
        wanted = tokens[:, t]
        if (wanted != 0).any():
            last = model(tokens[:, :t])[:, -1]
            costs.append(F.cross_entropy(last, wanted, ignore_index=0))
    return torch.stack(costs).mean().item()


@answer("a6 induction_score")
def induction_by_texts(weights, tokens):
    """The mean of each text, then that of the texts."""
    equal = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)
    found = (weights * equal.roll(1, dims=-1)[:, None]).sum(-1).sum(-1)  # (B, H)
    return (found / equal.any(-1).sum(-1).clamp(min=1)[:, None]).mean(0)


@answer("a3 order_of")
@torch.no_grad()
def order_of_one_place(f, embed_dim):
    """Only the neighbour is looked at, which a causal layer may not move."""
    x = torch.randn(3, 4, embed_dim)
    other = x.clone()
    other[-1, -1] += 1.0
    moved = ((f(other) - f(x)).abs() > 1e-6).any(dim=-1)
    return "batch first" if moved[-1, 0] else "sequence first"
