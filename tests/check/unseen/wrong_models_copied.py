"""The fourth round, a language model: its loss, its blocks, a step and a writer."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Plain, PlainModel, programs
from tests.check.unseen.wrong_parts_copied import NEVER

WRONG, wrong = programs()


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
