"""Chapter 2: one small projection triple a head, and a Python loop over heads."""

import torch
from torch import Tensor, nn

from mha_lib._inputs import check_dropout, resolve_inputs
from mha_lib.attention import attention
from mha_lib.layouts import head_size
from mha_lib.masks import mask_to_bhts

__all__ = ["Head", "PerHeadMHA"]


class Head(nn.Module):
    """head_h = attention(Q W_h^Q, K W_h^K, V W_h^V): one head, its own matrices.

    Args:
        embed_dim: E, the width of the input.
        head_dim: D, the width of the head.
        dropout: probability of dropping a weight in training.
        bias: give each projection a bias.

    Example:
        >>> import torch
        >>> from mha_lib.styles.per_head import Head
        >>> head = Head(embed_dim=6, head_dim=2)
        >>> x = torch.randn(1, 5, 6)
        >>> context, weights = head(x, x, x)
        >>> context.shape, weights.shape
        (torch.Size([1, 5, 2]), torch.Size([1, 5, 5]))

    Source:
        Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(
        self, embed_dim: int, head_dim: int, dropout: float = 0.0, bias: bool = True
    ) -> None:
        super().__init__()
        self.dropout = check_dropout(dropout)
        self.q_proj = nn.Linear(embed_dim, head_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, head_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, head_dim, bias=bias)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(B, T, E), (B, S, E), (B, S, E) → context (B, T, D), weights (B, T, S)."""
        return attention(
            self.q_proj(query),
            self.k_proj(key),
            self.v_proj(value),
            mask,
            dropout_p=self.dropout if self.training else 0.0,
        )


class PerHeadMHA(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_0, …, head_{H−1}) W^O, head by head.

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
        >>> from mha_lib import PerHeadMHA
        >>> mha = PerHeadMHA(embed_dim=6, num_heads=3)
        >>> output, weights = mha(torch.randn(2, 4, 6), torch.randn(2, 5, 6))
        >>> output.shape, weights.shape
        (torch.Size([2, 4, 6]), torch.Size([2, 3, 4, 5]))

    Source:
        Vaswani et al. (2017), section 3.2.2; built in chapter 2.
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
        self.heads = nn.ModuleList(
            Head(embed_dim, self.head_dim, dropout, bias) for _ in range(num_heads)
        )
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    @property
    def dropout(self) -> float:
        """The probability with which every head drops a weight in training."""
        return self.heads[0].dropout

    @dropout.setter
    def dropout(self, dropout: float) -> None:
        for head in self.heads:
            head.dropout = check_dropout(dropout)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend with every head in turn.

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
            mask = mask.expand(-1, self.num_heads, -1, -1)

        contexts, weights = [], []
        for h, head in enumerate(self.heads):
            head_mask = None if mask is None else mask[:, h]
            context_h, weights_h = head(query, key, value, head_mask)
            contexts.append(context_h)  # (B, T, D)
            weights.append(weights_h)  # (B, T, S)

        context = torch.cat(contexts, dim=-1)  # (B, T, E)
        return self.out_proj(context), torch.stack(weights, dim=1)
