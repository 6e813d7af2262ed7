"""What the heads of a model do: scores of maps, circuits, removal.

A head is a pair (layer, head). Weights are those of ``model.maps(tokens)``, (L, B, H,
T, T); the circuits are read out of the projections, whatever style keeps them.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from mha_lib.convert import convert
from mha_lib.masks import causal_mask
from mha_lib.model.transformer import Block, LanguageModel
from mha_lib.styles import BatchedMHA

__all__ = [
    "composition",
    "contexts",
    "copying",
    "distance",
    "entropy",
    "induction_score",
    "ov_matrices",
    "previous_token_score",
    "prices",
    "pruning",
    "qk_matrices",
    "read_from",
    "removed",
    "streams",
]

Head = tuple[int, int]

# --- scores of maps -----------------------------------------------------------------


def entropy(weights: Tensor) -> Tensor:
    """−Σ_s w_ts ln w_ts in nats, the mean over sequences and queries.

    Args:
        weights: (..., B, H, T, S).

    Returns:
        (..., H): 0 if every query looks at one key, ln S if at all alike.

    Raises:
        ValueError: fewer than four axes.

    Example:
        >>> weights = torch.tensor([[1.0, 0.0], [0.5, 0.5]])  # (T, S)
        >>> entropy(weights[None, None])  # (0 + ln 2) / 2
        tensor([0.3466])
    """
    _need_maps(weights)
    return torch.special.entr(weights).sum(dim=-1).mean(dim=(-3, -1))


def distance(weights: Tensor) -> Tensor:
    """Σ_s w_ts (t − s), the mean over sequences and queries.

    Args:
        weights: (..., B, H, T, T) of causal self-attention.

    Returns:
        (..., H): how many tokens back a head looks.

    Raises:
        ValueError: fewer than four axes, or T ≠ S.

    Example:
        >>> weights = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
        >>> distance(weights[None, None])  # (0 + 1 + 2/2) / 3
        tensor([0.6667])
    """
    _need_maps(weights, square=True)
    places = torch.arange(weights.shape[-1], device=weights.device)
    back = (places[:, None] - places).to(weights.dtype)  # (T, T)
    return (weights * back).sum(dim=-1).mean(dim=(-3, -1))


def previous_token_score(weights: Tensor) -> Tensor:
    """w_{t, t−1}, the mean over sequences and the queries t ≥ 1.

    Args:
        weights: (..., B, H, T, T), T at least 2.

    Returns:
        (..., H), in 0…1.

    Raises:
        ValueError: fewer than four axes, T ≠ S, or T = 1.

    Example:
        >>> weights = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.0, 0.5]])
        >>> previous_token_score(weights[None, None])  # (1 + 0) / 2
        tensor([0.5000])
    """
    _need_maps(weights, square=True)
    if weights.shape[-1] < 2:
        raise ValueError(f"weights need T of at least 2; got {tuple(weights.shape)}")
    return weights.diagonal(-1, -2, -1).mean(dim=(-3, -1))


def induction_score(weights: Tensor, tokens: Tensor) -> Tensor:
    """w_{t, s+1}, where s < t is the last earlier place of token t; the mean.

    Queries whose token is new are left out.

    Args:
        weights: (..., B, H, T, T).
        tokens: (B, T).

    Returns:
        (..., H), in 0…1.

    Raises:
        ValueError: tokens of another shape, or tokens that never repeat.

    Example:
        >>> tokens = torch.tensor([[7, 4, 2, 7]])  # after the last 7 came a 4
        >>> weights = torch.eye(4)
        >>> weights[3] = torch.tensor([0.1, 0.6, 0.1, 0.2])
        >>> induction_score(weights[None, None], tokens)
        tensor([0.6000])

    Source:
        Olsson et al. (2022), "prefix matching".
    """
    _need_maps(weights, square=True)
    B, T = weights.shape[-4], weights.shape[-1]
    if tokens.shape != (B, T):
        raise ValueError(
            f"tokens must be (B, T) = {(B, T)} as the weights have it; "
            f"got {tuple(tokens.shape)}"
        )
    same = (tokens[:, :, None] == tokens[:, None, :]).tril(-1)  # (B, T, S)
    b, t = same.any(dim=-1).nonzero(as_tuple=True)
    if len(b) == 0:
        raise ValueError("tokens must repeat somewhere; got none that does")
    places = torch.arange(T, device=tokens.device)
    last = (same * places).amax(dim=-1)  # (B, T)
    return weights.movedim(-3, 0)[..., b, t, last[b, t] + 1].mean(dim=-1).movedim(0, -1)


def _need_maps(weights: Tensor, square: bool = False) -> None:
    if weights.dim() < 4 or (square and weights.shape[-1] != weights.shape[-2]):
        wanted = "T, T" if square else "T, S"
        raise ValueError(
            f"weights must be (..., B, H, {wanted}); got {tuple(weights.shape)}"
        )


# --- circuits -----------------------------------------------------------------------


def qk_matrices(layer: nn.Module) -> Tensor:
    """W_h^QK = W_h^Q (W_h^K)ᵀ: x_t W^QK x_sᵀ / √D is the score, but for the biases.

    Args:
        layer: an attention of any style.

    Returns:
        (H, E, E), detached.

    Example:
        >>> layer = BatchedMHA(embed_dim=6, num_heads=3, bias=False)
        >>> x = torch.randn(5, 6)
        >>> scores = x @ qk_matrices(layer) @ x.T / 2**0.5
        >>> weights = layer(x[None])[1][0]
        >>> torch.allclose(scores.softmax(dim=-1), weights, atol=1e-6)
        True

    Source:
        Elhage et al. (2021).
    """
    W_q, W_k, _, _ = _by_head(layer)
    return W_q @ W_k.mT


def ov_matrices(layer: nn.Module) -> Tensor:
    """W_h^OV = W_h^V W_h^O: x_s W^OV is what a look at s adds, but for the biases.

    Args:
        layer: an attention of any style.

    Returns:
        (H, E, E), detached.

    Example:
        >>> layer = BatchedMHA(embed_dim=6, num_heads=3, bias=False)
        >>> x = torch.randn(5, 6)
        >>> output, weights = layer(x[None])
        >>> added = weights[0] @ x @ ov_matrices(layer)  # (H, T, E), summed over heads:
        >>> torch.allclose(added.sum(dim=0), output[0], atol=1e-6)
        True

    Source:
        Elhage et al. (2021).
    """
    _, _, W_v, W_o = _by_head(layer)
    return W_v @ W_o


def copying(model: LanguageModel) -> Tensor:
    """Σλ / Σ|λ| over the eigenvalues λ of embedding · W^OV · output, for each head.

    That table says what a look at a token does to the logit of each token. 1 means
    that all eigenvalues are positive: tokens raise themselves, the head copies.

    Returns:
        (L, H), in −1…1.

    Note:
        The two norms are taken as they act on embeddings alone, the last one as its
        gains; biases are left out.

    Example:
        >>> from mha_lib.model import Sizes
        >>> copying(LanguageModel(Sizes(vocabulary=11, context=8))).shape
        torch.Size([3, 4])

    Source:
        Elhage et al. (2021).
    """
    shares = []
    with torch.no_grad():
        unembed = model.norm.weight[:, None] * model.output.weight.T  # (E, W)
        for block in model.blocks:
            _, _, W_v, W_o = _by_head(block.attention)
            x = block.attention_norm(model.token_embedding.weight)  # (W, E)
            # x W_v W_o unembed has, beside zeros, the eigenvalues of this (H, D, D):
            values = torch.linalg.eigvals(W_o @ unembed @ x @ W_v)
            shares.append(values.sum(dim=-1).real / values.abs().sum(dim=-1))
    return torch.stack(shares)


def composition(writes: Tensor, reads: Tensor) -> Tensor:
    """‖AB‖ / (‖A‖ ‖B‖): how much of what A writes B reads.

    Args:
        writes: A, (H, E, E): the earlier layer's `ov_matrices`.
        reads: B, (H', E, E): for Q-composition the later layer's `qk_matrices`, for
            K-composition their transposes, for V-composition its `ov_matrices`.

    Returns:
        (H, H'), in 0…1.

    Example:
        >>> first, second = torch.eye(4)[None, :2].mT @ torch.eye(4)[:2], torch.eye(4)
        >>> composition(first, second[None])  # √2 / (√2 · 2)
        tensor([[0.5000]])

    Source:
        Elhage et al. (2021).
    """
    norms = writes.norm(dim=(-2, -1))[:, None] * reads.norm(dim=(-2, -1))
    return (writes[:, None] @ reads).norm(dim=(-2, -1)) / norms


def _by_head(layer: nn.Module) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """W^Q, W^K, W^V (H, E, D) and W^O (H, D, E), as in x W."""
    plain = convert(layer, BatchedMHA)
    inputs = (plain.q_proj, plain.k_proj, plain.v_proj)
    W = [x.weight.detach().unflatten(0, (plain.num_heads, -1)).mT for x in inputs]
    W_o = plain.out_proj.weight.detach().T.unflatten(0, (plain.num_heads, -1))
    return *W, W_o


# --- what flows ---------------------------------------------------------------------


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


# --- removal ------------------------------------------------------------------------


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
        Michel et al. (2019), section 4, who sort the heads once.
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
