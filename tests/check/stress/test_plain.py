"""The reference of the witnesses is right, and a witness sees what it is to see."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.check.stress import plain

pytestmark = pytest.mark.long


def test_attention_is_that_of_torch():
    q, k, v, mask = plain.given("attention", V=7, mask="random")
    context, weights = plain.attention(q, k, v, mask)
    expected = F.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(context, expected)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 4))


def test_the_layers_are_those_of_torch():
    theirs, ours = nn.MultiheadAttention(12, 3, batch_first=True), plain.Layer(12, 3)
    layers = (ours.q_proj, ours.k_proj, ours.v_proj)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([x.weight for x in layers]))
        theirs.in_proj_bias.copy_(torch.cat([x.bias for x in layers]))
        theirs.out_proj.load_state_dict(ours.out_proj.state_dict())
    query, key, value, mask = plain.given("mha", mask="random")
    hidden = ~mask.repeat_interleave(3, 0)
    expected = theirs(query, key, value, attn_mask=hidden, average_attn_weights=False)
    for a, b in zip(ours.right(query, key, value, mask), expected):
        torch.testing.assert_close(a, b)
    swapped = (x.transpose(0, 1) for x in (query, key, value))
    W = ours.weights()
    output, maps = plain.mha_sequence_first(*swapped, W, 3, mask.permute(1, 2, 0))
    torch.testing.assert_close(output.transpose(0, 1), expected[0])
    torch.testing.assert_close(maps, expected[1])


def test_the_parts_are_written_out():
    x = torch.arange(24.0).view(1, 2, 12)
    heads = plain.split_heads(x, 3)
    assert heads[0, 1, 1].tolist() == [16, 17, 18, 19]
    assert torch.equal(plain.merge_heads(heads), x)
    assert plain.causal_mask(2, 3).tolist() == [
        [True, False, False],
        [True, True, False],
    ]
    padding = plain.padding_mask(torch.tensor([2, 0]), 3)
    assert padding.tolist() == [[[True, True, False]], [[False] * 3]]
    both = plain.combine_masks(plain.causal_mask(2, 3), padding)
    assert both[0].tolist() == [[True, False, False], [True, True, False]]
    assert not both[1].any()


def test_the_tensorflow_style_is_the_layer_where_relu_does_nothing():
    E = torch.eye(12)
    weights = {f"W_{n}": E for n in "qkvo"} | {f"b_{n}": E[0] for n in "qkvo"}
    queries, keys = (x.abs() for x in plain.given("split_concat", zeros=[(0, 2)]))
    mask = (keys != 0).any(-1)[:, None] & plain.causal_mask(4, 5)
    expected = plain.mha(queries, keys, keys, weights, 3, mask)[0]
    got = plain.split_concat(queries, keys, weights, 3, True)
    torch.testing.assert_close(got, expected)
    negative = plain.split_concat(-queries, -keys, weights, 3)
    assert negative.min() >= 0


def in_place(q, k, v, mask=None):
    context = plain.attention(q, k, v, mask)
    q.zero_()
    return context


def cut(q, k, v, mask=None):
    return plain.attention(q, k.detach(), v, mask)


def another_type(q, k, v, mask=None):
    return plain.attention(q, k, v, mask)[0].double()


def nothing_beside(q, k, v, mask=None):
    return plain.attention(q, k, v, mask)[0], None


@pytest.mark.parametrize(
    "program, sees",
    [
        (in_place, "inputs"),
        (cut, "gradient"),
        (another_type, "answer"),
        (nothing_beside, "weights"),
    ],
)
def test_a_witness_sees_its_own_fault(program, sees):
    assert plain.wrong_on(program, "attention", [dict(sees=sees)])
    assert not plain.wrong_on(plain.attention, "attention", [dict(sees=sees)])
