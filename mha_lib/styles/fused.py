"""Chapter 5: one matrix for queries, keys and values."""

from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib._inputs import check_dropout, project, resolve_inputs
from mha_lib.layouts import head_size, merge_heads, split_heads
from mha_lib.masks import mask_to_bhts
from mha_lib.tiled import tiled_attention

__all__ = ["FusedMHA"]


class FusedMHA(nn.Module):
    """[q k v] = x [W^Q W^K W^V]: one E → 3E projection, then as in chapter 3.

    Args:
        embed_dim: E, the width of the input and of the output.
        num_heads: H; it divides E, and each head is D = E/H wide.
        dropout: probability of dropping an attention weight in training.
        bias: give both projections a bias.
        output_dropout: probability of dropping a number of the *output* in
            training, where the page that this chapter follows puts its dropout.

    Raises:
        ValueError: H does not divide E, or a dropout is not a probability.

    Note:
        The rows of ``in_proj`` are W^Q, then W^K, then W^V. In cross-attention each
        third meets its own input; cutting all three out of the *query's* projection
        is the published fault that chapter 5 takes apart. A query that may attend
        to nothing gets zero weights and a zero context, so its output is the bias
        of ``out_proj``, and zero gradients. ``in_proj`` is called as a module in
        self-attention alone: hooks on it do not see cross-attention.

    Example:
        >>> import torch
        >>> from mha_lib import FusedMHA
        >>> mha = FusedMHA(embed_dim=6, num_heads=3)
        >>> output, weights = mha(torch.randn(2, 4, 6), torch.randn(2, 5, 6))
        >>> output.shape, weights.shape
        (torch.Size([2, 4, 6]), torch.Size([2, 3, 4, 5]))

    Source:
        Vaswani et al. (2017), section 3.2.2; built in chapter 5. Initialisation:
        Glorot and Bengio (2010), equation (16).
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        output_dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.head_dim = head_size(embed_dim, num_heads)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout = check_dropout(dropout)
        self.output_dropout = check_dropout(output_dropout)
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw Xavier-uniform weights, each E × E block for itself; zero the biases."""
        for block in (*self.in_proj.weight.chunk(3), self.out_proj.weight):
            nn.init.xavier_uniform_(block)
        for linear in (self.in_proj, self.out_proj):
            if linear.bias is not None:
                nn.init.zeros_(linear.bias)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        is_causal: bool = False,
        need_weights: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend with all heads at once.

        Args:
            query: (B, T, E).
            key: (B, S, E); None means the query.
            value: (B, S, E); None means the key.
            mask: boolean, True = may attend: (T, S), (B, T, S) or (B, H, T, S),
                each axis of its size or 1; or None.
            is_causal: a query sees the keys up to its own position alone; with a
                mask, both must allow a key.
            need_weights: False returns None for the weights and is faster: see
                :func:`mha_lib.attention.attention`.

        Returns:
            The output (B, T, E) and the weights (B, H, T, S) before dropout, or
            None.

        Raises:
            TypeError: tensors of different dtype, or a mask that is not boolean.
            ValueError: sizes that do not fit together.
        """
        query, key, value = resolve_inputs(query, key, value, self.out_proj.weight)
        (B, T, _), S = query.shape, key.shape[1]
        if mask is not None:
            mask = mask_to_bhts(mask, (B, self.num_heads, T, S))

        q, k, v = self._project(query, key, value)
        q = split_heads(q, self.num_heads)  # (B, H, T, D)
        k = split_heads(k, self.num_heads)  # (B, H, S, D)
        v = split_heads(v, self.num_heads)  # (B, H, S, D)
        dropout_p = self.dropout if self.training else 0.0
        options = {"is_causal": is_causal, "need_weights": need_weights}
        context, weights = tiled_attention(
            q, k, v, mask, dropout_p=dropout_p, **options
        )
        output = self.out_proj(merge_heads(context))
        return F.dropout(output, self.output_dropout, self.training), weights

    def _project(
        self, query: Tensor, key: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        if query is key and key is value:
            return self.in_proj(query).chunk(3, dim=-1)  # one product for all three
        weights, bias = self.in_proj.weight.chunk(3), self.in_proj.bias
        return project((query, key, value), weights, bias)
