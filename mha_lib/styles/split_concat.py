"""Chapter 8: heads on the batch axis, as early TensorFlow code did it."""

from collections.abc import Callable

from torch import Tensor, nn

from mha_lib._inputs import check_dropout, resolve_inputs
from mha_lib.attention import attention
from mha_lib.layouts import batch_to_heads, head_size, heads_to_batch
from mha_lib.masks import (
    causal_mask,
    combine_masks,
    embedding_mask,
    to_heads_on_batch_mask,
)

__all__ = ["SplitConcatMHA"]


class SplitConcatMHA(nn.Module):
    """Split the features into heads, concatenate them on the batch axis, attend.

    Args:
        embed_dim: E, the width of the input and of the output.
        num_heads: H; it divides E, and each head is D = E/H wide.
        dropout: probability of dropping an attention weight in training.
        bias: give every projection a bias.
        activation: applied to the projected queries, keys and values, for example
            ``torch.relu``; None leaves them linear, as in the other styles.
        causal: hide the keys after the query's own position.
        residual: add the query to the output.
        layer_norm: normalise the output at the end.

    Raises:
        ValueError: H does not divide E, or dropout is not a probability.

    Note:
        With every extra off this is the same function as the other styles. A query
        that may attend to nothing gets zero weights and a zero context, so its
        output (before residual and norm) is the bias of ``out_proj``, and zero
        gradients.

    Example:
        >>> import torch
        >>> from mha_lib import SplitConcatMHA
        >>> mha = SplitConcatMHA(embed_dim=6, num_heads=3, causal=True)
        >>> output, weights = mha(torch.randn(2, 4, 6))
        >>> output.shape, weights.shape
        (torch.Size([2, 4, 6]), torch.Size([2, 3, 4, 4]))
        >>> bool(weights[..., 0, 1:].any())
        False

    Source:
        The TensorFlow version of the post that chapter 8 follows, mended.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        activation: Callable[[Tensor], Tensor] | None = None,
        causal: bool = False,
        residual: bool = False,
        layer_norm: bool = False,
    ) -> None:
        super().__init__()
        self.head_dim = head_size(embed_dim, num_heads)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout = check_dropout(dropout)
        self.activation = activation
        self.causal = causal
        self.residual = residual
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.norm = nn.LayerNorm(embed_dim) if layer_norm else None

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
        *,
        raw_keys: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend with the heads on the batch axis.

        Args:
            query: (B, T, E).
            key: (B, S, E); None means the query.
            value: (B, S, E); None means the key.
            mask: boolean, True = may attend: (T, S), (B, T, S) or (B, H, T, S),
                each axis of its size or 1; or None.
            raw_keys: key embeddings (B, S, E) before position embeddings; keys
                whose raw embedding is all zero are hidden. None hides none.

        Returns:
            The output (B, T, E) and the weights (B, H, T, S) before dropout.

        Raises:
            TypeError: tensors of different dtype, or a mask that is not boolean.
            ValueError: sizes that do not fit together.
        """
        query, key, value = resolve_inputs(query, key, value, self.out_proj.weight)
        (B, T, _), S, H = query.shape, key.shape[1], self.num_heads
        if raw_keys is not None and raw_keys.shape[:2] != key.shape[:2]:
            raise ValueError(
                f"raw_keys must share (B, S) = {tuple(key.shape[:2])} with the key; "
                f"got shape {tuple(raw_keys.shape)}"
            )
        mask = combine_masks(
            mask,
            causal_mask(T, S, device=query.device) if self.causal else None,
            None if raw_keys is None else embedding_mask(raw_keys),
        )
        if mask is not None:
            mask = to_heads_on_batch_mask(mask, (B, H, T, S))

        q = heads_to_batch(self._activate(self.q_proj(query)), H)  # (H·B, T, D)
        k = heads_to_batch(self._activate(self.k_proj(key)), H)  # (H·B, S, D)
        v = heads_to_batch(self._activate(self.v_proj(value)), H)  # (H·B, S, D)
        dropout_p = self.dropout if self.training else 0.0
        context, weights = attention(q, k, v, mask, dropout_p=dropout_p)

        output = self.out_proj(batch_to_heads(context, H))  # (B, T, E)
        if self.residual:
            output = output + query
        if self.norm is not None:
            output = self.norm(output)
        return output, weights.unflatten(0, (H, B)).transpose(0, 1)

    def _activate(self, x: Tensor) -> Tensor:
        return x if self.activation is None else self.activation(x)
