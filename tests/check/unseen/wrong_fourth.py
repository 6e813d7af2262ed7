"""The fourth round: what students write, and those who copy.

Boundary sizes, something kept between calls, numbers of few digits, flags of a default:
all wrong as the task is written, most of them right for a first look.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Attention, Plain, PlainModel, programs

WRONG, wrong = programs()
NEVER = float("-inf")


# --- attention ------------------------------------------------------------------------


@wrong("attention")
def attention_in_blocks_of_keys(q, k, v, mask=None):
    """Of 512 keys each; what was summed up before is not scaled to the new maximum."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, NEVER)
    total = top = 0.0
    for part, values in zip(scores.split(512, -1), v.split(512, -2)):
        largest = part.amax(-1, keepdim=True).clamp(min=-1e30)
        e = (part - largest).exp()
        total = total + e.sum(-1, keepdim=True)
        top = top + e @ values
    return top / total.clamp(min=1e-30)


@wrong("attention")
def attention_of_flat_views(q, k, v, mask=None):
    """A view of all leading axes as one: heads that were turned have none."""
    *lead, T, D = q.shape
    S = k.shape[-2]
    scores = q.view(-1, T, D) @ k.view(-1, S, D).mT / math.sqrt(D)
    if mask is not None:
        scores = scores.masked_fill(~mask.expand(*lead, T, S).reshape(-1, T, S), NEVER)
    weights = scores.softmax(-1)
    context = weights @ v.view(-1, S, v.shape[-1])
    return context.view(*lead, T, -1), weights.view(*lead, T, S)


@wrong("attention")
def attention_with_rounded_weights(q, k, v, mask=None):
    """Rounded for the eye, and returned so: they have no gradient any more."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
    if mask is not None:
        scores = scores.masked_fill(mask == 0, NEVER)
    weights = torch.softmax(scores, dim=-1)
    return weights @ v, weights.round(decimals=4)


@wrong("attention")
def attention_of_batched_masks(q, k, v, mask=None):
    """A mask of two axes is passed by."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None and mask.dim() > 2:
        scores = scores.masked_fill(~mask, NEVER)
    weights = scores.softmax(-1)
    return weights @ v, weights


KEPT = {}


@wrong("attention")
def attention_that_keeps_a_mask(q, k, v, mask=None):
    """The numbers to add are made once for each shape of a mask."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        if mask.shape not in KEPT:
            KEPT[mask.shape] = torch.zeros(mask.shape).masked_fill(~mask, NEVER)
        scores = scores + KEPT[mask.shape].to(scores)
    weights = scores.softmax(-1)
    return weights @ v, weights


@wrong("attention")
def attention_with_half_the_digits(q, k, v, mask=None):
    """The scores are computed in bfloat16, which is fast."""
    scores = (q.bfloat16() @ k.bfloat16().mT).to(q.dtype) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, NEVER)
    weights = scores.softmax(-1)
    return weights @ v, weights


@wrong("attention")
def attention_of_clamped_scores(q, k, v, mask=None):
    """No exponential is too large: every score above 50 counts as 50."""
    scores = (q @ k.mT / q.shape[-1] ** 0.5).clamp(-50, 50)
    if mask is not None:
        scores = scores.masked_fill(~mask, NEVER)
    e = scores.exp()
    weights = e / e.sum(-1, keepdim=True)
    return weights @ v, weights


# --- parts ----------------------------------------------------------------------------


@wrong("split_heads")
def split_by_strides(x, num_heads):
    """Right for what lies in one block of memory."""
    B, T, E = x.shape
    D = E // num_heads
    return x.as_strided((B, num_heads, T, D), (T * E, D, E, 1))


@wrong("split_heads")
def split_into_zeros(x, num_heads):
    """A new tensor, of torch's usual dtype."""
    B, T, E = x.shape
    D = E // num_heads
    out = torch.zeros(B, num_heads, T, D)
    for h in range(num_heads):
        out[:, h] = x[..., h * D : (h + 1) * D]
    return out


@wrong("merge_heads")
def merge_into_zeros(x):
    """The same of a merge."""
    B, H, T, D = x.shape
    out = torch.zeros(B, T, H * D)
    for h in range(H):
        out[..., h * D : (h + 1) * D] = x[:, h]
    return out


@wrong("merge_heads")
def merge_that_turns_its_input(x):
    """An underscore too many: the caller's tensor has other axes now."""
    return x.transpose_(1, 2).flatten(2)


BIG = torch.ones(2048, 2048, dtype=torch.bool).tril()


