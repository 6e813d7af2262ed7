"""What comes back, and what it is made of, have to be what the task says, by its names.

Of each program it is told what is required and what came, in the words of the task; a
case in float64 is right only if its numbers are.
"""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_lib.check import check, diagnose
from mha_lib.check.language.block import Block
from mha_lib.check.language.generate import generate, written
from mha_lib.check.language.loss import next_token_loss
from mha_lib.check.language.model import LanguageModel
from mha_lib.check.language.step import training_step
from tests.check.language.right import Model, Usual
from tests.check.language.wrong import changed


class Learns(Usual):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.gamma = nn.Parameter(torch.ones(embed_dim))

    def forward(self, x, mask):
        return self.gamma * super().forward(x, mask)


class LearnsToo(Model):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.tau = nn.Parameter(torch.ones(()))

    def forward(self, tokens):
        return self.tau * super().forward(tokens)


class Pair(Block):
    def forward(self, x, mask):
        return super().forward(x, mask), None


class ModelPair(LanguageModel):
    def forward(self, tokens):
        return super().forward(tokens), None


class OtherEps(LanguageModel):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.norm.eps = 1e-6


class RoundRoot(nn.Module):
    """A GELU by hand, in which √2 has four digits."""

    def forward(self, x):
        return 0.5 * x * (1 + torch.erf(x / 1.414))


class NearlyGelu(Usual):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.mlp[1] = RoundRoot()


class OnePerWidth(Usual):
    """Blocks of one width share an attention, however many heads are asked for."""

    made = {}

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.attention = self.made.setdefault(embed_dim, self.attention)


class ClipsItsMlp(Usual):
    """The norms that it has are small; how many they are is none of them."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        for x in self.mlp.parameters():
            x.register_hook(lambda slope: slope.clamp(-0.02, 0.02))


class SoftlyCapped(Model):
    def forward(self, tokens):
        return 2000 * torch.tanh(super().forward(tokens) / 2000)


class AddsItsMask(LanguageModel):
    """A mask of another's making becomes numbers to be added to the scores."""

    def mask(self, T):
        seen = super().mask(T)
        hides = torch.zeros(T, T).masked_fill(~seen, float("-inf"))
        return seen if self.mask_of is None else hides


class OfOneHead(nn.Module):
    def __init__(self, embed_dim):
        super().__init__()
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)

    def forward(self, query, key, value, mask):
        q, k, v = self.qkv(query).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask), None


class BlockOfOneHead(Block):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.attention = OfOneHead(embed_dim)


class OfOneHeadEach(LanguageModel):
    def stack(self, E, H, L):
        return nn.ModuleList(BlockOfOneHead(E, H) for _ in range(L))


def returns_nothing(*given):
    training_step(*given)


def loss_and_count(logits, tokens, padding=0):
    return next_token_loss(logits, tokens, padding), (tokens[:, 1:] != padding).sum()


def as_lists(*given, **options):
    return generate(*given, **options).tolist()


def as_floats(*given, **options):
    return generate(*given, **options).float()


def below_one_another(model, tokens, new, context, temperature=1.0, top_k=None):
    with torch.no_grad():
        for _ in range(new):
            p = (model(tokens[:, -context:])[:, -1] / temperature).softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(p, 1)], dim=0)
    return tokens


def warmed(model, tokens, new, context, temperature=1.0, top_k=None):
    return generate(model, tokens, new, context, temperature + 0.01, top_k)


def switches_off(*given, **options):
    torch.set_grad_enabled(False)  # for good
    return generate(*given, **options)


def rounded(model, tokens, new, context, temperature=1.0, top_k=None):
    def weigh(logits):
        return logits.softmax(-1).round(decimals=3)

    return written(model, tokens, new, context, temperature, top_k, weigh=weigh)


def named(old, new):
    return changed("Model", f"self.{old}", f"self.{new}")


