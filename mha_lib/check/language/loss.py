"""Next-token cross-entropy: right, wrong, and the cases that tell them apart."""

import torch
from torch import Tensor

from mha_lib.check.digits import apart
from mha_lib.check.example import largest

__all__ = ["MISTAKES", "call", "draw", "next_token_loss", "words"]


def next_token_loss(logits: Tensor, tokens: Tensor, padding: int = 0) -> Tensor:
    """−mean ln p(tokens_{t+1} | tokens_≤t), over the t with tokens_{t+1} ≠ padding.

    Args:
        logits: (B, T, W).
        tokens: (B, T + 1), whole numbers below W.
        padding: a number of a token that is never predicted.

    Returns:
        One number, in nats.

    Example:
        >>> logits = torch.tensor([[[0.0, 0.0], [0.0, 0.0]]])
        >>> next_token_loss(logits, torch.tensor([[1, 1, 0]]))  # ln 2; padding is left
        tensor(0.6931)
    """
    return -_gathered(logits.log_softmax(-1), tokens[:, 1:], padding).mean()


def _gathered(of: Tensor, targets: Tensor, padding: int | None) -> Tensor:
    """The numbers of the targets that count, in one row."""
    picked = of.gather(-1, targets[..., None])[..., 0]
    return picked if padding is None else picked[targets != padding]


def draw(generator: torch.Generator) -> dict[str, dict]:
    """Cases: no padding, some, left out; large logits; one row, long; a gradient.

    And sizes that are alike, so that no axis can be told by its size.
    """

    def sized(low: int, high: int) -> int:
        return int(torch.randint(low, high, (), generator=generator))

    def case(
        B: int,
        scale: float = 2.0,
        padding: int = -1,
        far: bool = False,
        T: int = 0,
        W: int = 0,
        **more: object,
    ) -> dict:
        T = T or (sized(258, 274) if far else sized(5, 9))
        W = W or (sized(520, 600) if far else sized(11, 17))
        logits = scale * torch.randn(B, T, W, generator=generator)
        tokens = torch.randint(1, W, (B, T + 1), generator=generator)
        if far:  # no token is padding, and 0 is one like others
            tokens[:, ::5], tokens[:, 1::5] = 0, W - 1
        elif padding < 0:
            padding = sized(1, W)
            tokens[tokens == padding] = 0  # a token like any other, unless told so
        elif more.pop("sure", False):  # of every other token, which then costs nothing
            places = tokens[:, 1::2, None]
            logits[:, ::2].scatter_(-1, places, 300.0)
        else:
            tokens[tokens == padding] = padding + 1
            for b in range(B):  # one row ends sooner than the next
                tokens[b, 2 + b % 3 :] = padding
            tokens[2 % B, :4:2] = padding  # and it may stand anywhere
            if more.pop("alone", False):
                tokens[sized(0, B), 1:] = padding
        rest = {"gradient": False, "told": True, "cut": False, "double": False} | more
        return {"logits": logits, "tokens": tokens, "padding": padding, **rest}

    return {
        "no padding": case(3),
        "padding": case(sized(65, 71), padding=sized(3, 9)),
        "padding left out": case(4, padding=0, told=False),
        "large logits": case(2, scale=300.0),
        "a model that is sure": case(2, padding=0, sure=True),
        "one sequence": case(1, padding=sized(3, 9)),
        "a row of padding alone": case(4, padding=sized(3, 9), alone=True),
        "long texts of many words": case(sized(5, 7), far=True),
        "its gradient": case(3, padding=sized(3, 9), gradient=True),
        "logits cut from longer ones": case(3, padding=sized(3, 9), cut=True),
        "as many texts as tokens": case(7, T=7),
        "as many tokens as words": case(3, T=12, W=12),
        "as many texts as words": case(12, W=12),
        "one token to predict": case(4, T=1),
        "float64": case(3, double=True),
    }


