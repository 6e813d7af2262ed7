"""Wrong writers of texts, by the names that `check` gives them."""

from collections.abc import Callable
from functools import partial

import torch

from mha_lib.check.language.generate import next_token, only_top, written

__all__ = ["FAIL", "MISTAKES"]


def _with(**other) -> Callable:
    """A `generate` that does something otherwise."""

    def generate(*given, **options):
        return written(*given, **options, **other)

    return generate


def _sampled(weights):
    """Draw with the weights that come of logits, temperature and top-k."""
    return _with(
        draw=lambda logits, temperature, top_k: torch.multinomial(
            weights(logits, temperature, top_k), 1
        )
    )


def _without_softmax(logits, temperature, top_k):
    return only_top(logits, top_k).clamp(min=0) / temperature


def _softmax_of_rows(logits, temperature, top_k):
    return (only_top(logits, top_k) / temperature).softmax(0).nan_to_num() + 1e-9


def _twice(logits, temperature, top_k):
    return (only_top(logits, top_k) / temperature).softmax(-1).softmax(-1)


def _place_in_list(logits, temperature, top_k):
    if top_k is None:
        return next_token(logits, temperature, top_k)
    few = logits.topk(top_k).values
    return torch.multinomial((few / temperature).softmax(-1), 1)


def _zeros(logits, temperature, top_k):
    kept = only_top(logits, top_k)
    kept = kept.masked_fill(kept == float("-inf"), 0.0)
    return (kept / temperature).softmax(-1)


def _one_for_all(logits, temperature, top_k):
    return next_token(logits[:1], temperature, top_k).expand(len(logits), 1)


def _out(logits, top_k):
    if top_k is None:
        return logits
    return logits.scatter(-1, logits.topk(top_k).indices, float("-inf"))


def _of_all_rows(logits, top_k):
    if top_k is None:
        return logits
    edge = logits.topk(top_k).values.min()
    return logits.masked_fill(logits < edge, float("-inf"))


def _one_more(logits, top_k):
    return only_top(logits, None if top_k is None else top_k + 1)


def _one_less(logits, top_k):
    if top_k is None:
        return logits
    edge = logits.topk(top_k).values[:, -1:]
    return logits.masked_fill(logits <= edge, float("-inf"))


def _raw(logits, temperature, top_k):
    return only_top(logits / temperature, top_k)


def _prompt_alone(model, tokens, new, context, *options, **more):
    one = partial(written, model, tokens, 1, context, *options, **more)
    drawn = [one()[:, -1:] for _ in range(new)]
    return torch.cat([tokens, *drawn], dim=1)


def _in_place(logits, temperature, top_k):
    logits /= temperature
    return next_token(logits, 1.0, top_k)


def _above_out(logits, top_k):
    if top_k is None:
        return logits
    edge = logits.topk(top_k).values[:, -1:]
    return logits.masked_fill(logits > edge, float("-inf"))


MISTAKES = {
    "no-softmax-in-draw": (
        _sampled(_without_softmax),
        "The draws are made with the logits themselves as weights: a softmax turns "
        "them into probabilities first.",
    ),
    "logits-drawn": (
        _sampled(_raw),
        "The logits themselves go to torch.multinomial, which takes no number below 0: "
        "a softmax turns them into probabilities first.",
    ),
    "draw-softmax-twice": (
        _sampled(_twice),
        "The softmax is taken twice: its second run makes all tokens nearly alike.",
    ),
    "softmax-over-rows": (
        _sampled(_softmax_of_rows),
        "The softmax runs over the batch; it has to run over the words, dim=-1.",
    ),
    "temperature-multiplied": (
        _sampled(lambda x, t, k: (only_top(x, k) * t).softmax(-1)),
        "The logits are multiplied by the temperature; they have to be divided by it, "
        "so that a low one makes the likely likelier.",
    ),
    "temperature-ignored": (
        _sampled(lambda x, t, k: only_top(x, k).softmax(-1)),
        "The temperature has no effect: it is not used, or p is divided by it after "
        "the softmax, where it cancels. It belongs under the logits.",
    ),
    "top-k-smallest": (
        _sampled(lambda x, t, k: (only_top(x, k, False) / t).softmax(-1)),
        "top-k keeps the unlikeliest tokens; the k largest logits have to stay.",
    ),
    "top-k-ignored": (
        _sampled(lambda x, t, k: (x / t).softmax(-1)),
        "top_k has no effect: all tokens but the k likeliest need the probability 0.",
    ),
    "top-k-place": (
        _with(draw=_place_in_list),
        "With top_k the place in the list of the k likeliest is returned as if it were "
        "a token: look up topk(…).indices there.",
    ),
    "top-k-zeros": (
        _sampled(_zeros),
        "The logits that top-k leaves out are set to 0, which is a logit like others; "
        "-inf gives the probability 0.",
    ),
    "top-k-out": (
        _sampled(lambda x, t, k: (_out(x, k) / t).softmax(-1)),
        "top-k removes the k likeliest tokens and keeps the others; it is the other "
        "way round.",
    ),
    "top-k-above-out": (
        _sampled(lambda x, t, k: (_above_out(x, k) / t).softmax(-1)),
        "top-k removes the tokens above the k-th likeliest; those below it have to go: "
        "is a `<` turned round?",
    ),
    "top-k-of-all-rows": (
        _sampled(lambda x, t, k: (_of_all_rows(x, k) / t).softmax(-1)),
        "One limit is used for all rows of the batch; each row has a k-th largest "
        "logit of its own, (B, 1).",
    ),
    "top-k-one-more": (
        _sampled(lambda x, t, k: (_one_more(x, k) / t).softmax(-1)),
        "top-k keeps one token too many: the limit is the k-th largest logit.",
    ),
    "top-k-one-less": (
        _sampled(lambda x, t, k: (_one_less(x, k) / t).softmax(-1)),
        "top-k removes the k-th likeliest token, too (with k = 1 every one): is there "
        "a `<=` where `<` is meant?",
    ),
    "argmax-always": (
        _with(draw=lambda x, t, k: x.argmax(-1, keepdim=True)),
        "The likeliest token is always taken; it has to be drawn, with "
        "torch.multinomial of the probabilities.",
    ),
    "drawn-alike": (
        _sampled(lambda x, t, k: torch.ones_like(x)),
        "All tokens are equally likely, whatever the logits say.",
    ),
    "one-draw-for-all": (
        _with(draw=_one_for_all),
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
        _with(draw=_in_place),
        "The logits that the model returned are changed in place (/=, or x[…] = …): "
        "they are the model's, which may use them again. Make a new tensor.",
    ),
    "gradients-kept": (
        _with(gradients=True),
        "Gradients are kept while it writes, which costs memory for nothing: "
        "torch.no_grad is missing.",
    ),
}
FAIL = {"logits-drawn", "no-softmax-in-draw", "top-k-one-less"}
"""Mistakes that torch refuses in some cases."""
