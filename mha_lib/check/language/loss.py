"""Next-token cross-entropy: right, wrong, and the cases that tell them apart."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from mha_lib.check.digits import apart
from mha_lib.check.example import largest
from mha_lib.check.language.factor import told

__all__ = ["MISTAKES", "call", "draw", "next_token_loss", "seen", "words"]


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
    return _cost(logits, tokens, padding)


WHOLE = (0, 0, 1, 0)  # all T logits, and the tokens from the second one on


def _cost(logits, tokens, padding=0, *, cut=WHOLE, **other):
    """The loss, of which ``other`` ways do a part, by name.

    ``cut`` says where logits and tokens begin and end; ends count from the end.
    """
    first, last, begin, end = cut
    logp = other.get("of", _log_softmax)(logits[:, first : logits.shape[1] - last])
    some = slice(begin, tokens.shape[1] - end)
    counts = other.get("counts", torch.ne)(tokens, padding)[:, some]
    targets = tokens[:, some]
    if other.get("turned"):
        counts, targets = (x.mT.reshape(x.shape) for x in (counts, targets))
    costs = -logp.gather(-1, targets[..., None])[..., 0]
    loss = other.get("total", _mean)(torch.where(counts, costs, 0.0), counts)
    return other.get("then", _itself)(loss)


def _log_softmax(logits):
    return logits.log_softmax(-1)


def _mean(costs, counts):
    return costs[counts].mean()


def _itself(loss):
    return loss


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
        loss.sum().backward()
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
    given = f", {W} words and padding = {inputs['padding']}"
    if not inputs["told"]:
        given = f" and {W} words, called without `padding`, so that 0 is padding"
    got, due = apart(yours.flatten()[-1], right.flatten()[-1], 3)
    return (
        f"Of {B} texts with {T} tokens to predict{given}, the loss is {got} nats; "
        f"{due} is right."
    )


def seen(cases: Mapping[str, tuple[dict, Tensor, Tensor]]) -> str:
    """Whether one factor is all that is wrong: of inputs, answers and right ones."""
    plain = [x for x in cases.values() if not x[0]["gradient"] and not x[0]["double"]]
    if any(yours.numel() != 1 for _, yours, _ in plain):
        return ""
    losses = ([x[n].item() for x in plain] for n in (1, 2))
    shapes = [inputs["logits"].shape for inputs, *_ in plain]
    return told(*losses, {"B": [x[0] for x in shapes], "T": [x[1] for x in shapes]})


def _way(**other) -> partial:
    """A loss of which some parts are made otherwise."""
    return partial(_cost, **other)


def _read(tokens, padding):
    return (tokens != padding).roll(1, dims=1)


def _up_to_padding(tokens, padding):
    counts = tokens != padding
    counts[:, 0] = True
    return counts.long().cumprod(1).bool()


MISTAKES = {
    "loss-not-shifted": (
        _way(cut=(0, 0, 0, 1)),
        "The loss is not shifted: the logits at place t are compared with token t, "
        "which the model has just read. Token t + 1 is the answer.",
    ),
    "loss-shifted-back": (
        _way(cut=(1, 0, 1, 1)),
        "The logits are cut instead of the tokens: those after place t are compared "
        "with token t, which the model has just read.",
    ),
    "loss-shifted-twice": (
        _way(cut=(0, 1, 2, 0)),
        "The loss is shifted by one too many: the logits at place t are compared with "
        "token t + 2.",
    ),
    "loss-last-left-out": (
        _way(cut=(0, 1, 1, 1)),
        "The last prediction of each row is left out: all T places predict, and the "
        "last of them is compared with the last token.",
    ),
    "loss-first-left-out": (
        _way(cut=(1, 0, 2, 0)),
        "The first prediction of each row is left out: place 0 predicts token 1.",
    ),
    "loss-last-only": (
        _way(cut=(-1, 0, -1, 0)),
        "The last place alone counts; every place predicts a token.",
    ),
    "loss-summed": (
        _way(total=lambda costs, counts: costs.sum()),
        "The costs are added up; their mean is asked for.",
    ),
    "loss-mean-of-rows": (
        _way(total=lambda costs, counts: (costs.sum(1) / counts.sum(1)).mean()),
        "The mean of each row is taken first, and then that of the rows: a short row "
        "counts as much as a long one. Every token to predict counts the same.",
    ),
    "loss-mean-of-rows-with-words": (
        _way(
            total=lambda costs, counts: (
                costs.sum(1) / counts.sum(1).clamp(min=1)
            ).mean()
        ),
        "The mean of each row is taken first, with 0 for a row of padding alone, and "
        "then that of the rows: a short row counts as much as a long one. Every token "
        "to predict counts the same.",
    ),
    "loss-by-rows": (
        _way(total=lambda costs, counts: costs.sum() / len(costs)),
        "The costs are added up and divided by the number of rows, not by the number "
        "of tokens to predict.",
    ),
    "loss-divided-by-all": (
        _way(total=lambda costs, counts: costs.mean()),
        "Padding costs nothing, but it is counted in the number that the sum is "
        "divided by.",
    ),
    "padding-counted": (
        _way(counts=lambda tokens, padding: torch.ones_like(tokens).bool()),
        "Padding is predicted, too: its places do not count.",
    ),
    "padding-of-what-was-read": (
        _way(counts=_read),
        "A place is left out where the token that was read, tokens[:, t], is padding; "
        "it has to be left out where the one to predict is, tokens[:, t + 1].",
    ),
    "loss-up-to-padding": (
        _way(counts=_up_to_padding),
        "Behind the first padding of a row nothing counts any more; each token that is "
        "not padding counts, wherever it stands.",
    ),
    "padding-always-0": (
        _way(counts=lambda tokens, padding: tokens != 0),
        "Token 0 is left out whatever `padding` says: use the argument.",
    ),
    "softmax-twice-in-loss": (
        _way(of=lambda x: x.softmax(-1).log_softmax(-1)),
        "The softmax is taken twice: what goes into cross_entropy has to be logits.",
    ),
    "softmax-over-places": (
        _way(of=lambda x: x.log_softmax(1)),
        "The softmax runs over the places; it has to run over the words, dim=-1.",
    ),
    "no-softmax-in-loss": (
        _way(of=lambda x: x),
        "There is no softmax: the logits themselves are taken for ln p, as nll_loss "
        "does.",
    ),
    "no-logarithm": (
        _way(of=lambda x: x.softmax(-1)),
        "There is no logarithm: the mean of p is taken; that of ln p is asked for.",
    ),
    "loss-sign": (
        _way(then=torch.neg),
        "The sign is wrong: this is the mean of ln p, and the loss is minus that.",
    ),
    "perplexity": (
        _way(then=torch.exp),
        "This is the perplexity, exp(loss); the loss itself is asked for.",
    ),
    "bits": (
        _way(then=lambda loss: loss / 0.6931471805599453),
        "This is in bits, a logarithm of base 2; nats are asked for.",
    ),
    "large-logits": (
        _way(of=lambda x: x.softmax(-1).log()),
        "It is right for small logits alone: the softmax of an unlikely token is "
        "rounded to 0, and ln 0 is -inf. log_softmax takes both in one step.",
    ),
    "exp-of-large-logits": (
        _way(of=lambda x: x - x.exp().sum(-1, keepdim=True).log()),
        "It is right for small logits alone: exp of a large one is infinite. Subtract "
        "the largest of each row first, as log_softmax does.",
    ),
    "loss-a-number": (
        _way(then=Tensor.item),
        "The loss comes back as a plain number (.item(), float(…)), through which no "
        "gradient flows: return the tensor.",
    ),
    "loss-detached": (
        _way(then=Tensor.detach),
        "The number is right, and no gradient flows through it: a detach, .data or a "
        "no_grad?",
    ),
    "places-mixed": (
        _way(turned=True),
        "Batch and place are mixed up where both become one axis: logits and tokens "
        "have to be flattened in the same order.",
    ),
}
