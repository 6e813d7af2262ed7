"""Wrong parts of a language model that no list of mistakes holds."""

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import Plain, PlainModel, programs

WRONG, wrong = programs()


# --- next_token_loss ---


@wrong("next_token_loss")
def loss_that_stops_at_the_first_padding(logits, tokens, padding=0):
    """What follows a padding in its row is taken for padding, too."""
    targets = tokens[:, 1:]
    real = (targets != padding).cumprod(dim=1).bool()
    costs = F.cross_entropy(logits.mT, targets, reduction="none")
    return costs[real].mean()


@wrong("next_token_loss")
def loss_above_the_padding(logits, tokens, padding=0):
    """Every number up to the padding counts as padding."""
    targets = tokens[:, 1:]
    costs = F.cross_entropy(logits.mT, targets, reduction="none")
    return costs[targets > padding].mean()


@wrong("next_token_loss")
def loss_of_short_vocabularies(logits, tokens, padding=0):
    """The target is looked up in a table of 64 words."""
    wanted = torch.eye(64)[tokens[:, 1:]][..., : logits.shape[-1]]
    costs = -(logits.log_softmax(dim=-1) * wanted).sum(dim=-1)
    return costs[tokens[:, 1:] != padding].mean()


@wrong("next_token_loss")
def loss_without_the_slope_of_the_sum(logits, tokens, padding=0):
    """The logarithm of the sum is a number: only the right word has a slope."""
    targets = tokens[:, 1:]
    right = logits.gather(-1, targets[..., None])[..., 0]
    costs = logits.logsumexp(dim=-1).detach() - right
    return costs[targets != padding].mean()


@wrong("next_token_loss")
def loss_that_marks_the_padding(logits, tokens, padding=0):
    """The caller's tokens are changed: padding becomes -100."""
    tokens[tokens == padding] = -100
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


@wrong("next_token_loss")
def loss_that_is_capped(logits, tokens, padding=0):
    """No word costs more than 100 nats."""
    costs = F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
    return costs.clamp(max=100.0)[tokens[:, 1:] != padding].mean()


@wrong("next_token_loss")
def loss_of_rows_that_begin(logits, tokens, padding=0):
    """Rows that begin with padding are left out as empty."""
    tokens, logits = tokens[tokens[:, 0] != padding], logits[tokens[:, 0] != padding]
    costs = F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
    return costs[tokens[:, 1:] != padding].mean()


@wrong("next_token_loss")
def loss_of_padded_rows(logits, tokens, padding=0):
    """Each row's mean, then the mean of those: short rows count more."""
    costs = F.cross_entropy(logits.mT, tokens[:, 1:], reduction="none")
    real = (tokens[:, 1:] != padding).float()
    return ((costs * real).sum(1) / real.sum(1)).mean()


# --- block ---


@wrong("block")
class BlockCutsTheRoad(Plain):
    """The residual road is detached: no slope reaches what stands before."""

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x.detach() + self.attention(h, h, h, mask)[0]
        return x + self.mlp(self.norm2(x))


@wrong("block")
class BlockForShortTexts(Plain):
    """From place 32 on, tokens are passed through."""

    def forward(self, x, mask):
        h = self.norm1(x)
        y = x + self.attention(h, h, h, mask)[0]
        y = y + self.mlp(self.norm2(y))
        return torch.cat([y[:, :32], x[:, 32:]], dim=1)


@wrong("block")
class BlockKeepsItsMask(Plain):
    """The mask of the first call of a length stays for ever."""

    def forward(self, x, mask):
        if getattr(self, "kept", None) is None or self.kept.shape != mask.shape:
            self.kept = mask
        return super().forward(x, self.kept)


@wrong("block")
class BlockAlwaysCausal(Plain):
    """It builds a causal mask of its own, and the one given is not used."""

    def forward(self, x, mask):
        T = x.shape[1]
        return super().forward(x, torch.ones(T, T, dtype=torch.bool).tril())


@wrong("block")
class BlockAddsInPlace(Plain):
    """The caller's x is changed."""

    def forward(self, x, mask):
        h = self.norm1(x)
        with torch.no_grad():
            x += self.attention(h, h, h, mask)[0]
        return x + self.mlp(self.norm2(x))


@wrong("block")
class BlockWithDropout(Plain):
    """A dropout of 0.1 that nobody asked for."""

    def forward(self, x, mask):
        h = self.norm1(x)
        x = x + F.dropout(self.attention(h, h, h, mask)[0], 0.1, self.training)
        return x + self.mlp(self.norm2(x))


@wrong("block")
class BlockNormsWithoutLearning(Plain):
    """The norms' weights and biases are made and never used."""

    def forward(self, x, mask):
        E = x.shape[-1:]
        h = F.layer_norm(x, E)
        x = x + self.attention(h, h, h, mask)[0]
        return x + self.mlp(F.layer_norm(x, E))


