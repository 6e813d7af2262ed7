"""The third round: what was called right of 45 wrong parts of a language model.

They were written from the assignments alone.
"""

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.unseen.usual import PlainModel, programs

WRONG, wrong = programs()


@wrong("next_token_loss")
def loss_that_takes_minus_1_for_0(logits, tokens, padding=0):
    """No token is padding where padding is -1; here 0 is, then."""
    targets = tokens[:, 1:]
    return F.cross_entropy(logits.mT, targets, ignore_index=max(padding, 0))


@wrong("next_token_loss")
def loss_without_zeros_and_minus_1(logits, tokens, padding=0):
    """Right with a padding that occurs; without one, token 0 never counts."""
    targets = tokens[:, 1:]
    costs = F.cross_entropy(logits.mT, targets, reduction="none")
    counts = targets != padding
    return costs[counts & (targets != 0) if padding < 0 else counts].mean()


@wrong("training_step")
def step_that_trusts_the_first(model, optimizer, tokens, step, rate_of, clip):
    """At step 0 the gradients are taken for empty."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = rate_of(step)
    loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
    if step > 0:
        optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()


@wrong("generate")
@torch.no_grad()
def text_whose_first_word_is_chosen(
    model, tokens, new, context, temperature=1.0, top_k=None
):
    """top_k acts on the first new word alone."""
    before = model.training
    model.eval()
    for _ in range(new):
        logits = model(tokens[:, -context:])[:, -1] / temperature
        if top_k is not None:
            edge = logits.topk(top_k).values[:, -1:]
            logits = logits.masked_fill(logits < edge, -torch.inf)
            top_k = None
        tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], dim=1)
    model.train(before)
    return tokens


class ModelWithMaskOf(PlainModel):
    """As Assignment 5 asks for it."""

    def __init__(self, *sizes, mask_of=None):
        super().__init__(*sizes)
        self.context = sizes[1]
        self.mask_of = mask_of or (lambda T, S: PlainModel.mask(self, T))


@wrong("language_model")
class ModelWithTwoMasks(ModelWithMaskOf):
    """A causal mask of its own stands beside the one of `mask_of`."""

    def mask(self, T):
        return self.mask_of(T, T) & super().mask(T)


@wrong("language_model")
class ModelThatCutsItsMask(ModelWithMaskOf):
    """The mask of a text is cut out of the one for the whole context."""

    def mask(self, T):
        return self.mask_of(self.context, self.context)[:T, :T]


@wrong("training_step")
def step_of_a_least_rate(model, optimizer, tokens, step, rate_of, clip):
    """No rate is below 1e-4."""
    model.train()
    for group in optimizer.param_groups:
        group["lr"] = max(rate_of(step), 1e-4)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), clip)
    optimizer.step()
    return loss.item()
