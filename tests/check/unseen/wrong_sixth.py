"""The sixth round: copied habits that show in one mode, size, call or kind of mask."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Attention, Plain, PlainModel, programs

WRONG, wrong = programs()
ANSWERS, answer = programs()


# --- attention and its parts ----------------------------------------------------------


def attended(q, k, v, mask=None, change=lambda scores: scores, after=lambda w: w):
    """Attention of which scores or weights may be changed."""
    scores = change(q @ k.mT / q.shape[-1] ** 0.5)
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights.masked_fill(~mask, 0.0)
    return weights @ v, after(weights)


@wrong("attention")
def attention_of_clamped_scores(q, k, v, mask=None):
    """Scores above 30 are 30, so that no exponential overflows."""
    return attended(q, k, v, mask, lambda scores: scores.clamp(-30, 30))


@wrong("attention")
def attention_with_a_coarse_logarithm(q, k, v, mask=None):
    """Powers of two, with 1.44 for the logarithm of e."""
    return attended(q, k, v, mask, lambda scores: scores * (1.44 * 0.693147))


@wrong("attention")
def attention_that_returns_halves(q, k, v, mask=None):
    """The weights that are returned went through eight bits."""
    after = lambda w: (w * 255).round() / 255  # noqa: E731
    return attended(q, k, v, mask, after=after)


@wrong("attention")
def attention_that_squeezes_masks(q, k, v, mask=None):
    """Axes of one are taken out of the mask."""
    return attended(q, k, v, mask if mask is None else mask.squeeze())


@wrong("attention")
def attention_of_a_last_query(q, k, v, mask=None):
    """One query alone is the last one and may see everything."""
    return attended(q, k, v, mask if q.shape[-2] > 1 else None)


@wrong("attention")
def attention_without_slopes_under_masks(q, k, v, mask=None):
    """A mask is for reading, so no gradients then."""
    with torch.set_grad_enabled(mask is None):
        return attended(q, k, v, mask)


@wrong("attention")
def attention_with_keys_cut_off(q, k, v, mask=None):
    """No gradient goes through the keys."""
    return attended(q, k.detach(), v, mask)


@wrong("attention")
def attention_with_jitter(q, k, v, mask=None):
    """A little noise breaks ties."""
    noise = lambda scores: scores + 1e-2 * torch.rand_like(scores)  # noqa: E731
    return attended(q, k, v, mask, noise)


@wrong("causal_mask")
def causal_in_bytes(T, S):
    """Place 256 is place 0 again."""
    return torch.arange(S).to(torch.uint8) <= torch.arange(T).to(torch.uint8)[:, None]


@wrong("causal_mask")
def causal_cut_from_a_square(T, S):
    """A square of the longer side, of which the last rows are kept."""
    longest = max(T, S)
    return torch.ones(longest, longest, dtype=torch.bool).tril()[longest - T :, :S]


@wrong("padding_mask")
def padding_up_to_the_longest(lengths, S):
    """As wide as the longest sequence, not S."""
    return (torch.arange(int(lengths.max())) < lengths[:, None])[:, None]


@wrong("padding_mask")
def padding_sorted(lengths, S):
    """The longest first, as packing wants it."""
    return (torch.arange(S) < lengths.sort(descending=True).values[:, None])[:, None]


@wrong("padding_mask")
def padding_never_empty(lengths, S):
    """Every sequence has a token."""
    return (torch.arange(S) < lengths.clamp(min=1)[:, None])[:, None]


@wrong("combine_masks")
def combined_as_triangle(causal, padding):
    """A triangle of its own in place of the mask that is given."""
    return torch.ones_like(causal).tril() & padding


@wrong("split_heads")
def split_into_pieces_of_heads(x, num_heads):
    """split takes the size of a piece, not their number."""
    D = x.shape[-1] // num_heads
    return torch.stack(x.split(num_heads, -1)[:num_heads], 1)[..., :D]


@wrong("merge_heads")
def merged_as_many_as_features(x):
    """Counts the features where it should count the heads."""
    return torch.cat([x[:, h % x.shape[1]] for h in range(x.shape[-1])], -1)


# --- layers ---------------------------------------------------------------------------


@wrong("mha")
class ResidualWhereItFits(Attention):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        fits = query.shape == value.shape
        return (output + query if fits else output), weights


@wrong("mha")
class CausalOfItself(Attention):
    """Who reads itself without a mask reads causally."""

    def forward(self, query, key, value, mask=None):
        if mask is None and query is key:
            T = query.shape[1]
            mask = torch.ones(1, T, T, dtype=torch.bool).tril()
        return super().forward(query, key, value, mask)


@wrong("mha")
class BiasInTrainingAlone(Attention):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return (output if self.training else output - self.out_proj.bias), weights


@wrong("mha")
class MaskOfTheFirstQuery(Attention):
    """A padding mask has the same row for every query."""

    def forward(self, query, key, value, mask=None):
        mask = mask if mask is None else mask[..., :1, :]
        return super().forward(query, key, value, mask)


@wrong("mha")
class KeepsKeysWhileReading(Attention):
    """Reading, keys and values of a memory with this shape are known already."""

    def forward(self, query, key, value, mask=None):
        if not self.training:
            kept = self.__dict__.setdefault("kept", {})
            key, value = kept.setdefault((key.shape, value.shape), (key, value))
        return super().forward(query, key, value, mask)


# --- a language model -----------------------------------------------------------------


@wrong("next_token_loss")
def loss_made_smooth(logits, tokens, padding=0):
    return F.cross_entropy(
        logits.mT, tokens[:, 1:], ignore_index=padding, label_smoothing=0.01
    )


@wrong("next_token_loss")
def loss_of_words_seen(logits, tokens, padding=0):
    """Leaves out what follows padding, not what is padding."""
    cost = -logits.log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]
    return cost[tokens[:, :-1] != padding].mean()


@wrong("next_token_loss")
def loss_with_a_small_fine(logits, tokens, padding=0):
    """Large logits cost a little."""
    fine = 1e-4 * logits.logsumexp(-1).square().mean()
    return F.cross_entropy(logits.mT, tokens[:, 1:], ignore_index=padding) + fine


@wrong("block")
class BlockOfCoarseNorms(Plain):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.norm1 = nn.LayerNorm(embed_dim, eps=1e-2)


@wrong("block")
class BlockOfOneNorm(Plain):
    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + self.attention(h, h, h, mask)[0]
        return x + self.mlp(self.norm1(x))


@wrong("language_model")
class WordNoughtIsPadding(PlainModel):
    """The row of word 0 gets no gradient from what is read."""

    def embed(self, tokens):
        rows = F.embedding(tokens, self.word.weight, padding_idx=0)
        return rows + self.place(torch.arange(tokens.shape[1]))


@wrong("language_model")
class RowsMadeShort(PlainModel):
    """Rows of the table are never longer than 4."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.word.max_norm = 4.0


