"""A language model of any style: train it, sample from it, look inside.

What its heads do is measured by ``mha_lib.model.heads``. Needs torch; byte pairs need
tokenizers, files safetensors, a run tqdm: each is loaded when it is used.
"""

from mha_lib.model.attentions import ATTENTIONS, attend
from mha_lib.model.kept import in_style, load_kept, load_model, save_model
from mha_lib.model.run import Run, Settings, evaluate
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
    "Run",
    "Settings",
    "Sizes",
    "attend",
    "evaluate",
    "generate",
    "in_style",
    "learning_rate",
    "load_kept",
    "load_model",
    "load_tokenizer",
    "next_token_loss",
    "next_token_probabilities",
    "read_text",
    "save_model",
    "split_text",
    "train",
    "windows",
]
