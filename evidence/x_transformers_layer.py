"""x-transformers' `Attention` with the weights of our layer."""

import warnings

with warnings.catch_warnings():
    # It decorates functions with torch.jit.script, which torch 2.13 deprecates.
    warnings.filterwarnings("ignore", "`torch.jit.script`", DeprecationWarning)
    from x_transformers import Attention
    from x_transformers.attend import Attend as Attend  # for a test

from evidence.helpers import D, E, H
from mha_lib import BatchedMHA


def to_x_transformers(mha: BatchedMHA, causal: bool = False) -> Attention:
    """The same weights, under names that differ in order alone."""
    layer = Attention(E, heads=H, dim_head=D, causal=causal).double().eval()
    copies = {
        f"to_{name}.weight": getattr(mha, f"{name}_proj").weight
        for name in ("q", "k", "v", "out")
    }
    layer.load_state_dict(copies)
    return layer
