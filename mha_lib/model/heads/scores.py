"""Scores of maps: how wide, how far, and which of two known patterns.

Weights are (…, B, H, T, S), a mean over sequences and queries is (…, H).
"""

import torch
from torch import Tensor

__all__ = [
    "confidence",
    "distance",
    "entropy",
    "induction_score",
    "previous_token_score",
]


def entropy(weights: Tensor) -> Tensor:
    """−Σ_s w_ts ln w_ts in nats, the mean over sequences and queries.

    Args:
        weights: (..., B, H, T, S).

    Returns:
        (..., H): 0 if every query looks at one key, ln S if at all alike.

    Raises:
        ValueError: fewer than four axes.

    Example:
        >>> weights = torch.tensor([[1.0, 0.0], [0.5, 0.5]])  # (T, S)
        >>> entropy(weights[None, None])  # (0 + ln 2) / 2
        tensor([0.3466])
    """
    _need_maps(weights)
    return torch.special.entr(weights).sum(dim=-1).mean(dim=(-3, -1))


def confidence(weights: Tensor) -> Tensor:
    """max_s w_ts, the mean over sequences and queries: how sharp a map is.

    Args:
        weights: (..., B, H, T, S).

    Returns:
        (..., H), from 1/S, all alike, to 1, one key alone.

    Raises:
        ValueError: fewer than four axes.

    Example:
        >>> weights = torch.tensor([[1.0, 0.0], [0.4, 0.6]])  # (T, S)
        >>> confidence(weights[None, None])
        tensor([0.8000])

    Source:
        Voita et al. (2019), who leave the end of a sentence out.
    """
    _need_maps(weights)
    return weights.amax(dim=-1).mean(dim=(-3, -1))


def distance(weights: Tensor) -> Tensor:
    """Σ_s w_ts (t − s), the mean over sequences and queries.

    Args:
        weights: (..., B, H, T, T) of causal self-attention.

    Returns:
        (..., H): how many tokens back a head looks.

    Raises:
        ValueError: fewer than four axes, or T ≠ S.

    Example:
        >>> weights = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
        >>> distance(weights[None, None])  # (0 + 1 + 2/2) / 3
        tensor([0.6667])
    """
    _need_maps(weights, square=True)
    places = torch.arange(weights.shape[-1], device=weights.device)
    back = (places[:, None] - places).to(weights.dtype)  # (T, T)
    return (weights * back).sum(dim=-1).mean(dim=(-3, -1))


def previous_token_score(weights: Tensor) -> Tensor:
    """w_{t, t−1}, the mean over sequences and the queries t ≥ 1.

    Args:
        weights: (..., B, H, T, T), T at least 2.

    Returns:
        (..., H), in 0…1.

    Raises:
        ValueError: fewer than four axes, T ≠ S, or T = 1.

    Example:
        >>> weights = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
        >>> previous_token_score(weights[None, None])  # (1 + 0) / 2
        tensor([0.5000])
    """
    _need_maps(weights, square=True)
    if weights.shape[-1] < 2:
        raise ValueError(f"weights need T of at least 2; got {tuple(weights.shape)}")
    return weights.diagonal(-1, -2, -1).mean(dim=(-3, -1))


def induction_score(weights: Tensor, tokens: Tensor) -> Tensor:
    """Σ_s w_{t, s+1} over the earlier places s of token t; the mean.

    All weight on what followed the same token before. Queries whose token is new are
    left out.

    Args:
        weights: (..., B, H, T, T).
        tokens: (B, T).

    Returns:
        (..., H), in 0…1.

    Raises:
        ValueError: tokens of another shape, or tokens that never repeat.

    Note:
        TransformerLens sums the same weights, but divides by all queries, the new
        ones included: its score of the same map is smaller.

    Example:
        >>> tokens = torch.tensor([[7, 4, 7, 2, 7]])  # after a 7 came a 4, then a 2
        >>> weights = torch.eye(5)
        >>> weights[2] = torch.tensor([0.3, 0.5, 0.2, 0.0, 0.0])
        >>> weights[4] = torch.tensor([0.1, 0.3, 0.1, 0.4, 0.1])
        >>> induction_score(weights[None, None], tokens)  # (0.5 + 0.3 + 0.4) / 2
        tensor([0.6000])

    Source:
        Olsson et al. (2022), "prefix matching".
    """
    _need_maps(weights, square=True)
    B, T = weights.shape[-4], weights.shape[-1]
    if tokens.shape != (B, T):
        raise ValueError(
            f"tokens must be (B, T) = {(B, T)} as the weights have it; "
            f"got {tuple(tokens.shape)}"
        )
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)  # (B, T, S)
    repeats = same.any(dim=-1)  # (B, T)
    if not repeats.any():
        raise ValueError("tokens must repeat somewhere; got none that does")
    after = same.roll(1, dims=-1)[:, None].to(weights.dtype)  # (B, 1, T, S)
    found = (weights * after).sum(dim=-1)  # (..., B, H, T), 0 where the token is new
    return found.sum(dim=(-3, -1)) / repeats.sum()


def _need_maps(weights: Tensor, square: bool = False) -> None:
    if weights.dim() < 4 or (square and weights.shape[-1] != weights.shape[-2]):
        wanted = "T, T" if square else "T, S"
        raise ValueError(
            f"weights must be (..., B, H, {wanted}); got {tuple(weights.shape)}"
        )