def call(next_token_loss, logits, tokens, padding, gradient, told, cut, double):
    """What it returns, or the gradient that reaches the logits.

    Where the logits are ``double``: whether the loss is, too, and what it is.
    """
    import torch

    if cut:  # as the last places of longer texts: no block of memory
        logits = torch.cat([logits, logits], dim=1)[:, logits.shape[1] :]
    if gradient:
        logits = logits.clone().requires_grad_()
    options = {"padding": padding} if told else {}
    loss = next_token_loss(logits.double() if double else logits, tokens, **options)
    if isinstance(loss, (tuple, list)):
        raise TypeError(f"one number is required; got a {type(loss).__name__}")
    if double and loss is not None:
        number = torch.as_tensor(loss)
        same = [float(getattr(loss, "dtype", None) == torch.float64)]
        return torch.cat([torch.tensor(same), number.flatten()])
    if not gradient or loss is None:  # without an answer it has no gradient, either
        return loss
    if getattr(loss, "requires_grad", False):
        loss.backward()
    return logits.new_zeros(logits.shape) if logits.grad is None else logits.grad


def words(yours: Tensor, right: Tensor, inputs: dict) -> str:
    """The loss and what it was of; or where a gradient is wrong, or the dtype."""
    if inputs["double"] and not yours[0]:
        return "Of logits in float64 the loss has to be in float64, too; it is not."
    if inputs["gradient"]:
        if not yours.any():
            return "No gradient reaches the logits."
        b, t, w = largest(yours - right)
        got, due = apart(yours[b, t, w], right[b, t, w], 3)
        return (
            f"The gradient at the logit of word {w}, place {t} of text {b}, is "
            f"{got}; {due} is right."
        )
    B, T, W = inputs["logits"].shape
    padding = (
        f"padding = {inputs['padding']}" if inputs["told"] else "no word of padding"
    )
    got, due = apart(yours.flatten()[-1], right.flatten()[-1], 3)
    return (
        f"Of {B} texts with {T} tokens to predict, {W} words and {padding}, the loss "
        f"is {got} nats; {due} is right."
    )


def _aligned(first: int, last: int, begin: int, end: int):
    """Logits and targets, each cut otherwise; the ends count from the end."""

    def loss(logits, tokens, padding=0):
        T = logits.shape[1]
        cut = logits[:, first : T - last].log_softmax(-1)
        return -_gathered(cut, tokens[:, begin : T + 1 - end], padding).mean()

    return loss


def _of(change):
    """The mean of what ``change`` makes of logits instead of ln p."""

    def loss(logits, tokens, padding=0):
        return -_gathered(change(logits), tokens[:, 1:], padding).mean()

    return loss


def _added(total):
    """What ``total`` makes of the costs (B, T), 0 at padding, and of what counts."""

    def loss(logits, tokens, padding=0):
        targets = tokens[:, 1:]
        costs = -_gathered(logits.log_softmax(-1), targets, None)
        counts = targets != padding
        return total(torch.where(counts, costs, 0.0), counts)

    return loss


def _mixed(logits, tokens, padding=0):
    flat = logits.log_softmax(-1).flatten(0, 1)
    return -_gathered(flat, tokens[:, 1:].T.flatten(), padding).mean()


def _padded(logits, tokens, padding=0):
    return -_gathered(logits.log_softmax(-1), tokens[:, 1:], None).mean()


def _read(logits, tokens, padding=0):
    return -_gathered(
        logits.log_softmax(-1)[tokens[:, :-1] != padding],
        tokens[:, 1:][tokens[:, :-1] != padding],
        None,
    ).mean()


def _up_to_padding(logits, tokens, padding=0):
    targets = tokens[:, 1:]
    counts = (targets != padding).long().cumprod(1).bool()
    return -_gathered(logits.log_softmax(-1), targets, None)[counts].mean()


def _always_0(logits, tokens, padding=0):
    return next_token_loss(logits, tokens, 0)


