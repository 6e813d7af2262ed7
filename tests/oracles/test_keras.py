"""Keras 3 `MultiHeadAttention`, computing with torch, with the weights of our layer.

The layer: https://keras.io/api/layers/attention_layers/multi_head_attention/
"""

import os

os.environ["KERAS_BACKEND"] = "torch"  # read once, when Keras is imported

import keras
import pytest
import torch
from keras.layers import MultiHeadAttention

from evidence.helpers import B, D, E, H, inputs, make
from evidence.oracles import COUNTS
from mha_lib import BatchedMHA, convert
from tests.oracles.common import (
    GRID,
    empty_row_mask,
    gradients,
    grid_inputs,
    grid_mask,
    real_keys,
)


@pytest.fixture(autouse=True)
def on_the_cpu():
    """Keras would take a GPU that it finds; our tensors are on the CPU."""
    with keras.device("cpu"):
        yield


# Without scores Keras casts q, k and v to float32, whatever the layer's dtype.
TOLERANCE = {True: {}, False: {"rtol": 1e-5, "atol": 1e-6}}


def native_mask(kind: str, crossed: bool) -> dict:
    """The mask as Keras' own argument, so that Keras makes it where it can."""
    if kind == "causal":
        return {"use_causal_mask": True}
    if kind == "padding":
        return {"value_mask": real_keys(crossed)}
    return {"attention_mask": grid_mask(kind, crossed)}


@pytest.mark.parametrize("with_scores", [True, False])
@pytest.mark.parametrize("kind, crossed", GRID)
def test_output_weights_and_gradients(kind, crossed, with_scores):
    mha, sources = make(BatchedMHA), grid_inputs(crossed)
    query, key, value = sources if crossed else sources * 3
    output, weights = mha(query, key, value, grid_mask(kind, crossed))

    theirs = convert(mha, MultiHeadAttention)(
        query,
        value,  # the value comes second
        key,
        return_attention_scores=with_scores,
        **native_mask(kind, crossed),
    )
    if with_scores:  # weights, in our words; without them other code does the work
        theirs, their_weights = theirs
        torch.testing.assert_close(their_weights, weights)
    close = TOLERANCE[with_scores]
    torch.testing.assert_close(theirs, output, **close)
    ours = gradients(output, sources)
    torch.testing.assert_close(gradients(theirs, sources), ours, **close)


def test_as_many_cases_as_counted():
    assert {"cases": len(GRID) * len(TOLERANCE)} == COUNTS["keras"]


# --- where we disagree: their value, then ours --------------------------------


def test_a_fully_masked_row_is_zero_with_scores_and_an_average_without():
    mha, (query, key, value), mask = make(BatchedMHA), inputs(), empty_row_mask()
    layer, bias = (
        convert(mha, MultiHeadAttention),
        mha.out_proj.bias.expand(B, E),
    )
    with_scores, scores = layer(
        query, value, key, attention_mask=mask, return_attention_scores=True
    )
    assert not scores[:, :, -1].any()
    torch.testing.assert_close(with_scores[:, -1], bias)

    without = layer(query, value, key, attention_mask=mask)
    average = mha.out_proj(mha.v_proj(value).mean(1))
    torch.testing.assert_close(without[:, -1], average, **TOLERANCE[False])

    output, weights = mha(query, key, value, mask)
    assert not weights[:, :, -1].any()
    torch.testing.assert_close(output[:, -1], bias)


def test_scores_come_before_dropout_as_ours_do():
    # nn.MultiheadAttention returns them after it.
    layer = MultiHeadAttention(H, key_dim=D, dropout=0.5, dtype="float64")
    query, key, value = inputs()
    _, scores = layer(query, value, key, return_attention_scores=True, training=True)
    torch.testing.assert_close(scores.sum(-1), torch.ones_like(scores[..., 0]))

    _, weights = make(BatchedMHA, dropout=0.5).train()(query, key, value)
    torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