@wrong("causal_mask")
def causal_out_of_a_table(T, S):
    """A table of 2048 places, as a model has it."""
    return BIG[:T, :S]


TABLES = {}


@wrong("causal_mask")
def causal_kept_by_queries(T, S):
    """Kept for each T, whatever S was."""
    if T not in TABLES:
        TABLES[T] = torch.ones(T, S, dtype=torch.bool).tril()
    return TABLES[T][:, :S]


@wrong("padding_mask")
def padding_from_the_end(lengths, S):
    """Hides the last S - n; of a full sequence all, as -0 is 0."""
    mask = torch.ones(len(lengths), 1, S, dtype=torch.bool)
    for b, n in enumerate(lengths.tolist()):
        mask[b, 0, -(S - n) :] = False
    return mask


@wrong("padding_mask")
def padding_of_the_longest(lengths, S):
    """As wide as the longest sequence; filled up with True."""
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    return F.pad(mask, (0, S - mask.shape[1]), value=True)[:, None]


@wrong("combine_masks")
def combine_that_hides_queries(causal, padding):
    """Where T = S, queries that are padding see nothing, either."""
    both = causal & padding
    if both.shape[1] == both.shape[2]:
        both = both & padding.mT
    return both


# --- layers ---------------------------------------------------------------------------


class Layer(Attention):
    """Right, in parts that others change."""

    def split(self, x):
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def projected(self, query, key, value):
        return self.q_proj(query), self.k_proj(key), self.v_proj(value)

    def attend(self, q, k, v, mask):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], NEVER)
        weights = scores.softmax(-1)
        return weights @ v, weights

    def forward(self, query, key, value, mask=None):
        q, k, v = map(self.split, self.projected(query, key, value))
        context, weights = self.attend(q, k, v, mask)
        return self.out_proj(context.transpose(1, 2).flatten(2)), weights


@wrong("mha")
class LayerThatRemembersTokens(Layer):
    """One token alone is taken for the next one of a text that is being written."""

    past = None

    def projected(self, query, key, value):
        q, k, v = super().projected(query, key, value)
        if query.shape[1] == key.shape[1] == 1 and not self.training:
            if self.past is not None and self.past[0].shape[0] == k.shape[0]:
                k, v = (torch.cat(x, 1) for x in zip(self.past, (k, v)))
            self.past = k.detach(), v.detach()
        return q, k, v


@wrong("mha")
class LayerOfFewDigits(Layer):
    """Under autocast, as on a large card."""

    def forward(self, query, key, value, mask=None):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, weights = super().forward(query, key, value, mask)
        return output.to(query.dtype), weights.to(query.dtype)


@wrong("mha")
class LayerThatDropsHiddenKeys(Layer):
    """Keys that nobody may see are cut off first, and their columns are gone."""

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            seen = mask.flatten(0, 1).any(0)
            key, value, mask = key[:, seen], value[:, seen], mask[..., seen]
        return super().forward(query, key, value, mask)


@wrong("mha")
class LayerThatTrustsOneTensor(Layer):
    """Where queries are keys it takes them for the values, too."""

    def projected(self, query, key, value):
        return super().projected(query, key, query if query is key else value)


@wrong("mha")
class LayerInBlocksOfQueries(Layer):
    """128 queries at a time; each block gets the mask of the first."""

    def attend(self, q, k, v, mask):
        parts = []
        for n in range(0, q.shape[2], 128):
            some = q[:, :, n : n + 128]
            rows = None if mask is None else mask[:, : some.shape[2]]
            parts.append(super().attend(some, k, v, rows))
        contexts, weights = zip(*parts)
        return torch.cat(contexts, 2), torch.cat(weights, 2)


@wrong("mha")
class LayerThatKnowsItsKeys(Layer):
    """Keys and values of a text that it has met are not projected again."""

    met = kept = None

    def projected(self, query, key, value):
        if key is not self.met:
            self.met, self.kept = key, super().projected(query, key, value)[1:]
        return self.q_proj(query), *self.kept


@wrong("mha")
class LayerThatAlwaysDrops(Layer):
    """F.dropout drops in evaluation, too, unless it is told."""

    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__(embed_dim, num_heads)
        self.dropout = dropout

    def attend(self, q, k, v, mask):
        _, weights = super().attend(q, k, v, mask)
        return F.dropout(weights, self.dropout) @ v, weights


@wrong("mha")
class LayerOfSinglePrecision(Layer):
    """Whatever came, the answer is a float32."""

    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return output.float(), weights.float()


