"""A decoder-only transformer: blocks of attention and feed-forward, causal throughout.

tokens (B, T) → embeddings (B, T, E) → L blocks → norm → logits (B, T, W)
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mha_lib.convert import convert
from mha_lib.masks import causal_mask
from mha_lib.model.attentions import ATTENTIONS, attend
from mha_lib.styles import FusedMHA

__all__ = ["Block", "LanguageModel", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """What fixes the shapes of a model.

    Args:
        vocabulary: W, how many different tokens there are.
        context: the longest T that the model can read.
        embed_dim: E, the width of every block.
        num_heads: H; it divides E.
        num_layers: L, the number of blocks.
        feed_forward: width of the hidden layer of the feed-forward; None means 4E,
            0 leaves it out: the block is attention alone.
        dropout: probability of dropping an attention weight, or a number that a
            block adds, in training.
        tied: the output uses the embedding's matrix instead of one of its own.
    """

    vocabulary: int
    context: int
    embed_dim: int = 64
    num_heads: int = 4
    num_layers: int = 3
    feed_forward: int | None = None
    dropout: float = 0.0
    tied: bool = True


class Block(nn.Module):
    """x ← x + attention(norm(x)), then x ← x + feed_forward(norm(x)).

    Args:
        sizes: of the model.
        style: a name of `ATTENTIONS`.

    Source:
        Vaswani et al. (2017), section 3.1, with the norm before each part instead
        of after it: Xiong et al. (2020).
    """

    def __init__(self, sizes: Sizes, style: str) -> None:
        super().__init__()
        E, hidden = sizes.embed_dim, sizes.feed_forward
        hidden = 4 * E if hidden is None else hidden
        layer = FusedMHA(E, sizes.num_heads, sizes.dropout)
        self.attention_norm = nn.LayerNorm(E)
        self.attention = convert(layer, ATTENTIONS[style][0])
        self.dropout = nn.Dropout(sizes.dropout)
        self.feed_forward = None
        if hidden:
            self.feed_forward_norm = nn.LayerNorm(E)
            self.feed_forward = nn.Sequential(
                nn.Linear(E, hidden), nn.GELU(), nn.Linear(hidden, E)
            )

    def forward(
        self, x: Tensor, mask: Tensor, need_weights: bool = False, last: bool = False
    ) -> tuple[Tensor, Tensor | None]:
        """(B, T, E) → (B, T, E), or the last's (B, 1, E); and weights (B, H, T, T)."""
        normed = self.attention_norm(x)
        added, weights = attend(self.attention, normed, mask, need_weights)
        x = (x + self.dropout(added))[:, -1 if last else 0 :]
        if self.feed_forward is not None:
            x = x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return x, weights


class LanguageModel(nn.Module):
    """logits_t = norm(blocks(token_embedding + place_embedding))_t · W_out.

    Args:
        sizes: W, context, E, H, L and so on.
        style: which attention the blocks are made of, a name of `ATTENTIONS`. From
            one seed every style gets the same function.

    Raises:
        ValueError: an unknown style, or sizes that do not fit together.

    Example:
        >>> model = LanguageModel(Sizes(vocabulary=11, context=8), style="einsum")
        >>> model(torch.zeros(2, 7, dtype=torch.long)).shape
        torch.Size([2, 7, 11])

    Source:
        Radford et al. (2019): a decoder-only transformer with learned places.
    """

    def __init__(self, sizes: Sizes, style: str = "fused") -> None:
        super().__init__()
        if style not in ATTENTIONS:
            known = ", ".join(ATTENTIONS)
            raise ValueError(f"style must be one of {known}; got {style!r}")
        self.sizes, self.style = sizes, style
        E = sizes.embed_dim
        self.token_embedding = nn.Embedding(sizes.vocabulary, E)
        self.place_embedding = nn.Embedding(sizes.context, E)
        blocks = (Block(sizes, style) for _ in range(sizes.num_layers))
        self.blocks = nn.ModuleList(blocks)
        self.norm = nn.LayerNorm(E)
        self.output = nn.Linear(E, sizes.vocabulary, bias=False)
        self.reset_parameters()
        if sizes.tied:
            self.output.weight = self.token_embedding.weight

    def reset_parameters(self) -> None:
        """Small embeddings, so that training starts at the loss of guessing, ln W."""
        for layer in (self.token_embedding, self.place_embedding, self.output):
            nn.init.normal_(layer.weight, std=0.25 / math.sqrt(self.sizes.embed_dim))

    def forward(self, tokens: Tensor, last: bool = False) -> Tensor:
        """Tokens (B, T) → logits (B, T, W) of what follows each; the last's, (B, W)."""
        return self._run(tokens, need_weights=False, last=last)[0]

    def maps(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The logits (B, T, W), and every head's weights (L, B, H, T, T)."""
        logits, weights = self._run(tokens, need_weights=True)
        return logits, torch.stack(weights)

    def _run(self, tokens, need_weights, last=False) -> tuple[Tensor, list]:
        T = tokens.shape[1]
        if self.sizes.context < T:
            raise ValueError(
                f"tokens must be (B, T) with T at most {self.sizes.context}, the "
                f"context; got {tuple(tokens.shape)}"
            )
        places = torch.arange(T, device=tokens.device)
        x = self.token_embedding(tokens) + self.place_embedding(places)
        mask, maps = causal_mask(T, device=tokens.device), []
        for block in self.blocks:
            x, weights = block(x, mask, need_weights, last and block is self.blocks[-1])
            maps.append(weights)
        return self.output(self.norm(x[:, -1] if last else x)), maps
