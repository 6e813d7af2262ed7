"""Scaled dot-product attention: the one function under every style of this package."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_lib.masks import check_mask

__all__ = ["attention", "masked_softmax"]


def masked_softmax(scores: Tensor, mask: Tensor | None = None, dim: int = -1) -> Tensor:
    """Softmax over the allowed scores: exp(x_j) / Σ exp(x_i), i where mask is True.

    Args:
        scores: any shape; the keys lie along ``dim``.
        mask: boolean, True = may attend, broadcastable to ``scores``; or None.
        dim: the axis of the keys.

    Returns:
        Weights of the same shape. They sum to 1 along ``dim``, or to 0 where every
        key is hidden.

    Raises:
        TypeError: the mask is not boolean.
        ValueError: the mask does not broadcast to the scores.

    Note:
        Where every key is hidden, the weights are 0 and so are their gradients;
        a plain softmax over a row of −inf would give NaN. The fill is the smallest
        finite number of the dtype, so no NaN arises on the way either.

    Example:
        >>> import torch
        >>> from mha_lib import masked_softmax
        >>> scores = torch.tensor([[0.0, 0.0, 5.0], [1.0, 2.0, 3.0]])
        >>> mask = torch.tensor([[True, True, False], [False, False, False]])
        >>> masked_softmax(scores, mask)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 0.0000]])
    """
    if mask is None:
        return scores.softmax(dim)
    check_mask(mask, scores.shape)
    lowest = torch.finfo(scores.dtype).min
    weights = scores.masked_fill(~mask, lowest).softmax(dim)
    # In a fully masked row all scores are now equal: its uniform weights go too.
    return weights.masked_fill(~mask, 0.0)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    scale: float | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """softmax(q kᵀ / √D) v, with the softmax over the keys that the mask allows.

    Args:
        q: queries (..., T, D).
        k: keys (..., S, D).
        v: values (..., S, V). The leading axes of q, k and v are the same.
        mask: boolean, True = may attend, broadcastable to (..., T, S); or None.
        scale: multiplies the scores; None means 1/√D.
        dropout_p: probability with which a weight is dropped before it meets the
            values. Pass 0.0 in evaluation.

    Returns:
        The context (..., T, V) and the weights (..., T, S) *before* dropout.

    Raises:
        TypeError: operands that are not floating tensors of one dtype, or a mask
            that is not boolean.
        ValueError: sizes that do not fit together.

    Note:
        A query that may attend to nothing gets zero weights, a zero context and
        zero gradients, never NaN. Hidden keys may hold NaN, hidden values may not
        (0 · NaN is NaN): pad with finite numbers. A mask (B, T, S) meets operands
        with heads as ``mask[:, None]``; the six styles see to that. The queries are
        scaled before the product: in half precision q kᵀ may overflow where
        (q/√D) kᵀ does not.

    Example:
        >>> import torch
        >>> from mha_lib import attention
        >>> q = torch.tensor([[1.0, 0.0]])
        >>> k = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> v = torch.tensor([[10.0], [20.0]])
        >>> context, weights = attention(q, k, v)
        >>> context, weights
        (tensor([[15.]]), tensor([[0.5000, 0.5000]]))

    Source:
        Vaswani et al. (2017), Attention Is All You Need, equation (1).
    """
    _check_operands(q, k, v)
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1])
    scores = (q * scale) @ k.transpose(-2, -1)  # (..., T, S)
    weights = masked_softmax(scores, mask)
    context = F.dropout(weights, dropout_p) @ v  # (..., T, V)
    return context, weights


def _check_operands(q: Tensor, k: Tensor, v: Tensor) -> None:
    for name, x in (("q", q), ("k", k), ("v", v)):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            came = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{name} must be a floating tensor; got {came}")
    if not q.dtype == k.dtype == v.dtype:
        raise TypeError(
            f"q, k and v must share one dtype; got {q.dtype}, {k.dtype} and {v.dtype}"
        )
    if min(q.dim(), k.dim(), v.dim()) < 2:
        raise ValueError(
            "q, k and v need at least the axes (length, size); "
            f"got shapes {tuple(q.shape)}, {tuple(k.shape)} and {tuple(v.shape)}"
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"q and k must share D; got {q.shape[-1]} and {k.shape[-1]}")
    if q.shape[-1] == 0:
        raise ValueError("D must be at least 1; got 0")
    if k.shape[-2] != v.shape[-2]:
        raise ValueError(f"k and v must share S; got {k.shape[-2]} and {v.shape[-2]}")
    if not q.shape[:-2] == k.shape[:-2] == v.shape[:-2]:
        raise ValueError(
            "q, k and v must share their leading axes; "
            f"got {tuple(q.shape[:-2])}, {tuple(k.shape[:-2])} "
            f"and {tuple(v.shape[:-2])}"
        )
