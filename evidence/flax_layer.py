"""flax.nnx `MultiHeadAttention`, called with the weights of our layer."""

from collections.abc import Callable
from functools import partial

import jax
import numpy as np
import torch
from flax import nnx
from jax import numpy as jnp
from torch import Tensor

from mha_lib import convert


def to_jax(x: Tensor) -> jax.Array:
    return jnp.asarray(x.detach().numpy())


def to_torch(x: jax.Array) -> Tensor:
    return torch.from_numpy(np.array(x))  # a copy: JAX's own memory is read-only


def compiled(function: Callable) -> Callable:
    """As a whole and without delay: what runs once gains nothing by being fast."""
    options = {
        "xla_backend_optimization_level": 0,
        "xla_llvm_disable_expensive_passes": True,
        "xla_cpu_parallel_codegen_split_count": 1,
    }
    return jax.jit(function, compiler_options=options)


def call(layer, sources, mask, sow: bool) -> tuple[jax.Array, jax.Array | None]:
    """Output, and the weights if they are sown; sowing takes other code of flax."""
    layer = nnx.clone(layer)  # sowing changes the layer, which jax.grad forbids
    output = layer(*sources, mask=mask, sow_weights=sow)
    if not sow:
        return output, None
    return output, nnx.pop(layer, nnx.Intermediate)["attention_weights"].value[0]


def call_with_torch(mha, sources, mask, sow: bool) -> tuple[Tensor, Tensor | None]:
    """The same, from tensors to tensors, with the weights of our layer."""
    run = compiled(partial(call, convert(mha, nnx.MultiHeadAttention), sow=sow))
    output, weights = run(tuple(map(to_jax, sources)), to_jax(mask))
    return to_torch(output), None if weights is None else to_torch(weights)
