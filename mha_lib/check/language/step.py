"""One step of training: right, wrong, and the cases that tell them apart."""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor, nn

from mha_lib.check.digits import apart
from mha_lib.check.equal import matches
from mha_lib.check.example import largest
from mha_lib.check.language.factor import told
from mha_lib.check.language.loss import next_token_loss

__all__ = ["MISTAKES", "call", "draw", "seen", "training_step", "words"]


def training_step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    tokens: Tensor,
    step: int,
    rate_of: Callable[[int], float],
    clip: float,
) -> float:
    """The loss before one step down its slope, at the learning rate of this step.

    Args:
        model: tokens (B, T) → logits (B, T, W); for the step, in training mode.
        optimizer: of the model's numbers; every group gets ``rate_of(step)``.
        tokens: (B, T + 1), without padding.
        step: which one it is.
        rate_of: from a step to its learning rate.
        clip: the largest norm of all gradients together.

    Returns:
        The loss, a number without a graph.

    Example:
        >>> model = nn.Embedding(5, 5)  # a table of logits
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        >>> tokens = torch.tensor([[1, 2, 3, 4]])
        >>> rate = lambda step: 5.0
        >>> losses = [training_step(model, optimizer, tokens, n, rate, 1.0)
        ...           for n in range(9)]
        >>> losses[-1] < losses[0]
        True
    """
    return _step(model, optimizer, tokens, step, rate_of, clip)


LONG = 9.0  # a `clip` that is longer than any gradients
LEAST = 1e-12  # a rate of 0, whose logarithm `call` takes
DONE = ("train", "rate", "zero", "loss", "backward", "clip", "step")


def _step(model, optimizer, tokens, step, rate_of, clip, done=DONE, **other):
    """What is done, in this order; ``other`` ways to do it, or not to, by name."""
    found: dict[str, Tensor] = {}

    def loss():
        found["loss"] = other.get("of", _loss)(model, tokens)

    def rate():
        groups = optimizer.param_groups[: other.get("groups")]
        for group in groups:
            new = rate_of(step + other.get("later", 0))
            group["lr"] = other.get("rated", _new)(group["lr"], new)

    ways = {
        "train": lambda: other.get("mode", nn.Module.train)(model),
        "rate": rate,
        "zero": optimizer.zero_grad,
        "loss": loss,
        "backward": lambda: found["loss"].backward(),
        "clip": lambda: other.get("clipped", _clipped)(model, clip),
        "step": optimizer.step,
        "again": loss,
    }
    for name in done:
        if not other.get(f"no_{name}"):
            ways[name]()
    return other.get("returned", Tensor.item)(found["loss"])


def _new(old, new):
    return new


def _loss(model, tokens):
    return next_token_loss(model(tokens[:, :-1]), tokens, -1)


def _clipped(model, clip):
    nn.utils.clip_grad_norm_(model.parameters(), clip)


def draw(generator: torch.Generator) -> dict[str, dict]:
    """Cases: gradients to clip and not to clip, another optimizer, other modes."""

    def case(kind: str, clip: float, many: int = 0, alone: bool = False) -> dict:
        B, T, more, steps = torch.randint(3, 7, (4,), generator=generator).tolist()
        B, T, W = 1 if alone else B + 8 * many, T + 2 * many, 7 + more
        tables = 2 * torch.randn(2, W, W, generator=generator)
        tokens = torch.randint(W, (steps, B, T + 1 + (B == T + 1)), generator=generator)
        first = int(torch.randint(2, 90, (), generator=generator))
        first *= kind != "stale"  # step 0 finds gradients, too
        first += 2000 * (many > 0)
        given = {"tables": tables, "tokens": tokens, "first": first}
        given |= {"kind": kind, "clip": clip, "loud": 1000.0 if kind == "loud" else 1.0}
        return {**given, "peak": 3e-7 if kind == "slow" else 3.0}

    return {
        "gradients to clip": case("SGD", 0.03),
        "huge gradients": case("loud", 1.5),
        "gradients not to clip": case("SGD", 50.0),
        "many long texts": case("SGD", 50.0, many=8),
        "gradients of before": case("stale", 0.03),
        "AdamW with one text": case("AdamW", 0.03, alone=True),
        "a low rate": case("slow", 0.03),
    }