@wrong("language_model")
class NoLastNormWhileReading(PlainModel):
    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.mask(tokens.shape[1]))
        return self.output(self.norm(x) if self.training else x)


@wrong("language_model")
class AtMostFourBlocks(PlainModel):
    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, min(num_layers, 4))


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])


def stepped(model, optimizer, loss, rate, clip):
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()
    clip(list(model.parameters()))
    optimizer.step()
    return loss.item()


@wrong("training_step")
def step_with_clips_of_their_own(model, optimizer, tokens, step, rate_of, clip):
    """Each table is clipped by itself."""
    model.train()

    def each(parameters):
        for parameter in parameters:
            nn.utils.clip_grad_norm_(parameter, clip)

    return stepped(model, optimizer, loss_of(model, tokens), rate_of(step), each)


@wrong("training_step")
def step_clipped_by_the_largest(model, optimizer, tokens, step, rate_of, clip):
    model.train()
    by_largest = lambda p: nn.utils.clip_grad_norm_(p, clip, "inf")  # noqa: E731
    return stepped(model, optimizer, loss_of(model, tokens), rate_of(step), by_largest)


def written(model, tokens, new, context, temperature, top_k, draw):
    was = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            least = logits.topk(top_k).values[:, -1:]
            logits = logits.masked_fill(logits < least, -torch.inf)
        tokens = torch.cat([tokens, draw(logits.softmax(-1))], dim=1)
    model.train(was)
    return tokens


