"""Scaled dot-product attention: the one function under every style of this package.

``attention`` and ``attention_weights`` are doors: they check what they are given, once.
``attend`` and ``weigh`` do the work, and trust it.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_lib._inputs import check_dropout, check_operands
from mha_lib.masks import causal_mask, check_bias, check_mask

__all__ = ["attention", "attention_weights", "masked_softmax"]


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
        TypeError: the scores are not floating, or the mask is not boolean.
        ValueError: the mask does not broadcast to the scores.

    Note:
        Where every key is hidden, the weights are 0 and so are their gradients;
        a plain softmax over a row of −inf would give NaN. Such a row is filled with
        zeros first, so no NaN arises on the way either.

    Example:
        >>> import torch
        >>> from mha_lib import masked_softmax
        >>> scores = torch.tensor([[0.0, 0.0, 5.0], [1.0, 2.0, 3.0]])
        >>> mask = torch.tensor([[True, True, False], [False, False, False]])
        >>> masked_softmax(scores, mask)
        tensor([[0.5000, 0.5000, 0.0000],
                [0.0000, 0.0000, 0.0000]])
    """
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        came = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise TypeError(f"scores must be a floating tensor; got {came}")
    if mask is not None:
        check_mask(mask, scores.shape)
        mask = mask[(None,) * (scores.dim() - mask.dim())]  # as many axes
    return _softmax(scores, mask, dim)


def _softmax(scores: Tensor, mask: Tensor | None, dim: int = -1) -> Tensor:
    if mask is None:
        return scores.softmax(dim)
    # −inf hides a key, however low the others are; alone in a row it would be NaN.
    seen = mask.any(dim, keepdim=True)
    fill = scores.new_zeros(()).masked_fill(seen, -math.inf)
    weights = torch.where(mask, scores, fill).softmax(dim)
    return weights.masked_fill(~mask, 0.0)  # the fully masked rows


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    need_weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """softmax(q kᵀ / √D) v, with the softmax over the keys that the mask allows.

    Args:
        q: queries (..., T, D).
        k: keys (..., S, D).
        v: values (..., S, V). The leading axes of q, k and v are the same.
        mask: boolean, True = may attend, broadcastable to (..., T, S); or None.
        bias: added to the scaled scores, of q's dtype, broadcastable to
            (..., T, S); or None. To hide a key use ``mask``: without one, a row
            whose biases are all −inf may be NaN. Beside one, −inf hides as well.
        scale: multiplies the scores; None means 1/√D.
        dropout_p: probability with which a weight is dropped before it meets the
            values. Pass 0.0 in evaluation.
        is_causal: a query sees the keys up to its own position alone, as under
            ``causal_mask(T, S)``; with a mask, both must allow a key.
        need_weights: False returns None for the weights. The context then comes
            from ``F.scaled_dot_product_attention``, which never holds all T × S
            weights at once; with ``is_causal`` and no mask it needs no mask tensor.

    Returns:
        The context (..., T, V) and the weights (..., T, S) *before* dropout, or None.

    Raises:
        TypeError: operands that are not floating tensors of one dtype, or a mask
            that is not boolean.
        ValueError: sizes that do not fit together, or dropout_p is no probability.

    Note:
        A query that may attend to nothing gets zero weights, a zero context and
        zero gradients, never NaN. Hidden keys may hold NaN if the weights are
        made; hidden values may not (0 · NaN is NaN): pad with finite numbers. A
        mask (B, T, S) meets operands with heads as ``mask[:, None]``; the six
        styles see to that. The queries are scaled before the product: in half
        precision q kᵀ may overflow where (q/√D) kᵀ does not. Without weights a
        second derivative exists where torch's kernel has one:
        ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)`` chooses one that does.

    Example:
        >>> import torch
        >>> from mha_lib import attention
        >>> q = torch.tensor([[1.0, 0.0]])
        >>> k = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> v = torch.tensor([[10.0], [20.0]])
        >>> context, weights = attention(q, k, v)
        >>> context, weights
        (tensor([[15.]]), tensor([[0.5000, 0.5000]]))
        >>> attention(q, k, v, need_weights=False)
        (tensor([[15.]]), None)

    Source:
        Vaswani et al. (2017), Attention Is All You Need, equation (1).
    """
    check_operands(q, k, v)
    check_dropout(dropout_p)
    _check_masks(mask, bias, q, k)
    return attend(
        q,
        k,
        v,
        mask,
        bias=bias,
        scale=scale,
        dropout_p=dropout_p,
        is_causal=is_causal,
        need_weights=need_weights,
    )


