"""Chapter 7: torch's own layer, behind the interface of the other styles."""

from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib._inputs import check_dropout, resolve_inputs
from mha_lib.layouts import head_size
from mha_lib.masks import mask_to_bhts, to_torch_mask

__all__ = ["BuiltinMHA"]


class BuiltinMHA(nn.Module):
    """``nn.MultiheadAttention`` with our mask, our weights and no NaN.

    Args:
        embed_dim: E, the width of the input and of the output.
        num_heads: H; it divides E, and each head is D = E/H wide.
        dropout: probability of dropping an attention weight in training.
        bias: give both projections a bias.

    Attributes:
        mha: the ``nn.MultiheadAttention`` (batch first) that does the work.

    Raises:
        ValueError: H does not divide E, or dropout is not a probability.

    Note:
        torch's layer differs in three ways, and this class mends them here. Its
        mask is inverted (True = hidden): :func:`mha_lib.masks.to_torch_mask`. It
        returns the weights after dropout, and NaN for a query that may attend to
        nothing: so the weights come from a second call, without dropout and
        with such rows opened, and the rows are zeroed afterwards. Without a mask
        and without dropout one call is enough. A fully masked row gets zero weights
        and a zero context, so its output is the bias of ``out_proj``, and zero
        gradients. Hidden inputs must be finite: torch adds −∞ to hidden scores, and
        a NaN stays a NaN.

    Example:
        >>> import torch
        >>> from mha_lib import BuiltinMHA
        >>> mha = BuiltinMHA(embed_dim=6, num_heads=3)
        >>> output, weights = mha(torch.randn(2, 4, 6), torch.randn(2, 5, 6))
        >>> output.shape, weights.shape
        (torch.Size([2, 4, 6]), torch.Size([2, 3, 4, 5]))

    Source:
        The reference of ``torch.nn.MultiheadAttention``; chapter 7.
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
        check_dropout(dropout)
        self.mha = nn.MultiheadAttention(
            embed_dim, num_heads, dropout=dropout, bias=bias, batch_first=True
        )

    @property
    def dropout(self) -> float:
        """The probability with which ``mha`` drops a weight in training."""
        return self.mha.dropout

    @dropout.setter
    def dropout(self, dropout: float) -> None:
        self.mha.dropout = check_dropout(dropout)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend with torch's layer.

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
        query, key, value = resolve_inputs(query, key, value, self.mha.out_proj.weight)
        shape = (query.shape[0], self.num_heads, query.shape[1], key.shape[1])
        aligned = None if mask is None else mask_to_bhts(mask, shape)
        if 0 in shape:
            aligned = None  # nothing to hide, and torch cannot cut an empty mask
        if aligned is not None or 0 in shape:
            # torch's inference fast path gives NaN for a query that sees no key, and
            # no weights for an empty axis. It is left if key and query are two objects.
            key = key.view_as(key)
        if aligned is None and not (self.training and self.dropout):
            return self.mha(query, key, value, average_attn_weights=False)

        hidden = None if aligned is None else to_torch_mask(aligned, shape)
        output, _ = self.mha(query, key, value, attn_mask=hidden, need_weights=False)
        if aligned is None:
            return output, self._weights_before_dropout(query, key, value, None)
        empty = ~aligned.any(-1, keepdim=True)  # queries that see no key
        opened = to_torch_mask(aligned | empty, shape)
        weights = self._weights_before_dropout(query, key, value, opened)
        return output, weights.masked_fill(empty, 0.0)

    def _weights_before_dropout(
        self, query: Tensor, key: Tensor, value: Tensor, hidden: Tensor | None
    ) -> Tensor:
        _, weights = F.multi_head_attention_forward(
            query.transpose(0, 1),
            key.transpose(0, 1),
            value.transpose(0, 1),
            self.embed_dim,
            self.num_heads,
            self.mha.in_proj_weight,
            self.mha.in_proj_bias,
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=self.mha.out_proj.weight,
            out_proj_bias=self.mha.out_proj.bias,
            training=False,
            attn_mask=hidden,
            need_weights=True,
            average_attn_weights=False,
        )
        return weights
