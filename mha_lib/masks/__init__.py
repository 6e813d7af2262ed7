"""Boolean masks, True = may attend, and their forms in other frameworks.

Inside this package a mask has one meaning. Where another library wants another one
(inverted, added, with heads on the batch axis), the conversion has a name and lives
here. ::

    checking      does it fit; its four axes
    making        causal, padding, embedding; several as one
    conventions   to and from what torch and others take

All public names are here: ``from mha_lib.masks import causal_mask``.
"""

from mha_lib.masks.checking import (
    check_bias,
    check_boolean,
    check_mask,
    mask_to_bhts,
)
from mha_lib.masks.conventions import (
    additive_mask,
    from_sequence_first_mask,
    from_torch_mask,
    split_torch_masks,
    to_heads_on_batch_mask,
    to_sequence_first_mask,
    to_torch_mask,
)
from mha_lib.masks.making import (
    causal_mask,
    combine_masks,
    embedding_mask,
    padding_mask,
)

__all__ = [
    "additive_mask",
    "causal_mask",
    "check_bias",
    "check_boolean",
    "check_mask",
    "combine_masks",
    "embedding_mask",
    "from_sequence_first_mask",
    "from_torch_mask",
    "mask_to_bhts",
    "padding_mask",
    "split_torch_masks",
    "to_heads_on_batch_mask",
    "to_sequence_first_mask",
    "to_torch_mask",
]
