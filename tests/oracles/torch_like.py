"""A few tests of the shape of torch's own, for test_torch_suite.py to run."""

import unittest
from unittest import mock

import torch
from torch.nn import MultiheadAttention
from torch.testing._internal.common_nn import NNTestCase
from torch.testing._internal.common_utils import (
    instantiate_parametrized_tests,
    parametrize,
)


class TestLikeTorchs(NNTestCase):
    @parametrize("need_weights", [True, False])
    def test_the_function(self, need_weights):
        layer = torch.nn.MultiheadAttention(6, 2, kdim=3, vdim=4)
        inputs = torch.rand(5, 2, 6), torch.rand(7, 2, 3), torch.rand(7, 2, 4)
        self.assertFalse(layer._qkv_same_embed_dim)
        result, _ = torch.nn.functional.multi_head_attention_forward(
            *inputs,
            6,
            2,
            None,
            layer.in_proj_bias,
            None,
            None,
            False,
            0.0,
            layer.out_proj.weight,
            layer.out_proj.bias,
            need_weights=need_weights,
            use_separate_proj_weight=True,
            q_proj_weight=layer.q_proj_weight,
            k_proj_weight=layer.k_proj_weight,
            v_proj_weight=layer.v_proj_weight,
        )
        self.assertEqual(result, layer(*inputs)[0])

    def test_an_empty_row_is_nan(self):
        layer = MultiheadAttention(6, 2)
        self.assertTrue(layer._qkv_same_embed_dim)
        x = torch.rand(5, 2, 6)
        output, weights = layer(x, x, x, attn_mask=torch.ones(5, 5, dtype=torch.bool))
        self.assertTrue(output.isnan().all() and weights.isnan().all())

    def test_refused(self):
        layer = MultiheadAttention(6, 2).eval()
        x = torch.rand(5, 2, 6)
        message = "expected `key` and `value` to be 3-D but found 2-D and 3-D tensors"
        with self.assertRaisesRegex(AssertionError, message):
            layer(x, x[0], x)

    def test_in_an_encoder(self):
        layer = torch.nn.TransformerEncoderLayer(6, 2, 3)
        self.assertIsInstance(layer.self_attn, MultiheadAttention)
        layer(torch.rand(5, 2, 6))

    def test_two_masks_fast_path_mock(self):
        layer, x = (
            MultiheadAttention(6, 2, batch_first=True).eval(),
            torch.rand(5, 2, 6),
        )
        with (
            torch.no_grad(),
            mock.patch("torch._native_multi_head_attention") as native,
        ):
            layer(x, x, x)
        self.assertTrue(native.called)

    def test_that_no_other_layer_passes(self):
        self.assertEqual(MultiheadAttention.__name__, "MultiheadAttention", "the name")

    def test_that_fails_in_torch_too(self):
        self.assertEqual(MultiheadAttention(6, 2).num_heads, 3)

    @unittest.skip("for want of a device")
    def test_for_another_device(self):
        raise NotImplementedError


instantiate_parametrized_tests(TestLikeTorchs)
