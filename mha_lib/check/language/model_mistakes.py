"""Wrong language models, by the names that `check` gives them."""

import torch
from torch import nn

from mha_lib.check.language.block import Block
from mha_lib.check.language.model import LanguageModel

__all__ = ["MISTAKES"]


def _with(**parts):
    return type("LanguageModel", (LanguageModel,), parts)


def _placed(places):
    """Other places: ``places(self, tokens)`` is added to the words."""
    return _with(embedded=lambda self, x: self.word(x) + places(self, x))


def _masked(change):
    """Another mask: ``change`` of the one that is right."""
    return _with(mask=lambda self, T: change(LanguageModel.mask(self, T)))


def _multiplied(self, tokens):
    return self.word(tokens) * self.place(torch.arange(tokens.shape[1]))


def _places_of_rows(self, tokens):
    return self.place(torch.arange(len(tokens)))[:, None]


def _last_places(self, tokens):
    return self.place.weight[-tokens.shape[1] :]


def _normed_first(self, x, mask):
    return LanguageModel.through(self, self.norm(x), mask)


def _normed_in_each(self, x, mask):
    for block in self.blocks:
        x = self.norm(block(x, mask))
    return x


def _from_embedding(self, x, mask):
    return x + sum(block(x, mask) - x for block in self.blocks)


def _backwards(self, x, mask):
    for block in reversed(self.blocks):
        x = block(x, mask)
    return x


def _first_block(self, x, mask):
    for _ in self.blocks:
        x = self.blocks[0](x, mask)
    return x


def _plain(self, x):
    return self.output(x)


def _after(change):
    return _with(read=lambda self, x: change(LanguageModel.read(self, x)))


MISTAKES = {
    "no-places": (
        _placed(lambda self, tokens: 0.0),
        "No places are added: the model cannot tell a word at one place from the same "
        "word at another.",
    ),
    "places-multiplied": (
        _with(embedded=_multiplied),
        "The places are multiplied with the words; they have to be added.",
    ),
    "places-of-rows": (
        _placed(_places_of_rows),
        "The places are those of the rows of the batch: arange has to count along T, "
        "tokens.shape[1], not along B.",
    ),
    "places-reversed": (
        _placed(lambda self, x: self.place(torch.arange(x.shape[1]).flip(0))),
        "The places count backwards: the first token has place 0.",
    ),
    "place-0-for-all": (
        _placed(lambda self, x: self.place(torch.zeros_like(x))),
        "Every token gets place 0: the places of a text are 0, 1, 2, …",
    ),
    "places-of-words": (
        _placed(lambda self, x: self.place(x % self.place.num_embeddings)),
        "The places are looked up by the numbers of the words; they are 0, 1, 2, …",
    ),
    "places-from-the-end": (
        _placed(_last_places),
        "A short text gets the last places of the context; its first token has place "
        "0.",
    ),
    "embedding-scaled": (
        _with(
            embedded=lambda self, x: (
                self.word(x) * self.word.embedding_dim**0.5
                + self.place(torch.arange(x.shape[1]))
            )
        ),
        "The words are multiplied by √E before the places are added; the task asks "
        "for their sum as it is.",
    ),
    "no-final-norm": (
        _with(read=_plain),
        "The last norm is missing: the output reads norm(x), not x.",
    ),
    "norm-at-the-front": (
        _with(through=_normed_first, read=_plain),
        "The norm stands in front of the blocks; it belongs behind the last of them.",
    ),
    "norm-at-the-front-too": (
        _with(through=_normed_first),
        "The norm is taken in front of the blocks, and then once more; it belongs "
        "behind the last block alone.",
    ),
    "norm-in-the-loop": (
        _with(through=_normed_in_each, read=_plain),
        "The norm is taken after every block; it belongs behind the last one alone.",
    ),
    "norm-in-the-loop-too": (
        _with(through=_normed_in_each),
        "The norm is taken after every block, and then once more; it belongs behind "
        "the last block alone.",
    ),
    "norm-after-the-output": (
        _with(
            read=lambda self, x: torch.nn.functional.layer_norm(
                self.output(x), (self.word.num_embeddings,)
            )
        ),
        "The logits are normalised; the norm belongs in front of the output.",
    ),
    "untied": (
        _with(tied=False),
        "The output has a matrix of its own; the task asks for the one of the words: "
        "output.weight = word.weight.",
    ),
    "output-bias": (
        _with(bias=True),
        "The output has a bias; the task asks for none.",
    ),
    "model-without-mask": (
        _with(mask=lambda self, T: None),
        "The blocks get no mask: every token sees all tokens, the next one too.",
    ),
    "model-mask-inverted": (
        _masked(torch.logical_not),
        "The mask is inverted: each token sees the later ones alone. True means: may "
        "attend, so s ≤ t.",
    ),
    "model-mask-turned": (
        _masked(lambda mask: mask.mT),
        "The mask is transposed: each token sees itself and the later ones.",
    ),
    "model-mask-blocks-itself": (
        _masked(lambda mask: mask.tril(-1)),
        "The mask hides each token from itself: s ≤ t, not s < t.",
    ),
    "model-mask-leaks": (
        _with(mask=lambda self, T: torch.ones(T, T, dtype=torch.bool).tril(1)),
        "The mask leaks: each token sees the next one, too, which is the one to "
        "predict.",
    ),
    "mask-of-ignored": (
        _with(mask=lambda self, T: torch.ones(T, T, dtype=torch.bool).tril()),
        "The mask is causal whatever `mask_of` says: the blocks get the mask "
        "self.mask_of(T, T).",
    ),
    "one-block-repeated": (
        _with(stack=lambda self, E, H, L: nn.ModuleList([Block(E, H)] * L)),
        "All blocks are one and the same, with the same numbers: [Block(…)] * n holds "
        "one block n times; each needs a Block(…) of its own.",
    ),
    "blocks-in-a-list": (
        _with(stack=lambda self, E, H, L: [Block(E, H) for _ in range(L)]),
        "The blocks lie in a plain list, where torch does not find their numbers, and "
        "no optimizer trains them: nn.ModuleList.",
    ),
    "blocks-beside": (
        _with(through=_from_embedding),
        "Every block reads the embedding; each has to read what the one before it "
        "returned.",
    ),
    "first-block-always": (
        _with(through=_first_block),
        "The first block is used again and again; each block has its turn once.",
    ),
    "first-block-alone": (
        _with(through=lambda self, x, mask: self.blocks[0](x, mask)),
        "The first block alone is used: does a `return` stand inside the loop?",
    ),
    "last-block-alone": (
        _with(through=lambda self, x, mask: self.blocks[-1](x, mask)),
        "What the last block returns is all that counts, and it reads the embedding: "
        "the loop has to put each block's result into the x that the next one reads.",
    ),
    "no-blocks": (
        _with(through=lambda self, x, mask: x),
        "The blocks change nothing: is what they return thrown away?",
    ),
    "blocks-backwards": (
        _with(through=_backwards),
        "The blocks run from the last to the first.",
    ),
    "model-softmax": (
        _after(lambda x: x.softmax(-1)),
        "The model returns probabilities; logits are asked for, without a softmax.",
    ),
    "model-log-softmax": (
        _after(lambda x: x.log_softmax(-1)),
        "The model returns ln p; logits are asked for. (cross_entropy cannot tell "
        "them apart, temperature and top-k neither; the task can.)",
    ),
    "last-place-alone": (
        _after(lambda x: x[:, -1]),
        "The logits of the last place alone are returned; all T places predict: "
        "(B, T, W).",
    ),
}
