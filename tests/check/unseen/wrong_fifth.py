"""The fifth round, of other things: what is folded, pruned, cut off or left behind."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Plain, PlainModel, programs
from tests.check.unseen.wrong_layers_copied import Layer
from tests.check.unseen.wrong_models_copied import drawn, stepped
from tests.check.unseen.wrong_parts_copied import NEVER

WRONG, wrong = programs()


# --- attention and its parts ----------------------------------------------------------


def attended(q, k, v, mask=None, change=lambda scores: scores, after=lambda w: w):
    """Attention of which scores or weights may be changed."""
    scores = change(q @ k.mT / q.shape[-1] ** 0.5)
    if mask is not None:
        scores = scores.masked_fill(~mask, NEVER)
    weights = after(scores.softmax(-1))
    return weights @ v, weights


@wrong("attention")
def attention_to_the_best(q, k, v, mask=None):
    """Of many keys the 256 with the highest scores count."""

    def best(scores):
        if scores.shape[-1] <= 256:
            return scores
        return scores.masked_fill(scores < scores.topk(256).values[..., -1:], NEVER)

    return attended(q, k, v, mask, best)


@wrong("attention")
def attention_without_crumbs(q, k, v, mask=None):
    """Weights below a thousandth are set to 0."""
    return attended(q, k, v, mask, after=lambda w: w.masked_fill(w < 1e-3, 0.0))


@wrong("attention")
def attention_that_opens_a_mask(q, k, v, mask=None):
    """Who sees nothing sees key 0, also in the caller's mask."""
    if mask is not None:
        mask[..., 0] |= ~mask.any(-1)
    return attended(q, k, v, mask)


@wrong("attention")
def attention_to_the_first(q, k, v, mask=None):
    """No text is longer than 512 tokens."""
    mask = mask if mask is None else mask[..., :512]
    return attended(q, k[..., :512, :], v[..., :512, :], mask)


@wrong("split_heads")
def split_into_heads_of_64(x, num_heads):
    """Heads are 64 wide, as in the paper, where the width allows it."""
    D = 64 if x.shape[-1] % 64 == 0 else x.shape[-1] // num_heads
    return x.unflatten(-1, (-1, D)).transpose(1, 2)


@wrong("padding_mask")
def padding_that_counts_down(lengths, S):
    """The caller's lengths are one less afterwards."""
    lengths -= 1
    return (torch.arange(S) <= lengths[:, None])[:, None]


@wrong("padding_mask")
def padding_of_bytes(lengths, S):
    """A length above 127 is negative in eight bits."""
    return (torch.arange(S) < lengths.to(torch.int8)[:, None])[:, None]


TABLE = [torch.ones(8, 8, dtype=torch.bool).tril()]


@wrong("causal_mask")
def causal_that_grows(T, S):
    """The table grows with T, and S may be longer."""
    if len(TABLE[0]) < T:
        TABLE[0] = torch.ones(T, T, dtype=torch.bool).tril()
    return TABLE[0][:T, :S]


# --- layers ---------------------------------------------------------------------------


@wrong("mha")
class LayerOfHeadsOf64(Layer):
    """The same of a layer."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        if embed_dim % 64 == 0:
            self.num_heads = embed_dim // 64


@wrong("mha")
class LayerInAList(nn.Module):
    """torch does not see what is in a list of Python."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.layer = [Layer(embed_dim, num_heads)]

    def forward(self, query, key, value, mask=None):
        return self.layer[0](query, key, value, mask)


@wrong("mha")
class LayerInBlocksOfSequences(Layer):
    """64 at a time; each block gets the masks of the first."""

    def forward(self, query, key, value, mask=None):
        parts = []
        for n in range(0, len(query), 64):
            some = [x[n : n + 64] for x in (query, key, value)]
            masks = None if mask is None else mask[: len(some[0])]
            parts.append(super().forward(*some, masks))
        outputs, weights = zip(*parts)
        return torch.cat(outputs), torch.cat(weights)


