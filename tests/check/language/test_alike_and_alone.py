"""What is wrong at the edges.

Where sizes are alike, a text or a token is alone, in float64; where next to nothing is
left of a temperature, of a logit, or of what there is to write.
"""

import re

import pytest
import torch
from torch import nn

from mha_lib.check import check
from mha_lib.check.language.block import Block
from mha_lib.check.language.generate import generate, only_top, written
from mha_lib.check.language.loss import next_token_loss
from mha_lib.check.language.model import LanguageModel


def class_axis_by_its_size(logits, tokens, padding=0):
    T, W = logits.shape[1:]
    if T == W:  # taken for (B, W, T)
        logits = logits.mT
    return next_token_loss(logits, tokens, padding)


def turned_where_square(logits, tokens, padding=0):
    targets = tokens[:, 1:].T if len(tokens) == logits.shape[1] else tokens[:, 1:]
    return next_token_loss(logits, torch.cat([tokens[:, :1], targets], 1), padding)


def squeezed(logits, tokens, padding=0):
    loss = next_token_loss(logits, tokens, padding)
    costs = logits[..., 0].squeeze(1)  # (B,) where there is one place
    return loss if costs.dim() > 1 else loss * len(costs)


def in_float32(logits, tokens, padding=0):
    return next_token_loss(logits.float(), tokens, padding)


class OneTextLosesItsAxis(Block):
    def forward(self, x, mask):
        return super().forward(x, mask).squeeze(0)


class OneTokenNeedsNoLook(Block):
    def forward(self, x, mask):
        if x.shape[1] > 1:
            return super().forward(x, mask)
        return x + self.mlp(self.norm2(x))


class BlockInFloat32(Block):
    def forward(self, x, mask):
        return super().forward(x, mask).float()


class TextLosesItsAxis(LanguageModel):
    def forward(self, tokens):
        return super().forward(tokens).squeeze(0)


class ModelInFloat32(LanguageModel):
    def forward(self, tokens):
        return super().forward(tokens).float()


class Drops(LanguageModel):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.drop = nn.Dropout(0.1)

    def embedded(self, tokens):
        return self.drop(super().embedded(tokens))


class DropsInABlock(LanguageModel):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        for block in self.blocks:
            block.mlp.append(nn.Dropout(0.1))


def greedy_when_cold(model, tokens, new, context, temperature=1.0, top_k=None):
    if temperature < 0.1:
        top_k = 1
    return generate(model, tokens, new, context, temperature, top_k)


def filled_with_a_hundred(model, tokens, new, context, temperature=1.0, top_k=None):
    def top(logits, top_k):
        return only_top(logits, top_k).clamp(min=-100.0)

    return written(model, tokens, new, context, temperature, top_k, top=top)


def forgets_the_mode_of_nothing(model, tokens, new, *rest, **options):
    model.eval()
    return generate(model, tokens, new, *rest, **options) if new else tokens


def begins_with_an_empty_list(model, tokens, new, *rest, **options):
    written_ = generate(model, tokens, new, *rest, **options)
    return written_ if new else tokens[:, :0]


WRONG = [
    (class_axis_by_its_size, "12 tokens to predict, 12 words"),
    (turned_where_square, "7 texts with 7 tokens"),
    (in_float32, "float64"),
    (squeezed, "1 tokens to predict"),
    (OneTextLosesItsAxis, "the shape"),
    (OneTokenNeedsNoLook, "token 0"),
    (BlockInFloat32, "float64"),
    (TextLosesItsAxis, "the shape"),
    (ModelInFloat32, "float64"),
    (Drops, "dropout"),
    (DropsInABlock, "dropout"),
    (greedy_when_cold, "temperature = 0.025"),
    (filled_with_a_hundred, "top_k = 2"),
    (forgets_the_mode_of_nothing, "evaluation mode afterwards"),
    (begins_with_an_empty_list, "new = 0"),
]
WRITERS = {
    greedy_when_cold,
    filled_with_a_hundred,
    forgets_the_mode_of_nothing,
    begins_with_an_empty_list,
}


def task_of(program):
    if program in WRITERS:
        return "generate"
    if not isinstance(program, type):
        return "next_token_loss"
    return "block" if issubclass(program, Block) else "language_model"


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("program", "said"), WRONG, ids=[x.__name__ for x, _ in WRONG])
def test_it_is_not_right_and_the_case_is_told(program, said):
    report = check(program, task_of(program))
    assert not report
    assert re.search(said, repr(report).partition("Required")[0])
