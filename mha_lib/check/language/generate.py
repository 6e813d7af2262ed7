"""Writing: right, and the cases that tell it from what is wrong.

What is drawn is counted in thousands of rows. The root of a share is as uncertain for a
rare word as for a frequent one, so roots are compared: they may differ by `TOLERANCE`,
six deviations.
"""

import torch
from torch import Tensor, nn

from mha_lib.check.example import largest

__all__ = [
    "TOLERANCE",
    "call",
    "draw",
    "generate",
    "next_token",
    "only_top",
    "words",
    "written",
]

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
    return written(model, tokens, new, context, temperature, top_k)


def written(model, tokens, new, context, temperature=1.0, top_k=None, **other):
    """What `generate` does; ``other`` ways to do a part of it, by name."""
    before, start = model.training, tokens.shape[1]
    if other.get("evaluates", True):
        model.eval()
    with torch.set_grad_enabled(other.get("gradients", False)):
        for _ in range(new + other.get("more", 0)):
            logits = model(other.get("cut", _last)(tokens, context))
            logits = other.get("place", _at_last)(logits)
            drawn = next_token(logits, temperature, top_k, **other)
            pair = [tokens, drawn]
            tokens = torch.cat(pair[::-1] if other.get("front") else pair, dim=1)
    if other.get("restores", True):
        model.train(before or other.get("trains", False))
    return other.get("part", _all)(tokens, start, new)


def _all(tokens, start, new):
    return tokens


def _last(tokens, context):
    return tokens[:, -context:]


def _at_last(logits):
    return logits[:, -1]


def only_top(logits, top_k, largest=True):
    """The ``top_k`` largest logits of each row, and -inf for the others."""
    if top_k is None:
        return logits
    edge = logits.topk(top_k, largest=largest).values[:, -1:]
    out = logits < edge if largest else logits > edge
    return logits.masked_fill(out, float("-inf"))


def next_token(logits, temperature, top_k, **other):
    """(B, W) → (B, 1), drawn from softmax(logits / temperature) of the largest."""
    logits = other.get("heat", torch.div)(logits, temperature)
    kept = other.get("top", only_top)(logits, top_k)
    return other.get("pick", _one_each)(other.get("weigh", _softmax)(kept))


def _softmax(logits):
    return logits.softmax(-1)


def _one_each(weights):
    return torch.multinomial(weights, 1)


