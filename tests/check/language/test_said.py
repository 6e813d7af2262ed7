"""What is said of a wrong answer is in the words of the task, not of the probe."""

import re

import pytest
import torch
from torch.nn import functional as F

from mha_lib.check import LANGUAGE, check, diagnose
from mha_lib.check.language import VERSIONS
from mha_lib.check.language.model import LanguageModel

SAID = {
    ("next_token_loss", "loss-summed"): r"the loss is [\d.]+ nats; [\d.]+ is right",
    ("next_token_loss", "loss-detached"): "No gradient reaches the logits",
    ("block", "relu"): r"Feature \d+ of token \d+ in sequence \d+ is -?[\d.]+ behind",
    ("language_model", "no-places"): r"Behind token \d+ of text \d+ the logit of word",
    ("language_model", "one-block-repeated"): r"have numbers of their own: 1, not",
    ("language_model", "blocks-in-a-list"): "are not among model.parameters",
    ("language_model", "mask-of-ignored"): r"The mask that a block of the model gets",
    (
        "training_step",
        "rate-not-set",
    ): r"group 0 of the optimizer has the rate 0.05; ra",
    (
        "training_step",
        "no-clipping",
    ): r"The loss at step \d+ is [\d.]+ nats; [\d.]+ is r",
    ("training_step", "graph-kept"): "The loss comes back with its graph",
    ("training_step", "put-into-eval-mode"): r"After step \d+ the model is in evalu",
    ("generate", "first-place"): r"Text 0, place \d+ \(new token 0\): token \d+ stands",
    ("generate", "top-k-ignored"): r"top_k = 3, token \d is drawn in [\d.]+% of 8,192",
    ("generate", "mode-not-restored"): "is in evaluation mode afterwards",
    ("generate", "gradients-kept"): "was in training mode writes with gradients",
    ("generate", "logits-changed"): "The logits that the model returned hold other num",
}


@pytest.mark.parametrize(("task", "name"), SAID, ids=lambda x: x)
def test_a_wrong_answer_is_told_in_the_words_of_the_task(task, name):
    found = diagnose(VERSIONS[task][name], task)
    assert found.mistakes == [name]
    assert re.search(SAID[task, name], found.example.words)
    assert_no_place_of_a_probe(found.example)


def assert_no_place_of_a_probe(example):
    """As far as the shape is right: the numbers of an answer are not a tensor's."""
    assert example is None or "output" not in example.words


@pytest.mark.exhaustive  # the sample are those above
@pytest.mark.parametrize(
    ("task", "name"), [(task, name) for task in LANGUAGE for name in VERSIONS[task]]
)
def test_no_place_of_a_probe_is_named(task, name):
    assert_no_place_of_a_probe(diagnose(VERSIONS[task][name], task).example)


# --- wrong programs that had been called right, or otherwise -------------------------


class Beside(LanguageModel):
    """A causal mask of its own stands beside that of `mask_of`."""

    def mask(self, T):
        own = torch.ones(T, T, dtype=torch.bool).tril()
        return own if self.mask_of is None else own & self.mask_of(T, T)


class OfTheContext(LanguageModel):
    def mask(self, T):
        if self.mask_of is None:
            return super().mask(T)
        longest = self.place.num_embeddings
        return self.mask_of(longest, longest)[:T, :T]


class Inverted(LanguageModel):
    def mask(self, T):
        return super().mask(T) if self.mask_of is None else ~self.mask_of(T, T)


@pytest.mark.parametrize("model", [Beside, OfTheContext, Inverted])
def test_a_mask_of_that_is_used_is_not_called_ignored(model):
    report = check(model, "language_model")
    assert (report.diagnosis.verdict, report.diagnosis.mistakes) == ("unknown", [])
    assert "The mask that a block of the model gets for T = " in repr(report)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(3))
def test_masks_kept_from_another_model_are_seen(seed):
    class Keeps(LanguageModel):
        kept = {}

        def mask(self, T):
            return self.kept.setdefault(T, super().mask(T))

    class KeepsItsOwn(Keeps):
        def __init__(self, *sizes, **options):
            super().__init__(*sizes, **options)
            self.kept = {}

    report = check(Keeps, "language_model", seed=seed)
    assert not report and not report.diagnosis.mistakes
    assert check(KeepsItsOwn, "language_model", seed=seed)


def test_logits_may_be_a_part_of_longer_ones():
    def cost(logits, tokens, padding):
        targets = tokens[:, 1:].reshape(-1)
        return F.cross_entropy(logits, targets, ignore_index=padding)

    def by_view(logits, tokens, padding=0):
        return cost(logits.view(-1, logits.shape[-1]), tokens, padding)

    def by_reshape(logits, tokens, padding=0):
        return cost(logits.reshape(-1, logits.shape[-1]), tokens, padding)

    report = check(by_view, "next_token_loss")
    assert "wrong in logits cut from longer ones" in repr(report)
    assert check(by_reshape, "next_token_loss")


def test_a_loss_leaves_the_logits_as_they_are():
    def next_token_loss(logits, tokens, padding=0):
        if not logits.requires_grad:
            logits -= logits.amax(-1, keepdim=True)
        targets = tokens[:, 1:].reshape(-1)
        return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=padding)

    report = check(next_token_loss)
    assert report.diagnosis.verdict == "unmet"
    assert "After the call logits held other numbers." in repr(report)


def test_a_call_without_padding_is_told_so():
    def next_token_loss(logits, tokens, padding=-100):
        targets = tokens[:, 1:].reshape(-1)
        return F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=padding)

    report = check(next_token_loss)
    assert not report
    assert "called without `padding`, so that 0 is padding, the loss" in repr(report)
