"""What flows through a model: the stream between its blocks, and what heads add."""

import torch
from torch import Tensor

from mha_lib.convert import convert
from mha_lib.masks import causal_mask
from mha_lib.model.transformer import Block, LanguageModel
from mha_lib.styles import BatchedMHA

__all__ = ["contexts", "read_from", "streams"]


def streams(model: LanguageModel, tokens: Tensor) -> Tensor:
    """X before each block, and after the last one: (L + 1, B, T, E), detached.

    Example:
        >>> from mha_lib.model import Sizes
        >>> model = LanguageModel(Sizes(vocabulary=11, context=8))
        >>> tokens = torch.tensor([[3, 1, 4]])
        >>> x = streams(model, tokens)
        >>> torch.equal(model.output(model.norm(x[-1])), model(tokens))
        True
    """
    found = []

    def note(module, arguments):
        found.append(arguments[0])

    hooks = [x.register_forward_pre_hook(note) for x in (*model.blocks, model.norm)]
    try:
        with torch.no_grad():
            model(tokens)
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(found)


def read_from(
    block: Block, query: Tensor, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:
    """What a block's attention adds, if its heads read three different streams.

    With streams of a model whose head is `removed` in one of the places, this tells
    through which of them a later head makes use of it: Q-, K- and V-composition.

    Args:
        block: of a `LanguageModel`.
        query: (B, T, E), as `streams` has it.
        key: the same for the keys.
        value: the same for the values.

    Returns:
        What is added, (B, T, E), and the weights (B, H, T, T), detached.

    Example:
        >>> from mha_lib.model import Sizes
        >>> model = LanguageModel(Sizes(vocabulary=11, context=8))
        >>> tokens = torch.tensor([[3, 1, 4]])
        >>> x = streams(model, tokens)[2]
        >>> _, weights = read_from(model.blocks[2], x, x, x)
        >>> torch.allclose(weights, model.maps(tokens)[1][2], atol=1e-6)
        True
    """
    plain = convert(block.attention, BatchedMHA).eval()
    with torch.no_grad():
        q, k, v = (block.attention_norm(x) for x in (query, key, value))
        return plain(q, k, v, mask=causal_mask(query.shape[1], device=query.device))


def contexts(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Σ_s w_ts v_s of every head, (L, B, H, T, D), detached.

    ``contexts(model, tokens).mean(dim=(1, 3))`` is what `removed` takes as means.

    Example:
        >>> from mha_lib.model import Sizes
        >>> model = LanguageModel(Sizes(vocabulary=11, context=8))
        >>> contexts(model, torch.tensor([[3, 1, 4]])).shape
        torch.Size([3, 1, 4, 3, 16])
    """
    found = []
    with torch.no_grad():
        for block, x in zip(model.blocks, streams(model, tokens)):
            plain = convert(block.attention, BatchedMHA).eval()
            x = block.attention_norm(x)
            _, weights = plain(x, mask=causal_mask(x.shape[1], device=x.device))
            v = plain.v_proj(x).unflatten(-1, (plain.num_heads, -1)).transpose(1, 2)
            found.append(weights @ v)
    return torch.stack(found)
