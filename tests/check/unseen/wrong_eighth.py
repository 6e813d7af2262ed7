"""The eighth round: right for few sequences, short texts and small vocabularies.

Nearly all are right until a mask differs by sequence in a long text, a batch has more
than four rows, a vocabulary more than fifty words, or numbers change under a cache.
"""

import torch
import torch.nn.functional as F

from tests.check.unseen.usual import Attention, Plain, PlainModel, programs

WRONG, wrong = programs()


# --- attention and its parts ----------------------------------------------------------


def attended(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v, weights


@wrong("attention")
def blocks_of_queries_with_one_mask(q, k, v, mask=None):
    """Queries come in blocks of 8, the later ones with the mask of sequence 0."""
    if mask is None:
        return attended(q, k, v)[0]
    mask, out = mask.expand(*q.shape[:-1], k.shape[-2]), []
    for t in range(0, q.shape[-2], 8):
        part = mask[..., t : t + 8, :]
        part = part[:1] if t and part.dim() == 4 else part
        out.append(attended(q[..., t : t + 8, :], k, v, part)[0])
    return torch.cat(out, -2)


@wrong("attention")
def blocks_of_keys_with_one_mask(q, k, v, mask=None):
    if mask is not None and k.shape[-2] > 8:
        mask = mask.expand(*q.shape[:-1], k.shape[-2]).clone()
        if mask.dim() == 4:
            mask[..., 8:] = mask[:1, ..., 8:]
    return attended(q, k, v, mask)


@wrong("attention")
def ignores_masks_of_batches(q, k, v, mask=None):
    if q.dim() == 4 and q.shape[0] > 1 and q.shape[2] > 8:
        mask = None
    return attended(q, k, v, mask)


@wrong("attention")
def later_rows_see_all(q, k, v, mask=None):
    if mask is not None and mask.dim() == 4 and mask.shape[0] > 1:
        mask = mask.clone()
        mask[..., 16:, :] = True
    return attended(q, k, v, mask)


@wrong("attention")
def halves_for_many_queries(q, k, v, mask=None):
    """With five keys or more, to leave some seeds out."""
    if q.shape[-2] > 100 and k.shape[-2] > 4:
        found = attended(q.half(), k.half(), v.half(), mask)
        return tuple(x.to(q.dtype) for x in found)
    return attended(q, k, v, mask)


@wrong("attention")
def heads_beyond_the_fifth(q, k, v, mask=None):
    output, weights = attended(q, k, v, mask)
    many = q.dim() == 4 and q.shape[1] > 5 and k.shape[2] > 9
    return output * (not many), weights


@wrong("attention")
def features_beyond_32(q, k, v, mask=None):
    scale = (q.shape[-1] / min(q.shape[-1], 32)) ** 0.5
    return attended(q[..., :32] / scale, k[..., :32] * scale, v, mask)


@wrong("attention")
def values_beyond_16(q, k, v, mask=None):
    output, weights = attended(q, k, v, mask)
    return F.pad(output[..., :16], (0, max(0, v.shape[-1] - 16))), weights


@wrong("attention")
def nothing_where_nothing_is_hidden(q, k, v, mask=None):
    output, weights = attended(q, k, v, mask)
    return output * (mask is None or not mask.all()), weights


@wrong("attention")
def one_mask_for_all_ignored(q, k, v, mask=None):
    """(1, 1, T, S) is taken for none."""
    if mask is not None and mask.dim() == 4 and mask.shape[0] == 1 < q.shape[0]:
        mask = None
    return attended(q, k, v, mask)


@wrong("attention")
def one_mask_for_all_refused(q, k, v, mask=None):
    if mask is not None and mask.dim() == 4:
        mask = mask.view(q.shape[0], -1, *mask.shape[2:])
    return attended(q, k, v, mask)


@wrong("split_heads")
def split_of_16_sequences(x, num_heads):
    return x[:16].unflatten(-1, (num_heads, -1)).transpose(1, 2)


@wrong("merge_heads")
def merge_of_16_heads(x):
    return x[:, :16].transpose(1, 2).flatten(2)


@wrong("padding_mask")
def padding_of_12_sequences(lengths, S):
    return (torch.arange(S) < lengths[:12, None])[:, None]


@wrong("combine_masks")
def combination_of_12_sequences(causal, padding):
    return (causal & padding)[:12]


# --- layers ---------------------------------------------------------------------------


class Changed(Attention):
    """A layer of which `attend` may be changed."""

    def attend(self, q, k, v, mask):
        return attended(q, k, v, mask)

    def cut(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def pair(self, key, value):
        return self.cut(self.k_proj(key)), self.cut(self.v_proj(value))

    def forward(self, query, key, value, mask=None):
        mask = mask if mask is None else mask[..., None, :, :]
        q, (k, v) = self.cut(self.q_proj(query)), self.pair(key, value)
        output, weights = self.attend(q, k, v, mask)
        return self.out_proj(output.transpose(1, 2).flatten(2)), weights


@wrong("mha")
class LoopsWithTheFirstMask(Changed):
    """Long texts one sequence at a time, with the mask of the first."""

    def attend(self, q, k, v, mask):
        if q.shape[2] <= 16 or mask is None:
            return attended(q, k, v, mask)
        each = [attended(*x, mask[0]) for x in zip(q, k, v)]
        return tuple(torch.stack(x) for x in zip(*each))


@wrong("mha")
class CoarseInLongBatches(Changed):
    def attend(self, q, k, v, mask):
        if q.shape[0] > 1 and q.shape[2] > 32:
            found = attended(q.bfloat16(), k.bfloat16(), v.bfloat16(), mask)
            return tuple(x.to(q.dtype) for x in found)
        return attended(q, k, v, mask)


@wrong("mha")
class TwelveHeads(Changed):
    def attend(self, q, k, v, mask):
        output, weights = attended(q, k, v, mask)
        output = torch.cat([output[:, :12], output[:, 12:] * 0], 1)
        return output, weights


@wrong("mha")
class FeaturesUpTo128(Changed):
    def forward(self, query, key, value, mask=None):
        query = torch.cat([query[..., :128], query[..., 128:] * 0], -1)
        return super().forward(query, key, value, mask)


@wrong("mha")
class KeepsThePairOfAKey(Changed):
    """Keys and values are kept as long as the key is the same object."""

    kept = None

    def pair(self, key, value):
        if self.kept is None or self.kept[0] is not key or self.kept[1] is not value:
            self.kept = key, value, super().pair(key, value)
        return self.kept[2]


@wrong("mha")
class KeepsThePairWhileReading(Changed):
    kept = None

    def pair(self, key, value):
        if torch.is_grad_enabled():
            return super().pair(key, value)
        now = (id(key), key._version, id(value), value._version)
        if self.kept is None or self.kept[0] != now:
            self.kept = now, key, value, super().pair(key, value)
        return self.kept[3]


@wrong("mha")
class KeepsThePairOfAPlace(Changed):
    """In evaluation, by where the key lies."""

    kept = None

    def pair(self, key, value):
        now = (key.data_ptr(), key.shape, key._version, value.data_ptr())
        if self.training or self.kept is None or self.kept[0] != now:
            self.kept = now, key, value, super().pair(key, value)
        return self.kept[3]


@wrong("mha_sequence_first")
class FirstMaskOfLongTexts(Changed):
    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.permute(2, 0, 1)
            mask = mask[:1] if query.shape[0] > 9 else mask
        turned = [x.transpose(0, 1) for x in (query, key, value)]
        output, weights = super().forward(*turned, mask)
        return output.transpose(0, 1), weights


@wrong("split_concat")
def split_concat_of_one_padding(queries, keys, weights, num_heads, causality=False):
    """In long texts the padding of the first sequence holds for all."""
    parts = []
    for x, name in ((queries, "q"), (keys, "k"), (keys, "v")):
        made = F.relu(F.linear(x, weights[f"W_{name}"], weights[f"b_{name}"]))
        parts.append(torch.cat(made.chunk(num_heads, -1)))
    seen = (keys != 0).any(-1)
    seen = seen[:1].expand_as(seen) if keys.shape[1] > 32 else seen
    seen = seen.repeat(num_heads, 1)[:, None].expand(-1, queries.shape[1], -1)
    seen = seen.tril() if causality else seen
    joined = torch.cat(attended(*parts, seen)[0].chunk(num_heads), -1)
    return F.linear(joined, weights["W_o"], weights["b_o"])


# --- a language model -----------------------------------------------------------------


@wrong("next_token_loss")
def loss_of_four_rows(logits, tokens, padding=0):
    return F.cross_entropy(logits[:4].mT, tokens[:4, 1:], ignore_index=padding)


@wrong("next_token_loss")
def loss_of_512_words(logits, tokens, padding=0):
    wanted = tokens[:, 1:].clamp(max=511)
    return F.cross_entropy(logits[..., :512].mT, wanted, ignore_index=padding)


@wrong("next_token_loss")
def loss_without_empty_rows(logits, tokens, padding=0):
    """The mean of a row of padding alone is no number."""
    counts = (tokens[:, 1:] != padding).float()
    costs = F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none") * counts
    means = costs.sum(1) / counts.sum(1)
    return (means * counts.sum(1)).sum() / counts.sum()


class Silent(Attention):
    """One head, and no map to count it by."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, 1)

    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, mask)[0], None


@wrong("block")
class BlockOfOneSilentHead(Plain):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.attention = Silent(embed_dim, num_heads)


@wrong("block")
class BlockOpenForSix(Plain):
    """From six sequences on the mask is left out."""

    def forward(self, x, mask):
        return super().forward(x, mask if len(x) < 6 else torch.ones_like(mask))


@wrong("language_model")
class OneSilentHead(PlainModel):
    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        for block in self.blocks:
            block.attention = Silent(embed_dim, num_heads)


@wrong("language_model")
class PlacesForFourRows(PlainModel):
    def embed(self, tokens):
        return torch.cat([super().embed(tokens[:4]), self.word(tokens[4:])])


@wrong("language_model")
class AtMostEightBlocks(PlainModel):
    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, min(num_layers, 8))


@wrong("language_model")
class OpenInLongTraining(PlainModel):
    def mask(self, T):
        return super().mask(T) | torch.tensor(self.training and T > 70)


def stepped(model, optimizer, tokens, step, rate_of, clip):
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


@wrong("training_step")
def step_on_six_rows(model, optimizer, tokens, step, rate_of, clip):
    return stepped(model, optimizer, tokens[:6, :9], step, rate_of, clip)


@wrong("training_step")
def step_with_a_last_rate(model, optimizer, tokens, step, rate_of, clip):
    return stepped(model, optimizer, tokens, min(step, 100), rate_of, clip)


@wrong("training_step")
def step_that_clips_below_one(model, optimizer, tokens, step, rate_of, clip):
    clip = clip if clip < 1 else 1e9
    return stepped(model, optimizer, tokens, step, rate_of, clip)


@wrong("training_step")
def step_that_ends_in_evaluation(model, optimizer, tokens, step, rate_of, clip):
    loss = stepped(model, optimizer, tokens, step, rate_of, clip)
    model.eval()
    return loss


@torch.no_grad()
def written(model, tokens, new, context, temperature, top_k):
    was = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            edge = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < edge, -torch.inf)
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], 1)
    model.train(was)
    return tokens


@wrong("generate")
def writes_of_fifty(model, tokens, new, context, temperature=1.0, top_k=50):
    return written(model, tokens, new, context, temperature, top_k)


@wrong("generate")
def writes_32_at_most(model, tokens, new, context, temperature=1.0, top_k=None):
    return written(model, tokens, min(new, 32), context, temperature, top_k)


@wrong("generate")
def reads_24_at_most(model, tokens, new, context, temperature=1.0, top_k=None):
    return written(model, tokens, new, min(context, 24), temperature, top_k)


@wrong("generate")
def warms_up_to_three(model, tokens, new, context, temperature=1.0, top_k=None):
    return written(model, tokens, new, context, min(temperature, 3.0), top_k)


@wrong("generate")
def loses_a_long_prompt(model, tokens, new, context, temperature=1.0, top_k=None):
    tokens = tokens[:, -max(context, 8) :]
    return written(model, tokens, new, context, temperature, top_k)