@wrong("generate")
@torch.no_grad()
def writes_one_draw(model, tokens, new, context, temperature=1.0, top_k=None):
    """All rows of a kind get the same chance."""

    def draw(p):
        chance = torch.rand(1, 1, dtype=p.dtype)
        return (p.cumsum(-1) < chance).sum(-1, keepdim=True).clamp(max=p.shape[1] - 1)

    return written(model, tokens, new, context, temperature, top_k, draw)


@wrong("generate")
@torch.no_grad()
def writes_the_same(model, tokens, new, context, temperature=1.0, top_k=None):
    """A seed, so that all is the same tomorrow."""
    torch.manual_seed(0)
    draw = lambda p: torch.multinomial(p, 1)  # noqa: E731
    return written(model, tokens, new, context, temperature, top_k, draw)


# --- answers to the assignments -------------------------------------------------------


@answer("a1 softmax")
def softmax_of_clamped(x):
    e = x.clamp(max=80).exp()
    total = e.sum(-1, keepdim=True)
    return torch.where(total > 0, e / total, torch.zeros_like(e))


@answer("a1 influence")
def influence_of_summed_slopes(f, x):
    """The numbers of a slope may cancel."""
    x = x.clone().requires_grad_()
    sums = f(x).sum(-1)
    rows = [torch.autograd.grad(y, x, retain_graph=True)[0] for y in sums]
    return torch.stack([row.sum(-1) != 0 for row in rows])


@answer("a1 influence")
def influence_above_a_thousandth(f, x):
    x = x.clone().requires_grad_()
    output = f(x)
    rows = [
        torch.stack(
            [torch.autograd.grad(y, x, retain_graph=True)[0].abs().sum(-1) for y in row]
        ).sum(0)
        for row in output
    ]
    return torch.stack(rows) > 1e-3


@answer("a3 order_of")
@torch.no_grad()
def order_by_large_moves(f, embed_dim):
    """What moves by less than a tenth has not moved."""
    x = torch.randn(3, 4, embed_dim)
    y = x.clone()
    y[0, 0] += torch.randn(embed_dim)
    moved = (f(x) - f(y)).abs().amax(-1) > 0.1
    return "batch first" if moved[0, 1:].any() else "sequence first"


@answer("a5 bigram")
def bigram_counted_once(tokens, size):
    """A list of places is added to once each."""
    counts = torch.ones(size, size)
    seen, following = tokens[:, :-1].flatten(), tokens[:, 1:].flatten()
    counts[seen[following != 0], following[following != 0]] += 1
    return (counts / counts.sum(dim=1, keepdim=True)).log()


@answer("a5 looks_at")
def looks_at_all(weights, query, key):
    """Every query with every text."""
    return weights[:, :, query, key].mean(dim=(0, 2))


@answer("a6 induction_map")
def induction_of_the_last(tokens):
    """The latest earlier place alone."""
    T = len(tokens)
    table = torch.zeros(T, T)
    for t in range(T):
        places = [s + 1 for s in range(t) if tokens[s] == tokens[t]]
        table[t, places[-1] if places else t] = 1.0
    return table


@answer("a6 prices")
def prices_of_the_dear(loss_without, num_layers, num_heads):
    """A price is never below 0."""
    whole = loss_without([])
    return torch.tensor(
        [
            [max(loss_without([(layer, h)]) - whole, 0.0) for h in range(num_heads)]
            for layer in range(num_layers)
        ]
    )
