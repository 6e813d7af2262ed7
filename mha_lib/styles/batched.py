"""Chapter 3: all heads in one matrix product, by view and transpose."""

from torch import Tensor, nn

from mha_lib._inputs import check_dropout, resolve_inputs
from mha_lib.attention import attention
from mha_lib.layouts import head_size, merge_heads, split_heads
from mha_lib.masks import mask_to_bhts

__all__ = ["BatchedMHA"]


class BatchedMHA(nn.Module):
    """merge(attention(split(Q W^Q), split(K W^K), split(V W^V))) W^O, no loop.

    Args:
        embed_dim: E, the width of the input and of the output.
        num_heads: H; it divides E, and each head is D = E/H wide.
        dropout: probability of dropping an attention weight in training.
        bias: give every projection a bias.

    Raises:
        ValueError: H does not divide E, or dropout is not a probability.

    Note:
        A query that may attend to nothing gets zero weights and a zero context, so
        its output is the bias of ``out_proj``, and zero gradients.

    Example:
        >>> import torch
        >>> from mha_lib import BatchedMHA
        >>> mha = BatchedMHA(embed_dim=6, num_heads=3)
        >>> output, weights = mha(torch.randn(2, 4, 6), torch.randn(2, 5, 6))
        >>> output.shape, weights.shape
        (torch.Size([2, 4, 6]), torch.Size([2, 3, 4, 5]))

    Source:
        Vaswani et al. (2017), section 3.2.2; built in chapter 3.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.head_dim = head_size(embed_dim, num_heads)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout = check_dropout(dropout)
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend with all heads at once.

        Args:
            query: (B, T, E).
            key: (B, S, E); None means the query.
            value: (B, S, E); None means the key.
            mask: boolean, True = may attend: (T, S), (B, T, S) or (B, H, T, S),
                each axis of its size or 1; or None.

        Returns:
            The output (B, T, E) and the weights (B, H, T, S) before dropout.

        Raises:
            TypeError: tensors of different dtype, or a mask that is not boolean.
            ValueError: sizes that do not fit together.
        """
        query, key, value = resolve_inputs(query, key, value, self.out_proj.weight)
        (B, T, _), S = query.shape, key.shape[1]
        if mask is not None:
            mask = mask_to_bhts(mask, (B, self.num_heads, T, S))

        q = split_heads(self.q_proj(query), self.num_heads)  # (B, H, T, D)
        k = split_heads(self.k_proj(key), self.num_heads)  # (B, H, S, D)
        v = split_heads(self.v_proj(value), self.num_heads)  # (B, H, S, D)
        dropout_p = self.dropout if self.training else 0.0
        context, weights = attention(q, k, v, mask, dropout_p=dropout_p)
        return self.out_proj(merge_heads(context)), weights
