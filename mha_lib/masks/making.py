"""Making masks: causal, padding, and several as one."""

import torch
from torch import Tensor

from mha_lib.masks.checking import check_boolean, check_rank

__all__ = ["causal_mask", "combine_masks", "embedding_mask", "padding_mask"]


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
    lengths = lengths.long()  # torch has no minimum of uint16 and its like
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
        check_rank(mask)
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
