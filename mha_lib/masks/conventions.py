"""The same mask where it means something else: inverted, added, with other axes."""

from collections.abc import Iterator

import torch
from torch import Tensor

from mha_lib.masks.checking import check_boolean, mask_to_bhts
from mha_lib.masks.making import combine_masks

__all__ = [
    "additive_mask",
    "from_sequence_first_mask",
    "from_torch_mask",
    "split_torch_masks",
    "to_heads_on_batch_mask",
    "to_sequence_first_mask",
    "to_torch_mask",
]


def additive_mask(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """0 where the mask allows, −∞ where it hides: to be added to the scores.

    Args:
        mask: boolean, True = may attend, any shape.
        dtype: a floating dtype, that of the scores.

    Returns:
        A float mask of the same shape.

    Raises:
        TypeError: the mask is not boolean, or the dtype not floating.

    Example:
        >>> from mha_lib import causal_mask
        >>> from mha_lib.masks import additive_mask
        >>> additive_mask(causal_mask(2))
        tensor([[0., -inf],
                [0., 0.]])
    """
    check_boolean(mask)
    if not dtype.is_floating_point:
        raise TypeError(f"dtype must be floating; got {dtype}")
    zeros = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
    return zeros.masked_fill(~mask, float("-inf"))


def to_torch_mask(mask: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """¬mask as the ``attn_mask`` of ``nn.MultiheadAttention``: True = hidden.

    Args:
        mask: boolean of rank 2, 3 or 4, True = may attend.
        shape: the sizes (B, H, T, S).

    Returns:
        Boolean, True = hidden: (T, S) if the mask has no axis of its own for
        sequences and heads, else (B·H, T, S), the heads of one sequence side by side.

    Raises:
        TypeError, ValueError: as :func:`mask_to_bhts`.

    Example:
        >>> import torch
        >>> from mha_lib import causal_mask, padding_mask
        >>> from mha_lib.masks import to_torch_mask
        >>> to_torch_mask(causal_mask(2), (5, 3, 2, 2))
        tensor([[False,  True],
                [False, False]])
        >>> to_torch_mask(padding_mask(torch.tensor([1, 2])), (2, 3, 4, 2)).shape
        torch.Size([6, 4, 2])
    """
    aligned = mask_to_bhts(mask, shape)
    B, H, T, S = shape
    if aligned.shape[:2] == (1, 1):
        return ~aligned[0, 0].expand(T, S)
    return ~aligned.expand(B, H, T, S).reshape(B * H, T, S)


def split_torch_masks(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    shape: torch.Size | tuple[int, ...],
    dtype: torch.dtype,
) -> tuple[Tensor | None, Tensor | None]:
    """Both masks of ``nn.MultiheadAttention`` as one of ours and one finite bias.

    Args:
        attn_mask: (T, S) or (B·H, T, S), boolean with True = hidden, or floating:
            added to the scores, −∞ = hidden; or None.
        key_padding_mask: (B, S), of either kind; or None.
        shape: the sizes (B, H, T, S).
        dtype: the dtype that the bias shall have.

    Returns:
        A boolean mask, True = may attend, and a bias without −∞, each broadcastable
        to (B, H, T, S), or None where nothing asks for one.

    Raises:
        TypeError: a mask that is neither boolean nor floating.
        ValueError: a mask of another shape.

    Example:
        >>> import torch
        >>> from mha_lib.masks import split_torch_masks
        >>> attn_mask = torch.tensor([[0.5, float("-inf")]])
        >>> split_torch_masks(attn_mask, None, (1, 1, 1, 2), torch.float32)
        (tensor([[ True, False]]), tensor([[0.5000, 0.0000]]))
    """
    B, H, T, S = shape
    fitting = {"attn_mask": [(T, S), (B * H, T, S)], "key_padding_mask": [(B, S)]}
    mask = bias = None
    for name, given in _of_torch(attn_mask, key_padding_mask):
        if tuple(given.shape) not in fitting[name]:
            required = " or ".join(map(str, fitting[name]))
            raise ValueError(f"{name} must be {required}; got {tuple(given.shape)}")
        given = _with_our_axes(name, given, H)
        if given.dim() == 3:
            given = given[:, None]  # (B, 1, 1, S)
        if given.dtype == torch.bool:
            mask = ~given if mask is None else mask & ~given
        else:
            bias = given.to(dtype) if bias is None else bias + given.to(dtype)
    if bias is not None:
        finite = bias != float("-inf")
        mask = finite if mask is None else mask & finite
        bias = bias.masked_fill(~finite, 0.0)
    return mask, bias


def from_torch_mask(
    attn_mask: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    *,
    num_heads: int,
) -> Tensor | None:
    """The masks of ``nn.MultiheadAttention`` (True or −∞ = hidden) as one of ours.

    Args:
        attn_mask: (T, S) or (B·H, T, S), boolean with True = hidden, or a float
            mask of 0 and −∞; or None.
        key_padding_mask: (B, S), of the same kind; or None.
        num_heads: H, which splits the first axis of a 3-D ``attn_mask``.

    Returns:
        Boolean, True = may attend: (T, S), (B, 1, S), (B, H, T, S) or their
        combination; None if neither mask was given.

    Raises:
        TypeError: neither boolean nor floating.
        ValueError: another rank, a first axis that H does not divide, or a float
            mask with values other than 0 and −∞ (that is a bias, not a mask).

    Example:
        >>> import torch
        >>> from mha_lib.masks import from_torch_mask
        >>> from_torch_mask(torch.tensor([[False, True]]), num_heads=3)
        tensor([[ True, False]])
    """
    ours = []
    for name, given in _of_torch(attn_mask, key_padding_mask):
        given = _with_our_axes(name, given, num_heads)
        ours.append(~given if given.dtype == torch.bool else _allowed(name, given))
    return combine_masks(*ours)


def _of_torch(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None
) -> Iterator[tuple[str, Tensor]]:
    """Those that were given, each by its name, if they are boolean or floating."""
    both = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
    for name, given in both.items():
        if given is None:
            continue
        if not isinstance(given, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(given).__name__}")
        if given.dtype != torch.bool and not given.is_floating_point():
            raise TypeError(f"{name} must be boolean or floating; got {given.dtype}")
        yield name, given


def _with_our_axes(name: str, given: Tensor, num_heads: int) -> Tensor:
    """As (T, S), (B, H, T, S) or (B, 1, S): what `combine_masks` takes."""
    if name == "key_padding_mask":
        if given.dim() != 2:
            raise ValueError(f"{name} must be (B, S); got shape {tuple(given.shape)}")
        return given[:, None]
    if given.dim() == 3:
        if num_heads < 1 or given.shape[0] % num_heads:
            raise ValueError(
                f"the first axis of a 3-D {name} must be B·H, a multiple of "
                f"num_heads = {num_heads}; got {given.shape[0]}"
            )
        return given.unflatten(0, (-1, num_heads))
    if given.dim() != 2:
        raise ValueError(
            f"{name} must be (T, S) or (B·H, T, S); got shape {tuple(given.shape)}"
        )
    return given


def _allowed(name: str, added: Tensor) -> Tensor:
    allowed = added == 0
    if not (allowed | (added == float("-inf"))).all():
        raise ValueError(
            f"a float {name} must hold only 0 and -inf to be read as a mask; "
            "other values are a bias on the scores"
        )
    return allowed


def to_sequence_first_mask(mask: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """The same mask as (T or 1, S, B or 1), for sequence-first attention.

    Args:
        mask: boolean of rank 2, 3 or 4, True = may attend, the same for all heads.
        shape: the sizes (B, H, T, S).

    Returns:
        Boolean (T or 1, S, B or 1), True = may attend.

    Raises:
        TypeError: not a boolean tensor.
        ValueError: as :func:`mask_to_bhts`, or a mask that differs between heads:
            this layout has no axis for them.

    Example:
        >>> import torch
        >>> from mha_lib import padding_mask
        >>> from mha_lib.masks import to_sequence_first_mask
        >>> lengths = torch.tensor([1, 2])
        >>> to_sequence_first_mask(padding_mask(lengths), (2, 3, 4, 2)).shape
        torch.Size([1, 2, 2])
    """
    aligned = mask_to_bhts(mask, shape)
    if aligned.shape[1] != 1:
        raise ValueError(
            "a sequence-first mask is the same for all heads; "
            f"got one with a head axis of {aligned.shape[1]}"
        )
    S = shape[3]
    return aligned[:, 0].expand(-1, -1, S).permute(1, 2, 0)


def from_sequence_first_mask(mask: Tensor) -> Tensor:
    """A (T or 1, S, B or 1) mask as (B or 1, T or 1, S), True = may attend.

    Args:
        mask: boolean of rank 3, sequence first.

    Returns:
        The same mask, batch first.

    Raises:
        TypeError: not a boolean tensor.
        ValueError: not of rank 3.

    Example:
        >>> import torch
        >>> from mha_lib.masks import from_sequence_first_mask
        >>> from_sequence_first_mask(torch.ones(4, 2, 1, dtype=torch.bool)).shape
        torch.Size([1, 4, 2])
    """
    check_boolean(mask)
    if mask.dim() != 3:
        raise ValueError(
            "a sequence-first mask is (T or 1, S, B or 1); "
            f"got shape {tuple(mask.shape)}"
        )
    return mask.permute(2, 0, 1)


def to_heads_on_batch_mask(mask: Tensor, shape: torch.Size | tuple[int, ...]) -> Tensor:
    """The same mask as (H·B, T, S), head 0 of every sequence first.

    Args:
        mask: boolean of rank 2, 3 or 4, True = may attend.
        shape: the sizes (B, H, T, S).

    Returns:
        Boolean (H·B, T, S): row ``h * B + b`` belongs to head h of sequence b. It
        fits :func:`mha_lib.layouts.heads_to_batch`; ``repeat_interleave`` along the
        batch would give the other order, b · H + h.

    Raises:
        TypeError, ValueError: as :func:`mask_to_bhts`.

    Example:
        >>> import torch
        >>> from mha_lib import padding_mask
        >>> from mha_lib.masks import to_heads_on_batch_mask
        >>> mask = padding_mask(torch.tensor([1, 2]))
        >>> to_heads_on_batch_mask(mask, (2, 3, 1, 2))[:, 0, 1].int()
        tensor([0, 1, 0, 1, 0, 1], dtype=torch.int32)
    """
    B, H, T, S = shape
    aligned = mask_to_bhts(mask, shape).expand(B, H, T, S)
    return aligned.transpose(0, 1).reshape(H * B, T, S)
