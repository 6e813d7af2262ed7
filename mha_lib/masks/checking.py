"""Whether a mask fits the scores, and the four axes (B, H, T, S) of any that does."""

import torch
from torch import Tensor

__all__ = ["check_bias", "check_boolean", "check_mask", "mask_to_bhts"]


def check_boolean(mask: Tensor) -> None:
    """Raise unless the mask is a boolean tensor.

    Args:
        mask: what came.

    Raises:
        TypeError: anything else.

    Example:
        >>> import torch
        >>> from mha_lib.masks import check_boolean
        >>> check_boolean(torch.ones(2, 3))
        Traceback (most recent call last):
        ...
        TypeError: mask must be boolean with True = may attend; got torch.float32. \
For a 0/1 mask call .bool(); for a mask that is added use from_torch_mask
    """
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        came = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(
            f"mask must be boolean with True = may attend; got {came}. "
            "For a 0/1 mask call .bool(); for a mask that is added use from_torch_mask"
        )


def check_mask(mask: Tensor, shape: torch.Size | tuple[int, ...]) -> None:
    """Raise unless the mask is boolean and broadcasts to ``shape`` without widening.

    Args:
        mask: what came.
        shape: the shape of the scores.

    Raises:
        TypeError: not a boolean tensor.
        ValueError: does not broadcast to ``shape``.

    Example:
        >>> import torch
        >>> from mha_lib.masks import check_mask
        >>> check_mask(torch.ones(3, 2, dtype=torch.bool), (2, 3))
        Traceback (most recent call last):
        ...
        ValueError: mask must broadcast to (2, 3); got shape (3, 2)
    """
    check_boolean(mask)
    _check_broadcast("mask", mask, shape)


def check_bias(
    bias: Tensor, dtype: torch.dtype, shape: torch.Size | tuple[int, ...]
) -> None:
    """Raise unless the bias has the dtype and broadcasts to ``shape``.

    Args:
        bias: what came: a tensor that will be added to the scores.
        dtype: the dtype of the scores.
        shape: the shape of the scores.

    Raises:
        TypeError: not a tensor of that dtype.
        ValueError: does not broadcast to ``shape``.

    Example:
        >>> import torch
        >>> from mha_lib.masks import check_bias
        >>> check_bias(torch.zeros(3, 2), torch.float32, (2, 3))
        Traceback (most recent call last):
        ...
        ValueError: bias must broadcast to (2, 3); got shape (3, 2)
    """
    if not isinstance(bias, Tensor) or bias.dtype != dtype:
        came = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
        raise TypeError(f"bias must be a tensor of {dtype}; got {came}")
    _check_broadcast("bias", bias, shape)


def _check_broadcast(name: str, x: Tensor, shape: torch.Size | tuple[int, ...]) -> None:
    try:
        fits = torch.broadcast_shapes(x.shape, shape) == torch.Size(shape)
    except RuntimeError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} must broadcast to {tuple(shape)}; got shape {tuple(x.shape)}"
        )


def mask_to_bhts(mask: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """Give a mask of rank 2, 3 or 4 the four axes (B, H, T, S), each its size or 1.

    Args:
        mask: boolean (T, S), (B, T, S) or (B, H, T, S).
        shape: the sizes (B, H, T, S) it has to fit.

    Returns:
        The same mask as a view of rank 4. Rank 3 gains the *head* axis, 1.

    Raises:
        TypeError: not a boolean tensor.
        ValueError: a rank outside 2…4, or sizes that do not fit.

    Example:
        >>> import torch
        >>> from mha_lib.masks import mask_to_bhts
        >>> mask_to_bhts(torch.ones(5, 2, 3, dtype=torch.bool), (5, 7, 2, 3)).shape
        torch.Size([5, 1, 2, 3])
    """
    check_boolean(mask)
    check_rank(mask)
    if mask.dim() == 2:
        aligned = mask[None, None]
    elif mask.dim() == 3:
        aligned = mask[:, None]
    else:
        aligned = mask
    try:
        check_mask(aligned, shape)
    except ValueError:
        raise ValueError(
            "mask must broadcast to (B, H, T, S) = "
            f"{tuple(shape)} from (T, S), (B, T, S) or (B, H, T, S); "
            f"got shape {tuple(mask.shape)}"
        ) from None
    return aligned


def check_rank(mask: Tensor) -> None:
    """Raise unless the mask has one of the ranks that we know."""
    if mask.dim() not in (2, 3, 4):
        raise ValueError(
            "mask must have rank 2 (T, S), 3 (B, T, S) or 4 (B, H, T, S); "
            f"got shape {tuple(mask.shape)}"
        )
