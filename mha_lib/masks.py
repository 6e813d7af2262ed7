"""Boolean masks, True = may attend, and their forms in other frameworks.

Inside this package a mask has one meaning. Where another library wants another one
(inverted, added, with heads on the batch axis), the conversion has a name and lives
here.
"""

import torch
from torch import Tensor

__all__ = [
    "additive_mask",
    "causal_mask",
    "check_bias",
    "check_boolean",
    "check_mask",
    "combine_masks",
    "embedding_mask",
    "from_sequence_first_mask",
    "from_torch_mask",
    "mask_to_bhts",
    "padding_mask",
    "split_torch_masks",
    "to_heads_on_batch_mask",
    "to_sequence_first_mask",
    "to_torch_mask",
]


# --- making masks -------------------------------------------------------------


def causal_mask(
    T: int,
    S: int | None = None,
    *,
    align: str = "top-left",
    device: torch.device | str | None = None,
) -> Tensor:
    """mask[t, s] = (s ≤ t): a query sees the keys up to its own position.

    Args:
        T: number of queries.
        S: number of keys; None means T.
        align: where the diagonal lies if T ≠ S. ``"top-left"``: query 0 sees key 0
            alone (as ``F.scaled_dot_product_attention(is_causal=True)`` does).
            ``"bottom-right"``: the last query sees every key, which is what a cache
            of S − T earlier keys needs.
        device: where the mask is made.

    Returns:
        Boolean (T, S), True = may attend.

    Raises:
        ValueError: a negative size, or an unknown ``align``.

    Example:
        >>> from mha_lib import causal_mask
        >>> causal_mask(2, 3).int()
        tensor([[1, 0, 0],
                [1, 1, 0]], dtype=torch.int32)
        >>> causal_mask(2, 3, align="bottom-right").int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)

    Source:
        Vaswani et al. (2017), section 3.2.3.
    """
    S = T if S is None else S
    if T < 0 or S < 0:
        raise ValueError(f"T and S must not be negative; got {T} and {S}")
    if align not in ("top-left", "bottom-right"):
        raise ValueError(f'align must be "top-left" or "bottom-right"; got {align!r}')
    diagonal = 0 if align == "top-left" else S - T
    return torch.ones(T, S, dtype=torch.bool, device=device).tril(diagonal)


def padding_mask(lengths: Tensor, S: int | None = None) -> Tensor:
    """mask[b, 0, s] = (s < lengths[b]): the keys past a sequence's end are hidden.

    Args:
        lengths: integers (B,), the true length of each sequence.
        S: padded length; None means the longest length.

    Returns:
        Boolean (B, 1, S), True = may attend, for every query alike, on the device
        of ``lengths``.

    Raises:
        TypeError: lengths that are not an integer tensor.
        ValueError: lengths of another rank, or outside 0 … S, or a negative S.

    Example:
        >>> import torch
        >>> from mha_lib import padding_mask
        >>> padding_mask(torch.tensor([1, 3])).int()
        tensor([[[1, 0, 0]],
        <BLANKLINE>
                [[1, 1, 1]]], dtype=torch.int32)
    """
    if (
        not isinstance(lengths, Tensor)
        or lengths.is_floating_point()
        or lengths.is_complex()
        or lengths.dtype == torch.bool
    ):
        came = lengths.dtype if isinstance(lengths, Tensor) else type(lengths).__name__
        raise TypeError(f"lengths must be a tensor of integers; got {came}")
    if lengths.dim() != 1:
        raise ValueError(f"lengths must have shape (B,); got {tuple(lengths.shape)}")
    if S is None:
        if lengths.device.type == "meta":
            raise ValueError("S must be given for lengths on the meta device")
        S = int(lengths.max()) if lengths.numel() else 0
    if S < 0:
        raise ValueError(f"S must not be negative; got {S}")
    if lengths.numel() and lengths.device.type != "meta":
        low, high = int(lengths.min()), int(lengths.max())
        if low < 0 or high > S:
            raise ValueError(f"lengths must lie in 0…{S}; got {low} to {high}")
    positions = torch.arange(S, device=lengths.device)
    return (positions < lengths[:, None])[:, None, :]


