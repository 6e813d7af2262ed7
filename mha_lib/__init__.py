"""Multi-head attention, built six times, each style equal to the others.

The styles are ``PerHeadMHA``, ``BatchedMHA``, ``FusedMHA``, ``EinsumMHA``,
``BuiltinMHA`` and ``SplitConcatMHA``. All are made as
``Style(embed_dim, num_heads, dropout=0.0, bias=True)`` and called as
``style(query, key=query, value=key, mask=None) -> (output, weights)``:

* inputs are (B, T, E) and (B, S, E); ``EinsumMHA`` alone takes (T, B, E);
* a mask is boolean, True = may attend, and broadcasts to (B, H, T, S) from rank 2
  (T, S), 3 (B, T, S) or 4; for ``EinsumMHA`` it is (T or 1, S, B or 1);
* weights are (B, H, T, S), before dropout;
* a query that may attend to nothing gets zero weights, a zero context (its output
  is the bias of the output projection) and zero gradients;
* wrong input raises ValueError or TypeError: what was required, then what came.

``MultiheadAttention`` has the interface of ``torch.nn.MultiheadAttention`` instead,
and takes its place. Under all of them lie ``attention`` and ``masked_softmax``.
``causal_mask``, ``padding_mask`` and ``combine_masks`` make masks; ``mha_lib.masks``
turns them into the forms of other libraries, ``mha_lib.layouts`` splits and merges
heads, and ``convert(source, target)`` puts the same weights into another style, to and
from the layers of torch, Keras, flax and Hugging Face, and reads and writes their
checkpoints (``mha_lib.checkpoints``). ``mha_lib.plots`` draws, and needs matplotlib.
``attention`` and ``convert`` name the functions here, not the modules of the same name.
"""

import sys

if any(x.endswith(("mha_lib.grade", "mha-grade")) for x in sys.orig_argv):
    from mha_lib.grade import start

    start.forget()  # before torch is looked for where submissions may lie

from mha_lib.attention import attention, masked_softmax
from mha_lib.convert import convert
from mha_lib.dropin import MultiheadAttention
from mha_lib.masks import causal_mask, combine_masks, padding_mask
from mha_lib.styles import (
    BatchedMHA,
    BuiltinMHA,
    EinsumMHA,
    FusedMHA,
    PerHeadMHA,
    SplitConcatMHA,
)

__all__ = [
    "BatchedMHA",
    "BuiltinMHA",
    "EinsumMHA",
    "FusedMHA",
    "MultiheadAttention",
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