def call(training_step, tables, tokens, first, kind, clip, loud, peak):
    """Some steps: losses, what they are, rates, how far all numbers moved.

    They are numbers (0), tensors with a graph (1), or something else (2).

    And whether a model that was in training still is.

    Of a rate the logarithm: a small one counts as much as a large one.
    """
    import numbers

    import torch

    class Part(torch.nn.Module):  # a dropout would be as much in training, and drawn
        def forward(self, x):
            return x * (0.5 if self.training else 1.0)

    class Model(torch.nn.Module):  # what follows a token, and another table beside it
        def __init__(self):
            super().__init__()
            self.some = torch.nn.Parameter(tables[0].clone())
            self.others = torch.nn.Parameter(0.3 * tables[1])
            self.bias = torch.nn.Parameter(0.1 * tables[0, 0])
            self.slope = torch.nn.Parameter(0.1 * tables[1, 0])
            self.part = Part()

        def forward(self, tokens):
            if tokens.shape[1] > context:
                raise IndexError(
                    f"the model reads {context} tokens at most; got {tokens.shape[1]}"
                )
            hot = torch.nn.functional.one_hot(tokens, len(self.some)).float()
            places = torch.linspace(0, 1, context)[: tokens.shape[1], None]
            votes = self.part(hot @ self.some) + self.others[tokens].tanh()
            return loud * (votes + self.bias + self.slope * places)

    model, context = Model(), tokens.shape[-1] - 1
    first_numbers = [x.detach().clone() for x in model.parameters()]
    parts = [model.some, model.bias], [model.others], [model.slope]
    groups = [{"params": one, "lr": 0.05} for one in parts]
    known = {"AdamW": torch.optim.AdamW}
    optimizer = known.get(kind, torch.optim.SGD)(groups, lr=0.05)
    if kind == "stale":
        for x in model.parameters():
            x.grad = torch.full_like(x, 0.2)

    def rate_of(step):
        if kind == "slow" and step == first + 1:  # as where a warm-up begins
            return 0.0
        return peak / (step - first + 2)

    losses, kinds, rates, modes = [], [], [], []
    for n, batch in enumerate(tokens):
        model.train(n > 0)  # the first time as after a validation
        loss = training_step(model, optimizer, batch, first + n, rate_of, clip)
        graph = getattr(loss, "requires_grad", False)
        kinds.append(1.0 if graph else 2.0 * (not isinstance(loss, numbers.Real)))
        if loss is None:
            raise TypeError(
                "the loss before the step is required; nothing is returned: is a "
                "`return` missing?"
            )
        losses.append(float(loss) / loud)
        rates += [float(group["lr"]) for group in optimizer.param_groups]
        modes.append(float(n == 0 or model.training))
    moved = [
        (x.detach() - old).flatten()
        for x, old in zip(model.parameters(), first_numbers)
    ]
    seen = torch.tensor(losses + kinds + modes)
    return torch.cat([seen, torch.tensor(rates).clamp(min=1e-12).log(), *moved])