def draw(generator: torch.Generator) -> dict[str, dict]:
    """Cases: sure texts, cut and not; modes; shares of one token drawn often."""

    def sized(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    def sure(
        context: int, B: int = 0, more: int = 0, far: int = 0, every: bool = False
    ) -> dict:
        B, W, new = B or sized(2, 4), sized(11, 17), sized(9, 13) + far
        tokens = torch.randint(W, (B, sized(4, 7) + more), generator=generator)
        logits, options = torch.zeros(W), [1.0, W] if every else []
        given = {"tokens": tokens, "new": new, "context": context, "options": options}
        return {"kind": "sure", "logits": logits, **given}

    def shares(
        *options: float,
        new: int = 1,
        many: bool = False,
        scale: float = 1.0,
        shift: float = 0.0,
    ) -> dict:
        W, ends = (sized(60, 66), (-0.5, 0.5)) if many else (sized(5, 7), (-1.5, 2.7))
        orders = torch.stack([torch.randperm(W, generator=generator) for _ in "ab"])
        steps = torch.linspace(*ends, W)[orders] + torch.tensor([[0.0], [3.0]])
        steps = scale * steps + shift
        tokens = torch.arange(2).repeat(8192)[:, None]  # rows of two kinds, in turn
        given = {"tokens": tokens, "new": new, "context": 4, "options": list(options)}
        return {"kind": "shares", "logits": steps, **given}

    def flat() -> dict:
        """So many words that each of them is rare."""
        W, tokens = sized(4000, 4100), torch.arange(2).repeat(4)[:, None]
        logits = torch.rand(2, W, generator=generator)
        return {**shares(), "logits": logits, "tokens": tokens}

    return {
        "texts": sure(99, B=sized(5, 9), more=30, far=30),
        "texts longer than the context": sure(sized(2, 4), more=6),
        "a context of one": sure(1, more=3),
        "every word occurs": {**sure(99, B=1), "new": 17, "kind": "counts"},
        "a close call": {**sure(99), "new": 19, "kind": "close", "options": [1e-3]},
        "modes and gradients": {**sure(99), "kind": "modes"},
        "draws": shares(),
        "draws of many words": shares(many=True),
        "a low temperature": shares(0.4, new=3),
        "a high temperature": shares(5.0),
        "nearly no temperature": shares(0.025, scale=0.025),  # float32 has p ** 40
        "top-k": shares(1.0, 3),
        "top-k of logits far below 0": shares(1.0, 2, shift=-3000.0),
        "top-k at a temperature": shares(2.0, 2, new=3),
        "top-k of many words": shares(1.0, 12, many=True),
        "the likeliest alone": shares(1.0, 1),
        "two texts of many words": {**flat(), "kind": "twice"},
        "nothing to write": {**sure(99), "new": 0, "kind": "nothing"},
        "a model that keeps its logits": {
            **sure(99),
            "kind": "kept",
            "options": [0.7, 3],
        },
        "texts that outgrow the context": sure(sized(8, 12)),
        "top-k of all words": {**sure(99, B=1, every=True), "new": 1},
    }


def call(generate, kind, logits, tokens, new, context, options):
    """Texts of a model that is sure; its modes; or how often each token is drawn.

    Where there is nothing to write: whether the prompts came back, and the mode.
    Of what is drawn, a row of roots of shares for each of two kinds of prompts, of
    pairs where several tokens are new; or
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

    def write(**options):
        out = generate(model, tokens, new, context, **options)
        if not isinstance(out, torch.Tensor):
            kind = type(out).__name__
            raise TypeError(f"one tensor, (B, T + new), is required; got a {kind}")
        if out.dtype != tokens.dtype:
            raise TypeError(f"tokens of {tokens.dtype} are required; got {out.dtype}")
        if out.dim() != 2 or len(out) != len(tokens):
            due = (len(tokens), tokens.shape[1] + new)
            raise ValueError(
                f"tokens (B, T + new) = {due} are required; got {(*out.shape,)}"
            )
        return out

    model = Model()
    names = dict(zip(("temperature", "top_k"), options))
    if kind == "twice":
        one, other = (write() for _ in "ab")
        return torch.tensor([float(not torch.equal(one, other))])
    if kind == "kept":
        kept, first = [], model.forward

        def keeps(tokens):
            logits = first(tokens)
            kept.append((logits, logits.detach().clone()))
            return logits

        model.forward = keeps
        write(**names)
        return torch.tensor([float(all(x.equal(old) for x, old in kept))])
    if kind == "nothing":
        out = write()
        return torch.tensor([float(out.equal(tokens)), float(model.training)])
    if kind != "modes":
        out = write(**names)
        if kind in ("sure", "counts", "close"):
            return out.double()
        drawn, count = out[:, -1], W
        if new > 1:  # with the one before: each has to be drawn anew
            drawn, count = W * out[:, -2] + drawn, W * W
        kinds = [drawn[n::2].bincount(minlength=count) for n in range(2)]
        return (torch.stack(kinds).double() / (len(tokens) // 2)).sqrt()
    found = []
    for training in (True, False):
        model.train(training)
        with torch.enable_grad():  # and what was before comes back afterwards
            out = write()
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
        return (
            "Two texts of the same prompts are one and the same: nothing is drawn, or "
            "each call begins with a seed of its own."
        )
    if kind == "kept":
        return "The logits that the model returned hold other numbers afterwards."
    place = (yours - right).abs().nan_to_num(9.0) > TOLERANCE
    if kind == "nothing":
        return "With new = 0 " + (
            "the prompts do not come back as they are."
            if place[0]
            else "a model that was in training mode is in evaluation mode afterwards."
        )
    if kind == "modes":
        said = _mode(yours, int(place.nonzero()[0]))
        return f"{said[0].upper()}{said[1:]}."
    if kind == "shares":
        n, word = largest(yours - right)
        names = ("temperature", "top_k")
        given = [f"{k} = {x:g}" for k, x in zip(names, inputs["options"])]
        at = f" with {' and '.join(given)}" if given else ""
        theirs, ours = yours[n, word].square(), right[n, word].square()
        drawn = f"token {word} is"
        if inputs["new"] > 1:
            pair = divmod(word, inputs["logits"].shape[-1])
            drawn = f"at the end tokens {pair[0]} and {pair[1]} are"
        return (
            f"After a prompt of token {n}{at}, {drawn} drawn in {theirs:.1%} "
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
