"""Wrong writers of texts, by the names that `check` gives them."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from mha_lib.check.language.generate import only_top, written

__all__ = ["FAIL", "MISTAKES"]


def _with(**other) -> partial:
    """A `generate` that does something otherwise."""
    return partial(written, **other)


def _top(kept: Callable) -> partial:
    """Another choice of logits, where there is a k."""
    return _with(top=lambda x, k: x if k is None else kept(x, k))


def _below_out(edge: Callable) -> partial:
    """What lies below another limit than the k-th largest of each row goes."""
    return _top(lambda x, k: x.masked_fill(x < edge(x, k), float("-inf")))


def _zeros(x, k):
    kept = only_top(x, k)
    return kept.masked_fill(kept == float("-inf"), 0.0)


def _edge(x, k):
    return x.topk(k).values[:, -1:]


def _first_words(x, k):
    return x.masked_fill(torch.arange(x.shape[-1]) >= k, float("-inf"))


def _prompt_alone(model, tokens, new, context, *options, **more):
    one = partial(written, model, tokens, 1, context, *options, **more)
    drawn = [one()[:, -1:] for _ in range(new)]
    return torch.cat([tokens, *drawn], dim=1)


MISTAKES = {
    "no-softmax-in-draw": (
        _with(weigh=lambda x: x.clamp(min=0)),
        "The draws are made with the logits themselves as weights: a softmax turns "
        "them into probabilities first.",
    ),
    "logits-drawn": (
        _with(weigh=lambda x: x),
        "The logits themselves go to torch.multinomial, which takes no number below 0: "
        "a softmax turns them into probabilities first.",
    ),
    "draw-softmax-twice": (
        _with(weigh=lambda x: x.softmax(-1).softmax(-1)),
        "The softmax is taken twice: its second run makes all tokens nearly alike.",
    ),
    "softmax-over-rows": (
        _with(weigh=lambda x: x.softmax(0).nan_to_num() + 1e-9),
        "The softmax runs over the batch; it has to run over the words, dim=-1.",
    ),
    "temperature-multiplied": (
        _with(heat=torch.mul),
        "The logits are multiplied by the temperature; they have to be divided by it, "
        "so that a low one makes the likely likelier.",
    ),
    "temperature-ignored": (
        _with(heat=lambda x, temperature: x),
        "The temperature has no effect: it is not used, or p is divided by it after "
        "the softmax, where it cancels. It belongs under the logits.",
    ),
    "top-k-smallest": (
        _top(lambda x, k: only_top(x, k, False)),
        "top-k keeps the unlikeliest tokens; the k largest logits have to stay.",
    ),
    "top-k-ignored": (
        _top(lambda x, k: x),
        "top_k has no effect: all tokens but the k likeliest need the probability 0.",
    ),
    "top-k-place": (
        _top(lambda x, k: x.topk(k).values),
        "With top_k the place in the list of the k likeliest is returned as if it were "
        "a token: look up topk(…).indices there.",
    ),
    "top-k-first-words": (
        _top(_first_words),
        "top-k keeps the first k words of the vocabulary, whatever their logits are; "
        "the k largest logits of each row have to stay.",
    ),
    "top-k-zeros": (
        _top(_zeros),
        "The logits that top-k leaves out are set to 0, which is a logit like others; "
        "-inf gives the probability 0.",
    ),
    "top-k-out": (
        _top(lambda x, k: x.scatter(-1, x.topk(k).indices, float("-inf"))),
        "top-k removes the k likeliest tokens and keeps the others; it is the other "
        "way round.",
    ),
    "top-k-above-out": (
        _top(lambda x, k: x.masked_fill(x > _edge(x, k), float("-inf"))),
        "top-k removes the tokens above the k-th likeliest; those below it have to go: "
        "is a `<` turned round?",
    ),
    "top-k-of-all-rows": (
        _below_out(lambda x, k: x.topk(k).values.min()),
        "One limit is used for all rows of the batch; each row has a k-th largest "
        "logit of its own, (B, 1).",
    ),
    "top-k-one-more": (
        _below_out(lambda x, k: _edge(x, k + 1)),
        "top-k keeps one token too many: the limit is the k-th largest logit.",
    ),
    "top-k-one-less": (
        _top(lambda x, k: x.masked_fill(x <= _edge(x, k), float("-inf"))),
        "top-k removes the k-th likeliest token, too (with k = 1 every one): is there "
        "a `<=` where `<` is meant?",
    ),
    "argmax-always": (
        _with(pick=lambda weights: weights.argmax(-1, keepdim=True)),
        "The likeliest token is always taken; it has to be drawn, with "
        "torch.multinomial of the probabilities.",
    ),
    "drawn-alike": (
        _with(weigh=torch.ones_like),
        "All tokens are equally likely, whatever the logits say.",
    ),
    "one-draw-for-all": (
        _with(
            pick=lambda weights: torch.multinomial(weights[:1], 1).expand(
                len(weights), 1
            )
        ),
        "One token is drawn for all rows of the batch; each has to be drawn by itself.",
    ),
    "first-place": (
        _with(place=lambda x: x[:, 0]),
        "The logits of the first place are taken; those after the last token say what "
        "comes next: [:, -1].",
    ),
    "last-but-one": (
        _with(place=lambda x: x[:, -2:][:, 0]),
        "The logits of the last place but one are taken; those after the last token "
        "say what comes next: [:, -1].",
    ),
    "mean-of-places": (
        _with(place=lambda x: x.mean(1)),
        "The mean of the logits of all places is taken; those after the last token "
        "say what comes next: [:, -1].",
    ),
    "context-not-cut": (
        _with(cut=lambda tokens, context: tokens),
        "A text longer than the context is given to the model as a whole: it reads "
        "the last `context` tokens alone.",
    ),
    "context-cut-in-front": (
        _with(cut=lambda tokens, context: tokens[:, :context]),
        "Of a long text the model reads the beginning; it has to read the last "
        "`context` tokens.",
    ),
    "context-one-long": (
        _with(cut=lambda tokens, context: tokens[:, -context - 1 :]),
        "Of a long text the model reads one token more than the context holds.",
    ),
    "context-one-short": (
        _with(cut=lambda tokens, context: tokens[:, -max(1, context - 1) :]),
        "Of a long text the model reads one token less than the context holds.",
    ),
    "last-token-alone": (
        _with(cut=lambda tokens, context: tokens[:, -1:]),
        "The model reads the last token alone; it has to read the text before it, too.",
    ),
    "prompt-alone-read": (
        _prompt_alone,
        "Each new token is drawn after the prompt alone; the model has to read what "
        "was written before, too: put it behind the text inside the loop.",
    ),
    "prompt-lost": (
        _with(part=lambda tokens, start, new: tokens[:, start:]),
        "The prompt is not returned: the new tokens have to stand behind it.",
    ),
    "last-new-alone": (
        _with(part=lambda tokens, start, new: tokens[:, -new:]),
        "The prompt is not returned: tokens[:, -new:] are the new tokens alone (and "
        "with new = 0 all of them); the prompt has to stand in front of them.",
    ),
    "written-in-front": (
        _with(front=True),
        "The new token is put in front of the text; it belongs behind it.",
    ),
    "one-token-more": (_with(more=1), "One token too many is written."),
    "one-token-less": (_with(more=-1), "One token too few is written."),
    "training-mode-while-writing": (
        _with(evaluates=False),
        "The model writes in training mode, where dropout acts: model.eval() is "
        "missing.",
    ),
    "mode-not-restored": (
        _with(restores=False),
        "Afterwards the model is in evaluation mode, whatever it was before: put it "
        "back with model.train(before).",
    ),
    "training-mode-afterwards": (
        _with(trains=True),
        "Afterwards the model is in training mode, whatever it was before: put it "
        "back with model.train(before).",
    ),
    "logits-changed": (
        _with(heat=Tensor.div_),
        "The logits that the model returned are changed in place (/=, or x[…] = …): "
        "they are the model's, which may use them again. Make a new tensor.",
    ),
    "gradients-kept": (
        _with(gradients=True),
        "Gradients are kept while it writes, which costs memory for nothing: "
        "torch.no_grad is missing.",
    ),
}
FAIL = {"logits-drawn", "no-softmax-in-draw"}
FAIL |= {"top-k-one-less", "top-k-one-more", "top-k-out"}
"""Mistakes that torch refuses in some cases."""