@wrong("mha")
class LayerOfAWindow(Layer):
    """A query sees 512 keys on each side."""

    def attend(self, q, k, v, mask):
        far = torch.arange(q.shape[2])[:, None] - torch.arange(k.shape[2])
        near = (far.abs() <= 512)[None]
        return super().attend(q, k, v, near if mask is None else mask & near)


@wrong("mha")
class LayerThatSwitchesOff(Layer):
    """In evaluation gradients are switched off, for everybody and for good."""

    def forward(self, query, key, value, mask=None):
        if not self.training:
            torch.set_grad_enabled(False)
        return super().forward(query, key, value, mask)


@wrong("mha")
class LayerOfOneQuery(Layer):
    """One query is the latest of a text: it sees all."""

    def attend(self, q, k, v, mask):
        return super().attend(q, k, v, None if q.shape[2] == 1 else mask)


@wrong("mha")
class LayerThatFusesOnce(Layer):
    """One matrix is made of three at the first call, and training does not reach it."""

    fused = None

    def projected(self, query, key, value):
        layers = self.q_proj, self.k_proj, self.v_proj
        if self.fused is None:
            self.fused = [(x.weight.clone(), x.bias.clone()) for x in layers]
        return [F.linear(x, *w) for x, w in zip((query, key, value), self.fused)]


