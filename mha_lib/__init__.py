"""Multi-head attention, built six times, each style equal to the others."""

from mha_lib.attention import attention, masked_softmax
from mha_lib.batched import BatchedMHA
from mha_lib.builtin import BuiltinMHA
from mha_lib.convert import convert
from mha_lib.einsum import EinsumMHA
from mha_lib.fused import FusedMHA
from mha_lib.masks import causal_mask, combine_masks, padding_mask
from mha_lib.per_head import PerHeadMHA
from mha_lib.split_concat import SplitConcatMHA

__all__ = [
    "BatchedMHA",
    "BuiltinMHA",
    "EinsumMHA",
    "FusedMHA",
    "PerHeadMHA",
    "SplitConcatMHA",
    "attention",
    "causal_mask",
    "combine_masks",
    "convert",
    "masked_softmax",
    "padding_mask",
]

__version__ = "0.1.0"
