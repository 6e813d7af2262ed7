"""Where the heads live: three layouts of the same numbers, and the ways between them.

========================  ===============  ===============
layout                    input            heads
========================  ===============  ===============
batch first               (B, T, E)        (B, H, T, D)
sequence first            (T, B, E)        (T, B, H, D)
heads on the batch axis   (B, T, E)        (H·B, T, D)
========================  ===============  ===============
"""

import torch
from torch import Tensor

from mha_lib._inputs import check_sizes

__all__ = [
    "batch_to_heads",
    "head_size",
    "heads_to_batch",
    "merge_heads",
    "merge_heads_sequence_first",
    "split_heads",
    "split_heads_sequence_first",
]


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """(B, T, E) → (B, H, T, D): cut the features into H slices of D = E/H.

    Args:
        x: (B, T, E).
        num_heads: H.

    Returns:
        A view (B, H, T, D); ``[:, h]`` is the column slice ``h*D:(h+1)*D`` of x.

    Raises:
        ValueError: x is not of rank 3, or H does not divide E.

    Example:
        >>> import torch
        >>> from mha_lib.layouts import split_heads
        >>> x = torch.arange(12).reshape(1, 2, 6)
        >>> split_heads(x, 3)[0, 1]
        tensor([[2, 3],
                [8, 9]])
    """
    _check(x, 3, "(B, T, E)")
    return x.unflatten(-1, (num_heads, head_size(x.shape[-1], num_heads))).transpose(
        1, 2
    )


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, T, D) → (B, T, E): the inverse of :func:`split_heads`.

    Args:
        x: (B, H, T, D).

    Returns:
        (B, T, H·D), the heads side by side.

    Raises:
        ValueError: x is not of rank 4.

    Example:
        >>> import torch
        >>> from mha_lib.layouts import merge_heads, split_heads
        >>> x = torch.randn(2, 5, 6)
        >>> torch.equal(merge_heads(split_heads(x, 3)), x)
        True
    """
    _check(x, 4, "(B, H, T, D)")
    return x.transpose(1, 2).flatten(2)


def split_heads_sequence_first(x: Tensor, num_heads: int) -> Tensor:
    """(..., E) → (..., H, D): a view of the last axis; nothing moves.

    Args:
        x: (T, B, E), or any other leading axes.
        num_heads: H.

    Returns:
        A view (T, B, H, D).

    Raises:
        ValueError: H does not divide E.

    Example:
        >>> import torch
        >>> from mha_lib.layouts import split_heads_sequence_first
        >>> split_heads_sequence_first(torch.zeros(7, 2, 6), 3).shape
        torch.Size([7, 2, 3, 2])
    """
    return x.unflatten(-1, (num_heads, head_size(x.shape[-1], num_heads)))


def merge_heads_sequence_first(x: Tensor) -> Tensor:
    """(..., H, D) → (..., E): the inverse of :func:`split_heads_sequence_first`.

    Args:
        x: (T, B, H, D), or any other leading axes.

    Returns:
        (T, B, H·D); a copy where the heads do not lie side by side in memory.

    Raises:
        ValueError: x has fewer than two axes.

    Example:
        >>> import torch
        >>> from mha_lib.layouts import merge_heads_sequence_first
        >>> merge_heads_sequence_first(torch.zeros(7, 2, 3, 2)).shape
        torch.Size([7, 2, 6])
    """
    if x.dim() < 2:
        raise ValueError(f"x must end in the axes (H, D); got shape {tuple(x.shape)}")
    return x.flatten(-2)


def heads_to_batch(x: Tensor, num_heads: int) -> Tensor:
    """(B, T, E) → (H·B, T, D): split the features, concatenate on the batch axis.

    Args:
        x: (B, T, E).
        num_heads: H.

    Returns:
        A copy (H·B, T, D); row ``h * B + b`` is head h of sequence b.

    Raises:
        ValueError: x is not of rank 3, or H does not divide E.

    Example:
        >>> import torch
        >>> from mha_lib.layouts import heads_to_batch
        >>> x = torch.arange(8).reshape(2, 1, 4)
        >>> heads_to_batch(x, 2)[:, 0]
        tensor([[0, 1],
                [4, 5],
                [2, 3],
                [6, 7]])
    """
    _check(x, 3, "(B, T, E)")
    D = head_size(x.shape[-1], num_heads)
    return torch.cat(x.split(D, dim=-1), dim=0)


def batch_to_heads(x: Tensor, num_heads: int) -> Tensor:
    """(H·B, T, D) → (B, T, E): the inverse of :func:`heads_to_batch`.

    Args:
        x: (H·B, T, D), head 0 of every sequence first.
        num_heads: H.

    Returns:
        (B, T, H·D).

    Raises:
        ValueError: x is not of rank 3, or H does not divide its first axis.

    Example:
        >>> import torch
        >>> from mha_lib.layouts import batch_to_heads, heads_to_batch
        >>> x = torch.randn(2, 5, 6)
        >>> torch.equal(batch_to_heads(heads_to_batch(x, 3), 3), x)
        True
    """
    _check(x, 3, "(H·B, T, D)")
    if num_heads < 1 or x.shape[0] % num_heads:
        raise ValueError(
            "the first axis must be H·B, a multiple of "
            f"num_heads = {num_heads}; got {x.shape[0]}"
        )
    return torch.cat(x.chunk(num_heads, dim=0), dim=-1)


def head_size(embed_dim: int, num_heads: int) -> int:
    """D = E / H, if that is a whole number.

    Args:
        embed_dim: E.
        num_heads: H.

    Returns:
        D.

    Raises:
        TypeError: a size that is not an integer.
        ValueError: a size below 1, or H does not divide E.

    Example:
        >>> from mha_lib.layouts import head_size
        >>> head_size(12, 3)
        4
    """
    if torch.jit.is_tracing():  # a size of a tensor is a tensor there
        embed_dim = int(embed_dim)
    check_sizes(embed_dim=embed_dim, num_heads=num_heads)
    if embed_dim % num_heads:
        raise ValueError(
            "embed_dim must be divisible by num_heads; "
            f"got {embed_dim} and {num_heads}, which leaves {embed_dim % num_heads}"
        )
    return embed_dim // num_heads


def _check(x: Tensor, rank: int, axes: str) -> None:
    if x.dim() != rank:
        raise ValueError(f"x must have shape {axes}; got {tuple(x.shape)}")