def attention_weights(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None = None,
    *,
    bias: Tensor | None = None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """softmax(q kᵀ / √D), over the keys that the mask allows: who looks at whom.

    Args:
        q: queries (..., T, D).
        k: keys (..., S, D).
        mask: as in :func:`attention`.
        bias: as in :func:`attention`.
        scale: as in :func:`attention`.
        is_causal: as in :func:`attention`.

    Returns:
        The weights (..., T, S). Each row sums to 1, or to 0 where every key is hidden.

    Raises:
        TypeError: as :func:`attention`.
        ValueError: as :func:`attention`.

    Example:
        >>> import torch
        >>> from mha_lib.attention import attention_weights
        >>> q = torch.tensor([[1.0, 0.0], [1.0, 0.0]])
        >>> attention_weights(q, q, is_causal=True)
        tensor([[1.0000, 0.0000],
                [0.5000, 0.5000]])

    Source:
        Vaswani et al. (2017), Attention Is All You Need, equation (1).
    """
    check_operands(q, k)
    _check_masks(mask, bias, q, k)
    return weigh(q, k, mask, bias=bias, scale=scale, is_causal=is_causal)


def _check_masks(
    mask: Tensor | None, bias: Tensor | None, q: Tensor, k: Tensor
) -> None:
    shape = (*q.shape[:-1], k.shape[-2])  # (..., T, S)
    if mask is not None:
        check_mask(mask, shape)
    if bias is not None:
        check_bias(bias, q.dtype, shape)


# --- what trusts its arguments ------------------------------------------------------


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    *,
    bias: Tensor | None,
    is_causal: bool,
    scale: float | None = None,
    dropout_p: float = 0.0,
    need_weights: bool = True,
) -> tuple[Tensor, Tensor | None]:
    """As :func:`attention`, of arguments that are known to fit together."""
    if not need_weights:
        if is_causal and (mask is not None or bias is not None):
            mask, is_causal = with_causal(mask, q, k), False
        if bias is not None:  # torch's function takes one mask, of either kind
            mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
        if mask is not None:
            mask = torch.atleast_2d(mask)  # torch's function takes no lower rank
        context = F.scaled_dot_product_attention(
            q, k, v, mask, dropout_p, is_causal=is_causal, scale=scale
        )
        return context, None

    weights = weigh(q, k, mask, bias=bias, scale=scale, is_causal=is_causal)
    context = F.dropout(weights, dropout_p) @ v  # (..., T, V)
    return context, weights


def weigh(
    q: Tensor,
    k: Tensor,
    mask: Tensor | None,
    *,
    bias: Tensor | None,
    scale: float | None = None,
    is_causal: bool = False,
) -> Tensor:
    """As :func:`attention_weights`, of arguments that are known to fit together."""
    if is_causal:
        mask = with_causal(mask, q, k)
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[-1])
    scores = (q * scale) @ k.transpose(-2, -1)  # (..., T, S)
    if bias is not None:
        scores = scores + bias
        if mask is not None:  # of what it leaves, the bias may hide the rest
            mask = mask & (bias != -math.inf)
    return _softmax(scores, mask)


def with_causal(mask: Tensor | None, q: Tensor, k: Tensor) -> Tensor:
    """What both the mask and ``causal_mask`` allow."""
    causal = causal_mask(q.shape[-2], k.shape[-2], device=q.device)
    return causal if mask is None else mask & causal