@wrong("mha")
class LayerWhoseKeysDoNotLearn(Layer):
    """The numbers of k_proj are read past the graph."""

    def projected(self, query, key, value):
        k = F.linear(key, self.k_proj.weight.data, self.k_proj.bias.data)
        return self.q_proj(query), k, self.v_proj(value)


@wrong("mha_sequence_first")
class LayerThatGuessesTheOrder(Layer):
    """The longer of the two axes is taken for the text."""

    def forward(self, query, key, value, mask=None):
        if query.shape[0] >= query.shape[1]:  # sequence first
            query, key, value = (x.transpose(0, 1) for x in (query, key, value))
            mask = None if mask is None else mask.permute(2, 0, 1)
            output, weights = super().forward(query, key, value, mask)
            return output.transpose(0, 1), weights
        return super().forward(query, key, value, mask)


@wrong("mha_sequence_first")
class LayerThatSqueezes(Layer):
    """A batch of one loses its axis in the weights."""

    def forward(self, query, key, value, mask=None):
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        mask = None if mask is None else mask.permute(2, 0, 1)
        output, weights = super().forward(query, key, value, mask)
        return output.transpose(0, 1), weights.squeeze(0)


@wrong("split_concat")
def split_concat_with_query_masks(queries, keys, weights, num_heads, causality=False):
    """As the code of 2017 has it: padded queries get nothing, either."""
    q, k, v = (
        F.linear(x, weights[f"W_{r}"], weights[f"b_{r}"]).relu()
        for r, x in zip("qkv", (queries, keys, keys))
    )
    B, T, E = q.shape
    q, k, v = (torch.cat(x.split(E // num_heads, -1), 0) for x in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    real = (keys != 0).any(-1).repeat(num_heads, 1)[:, None]
    scores = scores.masked_fill(~real, -(2.0**32) + 1)
    if causality:
        later = torch.ones(T, keys.shape[1], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(later, -(2.0**32) + 1)
    w = scores.softmax(-1) * (queries != 0).any(-1).repeat(num_heads, 1)[..., None]
    merged = torch.cat((w @ v).split(B, 0), -1)
    return F.linear(merged, weights["W_o"], weights["b_o"])


# --- a language model -----------------------------------------------------------------


@wrong("next_token_loss")
def loss_without_what_costs_nothing(logits, tokens, padding=0):
    """Padding costs 0, so zeros are left out: also those of a model that is sure."""
    costs = F.cross_entropy(
        logits.mT, tokens[:, 1:], ignore_index=padding, reduction="none"
    )
    return costs[costs != 0].mean()


@wrong("next_token_loss")
def loss_that_writes_into_tokens(logits, tokens, padding=0):
    """A slice is no copy."""
    targets = tokens[:, 1:]
    targets[targets == padding] = -100
    return F.cross_entropy(logits.mT, targets)


@wrong("next_token_loss")
def loss_where_0_is_false(logits, tokens, padding=0):
    """`if padding` is no when padding is word 0."""
    ignored = padding if padding else -100
    return F.cross_entropy(logits.mT, tokens[:, 1:], ignore_index=ignored)


@wrong("next_token_loss")
def loss_where_something_was_read(logits, tokens, padding=0):
    """Places whose own word is padding do not count; the next one should not."""
    costs = F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
    return costs[tokens[:, :-1] != padding].mean()


@wrong("block")
class BlockOfGPT2(Plain):
    """The GELU of GPT-2, which is one by tanh."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.mlp[1] = nn.GELU(approximate="tanh")


@wrong("block")
class BlockInPlace(Plain):
    """`+=` writes into what the caller has."""

    def forward(self, x, mask):
        h = self.norm1(x)
        x += self.attention(h, h, h, mask)[0]
        x += self.mlp(self.norm2(x))
        return x


@wrong("block")
class BlockThatDrops(Plain):
    """A tenth of what is added is dropped in training, and nobody asked."""

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + F.dropout(self.attention(h, h, h, mask)[0], 0.1, self.training)
        return x + F.dropout(self.mlp(self.norm2(x)), 0.1, self.training)


@wrong("block")
class BlockWithoutBiases(Plain):
    """As newer models have it."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.mlp = nn.Sequential(
            nn.Linear(embed_dim, 4 * embed_dim, bias=False),
            nn.GELU(),
            nn.Linear(4 * embed_dim, embed_dim, bias=False),
        )


@wrong("language_model")
class ModelThatKeepsItsMask(PlainModel):
    """Made at the first call, for the T of that call."""

    kept = None

    def mask(self, T):
        if self.kept is None:
            self.kept = super().mask(T)
        return self.kept


@wrong("language_model")
class ModelWithAMaskOfNumbers(PlainModel):
    """Ones and zeros: `~` of them is an error, and as an index they are places."""

    def mask(self, T):
        return torch.ones(T, T).tril()


@wrong("language_model")
class ModelThatKeepsItsPlaces(PlainModel):
    """The places of the first text are those of all."""

    places = None

    def embed(self, tokens):
        if self.places is None:
            self.places = torch.arange(tokens.shape[1])
        return self.word(tokens) + self.place(self.places)


@wrong("language_model")
class ModelTiedByItsNumbers(PlainModel):
    """One memory and two parameters: each gets half of the gradient."""

    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.output.weight = nn.Parameter(self.word.weight.data)


@wrong("language_model")
class ModelThatSavesTime(PlainModel):
    """In evaluation the logits of the last place are all that a writer needs."""

    def forward(self, tokens):
        logits = super().forward(tokens)
        return logits if self.training else logits[:, -1:]


def stepped(model, optimizer, tokens, step, rate_of, clip, norm=2.0):
    """A step as it is asked for; the loss as a tensor."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip, norm)
    optimizer.step()
    return loss


@wrong("training_step")
def step_that_rounds(model, optimizer, tokens, step, rate_of, clip):
    """Two digits are enough for a log."""
    return round(stepped(model, optimizer, tokens, step, rate_of, clip).item(), 2)


@wrong("training_step")
def step_that_clips_one_group(model, optimizer, tokens, step, rate_of, clip):
    """The gradients of the first group alone."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], clip)
    optimizer.step()
    return loss.item()


@wrong("training_step")
def step_by_the_largest_slope(model, optimizer, tokens, step, rate_of, clip):
    """Another norm: the largest number is clipped."""
    return stepped(model, optimizer, tokens, step, rate_of, clip, math.inf).item()


@wrong("training_step")
def step_that_keeps_the_first_rate(model, optimizer, tokens, step, rate_of, clip):
    """At step 0 the optimizer has its rate already."""
    return stepped(
        model,
        optimizer,
        tokens,
        step,
        rate_of if step else lambda _: optimizer.param_groups[0]["lr"],
        clip,
    ).item()


def drawn(model, tokens, new, context, temperature=1.0, top_k=None):
    """Each new word of a writer that is right."""
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            edge = logits.topk(top_k).values[:, -1:]
            logits = logits.masked_fill(logits < edge, NEVER)
        new_one = torch.multinomial(logits.softmax(-1), 1)
        tokens = torch.cat([tokens, new_one], dim=1)
        yield new_one


@wrong("generate")
@torch.no_grad()
def text_that_ends_at_an_edge(model, tokens, new, context, temperature=1.0, top_k=None):
    """Where all rows have come to word 1, nothing more is written."""
    before = model.training
    model.eval()
    for new_one in drawn(model, tokens, new, context, temperature, top_k):
        tokens = torch.cat([tokens, new_one], dim=1)
        if (new_one == 1).all():
            break
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_of_one_word_at_least(model, tokens, new, context, temperature=1.0, top_k=None):
    """Nothing to write is an error."""
    before = model.training
    model.eval()
    words = list(drawn(model, tokens, new, context, temperature, top_k))
    model.train(before)
    return torch.cat([tokens, torch.cat(words, dim=1)], dim=1)


@wrong("generate")
@torch.no_grad()
def text_of_more_than_the_likeliest(
    model, tokens, new, context, temperature=1.0, top_k=None
):
    """With top_k = 1 it draws from all."""
    before = model.training
    model.eval()
    top_k = None if top_k == 1 else top_k
    for new_one in drawn(model, tokens, new, context, temperature, top_k):
        tokens = torch.cat([tokens, new_one], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_whose_window_grows(model, tokens, new, context, temperature=1.0, top_k=None):
    """The prompt is cut to the context, and then never again."""
    before = model.training
    model.eval()
    window, n = tokens[:, -context:], tokens.shape[1]
    for new_one in drawn(model, window, new, n + new, temperature, top_k):
        tokens = torch.cat([tokens, new_one], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_of_the_edge_alone(model, tokens, new, context, temperature=1.0, top_k=None):
    """The k-th logit of the first row is the edge for all rows."""
    before = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            edge = logits.topk(top_k).values[0, -1]
            logits = logits.masked_fill(logits < edge, NEVER)
        p = logits.softmax(-1).nan_to_num(1.0)
        tokens = torch.cat([tokens, torch.multinomial(p, 1)], dim=1)
    model.train(before)
    return tokens
