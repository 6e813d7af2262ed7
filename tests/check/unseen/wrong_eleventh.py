"""The sixteenth round: what is right only for heads that lie in order, and the like."""

import torch

from mha_lib.check.language.step import training_step
from tests.check.unseen.usual import PlainModel, programs

WRONG, wrong = programs()


@wrong("merge_heads")
def stacks_rows_of_all_heads(x):
    """A view that what split_heads returns does not allow."""
    B, H, T, D = x.shape
    rows = x.view(B * H, T, D)
    return torch.stack([rows[h::H] for h in range(H)], dim=2).flatten(2)


@wrong("merge_heads")
def reads_the_memory(x):
    """Right where the numbers lie in the order of the axes, and silent elsewhere."""
    B, H, T, D = x.shape
    return x.as_strided((B, T, H, D), (H * T * D, D, T * D, 1)).flatten(2)


@wrong("merge_heads")
def asks_how_the_numbers_lie(x):
    """It believes that what is no block of memory was turned already."""
    B, H, T, D = x.shape
    return (x.transpose(1, 2) if x.is_contiguous() else x).reshape(B, T, H * D)


class _Squeezed(torch.nn.Module):
    """Its logits have no axis of the batch where there is one text."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens).squeeze(0)


@wrong("training_step")
def squeezes_the_logits(model, *rest):
    return training_step(_Squeezed(model), *rest)


@wrong("training_step")
def takes_the_last_word_of_one_text(model, optimizer, tokens, *rest):
    tokens = tokens[:, -2:] if len(tokens) == 1 else tokens
    return training_step(model, optimizer, tokens, *rest)


@wrong("language_model")
class KeepsTheFirstMaskOf(PlainModel):
    """mask_of is an attribute that nothing asks."""

    def __init__(self, *sizes, mask_of=None):
        super().__init__(*sizes)
        self.mask_of, self.makes = mask_of, mask_of or (lambda T, _: self.triangle(T))

    triangle = PlainModel.mask

    def mask(self, T):
        return self.makes(T, T)


@wrong("attention")
def fills_up_the_mask(q, k, v, mask=None):
    """A mask (T, 1) is for all keys, and is taken for that of key 0."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        lacking = k.shape[-2] - mask.shape[-1]
        mask = torch.nn.functional.pad(mask, (0, lacking), value=False)
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ v, weights