MISTAKES = {
    "loss-not-shifted": (
        _aligned(0, 0, 0, 1),
        "The loss is not shifted: the logits at place t are compared with token t, "
        "which the model has just read. Token t + 1 is the answer.",
    ),
    "loss-shifted-back": (
        _aligned(1, 0, 1, 1),
        "The logits are cut instead of the tokens: those after place t are compared "
        "with token t, which the model has just read.",
    ),
    "loss-shifted-twice": (
        _aligned(0, 1, 2, 0),
        "The loss is shifted by one too many: the logits at place t are compared with "
        "token t + 2.",
    ),
    "loss-last-left-out": (
        _aligned(0, 1, 1, 1),
        "The last prediction of each row is left out: all T places predict, and the "
        "last of them is compared with the last token.",
    ),
    "loss-first-left-out": (
        _aligned(1, 0, 2, 0),
        "The first prediction of each row is left out: place 0 predicts token 1.",
    ),
    "loss-last-only": (
        _aligned(-1, 0, -1, 0),
        "The last place alone counts; every place predicts a token.",
    ),
    "loss-summed": (
        _added(lambda costs, counts: costs.sum()),
        "The costs are added up; their mean is asked for.",
    ),
    "loss-mean-of-rows": (
        _added(lambda costs, counts: (costs.sum(1) / counts.sum(1)).mean()),
        "The mean of each row is taken first, and then that of the rows: a short row "
        "counts as much as a long one. Every token to predict counts the same.",
    ),
    "loss-mean-of-rows-with-words": (
        _added(
            lambda costs, counts: (costs.sum(1) / counts.sum(1).clamp(min=1)).mean()
        ),
        "The mean of each row is taken first, with 0 for a row of padding alone, and "
        "then that of the rows: a short row counts as much as a long one. Every token "
        "to predict counts the same.",
    ),
    "loss-by-rows": (
        _added(lambda costs, counts: costs.sum() / len(costs)),
        "The costs are added up and divided by the number of rows, not by the number "
        "of tokens to predict.",
    ),
    "loss-divided-by-all": (
        _added(lambda costs, counts: costs.mean()),
        "Padding costs nothing, but it is counted in the number that the sum is "
        "divided by.",
    ),
    "padding-counted": (
        _padded,
        "Padding is predicted, too: its places do not count.",
    ),
    "padding-of-what-was-read": (
        _read,
        "A place is left out where the token that was read, tokens[:, t], is padding; "
        "it has to be left out where the one to predict is, tokens[:, t + 1].",
    ),
    "loss-up-to-padding": (
        _up_to_padding,
        "Behind the first padding of a row nothing counts any more; each token that is "
        "not padding counts, wherever it stands.",
    ),
    "padding-always-0": (
        _always_0,
        "Token 0 is left out whatever `padding` says: use the argument.",
    ),
    "softmax-twice-in-loss": (
        _of(lambda x: x.softmax(-1).log_softmax(-1)),
        "The softmax is taken twice: what goes into cross_entropy has to be logits.",
    ),
    "softmax-over-places": (
        _of(lambda x: x.log_softmax(1)),
        "The softmax runs over the places; it has to run over the words, dim=-1.",
    ),
    "no-softmax-in-loss": (
        _of(lambda x: x),
        "There is no softmax: the logits themselves are taken for ln p, as nll_loss "
        "does.",
    ),
    "no-logarithm": (
        _of(lambda x: x.softmax(-1)),
        "There is no logarithm: the mean of p is taken; that of ln p is asked for.",
    ),
    "loss-sign": (
        lambda *x, **more: -next_token_loss(*x, **more),
        "The sign is wrong: this is the mean of ln p, and the loss is minus that.",
    ),
    "perplexity": (
        lambda *x, **more: next_token_loss(*x, **more).exp(),
        "This is the perplexity, exp(loss); the loss itself is asked for.",
    ),
    "bits": (
        lambda *x, **more: next_token_loss(*x, **more) / 0.6931471805599453,
        "This is in bits, a logarithm of base 2; nats are asked for.",
    ),
    "large-logits": (
        _of(lambda x: x.softmax(-1).log()),
        "It is right for small logits alone: exp of a large one is infinite, or the "
        "softmax of an unlikely token is rounded to 0 and ln 0 is -inf. log_softmax "
        "takes both in one step.",
    ),
    "loss-a-number": (
        lambda *x, **more: next_token_loss(*x, **more).item(),
        "The loss comes back as a plain number (.item(), float(…)), through which no "
        "gradient flows: return the tensor.",
    ),
    "loss-detached": (
        lambda *x, **more: next_token_loss(*x, **more).detach(),
        "The number is right, and no gradient flows through it: a detach, .data or a "
        "no_grad?",
    ),
    "places-mixed": (
        _mixed,
        "Batch and place are mixed up where both become one axis: logits and tokens "
        "have to be flattened in the same order.",
    ),
}
