"""Right programs of the seventh round: other powers, closures, parts of other kinds."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Attention, Plain, PlainModel, programs

RIGHT, right = programs()
RIGHT_ANSWERS, answer = programs()


@right("attention")
def attention_of_powers_of_two(q, k, v, mask=None):
    """The mean of a row is taken off, and 2 ** x stands for exp(x)."""
    scores = (q * q.shape[-1] ** -0.25) @ (k * q.shape[-1] ** -0.25).mT
    scores = (scores - scores.mean(-1, keepdim=True)) * 1.4426950408889634
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    lowest = torch.finfo(scores.dtype).min
    powers = torch.exp2(scores - scores.amax(-1, keepdim=True).clamp(min=lowest))
    total = powers.sum(-1, keepdim=True)
    weights = powers / total.masked_fill(total == 0, 1)
    return weights @ v, weights


@right("split_heads")
def split_by_a_table_of_places(x, num_heads):
    columns = torch.arange(x.shape[-1]).view(num_heads, -1)
    return x[:, :, columns].permute(0, 2, 1, 3)


@right("merge_heads")
def merged_by_unit_matrices(x):
    _, H, _, D = x.shape
    places = torch.eye(H * D, dtype=x.dtype).view(H, D, H * D)
    return torch.einsum("bhtd,hde->bte", x, places)


@right("causal_mask")
def causal_by_blocks(T, S):
    """Every row is ones, and then zeros."""
    rows = [[1] * min(t + 1, S) + [0] * (S - t - 1) for t in range(T)]
    return torch.tensor(rows) == 1


@right("padding_mask")
def padding_by_a_running_sum(lengths, S):
    ends = torch.zeros(len(lengths), S + 1, dtype=torch.long)
    ends.scatter_(1, lengths[:, None], 1)
    return ends.cumsum(1)[:, None, :-1] == 0


@right("combine_masks")
def combined_by_a_product(causal, padding):
    return torch.einsum("ts,bis->bts", causal.double(), padding.double()) > 0.5


@right("mha")
class PartsInADictionary(nn.Module):
    """Its layers lie in a ModuleDict; the heads are an axis of the batch."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.h = num_heads
        self.parts = nn.ModuleDict({x: nn.Linear(embed_dim, embed_dim) for x in "qkvo"})

    def forward(self, query, key, value, mask=None):
        B = len(query)
        q, k, v = (
            torch.cat(self.parts[name](x).chunk(self.h, -1), 0)
            for name, x in zip("qkv", (query, key, value))
        )
        scores = torch.bmm(q, k.mT).mul(q.shape[-1] ** -0.5)
        if mask is not None:
            scores = scores.masked_fill(mask.logical_not().repeat(self.h, 1, 1), -1e30)
        weights = scores.softmax(-1)
        if mask is not None:
            weights = weights * mask.repeat(self.h, 1, 1)
        heads = torch.bmm(weights, v).split(B)
        maps = weights.unflatten(0, (self.h, B)).transpose(0, 1)
        return self.parts["o"](torch.cat(heads, -1)), maps


@right("mha_sequence_first")
class BatchFirstInside(Attention):
    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = torch.einsum("tsb->bts", mask.byte()).bool()
        turned = (x.swapdims(0, 1) for x in (query, key, value))
        output, weights = super().forward(*turned, mask)
        return output.swapdims(0, 1), weights.nan_to_num()


@right("split_concat")
def split_concat_by_one_sum(queries, keys, weights, num_heads, causality=False):
    """No axis is joined: each head's part of the output is added."""
    W = {
        name: weights[f"W_{name}"].chunk(num_heads, int(name == "o")) for name in "qkvo"
    }
    b = {name: weights[f"b_{name}"].chunk(num_heads) for name in "qkv"}
    seen = keys.abs().amax(-1).gt(0)[:, None]
    if causality:
        t, s = torch.arange(queries.shape[1]), torch.arange(keys.shape[1])
        seen = seen & (s <= t[:, None])
    output = weights["b_o"]
    for h in range(num_heads):
        q, k, v = (
            F.linear(x, W[name][h], b[name][h]).clamp(min=0)
            for name, x in zip("qkv", (queries, keys, keys))
        )
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~seen, -torch.inf)
        output = output + F.linear(scores.softmax(-1).nan_to_num() @ v, W["o"][h])
    return output


