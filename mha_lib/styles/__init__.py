"""The six styles in the order of their chapters: one module, one class each."""

from mha_lib.styles.batched import BatchedMHA
from mha_lib.styles.builtin import BuiltinMHA
from mha_lib.styles.einsum import EinsumMHA
from mha_lib.styles.fused import FusedMHA
from mha_lib.styles.per_head import PerHeadMHA
from mha_lib.styles.split_concat import SplitConcatMHA

__all__ = [
    "STYLES",
    "BatchedMHA",
    "BuiltinMHA",
    "EinsumMHA",
    "FusedMHA",
    "PerHeadMHA",
    "SplitConcatMHA",
]

STYLES = (PerHeadMHA, BatchedMHA, FusedMHA, EinsumMHA, BuiltinMHA, SplitConcatMHA)
