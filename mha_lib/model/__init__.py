"""A language model of any style: train it, sample from it, look inside.

Needs torch; byte pairs need tokenizers, checkpoints safetensors.
"""

from mha_lib.model.attend import ATTENTIONS, attend
from mha_lib.model.training import Plan, learning_rate, next_token_loss, train
from mha_lib.model.transformer import Block, LanguageModel, Sizes

__all__ = [
    "ATTENTIONS",
    "Block",
    "LanguageModel",
    "Plan",
    "Sizes",
    "attend",
    "learning_rate",
    "next_token_loss",
    "train",
]
