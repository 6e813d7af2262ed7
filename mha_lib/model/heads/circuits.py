"""What the matrices of a head say before any token has come: W^QK and W^OV."""

import torch
from torch import Tensor, nn

from mha_lib.convert import convert
from mha_lib.model.transformer import LanguageModel
from mha_lib.styles import BatchedMHA

__all__ = ["composition", "copying", "ov_matrices", "qk_matrices"]


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
        layer: as `qk_matrices` takes it.

    Returns:
        (H, E, E), detached.

    Example:
        >>> one_head = BatchedMHA(embed_dim=4, num_heads=1, bias=False)
        >>> x = torch.randn(1, 4)  # one token, which has to look at itself
        >>> torch.allclose(x @ ov_matrices(one_head)[0], one_head(x[None])[0][0])
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
        The norm before the head is taken as it acts on the embeddings alone, the last
        norm as its gains; biases of the projections are left out.

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
        (H, H'), in 0…1. Random matrices that know nothing of each other give about
        1/√E, not 0.

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
