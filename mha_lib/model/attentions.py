"""One call for eight attentions: the six styles, the drop-in and torch's own layer."""

from collections.abc import Callable

from torch import Tensor, nn

from mha_lib.dropin import MultiheadAttention
from mha_lib.styles import (
    BatchedMHA,
    BuiltinMHA,
    EinsumMHA,
    FusedMHA,
    PerHeadMHA,
    SplitConcatMHA,
)

__all__ = ["ATTENTIONS", "Attend", "attend"]

Attend = Callable[[nn.Module, Tensor, Tensor, bool], tuple[Tensor, Tensor | None]]


def _with_mask(layer, x, mask, need_weights):
    return layer(x, mask=mask)


def _fused(layer, x, mask, need_weights):
    return layer(x, is_causal=True, need_weights=need_weights)


def _sequence_first(layer, x, mask, need_weights):
    output, weights = layer(x.transpose(0, 1), mask=mask[..., None])
    return output.transpose(0, 1), weights


def _as_torch(layer, x, mask, need_weights):
    options = {"need_weights": need_weights, "average_attn_weights": False}
    x = x if layer.batch_first else x.transpose(0, 1)
    output, weights = layer(x, x, x, attn_mask=~mask, is_causal=True, **options)
    return output if layer.batch_first else output.transpose(0, 1), weights


ATTENTIONS: dict[str, tuple[type[nn.Module], Attend]] = {
    "per_head": (PerHeadMHA, _with_mask),
    "batched": (BatchedMHA, _with_mask),
    "fused": (FusedMHA, _fused),
    "einsum": (EinsumMHA, _sequence_first),
    "builtin": (BuiltinMHA, _with_mask),
    "split_concat": (SplitConcatMHA, _with_mask),
    "dropin": (MultiheadAttention, _as_torch),
    "torch": (nn.MultiheadAttention, _as_torch),
}
"""Name → (class, how it is called for causal self-attention)."""


def attend(
    layer: nn.Module, x: Tensor, mask: Tensor, need_weights: bool = True
) -> tuple[Tensor, Tensor | None]:
    """attention(x, x, x) under a causal mask, whatever class the layer is of.

    Args:
        layer: an instance of one of the classes of `ATTENTIONS`.
        x: (B, T, E), batch first.
        mask: boolean (T, T), True = may attend: ``causal_mask(T)``.
        need_weights: False allows None for the weights, and may be faster.

    Returns:
        The output (B, T, E), and the weights (B, H, T, T) or None.

    Raises:
        TypeError: a layer of another class.

    Example:
        >>> import torch
        >>> from mha_lib import EinsumMHA, causal_mask
        >>> x = torch.randn(2, 5, 6)  # batch first, though EinsumMHA is not
        >>> output, weights = attend(EinsumMHA(6, 3), x, causal_mask(5))
        >>> output.shape, weights.shape
        (torch.Size([2, 5, 6]), torch.Size([2, 3, 5, 5]))
    """
    for kind, call in ATTENTIONS.values():
        if type(layer) is kind:
            return call(layer, x, mask, need_weights)
    raise TypeError(
        f"layer must be one of {', '.join(ATTENTIONS)}; got {type(layer).__name__}"
    )