def words(yours: Tensor, right: Tensor, inputs: dict) -> str:
    """The first thing that went otherwise, in the order of a step."""
    first, clip = inputs["first"], inputs["clip"]
    steps, W = len(inputs["tokens"]), inputs["tables"].shape[-1]
    sizes = [steps, steps, steps, 3 * steps, len(yours) - 6 * steps]
    losses, kinds, modes, rates, moved = zip(yours.split(sizes), right.split(sizes))

    def wrong(pair: tuple[Tensor, Tensor]) -> list[int]:
        one, other = pair
        off = (one - other).abs() > 1e-4 * (1 + other.abs())
        return (off | one.isnan()).nonzero().flatten().tolist()

    if n := wrong(kinds):
        how = "with its graph" if kinds[0][n[0]] == 1 else "in a tensor or an array"
        return f"The loss comes back {how}; a number is asked for."
    if n := wrong(modes):
        return (
            f"After step {first + n[0]} the model is in evaluation mode; it was in "
            "training mode before."
        )
    if n := wrong(rates):
        step, group = divmod(n[0], 3)
        theirs, ours = ((x[n[0]].exp() - LEAST).item() for x in rates)
        return (
            f"After step {first + step} group {group} of the optimizer has the rate "
            f"{theirs:.3g}; rate_of({first + step}) = {ours:.3g} is right."
        )
    if n := wrong(losses):
        got, due = apart(*(inputs["loud"] * x[n[0]].item() for x in losses), 3)
        said = f"The loss at step {first + n[0]} is {got} nats; {due} is right"
        if matches(*moved):
            clipped = ", or its gradients are a multiple of the right ones and clipped"
            return (
                f"{said}. The model has moved as it has to: only the number that is "
                f"returned is another{clipped * (inputs['clip'] < LONG)}."
            )
        return f"{said}{': the step before it moved the model otherwise' * (n[0] > 0)}."
    theirs, ours = moved
    (place,) = largest(theirs - ours)
    got, due = apart(theirs[place], ours[place], 3)
    table = "" if place >= 2 * W * W else f" of word {place // W % W}"
    return (
        f"In {steps} steps a number{table} of the model has moved by {got}, where the "
        f"gradients are clipped to the norm {clip:g}; {due} is right."
    )


def seen(cases: Mapping[str, tuple[dict, Tensor, Tensor]]) -> str:
    """Whether the loss has a factor; else whether only clipped steps are right."""
    sizes = [inputs["tokens"].shape for inputs, *_ in cases.values()]
    losses = ([x[n][0].item() for x in cases.values()] for n in (1, 2))
    letters = {"B": [x[1] for x in sizes], "T": [x[2] - 1 for x in sizes]}
    if len(cases) and (said := told(*losses, letters)):
        return said
    unclipped = {k for k, (inputs, *_) in cases.items() if inputs["clip"] > LONG}
    wrong = {k for k, (_, *both) in cases.items() if not matches(*both)}
    if wrong != unclipped:
        return ""
    return (
        "Where the gradients are clipped all is right, and where they are not it is "
        "wrong: they have the right direction and another length. Is backward() "
        "called of a multiple of the loss?"
    )


# --- wrong ----------------------------------------------------------------------------


def _way(*done, **other):
    """A step that does ``done`` in this order, or some of it otherwise."""
    return partial(_step, **({"done": done} if done else {}), **other)


def _by_value(model, clip):
    nn.utils.clip_grad_value_(model.parameters(), clip)


def _each_alone(model, clip):
    for x in model.parameters():
        nn.utils.clip_grad_norm_([x], clip)


def _always(model, clip):
    norm = torch.stack([x.grad.norm() for x in model.parameters()]).norm()
    for x in model.parameters():
        x.grad *= clip / norm


def _not_shifted(model, tokens):
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.mT, tokens[:, :-1])


def _shifted_twice(model, tokens):
    logits = model(tokens[:, :-1])[:, :-1]
    return nn.functional.cross_entropy(logits.mT, tokens[:, 2:])


def _word_0_left_out(model, tokens):
    return next_token_loss(model(tokens[:, :-1]), tokens)


def _summed(model, tokens):
    logits = model(tokens[:, :-1])
    return nn.functional.cross_entropy(logits.mT, tokens[:, 1:], reduction="sum")


def _softmax_twice(model, tokens):
    p = model(tokens[:, :-1]).softmax(-1)
    return nn.functional.cross_entropy(p.mT, tokens[:, 1:])


def _last_alone(model, tokens):
    return nn.functional.cross_entropy(model(tokens[:, :-1])[:, -1], tokens[:, -1])