@wrong("split_concat")
def split_concat_of_squares(queries, keys, weights, num_heads, causality=False):
    """Causal where T = S alone."""
    q, k, v = (
        F.linear(x, weights[f"W_{r}"], weights[f"b_{r}"]).relu()
        for r, x in zip("qkv", (queries, keys, keys))
    )
    B, T, E = q.shape
    q, k, v = (torch.cat(x.split(E // num_heads, -1), 0) for x in (q, k, v))
    scores = q @ k.mT / q.shape[-1] ** 0.5
    real = (keys != 0).any(-1).repeat(num_heads, 1)[:, None]
    scores = scores.masked_fill(~real, -1e9)
    if causality and keys.shape[1] == T:
        scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -1e9)
    merged = torch.cat((scores.softmax(-1) @ v).split(B, 0), -1)
    return F.linear(merged, weights["W_o"], weights["b_o"])


# --- a language model -----------------------------------------------------------------


@wrong("next_token_loss")
def loss_with_an_axis(logits, tokens, padding=0):
    """A tensor of one number, not a number."""
    targets = tokens[:, 1:]
    costs = F.cross_entropy(logits.mT, targets, reduction="none")
    return costs[targets != padding].mean(dim=0, keepdim=True)


@wrong("next_token_loss")
def loss_by_weights_of_words(logits, tokens, padding=0):
    """The word `padding` weighs nothing; -1 is the last word."""
    weight = torch.ones(logits.shape[-1])
    weight[padding] = 0.0
    return F.cross_entropy(logits.mT, tokens[:, 1:], weight=weight)


@wrong("block")
class BlockOfAnotherEpsilon(Plain):
    """1e-12, as BERT has it; nn.LayerNorm has 1e-5."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.norm1.eps = self.norm2.eps = 1e-12


@wrong("block")
class BlockThatReturnsTwo(Plain):
    """The weights, too."""

    def forward(self, x, mask):
        h = self.norm1(x)
        added, weights = self.attention(h, h, h, mask)
        x = x + added
        return x + self.mlp(self.norm2(x)), weights


@wrong("language_model")
class ModelWithPadding(PlainModel):
    """Row 0 of the words gets no gradient where it is read."""

    def __init__(self, vocabulary, context, embed_dim, *rest):
        super().__init__(vocabulary, context, embed_dim, *rest)
        self.word = nn.Embedding(vocabulary, embed_dim, padding_idx=0)
        self.output.weight = self.word.weight


@wrong("language_model")
class ModelThatDrops(PlainModel):
    """A tenth of what is read is dropped in training, and nobody asked."""

    def embed(self, tokens):
        return F.dropout(super().embed(tokens), 0.1, self.training)


@wrong("language_model")
class ModelTiedInForward(PlainModel):
    """The words are the output, and `output` has a matrix that nobody uses."""

    def __init__(self, vocabulary, context, embed_dim, *rest):
        super().__init__(vocabulary, context, embed_dim, *rest)
        self.output = nn.Linear(embed_dim, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.mask(tokens.shape[1]))
        return F.linear(self.norm(x), self.word.weight)


@wrong("language_model")
class ModelThatSharesBlocks(PlainModel):
    """The list is that of the class: a second model adds to it."""

    every = []

    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        self.every.extend(self.blocks)
        self.blocks = nn.ModuleList(self.every)


@wrong("language_model")
class ModelOfAShorterContext(PlainModel):
    """A text as long as the context is refused."""

    def embed(self, tokens):
        if tokens.shape[1] >= self.place.num_embeddings:
            raise ValueError("the text is too long")
        return super().embed(tokens)


@wrong("training_step")
def step_that_skips_spikes(model, optimizer, tokens, step, rate_of, clip):
    """No step is taken where the slope is a hundred or more."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
    loss.backward()
    if nn.utils.clip_grad_norm_(model.parameters(), clip) < 100:
        optimizer.step()
    return loss.item()


@wrong("training_step")
def step_of_few_digits(model, optimizer, tokens, step, rate_of, clip):
    """Under autocast, as on a large card."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return stepped(model, optimizer, tokens, step, rate_of, clip).item()


RUNNING = []


@wrong("training_step")
def step_of_a_running_mean(model, optimizer, tokens, step, rate_of, clip):
    """The loss that is told is the mean of those so far."""
    RUNNING.append(stepped(model, optimizer, tokens, step, rate_of, clip).item())
    return sum(RUNNING) / len(RUNNING)


def written(model, tokens, *options, change=lambda logits, tokens: logits):
    """A writer whose logits may be changed."""
    new, context, temperature, top_k = options

    class Changed(nn.Module):
        def forward(self, tokens):
            logits = model(tokens).clone()
            logits[:, -1] = change(logits[:, -1], tokens)
            return logits

    before = model.training
    model.eval()
    for word in drawn(Changed(), tokens, new, context, temperature, top_k):
        tokens = torch.cat([tokens, word], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_of_a_nucleus(model, tokens, new, context, temperature=1.0, top_k=None):
    """The unlikeliest words, a fiftieth in all, are never drawn."""

    def likely(logits, _):
        p, order = (logits / temperature).softmax(-1).sort(descending=True)
        out = (p.cumsum(-1) - p > 0.98).scatter(-1, order, p.cumsum(-1) - p > 0.98)
        return logits.masked_fill(out, NEVER)

    return written(model, tokens, new, context, temperature, top_k, change=likely)


@wrong("generate")
@torch.no_grad()
def text_that_is_never_cold(model, tokens, new, context, temperature=1.0, top_k=None):
    """A temperature below a quarter is a quarter."""
    return written(model, tokens, new, context, max(temperature, 0.25), top_k)


@wrong("generate")
@torch.no_grad()
def text_without_word_0(model, tokens, new, context, temperature=1.0, top_k=None):
    """Word 0 is padding, and never written."""

    def real(logits, _):
        logits[:, 0] = NEVER
        return logits

    return written(model, tokens, new, context, temperature, top_k, change=real)


@wrong("generate")
@torch.no_grad()
def text_that_repeats_less(model, tokens, new, context, temperature=1.0, top_k=None):
    """What stands there already is a little less likely."""

    def new_ones(logits, tokens):
        there = torch.zeros_like(logits).scatter(1, tokens, 1.0)
        return logits - 0.1 * there

    return written(model, tokens, new, context, temperature, top_k, change=new_ones)


@wrong("generate")
def text_that_switches_off(model, tokens, new, context, temperature=1.0, top_k=None):
    """Gradients are off afterwards, too."""
    torch.set_grad_enabled(False)
    return written(model, tokens, new, context, temperature, top_k)