SAID = [
    *(
        (
            named(old, new),
            "language_model",
            f"word, place, blocks, norm, output are required; .*{new}.*, and no {old}$",
        )
        for old, new in [
            ("output", "head"),
            ("norm", "ln_f"),
            ("place", "pos"),
            ("word", "wte"),
            ("blocks", "layers"),
        ]
    ),
    (
        changed("Usual", "self.attention", "self.attn"),
        *("block", "norm1, attention, norm2, mlp are required; .*, and no attention$"),
    ),
    (Learns, "block", "all that a block learns has to be .* yours learns gamma, too"),
    (LearnsToo, "language_model", "all that a model learns .* yours learns tau, too"),
    (Pair, "block", r"block\(x, mask\) has to return one tensor; got a tuple"),
    (ModelPair, "language_model", "has to return one tensor; got a tuple"),
    (NearlyGelu, "block", r"Feature \d+ of [\s\S]* and wrong in float64\."),
    (OnePerWidth, "block", "The number of heads makes no difference to what the block"),
    (
        ClipsItsMlp,
        "block",
        r"of the mlp have the norms (0\.\d+, ){3}0\.\d+; ([\d.]+, ){3}[\d.]+ are",
    ),
    (OtherEps, "language_model", "and wrong in tiny numbers"),
    (SoftlyCapped, "language_model", r"Behind token [\s\S]* and wrong in float64\."),
    (AddsItsMask, "language_model", r"of the model gets no boolean mask \(T, T\) for"),
    (OfOneHeadEach, "language_model", "heads makes no difference to the logits"),
    (returns_nothing, "training_step", "nothing is returned: is a `return` missing"),
    (loss_and_count, "next_token_loss", "one number is required; got a tuple"),
    (as_lists, "generate", r"one tensor, \(B, T \+ new\), is required; got a list"),
    (as_floats, "generate", "tokens of torch.int64 are required; got torch.float32"),
    (switches_off, "generate", "Gradients are switched off afterwards; they were on"),
    (warmed, "generate", "wrong in nearly no temperature"),
    pytest.param(
        *(rounded, "generate", "and wrong in two texts of many words"),
        marks=pytest.mark.exhaustive,  # as the one before it, and takes long
    ),
]


@pytest.mark.parametrize(("program", "task", "said"), SAID)
def test_it_is_told_what_is_required_and_what_came(program, task, said):
    report = check(program, task)
    shown = repr(report).partition("Required")[0]
    assert not report and re.search(said, shown, re.MULTILINE)
    assert "Error" not in shown.partition("Error: invalid multinomial")[0]


class Drops(Usual):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.mlp.append(nn.Dropout(0.1))


def test_a_dropout_in_a_block_is_told():
    report = check(Drops, "block")
    assert not report and "other numbers: is there a dropout?" in repr(report)


def test_a_loss_in_a_tensor_is_no_number():
    def detached(*given):
        return torch.tensor(training_step(*given))

    assert diagnose(detached, "training_step").mistakes == ["loss-a-tensor"]


def test_of_rows_that_are_too_many_no_share_is_told():
    said = repr(check(below_one_another, "generate"))
    assert "except in dimension 0" in said and "is drawn in" not in said


def test_what_a_driver_of_an_author_refuses_is_said_as_it_is():
    found = diagnose(Pair, "block")
    assert found.verdict == "failed" and found.error.startswith("block(x, mask) has to")


@pytest.mark.parametrize(
    ("program", "task"),
    [
        (lambda *x, **more: next_token_loss(*x, **more) / 2.3, "next_token_loss"),
        (changed("Usual", "nn.GELU()", "nn.ELU()"), "block"),
        (changed("Model", "return self.output", "return 0.9 * self.output"),
         "language_model"),
    ],
    ids=["loss", "block", "model"],
)  # fmt: skip
def test_a_case_in_float64_is_right_only_if_its_numbers_are(program, task):
    assert diagnose(program, task).properties["right: float64"] is False


def test_a_loss_that_is_no_mean_is_told_by_its_shape_alone():
    def each(logits, tokens, padding=0):
        costs = -logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
        return costs[tokens[:, 1:] != padding]

    said = repr(check(each, "next_token_loss"))
    assert "() is right" in said and "Error" not in said


def test_a_text_that_is_always_the_same_may_come_of_a_seed():
    def seeded(model, *given, **options):
        torch.manual_seed(0)
        return generate(model, *given, **options)

    assert "begins with a seed of its own" in repr(check(seeded, "generate"))


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(3))
def test_of_all_words_top_k_may_keep_all(seed):
    def one_more(logits, k):
        if k is None:
            return logits
        edge = logits.topk(k + 1).values[:, -1:]
        return logits.masked_fill(logits <= edge, float("-inf"))

    def writes(*given, **options):
        return written(*given, **options, top=one_more)

    report = check(writes, "generate", seed=seed)
    assert not report and "wrong in top-k of all words" in repr(report)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("seed", range(6))
def test_each_token_is_drawn_with_a_number_of_its_own(seed):
    def writes(model, tokens, new, context, temperature=1.0, top_k=None):
        dice = torch.rand(len(tokens), 1)

        def pick(weights):
            last = weights.shape[-1] - 1
            return (weights.cumsum(-1) < dice).sum(-1, keepdim=True).clamp(max=last)

        return written(model, tokens, new, context, temperature, top_k, pick=pick)

    report = check(writes, "generate", seed=seed)
    assert not report and "at the end tokens" in repr(report)