MISTAKES = {
    "no-zero-grad": (
        _way(no_zero=True),
        "The gradients pile up: nothing sets them to zero, so those of earlier steps "
        "are added. optimizer.zero_grad() belongs before backward().",
    ),
    "zero-grad-late": (
        _way("train", "rate", "loss", "backward", "clip", "step", "zero"),
        "What lies in the gradients before the first step is added to it: they are "
        "set to zero after a step alone, or not at step 0. optimizer.zero_grad() "
        "belongs before backward(), at every step.",
    ),
    "no-step": (
        _way("train", "rate", "zero", "loss", "step", "backward", "clip"),
        "The model does not move: no backward() or no step(), or the step is taken "
        "where there is no gradient, before backward() or after zero_grad().",
    ),
    "step-before-backward": (
        _way("train", "rate", "loss", "step", "zero", "backward", "clip"),
        "The step comes before backward(): each one uses the gradients of the call "
        "before.",
    ),
    "no-clipping": (
        _way(no_clip=True),
        "The gradients reach the optimizer as they are: nothing clips them, or it is "
        "done before backward() or after step(). It belongs between the two.",
    ),
    "clipped-by-value": (
        _way(clipped=_by_value),
        "Each number of a gradient is clipped (clip_grad_value_); the norm of all of "
        "them together is to be clipped: clip_grad_norm_.",
    ),
    "clipped-each-alone": (
        _way(clipped=_each_alone),
        "Each tensor is clipped by its own norm; one norm of all gradients together "
        "is to be clipped.",
    ),
    "always-scaled": (
        _way(clipped=_always),
        "Small gradients are scaled up to the norm `clip`, too; clipping leaves alone "
        "what is below it.",
    ),
    "rate-of-next-step": (
        _way(later=1),
        "The learning rate is that of the next step, rate_of(step + 1).",
    ),
    "rate-of-step-before": (
        _way(later=-1),
        "The learning rate is that of the step before, rate_of(step - 1).",
    ),
    "rate-after-the-step": (
        _way("train", "zero", "loss", "backward", "clip", "step", "rate"),
        "The learning rate is set after the step: each step uses the rate of the call "
        "before, and the first one that of the optimizer.",
    ),
    "rate-not-set": (
        _way(no_rate=True),
        "The learning rate stays what the optimizer was made with: rate_of(step) is "
        "not put into its groups.",
    ),
    "rate-multiplied": (
        _way(rated=lambda old, new: old * new),
        "The rate that a group has is multiplied by rate_of(step), at each step anew; "
        "it has to be replaced by it.",
    ),
    "rate-of-first-group": (
        _way(groups=1),
        "One group of the optimizer gets the learning rate; all of them have to: a "
        "loop over optimizer.param_groups.",
    ),
    "left-in-eval-mode": (
        _way(no_train=True),
        "The loss is computed in evaluation mode, as a validation before had left the "
        "model: model.train() is missing or comes too late, so no dropout acts.",
    ),
    "put-into-eval-mode": (
        _way(mode=nn.Module.eval),
        "The model is put into evaluation mode, model.eval(), where no dropout acts; "
        "training needs model.train().",
    ),
    "graph-kept": (
        _way(returned=lambda loss: loss),
        "The loss is returned with its graph, which keeps all the numbers of the step "
        "in memory: return loss.item().",
    ),
    "loss-a-tensor": (
        _way(returned=Tensor.detach),
        "The loss comes back as a tensor, without its graph; a number is asked for: "
        "return loss.item().",
    ),
    "loss-after-the-step": (
        _way(*DONE, "again"),
        "The loss that is returned is that after the step; the one before it is asked "
        "for, which is there already.",
    ),
    "step-loss-not-shifted": (
        _way(of=_not_shifted),
        "The loss compares the logits at place t with token t, which the model has "
        "just read: token t + 1 is the answer.",
    ),
    "step-shifted-twice": (
        _way(of=_shifted_twice),
        "The tokens are shifted twice, here and in the loss: the logits at place t are "
        "compared with token t + 2. Token t + 1 is the answer.",
    ),
    "step-word-0-left-out": (
        _way(of=_word_0_left_out),
        "Token 0 is left out of the loss, as if it were padding; here nothing is, and "
        "0 is a token like others: padding=-1 leaves out none.",
    ),
    "step-loss-summed": (
        _way(of=_summed),
        "The loss is a sum; the mean over all tokens to predict is asked for.",
    ),
    "step-softmax-twice": (
        _way(of=_softmax_twice),
        "The softmax is taken twice: the loss is made of logits.",
    ),
    "step-last-place-alone": (
        _way(of=_last_alone),
        "The loss is that of the last place alone; every place predicts a token.",
    ),
    "two-steps": (
        _way(*DONE, "step"),
        "optimizer.step() runs twice in one step.",
    ),
}
