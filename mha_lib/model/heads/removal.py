"""Heads taken out: what the model loses without them.

A head is a pair (layer, head).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mha_lib.model.transformer import LanguageModel

__all__ = ["Head", "prices", "pruning", "removed"]

Head = tuple[int, int]


@contextmanager
def removed(
    model: LanguageModel, heads: Iterable[Head], means: Tensor | None = None
) -> Iterator[None]:
    """Within the block, these heads say nothing, or always the same.

    A head's rows of W^O are zero for that time, which is the same in every style; with
    means, its mean context is multiplied with them first, and added to the bias.

    Args:
        model: of any style; afterwards its parameters are as they were.
        heads: pairs (layer, head).
        means: (L, H, D), what each head says instead: a mean of its `contexts`.
            None means zeros.

    Raises:
        ValueError: a head that the model does not have, or means of another shape.

    Note:
        Without its mean, a model loses what a head always says, too, which later
        layers may rely on as on a bias.

    Example:
        >>> from mha_lib.model import Sizes
        >>> model = LanguageModel(Sizes(vocabulary=11, context=8))
        >>> tokens = torch.tensor([[3, 1, 4]])
        >>> before = model(tokens)
        >>> with removed(model, [(0, 2), (1, 3)]):
        ...     without = model(tokens)
        >>> torch.equal(without, before), torch.equal(model(tokens), before)
        (False, True)

    Source:
        Michel et al. (2019), whose masks are zeros.
    """
    heads = sorted({(int(layer), int(head)) for layer, head in heads})
    L, H = len(model.blocks), model.sizes.num_heads
    D = model.sizes.embed_dim // H
    for layer, head in heads:
        if not (0 <= layer < L and 0 <= head < H):
            raise ValueError(
                f"heads must be pairs (layer, head) below {(L, H)}; got {(layer, head)}"
            )
    if means is not None and means.shape != (L, H, D):
        raise ValueError(
            f"means must be (L, H, D) = {(L, H, D)}; got {tuple(means.shape)}"
        )
    projections = [_out_proj(block.attention) for block in model.blocks]
    kept = [[(x, x.detach().clone()) for x in p.parameters()] for p in projections]
    try:
        with torch.no_grad():
            for layer, head in heads:
                columns = projections[layer].weight[:, head * D : (head + 1) * D]
                if means is not None:
                    said = means[layer, head].to(columns)
                    projections[layer].bias.add_(columns @ said)
                columns.zero_()
        yield
    finally:
        with torch.no_grad():
            for parameter, as_it_was in (pair for pairs in kept for pair in pairs):
                parameter.copy_(as_it_was)


def _out_proj(layer: nn.Module) -> nn.Linear:
    return getattr(layer, "mha", layer).out_proj  # BuiltinMHA holds torch's layer


def prices(
    model: LanguageModel, loss: Callable[[], float], means: Tensor | None = None
) -> Tensor:
    """How much the loss rises when one head alone is removed, for each head.

    Args:
        model: of any style.
        loss: called without arguments; runs the model, which has lost a head.
        means: as `removed` takes them.

    Returns:
        (L, H), in the loss's unit; negative where the model is better off without.

    Example:
        >>> from mha_lib.model import Sizes
        >>> model = LanguageModel(Sizes(vocabulary=11, context=8))
        >>> tokens = torch.tensor([[3, 1, 4]])
        >>> prices(model, lambda: -model(tokens).log_softmax(-1)[0, -1, 5]).shape
        torch.Size([3, 4])

    Source:
        Michel et al. (2019), section 3.2.
    """
    with torch.no_grad():
        whole = float(loss())
        found = torch.zeros(len(model.blocks), model.sizes.num_heads)
        for layer, head in _all_heads(model):
            with removed(model, [(layer, head)], means):
                found[layer, head] = float(loss()) - whole
    return found


def pruning(
    model: LanguageModel, loss: Callable[[], float], means: Tensor | None = None
) -> Iterator[tuple[Head, float]]:
    """Remove the head that costs least, and again, until none is left.

    Args:
        model: of any style; it is whole again between two items.
        loss: as in `prices`.
        means: as `removed` takes them.

    Yields:
        The head that went, and the loss without it and all before it.

    Example:
        >>> from mha_lib.model import Sizes
        >>> model = LanguageModel(Sizes(vocabulary=11, context=8))
        >>> tokens = torch.tensor([[3, 1, 4]])
        >>> lost = pruning(model, lambda: -model(tokens).log_softmax(-1)[0, -1, 5])
        >>> len({head for head, loss in lost})
        12

    Source:
        Michel et al. (2019), section 4, who rank the heads by gradients instead.
    """
    gone, left = [], _all_heads(model)

    def without(head: Head) -> float:
        with torch.no_grad(), removed(model, [*gone, head], means):
            return float(loss())

    while left:
        losses = {head: without(head) for head in left}
        cheapest = min(left, key=losses.get)
        left.remove(cheapest)
        gone.append(cheapest)
        yield cheapest, losses[cheapest]


def _all_heads(model: LanguageModel) -> list[Head]:
    layers, heads = range(len(model.blocks)), range(model.sizes.num_heads)
    return [(layer, head) for layer in layers for head in heads]
