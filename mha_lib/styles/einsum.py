"""Chapter 6: sequence first, every product an einsum, every step open to override."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib._inputs import check_dropout, resolve_inputs
from mha_lib.attention import masked_softmax
from mha_lib.layouts import (
    head_size,
    merge_heads_sequence_first,
    split_heads_sequence_first,
)
from mha_lib.masks import check_boolean

__all__ = ["EinsumMHA"]


class EinsumMHA(nn.Module):
    """scores_tsbh = Σ_d q_tbhd k_sbhd; context_tbhd = Σ_s weights_tsbh v_sbhd.

    Args:
        embed_dim: E, the width of the input and of the output.
        num_heads: H; it divides E, and each head is D = E/H wide.
        dropout: probability of dropping an attention weight in training.
        bias: give every projection a bias.
        value_bias: whether the values have one; None means the same as ``bias``.
            The published version always has it.
        log: called as ``log("weights", weights)`` with the detached weights
            (B, H, T, S) of every forward pass; or None.

    Attributes:
        last_weights: the detached weights (B, H, T, S) of the last forward pass;
            None before the first.

    Raises:
        ValueError: H does not divide E, or dropout is not a probability.

    Note:
        This style is sequence first: inputs are (T, B, E) and a mask is
        (T or 1, S, B or 1). The weights come back as (B, H, T, S) like everybody's.
        A query that may attend to nothing gets zero weights and a zero context, so
        its output is the bias of ``out_proj``, and zero gradients.

    Example:
        >>> import torch
        >>> from mha_lib import EinsumMHA
        >>> mha = EinsumMHA(embed_dim=6, num_heads=3)
        >>> output, weights = mha(torch.randn(4, 2, 6), torch.randn(5, 2, 6))
        >>> output.shape, weights.shape
        (torch.Size([4, 2, 6]), torch.Size([2, 3, 4, 5]))

    Source:
        The interface follows labml.ai's annotated multi-head attention; built in
        chapter 6. Vaswani et al. (2017), section 3.2.2.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        value_bias: bool | None = None,
        log: Callable[[str, Tensor], object] | None = None,
    ) -> None:
        super().__init__()
        self.head_dim = head_size(embed_dim, num_heads)
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.dropout = check_dropout(dropout)
        self.scale = 1.0 / math.sqrt(self.head_dim)
        self.log = log
        self.last_weights: Tensor | None = None
        value_bias = bias if value_bias is None else value_bias
        self.q_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.k_proj = nn.Linear(embed_dim, embed_dim, bias=bias)
        self.v_proj = nn.Linear(embed_dim, embed_dim, bias=value_bias)
        self.out_proj = nn.Linear(embed_dim, embed_dim, bias=bias)

    def __getstate__(self) -> dict:
        """What copies and pickles carry: everything but the last weights."""
        return self.__dict__ | {"last_weights": None}

    def get_scores(self, q: Tensor, k: Tensor) -> Tensor:
        """q_tbhd k_sbhd → scores_tsbh. Override this for another kind of score.

        Args:
            q: (T, B, H, D), already multiplied by 1/√D.
            k: (S, B, H, D).

        Returns:
            Finite scores (T, S, B, H), ready for the softmax over s. To hide a key,
            use a mask, not −∞.
        """
        return torch.einsum("tbhd,sbhd->tsbh", q, k)

    def prepare_mask(self, mask: Tensor, scores_shape: torch.Size) -> Tensor:
        """(T or 1, S, B or 1) → (T or 1, S, B or 1, 1): the head axis at the end.

        Args:
            mask: boolean, True = may attend.
            scores_shape: (T, S, B, H), which it has to fit.

        Returns:
            The same mask with an axis for the heads.

        Raises:
            TypeError: the mask is not boolean.
            ValueError: another shape.
        """
        check_boolean(mask)
        T, S, B, _ = scores_shape
        fits = mask.dim() == 3 and mask.shape[1] == S
        if not (fits and mask.shape[0] in (1, T) and mask.shape[2] in (1, B)):
            raise ValueError(
                f"mask must be (T or 1, S, B or 1) with (T, S, B) = {(T, S, B)}; "
                f"got shape {tuple(mask.shape)}"
            )
        return mask[..., None]

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend, sequence first.

        Args:
            query: (T, B, E).
            key: (S, B, E); None means the query.
            value: (S, B, E); None means the key.
            mask: boolean (T or 1, S, B or 1), True = may attend; or None.

        Returns:
            The output (T, B, E) and the weights (B, H, T, S) before dropout.

        Raises:
            TypeError: tensors of different dtype, or a mask that is not boolean.
            ValueError: sizes that do not fit together.
        """
        query, key, value = resolve_inputs(
            query, key, value, self.out_proj.weight, batch_axis=1
        )
        q = split_heads_sequence_first(self.q_proj(query), self.num_heads)
        k = split_heads_sequence_first(self.k_proj(key), self.num_heads)
        v = split_heads_sequence_first(self.v_proj(value), self.num_heads)

        scores = self.get_scores(q * self.scale, k)  # (T, S, B, H)
        if mask is not None:
            mask = self.prepare_mask(mask, scores.shape)
        weights = masked_softmax(scores, mask, dim=1)  # over the keys
        dropped = F.dropout(weights, self.dropout, self.training)
        context = torch.einsum("tsbh,sbhd->tbhd", dropped, v)
        output = self.out_proj(merge_heads_sequence_first(context))

        weights = weights.permute(2, 3, 0, 1)  # (B, H, T, S)
        self.last_weights = weights.detach()
        if self.log is not None:
            self.log("weights", self.last_weights)
        return output, weights
