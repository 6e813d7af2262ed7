"""x-transformers' `Attention` with the weights of our layer.

The library: https://github.com/lucidrains/x-transformers
"""

import pytest
import torch

from evidence.helpers import B, D, H, S, T, inputs, make
from evidence.oracles import COUNTS
from evidence.x_transformers_layer import Attend, to_x_transformers
from mha_lib import BatchedMHA, attention, causal_mask
from tests.oracles.common import (
    GRID,
    empty_row_mask,
    gradients,
    grid_inputs,
    grid_mask,
    real_keys,
)

# The softmax is taken in float32, whatever the dtype of the layer.
CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def ours() -> BatchedMHA:
    """Without biases: x-transformers has none."""
    return make(BatchedMHA, bias=False)


def native_mask(kind: str, crossed: bool) -> dict:
    """The mask as their own argument; a causal layer makes its mask itself."""
    if kind == "none" or (kind == "causal" and not crossed):
        return {}
    if kind == "padding":
        return {"context_mask": real_keys(crossed)}
    return {"attn_mask": grid_mask(kind, crossed)}


@pytest.mark.parametrize("kind, crossed", GRID)
def test_output_weights_and_gradients(kind, crossed):
    mha, sources = ours(), grid_inputs(crossed)[:2]  # the values are the keys
    output, weights = mha(*sources, mask=grid_mask(kind, crossed))

    layer = to_x_transformers(mha, causal=kind == "causal" and not crossed)
    context = sources[1] if crossed else None
    theirs, seen = layer(
        sources[0], context, return_intermediates=True, **native_mask(kind, crossed)
    )
    torch.testing.assert_close(seen.post_softmax_attn, weights, **CLOSE)
    torch.testing.assert_close(theirs, output, **CLOSE)
    expected = gradients(output, sources)
    torch.testing.assert_close(gradients(theirs, sources), expected, **CLOSE)


def test_as_many_cases_as_counted():
    assert {"cases": len(GRID)} == COUNTS["x_transformers"]


# --- where we disagree: their value, then ours --------------------------------


@pytest.mark.parametrize(
    "dtype, weight",
    # Their fill, near the largest float64, is −inf once it is cast to float32.
    [(torch.float32, 1 / S), (torch.float64, torch.nan)],
)
def test_a_fully_masked_row_has_weights_but_no_context(dtype, weight):
    mha, (query, key, _), mask = ours().to(dtype), inputs(dtype), empty_row_mask()
    theirs, seen = to_x_transformers(mha).to(dtype)(
        query, key, attn_mask=mask[:, None], return_intermediates=True
    )
    expected = torch.full((B, H, S), weight, dtype=dtype)
    their_weights = seen.post_softmax_attn[:, :, -1]
    torch.testing.assert_close(their_weights, expected, equal_nan=True, **CLOSE)
    assert not theirs[:, -1].any()
    assert gradients(theirs, (key,))[0].isnan().any() == (dtype == torch.float64)

    output, weights = mha(query, key, mask=mask)
    assert not weights[:, :, -1].any()
    assert not output[:, -1].any()  # no bias here
    assert gradients(output, (key,))[0].isfinite().all()


def test_their_mask_hides_queries_as_well():
    mha, (query, *_) = ours(), inputs()
    kept = real_keys(crossed=False)
    theirs = to_x_transformers(mha)(query, mask=kept)
    assert not theirs[~kept].any()

    output, _ = mha(query, mask=grid_mask("padding", crossed=False))
    torch.testing.assert_close(theirs[kept], output[kept], **CLOSE)
    assert output[~kept].all()


def test_a_mask_of_rank_3_belongs_to_the_heads():
    # (H, T, S) there, (B, T, S) here.
    mha, (query, key, _) = ours(), inputs()
    mask = grid_mask("random", crossed=True)[0]  # (H, T, S)
    theirs = to_x_transformers(mha)(query, key, attn_mask=mask)
    torch.testing.assert_close(theirs, mha(query, key, mask=mask[None])[0], **CLOSE)
    with pytest.raises(ValueError, match="mask must broadcast"):
        mha(query, key, mask=mask)


def test_their_causal_mask_is_aligned_bottom_right():
    # They have a cache of earlier keys in mind; our default is top-left.
    mha, (query, key, _) = ours(), inputs()
    theirs = to_x_transformers(mha, causal=True)(query, key)
    bottom_right, _ = mha(query, key, mask=causal_mask(T, S, align="bottom-right"))
    torch.testing.assert_close(theirs, bottom_right, **CLOSE)
    top_left, _ = mha(query, key, mask=causal_mask(T, S))
    assert (top_left - theirs).abs().max() > 0.1


def test_grouped_keys_are_tiled_where_onnx_and_hugging_face_interleave():
    # Query heads 0, 1, 2, 3 read keys 0, 1, 0, 1; elsewhere 0, 0, 1, 1.
    generator = torch.Generator().manual_seed(0)
    q, k, v = (
        torch.randn(B, heads, length, D, generator=generator)
        for heads, length in ((4, T), (2, S), (2, S))
    )
    theirs, _ = Attend(heads=4)(q, k, v)
    tiled, _ = attention(q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1))
    torch.testing.assert_close(theirs, tiled)
    interleaved, _ = attention(q, *(x.repeat_interleave(2, 1) for x in (k, v)))
    assert (interleaved - theirs).abs().max() > 0.1
