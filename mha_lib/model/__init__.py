"""A language model of any style: train it, sample from it, look inside.

Needs torch; byte pairs need tokenizers, checkpoints safetensors.
"""

from mha_lib.model.attend import ATTENTIONS, attend
from mha_lib.model.sampling import generate, next_token_probabilities
from mha_lib.model.text import (
    UNKNOWN,
    BytePairs,
    Characters,
    load_tokenizer,
    read_text,
    split_text,
    windows,
)
from mha_lib.model.training import Plan, learning_rate, next_token_loss, train
from mha_lib.model.transformer import Block, LanguageModel, Sizes

__all__ = [
    "ATTENTIONS",
    "UNKNOWN",
    "Block",
    "BytePairs",
    "Characters",
    "LanguageModel",
    "Plan",
    "Sizes",
    "attend",
    "generate",
    "learning_rate",
    "load_tokenizer",
    "next_token_loss",
    "next_token_probabilities",
    "read_text",
    "split_text",
    "train",
    "windows",
]
