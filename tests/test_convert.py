"""The same function after converting: our styles, and the layers of five frameworks."""

from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mha_lib import BatchedMHA, EinsumMHA, FusedMHA, SplitConcatMHA, convert
from mha_lib.checkpoints import LAYOUTS
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
def test_the_new_parameters_are_copies_that_can_be_trained(source, target):
    module = make(source).requires_grad_(False)
    module.requires_grad_(source is target)  # a deep copy keeps what is frozen
    twin = convert(module, target)
    storages = {p.untyped_storage().data_ptr() for p in module.parameters()}
    own = [p.untyped_storage().data_ptr() for p in twin.parameters()]
    assert not storages & set(own) and len(own) == len(set(own))
    assert all(p.requires_grad and p.is_leaf for p in twin.parameters())


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
    ],
)
def test_an_extra_that_no_other_class_has_is_named(module, extra):
    message = f"no other class computes the same .*: the SplitConcatMHA uses {extra}$"
    for target in (EinsumMHA, "torch"):
        with pytest.raises(ValueError, match=message):
            convert(module, target)
    assert type(convert(module, SplitConcatMHA)) is SplitConcatMHA


def test_the_output_dropout_goes_where_it_has_a_place():
    module = FusedMHA(E, H, output_dropout=0.25)
    with pytest.raises(ValueError) as caught:
        convert(module, EinsumMHA)
    assert str(caught.value) == (
        "EinsumMHA cannot compute the same function: it has no output_dropout, which "
        "is 0.25; FusedMHA, transformers.models.bert.modeling_bert.BertAttention, "
        "transformers.models.gpt2.modeling_gpt2.GPT2Attention could"
    )
    assert convert(module, FusedMHA).output_dropout == 0.25


def test_unknown_sources_and_targets_are_named():
    class Louder(EinsumMHA):
        pass

    with pytest.raises(TypeError, match="convert from PerHeadMHA, .*; got Linear"):
        convert(nn.Linear(2, 2), FusedMHA)
    with pytest.raises(TypeError, match="got Louder"):
        convert(Louder(E, H), FusedMHA)
    with pytest.raises(TypeError, match="convert to PerHeadMHA, .*; got Linear"):
        convert(FusedMHA(E, H), nn.Linear)
    with pytest.raises(TypeError, match="convert to PerHeadMHA, .*; got \\["):
        convert(FusedMHA(E, H), [FusedMHA])
    with pytest.raises(ValueError, match="one of separate, torch, .*; got 'FusedMHA'"):
        convert(FusedMHA(E, H), "FusedMHA")


def test_a_layer_that_was_changed_inside_is_refused():
    module = make(BatchedMHA)
    nn.utils.parametrizations.weight_norm(module.q_proj)
    with pytest.raises(
        ValueError, match="missing: q_proj.weight .*not known: q_"
    ):
        convert(module, FusedMHA)


# --- checkpoints ------------------------------------------------------------------


def test_a_checkpoint_becomes_a_layer_or_another_checkpoint():
    module = make(FusedMHA)
    state = {f"block.3.{name}": x for name, x in convert(module, "gpt2").items()}
    state["block.4.c_attn.weight"] = torch.zeros(1)
    where = {"layout": "gpt2", "num_heads": H, "prefix": "block.3."}
    twin = convert(state, BatchedMHA, **where)
    assert twin.training and twin.dropout == 0.0
    for ours, theirs in zip(call(twin.eval(), *inputs()), call(module, *inputs())):
        assert_close(ours, theirs)
    keras = convert(state, LAYOUTS["keras"], **where)
    for name, x in convert(module, "keras").items():
        assert torch.equal(keras[name], x)


def test_arguments_for_checkpoints_are_for_checkpoints():
    for extra in ({"layout": "torch"}, {"num_heads": H}, {"prefix": "a."}):
        with pytest.raises(TypeError, match="got a FusedMHA, which knows its own"):
            convert(make(FusedMHA), BatchedMHA, **extra)
    with pytest.raises(ValueError, match="one of separate, .*; got None"):
        convert({}, BatchedMHA)


# --- torch's layer ----------------------------------------------------------------


def torch_layer(**options) -> nn.MultiheadAttention:
    """In float64 and evaluation mode, without a parameter that is zero."""
    torch.manual_seed(3)
    options = {"batch_first": True, "dtype": torch.float64} | options
    layer = nn.MultiheadAttention(E, H, **options)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return layer.eval()


def torch_call(layer, query, key, value):
    return layer(query, key, value, average_attn_weights=False)