@right("next_token_loss")
def loss_by_logsumexp(logits, tokens, padding=0):
    wanted = tokens[:, 1:].flatten()
    rows = logits.flatten(0, 1)[wanted != padding]
    of = wanted[wanted != padding]
    return (rows.logsumexp(1) - rows[torch.arange(len(of)), of]).mean()


class TwoLayers(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.wide = nn.Linear(embed_dim, 4 * embed_dim)
        self.back = nn.Linear(4 * embed_dim, embed_dim)

    def forward(self, x):
        return self.back(F.gelu(self.wide(x)))


@right("block")
class BlockInALoop(Plain):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.mlp = TwoLayers(embed_dim)

    def forward(self, x, mask):
        def attend(h):
            return self.attention(query=h, key=h, value=h, mask=mask)[0]

        for norm, part in ((self.norm1, attend), (self.norm2, self.mlp)):
            x = x + part(norm(x))
        return x


@right("language_model")
class KeepsItsTriangle(PlainModel):
    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        seen = torch.ones(context, context).tril().bool()
        self.register_buffer("seen", seen, persistent=False)

    def forward(self, tokens):
        T = tokens.size(1)
        x = F.embedding(tokens, self.word.weight) + self.place.weight[:T]
        for n in range(len(self.blocks)):
            x = self.blocks[n](x, self.seen[:T, :T])
        return F.linear(self.norm(x), self.output.weight)


@right("training_step")
def step_by_a_closure(model, optimizer, tokens, step, rate_of, clip):
    def slopes():
        optimizer.zero_grad(set_to_none=False)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(list(model.parameters()), clip)
        return loss

    model.train(True)
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    return optimizer.step(slopes).item()


@right("generate")
@torch.inference_mode()
def writes_by_powers(model, tokens, new, context, temperature=1.0, top_k=None):
    """p ** (1 / temperature) of the best in a sorted list, drawn by its running sum."""
    was = model.training
    model.eval()
    for _ in range(new):
        p = model(tokens[:, -context:])[:, -1].double().softmax(-1)
        p, words = p.sort(-1, descending=True)
        p = p[:, :top_k] ** (1 / temperature)
        ends = p.cumsum(-1) / p.sum(-1, keepdim=True)
        drawn = (torch.rand(len(p), 1, dtype=p.dtype) > ends).sum(-1, keepdim=True)
        tokens = torch.cat([tokens, words.gather(-1, drawn)], -1)
    model.train(was)
    return tokens


@answer("a5 bigram")
def bigram_by_numbers_of_pairs(tokens, size):
    pairs = torch.stack([tokens[:, :-1], tokens[:, 1:]]).flatten(1)
    pairs = pairs[:, pairs[1] != 0]
    counts = torch.bincount(pairs[0] * size + pairs[1], minlength=size**2)
    counts = counts.view(size, size) + 1.0
    return counts.log() - counts.sum(1, keepdim=True).log()


@answer("a2 reordered")
def reordered_by_pieces(mha, order):
    import copy

    new, H = copy.deepcopy(mha), mha.num_heads
    with torch.no_grad():
        for name in ("q_proj", "k_proj", "v_proj"):
            for old in ("weight", "bias"):
                pieces = getattr(getattr(mha, name), old).chunk(H)
                moved = torch.cat([pieces[h] for h in order])
                getattr(getattr(new, name), old).copy_(moved)
        pieces = mha.out_proj.weight.chunk(H, dim=1)
        new.out_proj.weight.copy_(torch.cat([pieces[h] for h in order], dim=1))
    return new
