"""Writing: draw the next token from what the model predicts, append it, again."""

import torch
from torch import Tensor

from mha_lib.model.transformer import LanguageModel

__all__ = ["generate", "next_token_probabilities"]


def next_token_probabilities(
    logits: Tensor, temperature: float = 1.0, top_k: int | None = None
) -> Tensor:
    """softmax(logits / temperature), of the k largest alone.

    Args:
        logits: (..., W).
        temperature: below 1 the likely becomes more likely; at 0 the likeliest token
            (the first of several) has probability 1.
        top_k: all but the k likeliest tokens get probability 0; None keeps all.

    Returns:
        (..., W); each row sums to 1.

    Raises:
        ValueError: a temperature below 0, or a ``top_k`` that is no count of tokens.

    Example:
        >>> logits = torch.tensor([2.0, 1.0, 0.0])
        >>> next_token_probabilities(logits, temperature=0).tolist()
        [1.0, 0.0, 0.0]
    """
    W = logits.shape[-1]
    if not 0 <= temperature < float("inf"):
        raise ValueError(f"temperature must be a number from 0 on; got {temperature}")
    if top_k is not None and not (isinstance(top_k, int) and 1 <= top_k <= W):
        raise ValueError(f"top_k must be from 1 to {W}, the vocabulary; got {top_k}")
    if temperature < torch.finfo(logits.dtype).tiny:  # 0 for the division, too
        return torch.zeros_like(logits).scatter_(-1, logits.argmax(-1, True), 1)
    if top_k is not None:
        kept = logits.topk(top_k).indices
        few = torch.full_like(logits, float("-inf"))
        logits = few.scatter(-1, kept, logits.gather(-1, kept))
    # the largest becomes 0: divided by a tiny temperature it stays a number
    return ((logits - logits.amax(-1, True)) / temperature).softmax(-1)


@torch.no_grad()
def generate(
    model: LanguageModel,
    tokens: Tensor,
    new: int,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    generator: torch.Generator | None = None,
) -> Tensor:
    """x_{t+1} ~ p(· | x_≤t), ``new`` times.

    Args:
        model: in training or evaluation mode; for the time of the call, evaluation.
        tokens: (B, T), the prompts, T ≥ 1. The model reads at most its context: of a
            longer text, the last tokens, renumbered from place 0.
        new: how many tokens to append.
        temperature: 0 always takes the likeliest token: see
            `next_token_probabilities`.
        top_k: draw from the k likeliest tokens alone.
        generator: of the draws, on the model's device; None means torch's own.

    Returns:
        (B, T + new); the prompt is its beginning.

    Raises:
        ValueError: an empty prompt, a token that the model does not know, a negative
            ``new``, or a wrong temperature or ``top_k``.

    Example:
        >>> from mha_lib.model import Sizes
        >>> model = LanguageModel(Sizes(vocabulary=11, context=8))
        >>> prompt = torch.tensor([[3, 1, 4]])
        >>> generate(model, prompt, new=20)[:, :3].tolist()
        [[3, 1, 4]]
    """
    if tokens.dim() != 2 or tokens.shape[1] == 0:
        raise ValueError(
            f"tokens must be (B, T) with T at least 1; got {tuple(tokens.shape)}"
        )
    W = model.sizes.vocabulary
    if not ((tokens >= 0) & (tokens < W)).all():
        raise ValueError(f"tokens must be numbers from 0 to {W - 1}, the vocabulary")
    if new < 0:
        raise ValueError(f"new must be a count of tokens; got {new}")
    was_training = model.training
    model.eval()
    try:
        for _ in range(new):
            logits = model(tokens[:, -model.sizes.context :], last=True)
            chances = next_token_probabilities(logits, temperature, top_k)
            drawn = torch.multinomial(chances, 1, generator=generator)
            tokens = torch.cat([tokens, drawn], dim=1)
    finally:
        model.train(was_training)
    return tokens