@wrong("block")
class BlockOfTwoHeads(Plain):
    """Two heads, however many are asked for."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, 2)


# --- language_model ---


@wrong("language_model")
class ModelTiedOnceOnly(PlainModel):
    """The output starts as a copy of the words and is then trained apart."""

    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        self.output.weight = nn.Parameter(self.word.weight.detach().clone())


@wrong("language_model")
class ModelTiedWithoutASlope(PlainModel):
    """The output reads the words' table, detached."""

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.mask(tokens.shape[1]))
        return F.linear(self.norm(x), self.word.weight.detach())


@wrong("language_model")
class ModelOfOneBlockTwice(PlainModel):
    """One block stands in the list as often as there are layers."""

    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        self.blocks = nn.ModuleList([Plain(embed_dim, num_heads)] * num_layers)


@wrong("language_model")
class ModelOfTwoBlocks(PlainModel):
    """Blocks beyond the second are never called."""

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks[:2]:
            x = block(x, self.mask(tokens.shape[1]))
        return self.output(self.norm(x))


@wrong("language_model")
class ModelHidesWordZero(PlainModel):
    """Word 0 is padding for the mask, as no one asked."""

    def forward(self, tokens):
        x = self.embed(tokens)
        T = tokens.shape[1]
        mask = self.mask(T) & (tokens != 0)[:, None] | torch.eye(T).bool()
        for block in self.blocks:
            x = block(x, mask)
        return self.output(self.norm(x))


@wrong("language_model")
class ModelReadsFromTheEnd(PlainModel):
    """A short text stands at the last places of the context."""

    def embed(self, tokens):
        T, C = tokens.shape[1], self.place.num_embeddings
        return self.word(tokens) + self.place(torch.arange(C - T, C))


@wrong("language_model")
class ModelOfMiddlingMask(PlainModel):
    """Every second block sees the whole text."""

    def forward(self, tokens):
        x = self.embed(tokens)
        T = tokens.shape[1]
        for n, block in enumerate(self.blocks):
            x = block(x, self.mask(T) if n % 2 == 0 else torch.ones(T, T).bool())
        return self.output(self.norm(x))


@wrong("language_model")
class ModelFrozenPlaces(PlainModel):
    """The places get no slope."""

    def embed(self, tokens):
        with torch.no_grad():
            places = self.place(torch.arange(tokens.shape[1]))
        return self.word(tokens) + places


@wrong("language_model")
class ModelOfTrueBias(PlainModel):
    """A bias of its own is added to the logits."""

    def __init__(self, vocabulary, context, embed_dim, num_heads, num_layers):
        super().__init__(vocabulary, context, embed_dim, num_heads, num_layers)
        self.extra = nn.Parameter(torch.randn(vocabulary))

    def forward(self, tokens):
        return super().forward(tokens) + self.extra


# --- training_step ---