def embedding_mask(embeddings: Tensor) -> Tensor:
    """mask[b, 0, s] = any(embeddings[b, s] ≠ 0): all-zero keys count as padding.

    Args:
        embeddings: raw key embeddings (B, S, E), *before* position embeddings are
            added: afterwards no row is zero any more.

    Returns:
        Boolean (B, 1, S), True = may attend.

    Raises:
        TypeError: embeddings that are not a tensor.
        ValueError: embeddings that are not (B, S, E).

    Note:
        Published versions take the sign of |Σ features|. That hides a real token
        whose features happen to cancel; asking each feature does not.

    Example:
        >>> import torch
        >>> from mha_lib.masks import embedding_mask
        >>> embedding_mask(torch.tensor([[[1.0, -1.0], [0.0, 0.0]]]))
        tensor([[[ True, False]]])
    """
    if not isinstance(embeddings, Tensor):
        raise TypeError(f"embeddings must be a tensor; got {type(embeddings).__name__}")
    if embeddings.dim() != 3:
        raise ValueError(
            f"embeddings must have shape (B, S, E); got {tuple(embeddings.shape)}"
        )
    return (embeddings != 0).any(-1)[:, None, :]


def combine_masks(*masks: Tensor | None) -> Tensor | None:
    """Logical AND of the masks that are not None; None if there is none.

    Args:
        masks: boolean masks of rank 2 (T, S), 3 (B, T, S) or 4 (B, H, T, S), each
            axis of its size or 1, or None.

    Returns:
        One mask of the highest rank that came, or None. A key is visible only if
        every mask allows it.

    Raises:
        TypeError: a mask that is not boolean.
        ValueError: a rank outside 2…4, or sizes that do not broadcast.

    Example:
        >>> import torch
        >>> from mha_lib import causal_mask, combine_masks, padding_mask
        >>> both = combine_masks(causal_mask(3), padding_mask(torch.tensor([2, 3])))
        >>> both.shape
        torch.Size([2, 3, 3])
        >>> both[0].int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [1, 1, 0]], dtype=torch.int32)
    """
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    for mask in given:
        check_boolean(mask)
        _check_rank(mask)
    rank = max(mask.dim() for mask in given)
    shapes = [tuple(mask.shape) for mask in given]
    # A (B, T, S) mask beside a (B, H, T, S) one lacks its axis 1, not its axis 0.
    if rank == 4:
        given = [mask[:, None] if mask.dim() == 3 else mask for mask in given]
    combined = given[0]
    for mask in given[1:]:
        try:
            combined = combined & mask
        except RuntimeError:
            raise ValueError(
                f"masks must broadcast to one another; got shapes {shapes}"
            ) from None
    return combined


# --- checking and aligning ----------------------------------------------------


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
    _check_rank(mask)
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


def _check_rank(mask: Tensor) -> None:
    if mask.dim() not in (2, 3, 4):
        raise ValueError(
            "mask must have rank 2 (T, S), 3 (B, T, S) or 4 (B, H, T, S); "
            f"got shape {tuple(mask.shape)}"
        )


# --- the same mask elsewhere --------------------------------------------------


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
    mask = bias = None
    for name, given, shapes in (
        ("attn_mask", attn_mask, [(T, S), (B * H, T, S)]),
        ("key_padding_mask", key_padding_mask, [(B, S)]),
    ):
        if given is None:
            continue
        if given.dtype != torch.bool and not given.is_floating_point():
            raise TypeError(f"{name} must be boolean or floating; got {given.dtype}")
        if tuple(given.shape) not in shapes:
            required = " or ".join(map(str, shapes))
            raise ValueError(f"{name} must be {required}; got {tuple(given.shape)}")
        if name == "key_padding_mask":
            given = given[:, None, None]  # (B, 1, 1, S)
        elif given.dim() == 3:
            given = given.view(B, H, T, S)
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
    ours = None
    if attn_mask is not None:
        allowed = _allowed(attn_mask, "attn_mask")
        if allowed.dim() == 3:
            if num_heads < 1 or allowed.shape[0] % num_heads:
                raise ValueError(
                    "the first axis of a 3-D attn_mask must be B·H, a multiple of "
                    f"num_heads = {num_heads}; got {allowed.shape[0]}"
                )
            allowed = allowed.unflatten(0, (-1, num_heads))  # (B, H, T, S)
        elif allowed.dim() != 2:
            raise ValueError(
                "attn_mask must be (T, S) or (B·H, T, S); "
                f"got shape {tuple(allowed.shape)}"
            )
        ours = allowed
    if key_padding_mask is not None:
        allowed = _allowed(key_padding_mask, "key_padding_mask")
        if allowed.dim() != 2:
            raise ValueError(
                f"key_padding_mask must be (B, S); got shape {tuple(allowed.shape)}"
            )
        ours = combine_masks(ours, allowed[:, None, :])
    return ours


def _allowed(mask: Tensor, name: str) -> Tensor:
    if not isinstance(mask, Tensor):
        raise TypeError(f"{name} must be a tensor; got {type(mask).__name__}")
    if mask.dtype == torch.bool:
        return ~mask
    if not mask.is_floating_point():
        raise TypeError(f"{name} must be boolean or floating; got {mask.dtype}")
    allowed = mask == 0
    if not (allowed | (mask == float("-inf"))).all():
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
