"""Maps of a model from elsewhere: whatever Hugging Face's library made of it."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

__all__ = ["maps_of"]

FUSED = "_attn_implementation"  # of a configuration: its kernel, "eager" keeps the maps


def maps_of(
    model: nn.Module, inputs: Tensor | Mapping[str, Any], kind: str = "attentions"
) -> Tensor:
    """Every head's weights (L, B, H, T, S) of a Hugging Face model, detached.

    The model runs once, in evaluation mode, with the kernel that keeps its maps
    ("eager"); afterwards mode and kernel are as they were.

    Args:
        model: a ``PreTrainedModel`` of transformers.
        inputs: token numbers (B, T), or what the model's tokenizer returns.
        kind: "attentions"; an encoder with a decoder has "encoder_attentions",
            "decoder_attentions" and "cross_attentions" instead.

    Raises:
        TypeError: a model that cannot be told which kernel to use.
        ValueError: it has no maps of that kind, or layers of different shapes.

    Note:
        Where two or more query heads share a key head, the maps are those of the
        query heads.

    Example:
        >>> from transformers import GPT2Config, GPT2Model
        >>> model = GPT2Model(GPT2Config(n_layer=2, n_head=3, n_embd=12))
        >>> maps_of(model, torch.tensor([[3, 1, 4]])).shape
        torch.Size([2, 1, 3, 3, 3])
    """
    choose = getattr(model, "set_attn_implementation", None)
    if choose is None:
        raise TypeError(
            "model must be a PreTrainedModel of transformers 4.48 or later, which has "
            f"set_attn_implementation; got {type(model).__name__}"
        )
    given = {"input_ids": inputs} if isinstance(inputs, Tensor) else dict(inputs)
    before, training = getattr(model.config, FUSED), model.training
    choose("eager")
    model.eval()
    try:
        with torch.no_grad():
            found = model(**given, output_attentions=True, return_dict=True)
    finally:
        model.train(training)
        choose(before)
    return _stacked(found, kind, type(model).__name__)


def _stacked(found: Mapping[str, Any], kind: str, name: str) -> Tensor:
    kinds = [x for x in found if x.endswith("attentions") and found[x]]
    if kind not in kinds:
        raise ValueError(
            f"kind must be one of what {name} returns, {', '.join(kinds) or 'nothing'};"
            f" got {kind!r}"
        )
    shapes = sorted({tuple(x.shape) for x in found[kind]})
    if len(shapes) > 1:
        raise ValueError(f"the layers must have maps of one shape; got {shapes}")
    return torch.stack(found[kind])
