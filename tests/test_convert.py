from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mha_lib import EinsumMHA, FusedMHA, SplitConcatMHA, convert
from tests.helpers import STYLES, B, E, H, S, T, call, inputs, make, random_mask

PAIRS = pytest.mark.parametrize(
    ("source", "target"),
    list(product(STYLES, STYLES)),
    ids=lambda style: style.__name__,
)


@PAIRS
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no_bias"])
def test_same_function_in_output_weights_and_gradients(source, target, bias):
    module = make(source, bias=bias)
    twin, mask = convert(module, target), random_mask(B, T, S)
    assert type(twin) is target and twin is not module
    assert not twin.training
    results = []
    for layer in (module, twin):
        operands = inputs()
        output, weights = call(layer, *operands, mask)
        # the weights of a row sum to 1: without factors they would have no gradient
        loss = (output * torch.arange(E)).sum() + (weights * torch.arange(S)).sum()
        loss.backward()
        results.append([output, weights, *(x.grad for x in operands)])
    for ours, theirs in zip(*results):
        assert_close(ours, theirs)


@PAIRS
def test_there_and_back_is_bitwise_the_same(source, target):
    module = make(source)
    back = convert(convert(module, target), source)
    state = module.state_dict()
    assert back.state_dict().keys() == state.keys()
    for name, tensor in back.state_dict().items():
        assert torch.equal(tensor, state[name]), name


@PAIRS
def test_the_new_parameters_are_copies(source, target):
    module = make(source)
    twin = convert(module, target)
    pointers = {p.data_ptr() for p in module.parameters()}
    assert not pointers & {p.data_ptr() for p in twin.parameters()}


@pytest.mark.parametrize("target", STYLES, ids=lambda style: style.__name__)
def test_dtype_device_dropout_and_mode_come_along(target):
    twin = convert(FusedMHA(E, H, dropout=0.25).bfloat16().to("meta"), target)
    assert twin.dropout == 0.25 and twin.training
    for parameter in twin.parameters():
        assert parameter.dtype == torch.bfloat16 and parameter.device.type == "meta"


@PAIRS
def test_no_random_number_is_drawn(source, target):
    module = make(source)
    before = torch.get_rng_state()
    convert(module, target)
    assert torch.equal(torch.get_rng_state(), before)


def test_biases_that_only_some_projections_have_are_filled_with_zeros():
    module = make(EinsumMHA, bias=False, value_bias=True)
    twin = convert(module, SplitConcatMHA)
    assert torch.equal(twin.v_proj.bias, module.v_proj.bias)
    assert not twin.q_proj.bias.any() and not twin.out_proj.bias.any()
    for ours, theirs in zip(call(twin, *inputs()), call(module, *inputs())):
        assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        (SplitConcatMHA(E, H, activation=torch.relu), "activation"),
        (SplitConcatMHA(E, H, causal=True, residual=True), "causal, residual"),
        (SplitConcatMHA(E, H, layer_norm=True), "norm"),
        (FusedMHA(E, H, output_dropout=0.1), "output_dropout"),
    ],
)
def test_an_extra_that_the_target_lacks_is_named(module, extra):
    message = f"EinsumMHA cannot compute the same function.*uses {extra}"
    with pytest.raises(ValueError, match=message):
        convert(module, EinsumMHA)
    assert type(convert(module, type(module))) is type(module)


def test_unknown_sources_and_targets_are_named():
    class Louder(EinsumMHA):
        pass

    with pytest.raises(TypeError, match="convert from PerHeadMHA, .*; got Linear"):
        convert(nn.Linear(2, 2), FusedMHA)
    with pytest.raises(TypeError, match="got Louder"):
        convert(Louder(E, H), FusedMHA)
    with pytest.raises(TypeError, match="convert to PerHeadMHA, .*; got Linear"):
        convert(FusedMHA(E, H), nn.Linear)
    for nonsense in ("FusedMHA", [FusedMHA]):
        with pytest.raises(TypeError, match="convert to PerHeadMHA, .*; got ['\\[]"):
            convert(FusedMHA(E, H), nonsense)