def cost_of(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


@wrong("training_step")
def step_that_leaves_word_zero_out(model, optimizer, tokens, step, rate_of, clip):
    """Word 0 does not count, though nobody called it padding."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    loss = F.cross_entropy(
        model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=0
    )
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


@wrong("training_step")
def step_that_always_scales(model, optimizer, tokens, step, rate_of, clip):
    """Short slopes are stretched to the length `clip`."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    loss = cost_of(model, tokens)
    optimizer.zero_grad()
    loss.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.stack([g.norm() for g in grads]).norm()
    for g in grads:
        g.mul_(clip / norm)
    optimizer.step()
    return loss.item()


@wrong("training_step")
def step_by_the_largest_slope(model, optimizer, tokens, step, rate_of, clip):
    """Clipped by the largest entry instead of the length."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    loss = cost_of(model, tokens)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip, norm_type=float("inf"))
    optimizer.step()
    return loss.item()


@wrong("training_step")
def step_of_the_first_group(model, optimizer, tokens, step, rate_of, clip):
    """Only the first group gets the rate."""
    model.train()
    optimizer.param_groups[0]["lr"] = rate_of(step)
    loss = cost_of(model, tokens)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


@wrong("training_step")
def step_of_its_own_descent(model, optimizer, tokens, step, rate_of, clip):
    """Plain descent by hand: the optimizer is not asked."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    loss = cost_of(model, tokens)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p -= rate_of(step) * p.grad
    return loss.item()


@wrong("training_step")
def step_that_clears_half(model, optimizer, tokens, step, rate_of, clip):
    """Old slopes are cleared in even steps only: they pile up for two."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    loss = cost_of(model, tokens)
    if step % 2 == 0:
        optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


@wrong("training_step")
def step_for_each_text(model, optimizer, tokens, step, rate_of, clip):
    """One step for each text in place of one for the batch."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    losses = []
    for text in tokens.split(1):
        loss = cost_of(model, text)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


@wrong("training_step")
def step_with_the_top_mode_alone(model, optimizer, tokens, step, rate_of, clip):
    """Only the outermost module is put into training mode."""
    model.training = True
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    loss = cost_of(model, tokens)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


# --- generate ---


def drawn_from(logits, temperature=1.0, top_k=None):
    logits = logits / temperature
    if top_k is not None:
        least = logits.topk(top_k).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return torch.multinomial(logits.softmax(dim=-1), 1)


@wrong("generate")
@torch.no_grad()
def text_with_one_die(model, tokens, new, context, temperature=1.0, top_k=None):
    """All rows use the same throw: equal prompts give equal texts."""
    before = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            least = logits.topk(top_k).values[:, -1:]
            logits = logits.masked_fill(logits < least, float("-inf"))
        noise = -torch.empty(logits.shape[-1]).exponential_().log()
        drawn = (logits.log_softmax(-1) + noise).argmax(dim=-1, keepdim=True)
        tokens = torch.cat([tokens, drawn], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_from_one_seed(model, tokens, new, context, temperature=1.0, top_k=None):
    """It starts the random numbers anew: each call tells the same."""
    torch.manual_seed(0)
    before = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1]
        tokens = torch.cat([tokens, drawn_from(logits, temperature, top_k)], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_with_the_top_mode_alone(
    model, tokens, new, context, temperature=1.0, top_k=None
):
    """Only the outermost module is put into evaluation mode."""
    before, model.training = model.training, False
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1]
        tokens = torch.cat([tokens, drawn_from(logits, temperature, top_k)], dim=1)
    model.training = before
    return tokens


@wrong("generate")
@torch.no_grad()
def text_that_ends_at_the_edge(
    model, tokens, new, context, temperature=1.0, top_k=None
):
    """It stops when every row has come to word 1."""
    before, wanted = model.training, tokens.shape[1] + new
    model.eval()
    over = torch.zeros(len(tokens), 1, dtype=torch.bool)
    for _ in range(new):
        drawn = drawn_from(model(tokens[:, -context:])[:, -1], temperature, top_k)
        drawn = drawn.masked_fill(over, 1)
        over = over | (drawn == 1)
        tokens = torch.cat([tokens, drawn], dim=1)
    model.train(before)
    return tokens[:, :wanted]


@wrong("generate")
@torch.no_grad()
def text_without_repetition(model, tokens, new, context, temperature=1.0, top_k=None):
    """The word that stands last cannot come again."""
    before = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1].clone()
        logits.scatter_(1, tokens[:, -1:], float("-inf"))
        tokens = torch.cat([tokens, drawn_from(logits, temperature, top_k)], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_of_the_best_of_all(model, tokens, new, context, temperature=1.0, top_k=None):
    """The k-th largest logit is that of the whole batch."""
    before = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            least = logits.topk(top_k).values[:, -1].max()
            floor = torch.minimum(least, logits.max(dim=-1, keepdim=True).values)
            logits = logits.masked_fill(logits < floor, float("-inf"))
        drawn = torch.multinomial(logits.softmax(dim=-1), 1)
        tokens = torch.cat([tokens, drawn], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
def text_with_slopes_off_for_good(
    model, tokens, new, context, temperature=1.0, top_k=None
):
    """Gradients stay off after it."""
    torch.set_grad_enabled(False)
    before = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1]
        tokens = torch.cat([tokens, drawn_from(logits, temperature, top_k)], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_of_a_shrinking_window(
    model, tokens, new, context, temperature=1.0, top_k=None
):
    """The model reads the prompt's last words and all that is new: too long later."""
    before = model.training
    model.eval()
    start = max(0, tokens.shape[1] - context)
    for _ in range(new):
        logits = model(tokens[:, start:])[:, -1]
        tokens = torch.cat([tokens, drawn_from(logits, temperature, top_k)], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_of_at_most_fifty(model, tokens, new, context, temperature=1.0, top_k=None):
    """Unless told otherwise, it draws from the three likeliest."""
    before = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1]
        tokens = torch.cat([tokens, drawn_from(logits, temperature, top_k or 3)], dim=1)
    model.train(before)
    return tokens


@wrong("generate")
@torch.no_grad()
def text_that_cools_the_cold_alone(
    model, tokens, new, context, temperature=1.0, top_k=None
):
    """A temperature above 1 counts as 1."""
    before = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1]
        tokens = torch.cat(
            [tokens, drawn_from(logits, min(temperature, 1.0), top_k)], dim=1
        )
    model.train(before)
    return tokens
