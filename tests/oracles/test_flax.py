"""flax.nnx `MultiHeadAttention` with the weights of our layer.

The layer: https://flax.readthedocs.io/en/stable/api_reference/nnx/nn/attention.html
"""

import jax
import pytest
import torch
from flax import nnx
from jax import numpy as jnp
from jax.experimental import enable_x64

from evidence.flax_layer import call, call_with_torch, compiled, to_jax, to_torch
from evidence.helpers import B, E, S, T, inputs, make
from evidence.oracles import COUNTS
from mha_lib import BatchedMHA, convert
from tests.oracles.common import (
    GRID,
    empty_row_mask,
    fixed_noise,
    gradients,
    grid_inputs,
    grid_mask,
    real_keys,
)


@pytest.fixture(autouse=True)
def double_precision():
    """JAX turns float64 into float32 unless told not to."""
    with enable_x64():
        yield


def native_mask(kind: str, crossed: bool) -> jax.Array | None:
    """The same mask, made by flax where flax can."""
    if kind == "causal" and not crossed:  # flax makes square ones only
        return nnx.make_causal_mask(jnp.ones((B, T)))
    if kind == "padding":
        real = to_jax(real_keys(crossed))
        return nnx.make_attention_mask(jnp.ones((B, T)), real)
    mask = grid_mask(kind, crossed)
    return None if mask is None else to_jax(mask)


# Without sown weights jax.nn.dot_product_attention takes its softmax in float32.
TOLERANCE = {True: {}, False: {"rtol": 1e-5, "atol": 1e-6}}


@pytest.mark.parametrize("sow", [True, False])
@pytest.mark.parametrize("kind, crossed", GRID)
def test_output_weights_and_gradients(kind, crossed, sow):
    mha, sources = make(BatchedMHA), grid_inputs(crossed)
    output, weights = mha(*sources, mask=grid_mask(kind, crossed))

    layer, mask = convert(mha, nnx.MultiHeadAttention), native_mask(kind, crossed)
    noise = to_jax(fixed_noise(output.shape))

    def total(*sources):
        results = call(layer, sources, mask, sow)
        return (results[0] * noise).sum(), results

    both = compiled(jax.value_and_grad(total, range(len(sources)), has_aux=True))
    (_, (theirs, their_weights)), slopes = both(*map(to_jax, sources))
    if sow:
        torch.testing.assert_close(to_torch(their_weights), weights)
    torch.testing.assert_close(to_torch(theirs), output, **TOLERANCE[sow])
    for slope, ours in zip(slopes, gradients(output, sources), strict=True):
        torch.testing.assert_close(to_torch(slope), ours, **TOLERANCE[sow])


def test_as_many_cases_as_counted():
    assert {"cases": len(GRID) * len(TOLERANCE)} == COUNTS["flax"]


# --- where we disagree: their value, then ours --------------------------------


@pytest.mark.parametrize("sow", [True, False])
def test_a_fully_masked_row_is_an_average(sow):
    mha, mask = make(BatchedMHA, torch.float32), empty_row_mask()
    query, key, value = inputs(torch.float32)
    theirs, their_weights = call_with_torch(
        mha, (query, key, value), mask[:, None], sow
    )
    average = mha.out_proj(mha.v_proj(value).mean(1))
    torch.testing.assert_close(theirs[:, -1], average)
    if sow:
        last = their_weights[:, :, -1]
        torch.testing.assert_close(last, torch.full_like(last, 1 / S))

    output, weights = mha(query, key, value, mask)
    assert not weights[:, :, -1].any()
    torch.testing.assert_close(output[:, -1], mha.out_proj.bias.expand(B, E))


def test_a_fully_masked_row_is_nan_in_float64_without_sown_weights():
    # Their fill, near the largest float64, is −inf once it is cast to float32.
    mha, sources, mask = make(BatchedMHA), inputs(), empty_row_mask()
    theirs, _ = call_with_torch(mha, sources, mask[:, None], sow=False)
    assert theirs[:, -1].isnan().all()
    assert theirs[:, :-1].isfinite().all()

    output, _ = mha(*sources, mask)
    torch.testing.assert_close(output[:, -1], mha.out_proj.bias.expand(B, E))


def test_a_mask_of_rank_3_belongs_to_the_heads():
    # (H, T, S) there, as numpy broadcasts; (B, T, S) here.
    mha, sources = make(BatchedMHA), inputs()
    mask = grid_mask("random", crossed=True)[0]  # (H, T, S)
    theirs, _ = call_with_torch(mha, sources, mask, sow=True)
    torch.testing.assert_close(theirs, mha(*sources, mask[None])[0])
    with pytest.raises(ValueError, match="mask must broadcast"):
        mha(*sources, mask)
