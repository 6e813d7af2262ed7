"""Writing: right, wrong, and the cases that tell them apart.

What is drawn is counted in thousands of rows. The root of a share is as uncertain for a
rare word as for a frequent one, so roots are compared: they may differ by `TOLERANCE`,
six deviations.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from mha_lib.check.example import largest

__all__ = ["FAIL", "MISTAKES", "TOLERANCE", "call", "draw", "generate", "words"]

TOLERANCE = 0.05  # of the roots of two shares in 8,192 draws: 6 · √(2 · ¼ / 8192)


def generate(
    model: nn.Module,
    tokens: Tensor,
    new: int,
    context: int,
    temperature: float = 1.0,
    top_k: int | None = None,
) -> Tensor:
    """x_{t+1} ~ softmax(logits_t / temperature) of the k largest, ``new`` times.

    Args:
        model: (B, T) → logits (B, T, W), T at most the context; while it writes, in
            evaluation mode, afterwards as it was; without gradients.
        tokens: (B, T), the prompts.
        new: how many tokens to append.
        context: how many of the last tokens the model reads.
        temperature: above 0.
        top_k: draw from the k likeliest tokens alone; None draws from all.

    Returns:
        (B, T + new), which begins with the prompts.

    Example:
        >>> def counts(tokens):  # after n comes n + 1
        ...     return 99.0 * nn.functional.one_hot((tokens + 1) % 7, 7)
        >>> model = nn.Module()
        >>> model.forward = counts
        >>> generate(model, torch.tensor([[4, 5]]), new=4, context=3)
        tensor([[4, 5, 6, 0, 1, 2]])
    """
    return _written(model, tokens, new, context, temperature, top_k)


def _written(model, tokens, new, context, temperature=1.0, top_k=None, **other):
    """What `generate` does; ``other`` ways to do a part of it, by name."""
    before, start = model.training, tokens.shape[1]
    if other.get("evaluates", True):
        model.eval()
    with torch.set_grad_enabled(other.get("gradients", False)):
        for _ in range(new + other.get("more", 0)):
            logits = model(other.get("cut", _last)(tokens, context))
            logits = other.get("place", _at_last)(logits)
            drawn = other.get("draw", _drawn)(logits, temperature, top_k)
            pair = [tokens, drawn]
            tokens = torch.cat(pair[::-1] if other.get("front") else pair, dim=1)
    if other.get("restores", True):
        model.train(before or other.get("trains", False))
    return tokens[:, start:] if other.get("prompt_lost") else tokens


def _last(tokens, context):
    return tokens[:, -context:]


def _at_last(logits):
    return logits[:, -1]


def _kept(logits, top_k, largest=True):
    if top_k is None:
        return logits
    edge = logits.topk(top_k, largest=largest).values[:, -1:]
    out = logits < edge if largest else logits > edge
    return logits.masked_fill(out, float("-inf"))


def _drawn(logits, temperature, top_k):
    p = (_kept(logits, top_k) / temperature).softmax(-1)
    return torch.multinomial(p, 1)


def draw(generator: torch.Generator) -> dict[str, dict]:
    """Cases: sure texts, cut and not; modes; shares of one token drawn often."""

    def sized(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    def sure(context: int, B: int = 0, more: int = 0, far: int = 0) -> dict:
        B, W, new = B or sized(2, 4), sized(11, 17), sized(9, 13) + far
        tokens = torch.randint(W, (B, sized(4, 7) + more), generator=generator)
        logits = torch.zeros(W)
        given = {"tokens": tokens, "new": new, "context": context, "options": []}
        return {"kind": "sure", "logits": logits, **given}

    def shares(*options: float, new: int = 1, many: bool = False) -> dict:
        W, ends = (sized(60, 66), (-0.5, 0.5)) if many else (sized(5, 7), (-1.5, 2.7))
        orders = torch.stack([torch.randperm(W, generator=generator) for _ in "ab"])
        steps = torch.linspace(*ends, W)[orders] + torch.tensor([[0.0], [3.0]])
        tokens = torch.arange(2).repeat(8192)[:, None]  # rows of two kinds, in turn
        given = {"tokens": tokens, "new": new, "context": 4, "options": list(options)}
        return {"kind": "shares", "logits": steps, **given}

    return {
        "texts": sure(99, B=sized(5, 9), more=30, far=30),
        "texts longer than the context": sure(sized(2, 4), more=6),
        "a context of one": sure(1, more=3),
        "every word occurs": {**sure(99, B=1), "new": 17, "kind": "counts"},
        "a close call": {**sure(99), "new": 19, "kind": "close", "options": [1e-3]},
        "modes and gradients": {**sure(99), "kind": "modes"},
        "draws": shares(),
        "draws of many words": shares(many=True),
        "a low temperature": shares(0.4),
        "a high temperature": shares(5.0),
        "top-k": shares(1.0, 3),
        "top-k at a temperature": shares(2.0, 2, new=3),
        "top-k of many words": shares(1.0, 12, many=True),
        "the likeliest alone": shares(1.0, 1),
        "two texts": {**shares(), "kind": "twice"},
        "a model that keeps its logits": {
            **sure(99),
            "kind": "kept",
            "options": [0.7, 3],
        },
    }


def call(generate, kind, logits, tokens, new, context, options):
    """Texts of a model that is sure; its modes; or how often each token is drawn.

    Of what is drawn, a row of roots of shares for each of two kinds of prompts; or
    whether a second text is another one; or whether the logits that a model returned
    still hold its numbers.
    """
    import torch

    W = logits.shape[-1]

    class Part(torch.nn.Module):  # the dropout of a model, say
        def forward(self, x):
            return x + 3 * self.training

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))
            self.part = Part()
            self.seen = []

        def forward(self, tokens):
            self.seen.append([self.part.training, torch.is_grad_enabled()])
            if kind in ("shares", "twice"):
                return self.scale * logits[tokens % 2]
            places = torch.arange(1, tokens.shape[1] + 1)
            read = self.part((tokens * places + places).cumsum(1))
            read = tokens + 1 if kind in ("counts", "close") else read
            if kind == "close":  # nearly as likely is the next word but one
                each = torch.nn.functional.one_hot(torch.stack([read, read + 1]) % W, W)
                return self.scale * (each[0] + 0.95 * each[1])
            return self.scale * 200.0 * torch.nn.functional.one_hot(read % W, W)

    model = Model()
    names = dict(zip(("temperature", "top_k"), options))
    if kind == "twice":
        one, other = (generate(model, tokens, new, context) for _ in "ab")
        return torch.tensor([float(not torch.equal(one, other))])
    if kind == "kept":
        kept, first = [], model.forward

        def keeps(tokens):
            logits = first(tokens)
            kept.append((logits, logits.detach().clone()))
            return logits

        model.forward = keeps
        generate(model, tokens, new, context, **names)
        return torch.tensor([float(all(x.equal(old) for x, old in kept))])
    if kind != "modes":
        out = generate(model, tokens, new, context, **names)
        if kind in ("sure", "counts", "close"):
            return out.double()
        kinds = [out[n::2, -1].bincount(minlength=W) for n in range(2)]
        return (torch.stack(kinds).double() / (len(tokens) // 2)).sqrt()
    found = []
    for training in (True, False):
        model.train(training)
        with torch.enable_grad():  # and what was before comes back afterwards
            out = generate(model, tokens, new, context)
            found.append(torch.is_grad_enabled())
        during = [sum(x) / len(model.seen) for x in zip(*model.seen)]
        found += [*during, out.requires_grad, model.training, model.part.training]
        model.seen.clear()
    return torch.tensor([float(x) for x in found])


NOTED = 6  # numbers of each mode, in the order of `call`


def words(yours: Tensor, right: Tensor, inputs: dict) -> str:
    """The first wrong token, how often one is drawn, or what became of a mode."""
    kind, prompt = inputs["kind"], inputs["tokens"].shape[1]
    if kind == "twice":
        return "Two texts of the same prompts are one and the same: nothing is drawn."
    if kind == "kept":
        return "The logits that the model returned hold other numbers afterwards."
    place = (yours - right).abs().nan_to_num(9.0) > TOLERANCE
    if kind == "modes":
        said = _mode(yours, int(place.nonzero()[0]))
        return f"{said[0].upper()}{said[1:]}."
    if kind == "shares":
        n, word = largest(yours - right)
        names = ("temperature", "top_k")
        given = [f"{k} = {x:g}" for k, x in zip(names, inputs["options"])]
        at = f" with {' and '.join(given)}" if given else ""
        theirs, ours = yours[n, word].square(), right[n, word].square()
        return (
            f"After a prompt of token {n}{at}, token {word} is drawn in {theirs:.1%} "
            f"of {len(inputs['tokens']) // 2:,} texts; {ours:.1%} is what to expect."
        )
    t = int(place.any(0).nonzero()[0])
    b = int(place[:, t].nonzero()[0])
    what = "of the prompt" if t < prompt else f"new token {t - prompt}"
    cut = (
        f" (the model reads {inputs['context']} tokens)"
        if t >= inputs["context"]
        else ""
    )
    return (
        f"Text {b}, place {t} ({what}): token {yours[b, t]:.0f} stands there; "
        f"{right[b, t]:.0f} is right{cut}."
    )


def _mode(yours: Tensor, place: int) -> str:
    """What is noted at a place, and of a model in which mode."""
    before, n = divmod(place, NOTED)
    mode = "in evaluation mode" if before else "in training mode"
    if n == 0:
        return "gradients are switched off afterwards; they were on before"
    if n < 3:
        way = "in training mode" if n == 1 else "with gradients"
        return f"a model that was {mode} writes {way}"
    if n == 3:
        return "the text that comes back carries gradients"
    found = "training" if yours[place] else "evaluation"
    part = "a part of a model" if n == 5 else "a model"
    return f"{part} that was {mode} is in {found} mode afterwards"


# --- wrong ----------------------------------------------------------------------------


def _with(**other) -> Callable:
    """A `generate` that does something otherwise."""

    def generate(*given, **options):
        return _written(*given, **options, **other)

    return generate


def _sampled(weights):
    """Draw with the weights that come of logits, temperature and top-k."""
    return _with(
        draw=lambda logits, temperature, top_k: torch.multinomial(
            weights(logits, temperature, top_k), 1
        )
    )


def _without_softmax(logits, temperature, top_k):
    return _kept(logits, top_k).clamp(min=0) / temperature


def _softmax_of_rows(logits, temperature, top_k):
    return (_kept(logits, top_k) / temperature).softmax(0).nan_to_num() + 1e-9


def _twice(logits, temperature, top_k):
    return (_kept(logits, top_k) / temperature).softmax(-1).softmax(-1)


def _place_in_list(logits, temperature, top_k):
    if top_k is None:
        return _drawn(logits, temperature, top_k)
    few = logits.topk(top_k).values
    return torch.multinomial((few / temperature).softmax(-1), 1)


def _zeros(logits, temperature, top_k):
    kept = _kept(logits, top_k)
    kept = kept.masked_fill(kept == float("-inf"), 0.0)
    return (kept / temperature).softmax(-1)


def _one_for_all(logits, temperature, top_k):
    return _drawn(logits[:1], temperature, top_k).expand(len(logits), 1)


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
    return _kept(logits, None if top_k is None else top_k + 1)


def _one_less(logits, top_k):
    if top_k is None:
        return logits
    edge = logits.topk(top_k).values[:, -1:]
    return logits.masked_fill(logits <= edge, float("-inf"))


def _raw(logits, temperature, top_k):
    return _kept(logits / temperature, top_k)


def _prompt_alone(model, tokens, new, context, *options, **more):
    one = partial(_written, model, tokens, 1, context, *options, **more)
    drawn = [one()[:, -1:] for _ in range(new)]
    return torch.cat([tokens, *drawn], dim=1)


def _in_place(logits, temperature, top_k):
    logits /= temperature
    return _drawn(logits, 1.0, top_k)


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
        _sampled(lambda x, t, k: (_kept(x, k) * t).softmax(-1)),
        "The logits are multiplied by the temperature; they have to be divided by it, "
        "so that a low one makes the likely likelier.",
    ),
    "temperature-ignored": (
        _sampled(lambda x, t, k: _kept(x, k).softmax(-1)),
        "The temperature has no effect: it is not used, or p is divided by it after "
        "the softmax, where it cancels. It belongs under the logits.",
    ),
    "top-k-smallest": (
        _sampled(lambda x, t, k: (_kept(x, k, False) / t).softmax(-1)),
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
        _with(prompt_lost=True),
        "The prompt is not returned: the new tokens have to stand behind it.",
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
FAIL = {"logits-drawn", "top-k-one-less"}
"""Mistakes that torch refuses in some cases."""
