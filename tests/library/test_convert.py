"""The same function after converting: our styles, and the layers of five frameworks."""

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import mha_lib.checkpoints
from evidence.helpers import B, D, E, H, S, T, call, inputs, make, random_mask
from mha_lib import (
    BatchedMHA,
    BuiltinMHA,
    EinsumMHA,
    FusedMHA,
    MultiheadAttention,
    PerHeadMHA,
    SplitConcatMHA,
    convert,
)
from mha_lib.convert import FORMATS
from mha_lib.styles import STYLES

pytestmark = pytest.mark.long

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


def test_what_somebody_set_afterwards_is_not_lost():
    scaled, uneven = EinsumMHA(E, H), PerHeadMHA(E, H, 0.25)
    scaled.scale, uneven.heads[1].dropout = -(D**-0.5), 0.5
    for module, said in ((scaled, "scale = -0.3"), (uneven, r"drop \[0.25, 0.5\]")):
        with pytest.raises(ValueError, match=f"no other class computes .*{said}"):
            convert(module, FusedMHA)
        assert type(convert(module, type(module))) is type(module)


def test_the_output_dropout_goes_where_it_has_a_place():
    module = FusedMHA(E, H, output_dropout=0.25)
    with pytest.raises(ValueError) as caught:
        convert(module, EinsumMHA)
    assert str(caught.value) == (
        "EinsumMHA cannot compute the same function: it has no dropout on its output, "
        "which is 0.25 (make it 0 first); FusedMHA, BertAttention, GPT2Attention could"
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
    with pytest.raises(ValueError, match="missing: q_proj.weight .*not known: q_"):
        convert(module, FusedMHA)


# --- checkpoints ------------------------------------------------------------------


def test_a_checkpoint_becomes_a_layer_or_another_checkpoint():
    module = make(FusedMHA)
    state = {f"block.3.{name}": x for name, x in convert(module, "gpt2").items()}
    state["block.4.c_attn.weight"] = torch.zeros(1)
    where = {"format": "gpt2", "num_heads": H, "prefix": "block.3."}
    twin = convert(state, BatchedMHA, **where)
    assert twin.training and twin.dropout == 0.0
    for ours, theirs in zip(call(twin.eval(), *inputs()), call(module, *inputs())):
        assert_close(ours, theirs)
    keras = convert(state, FORMATS["keras"], **where)
    for name, x in convert(module, "keras").items():
        assert torch.equal(keras[name], x)


def test_the_function_and_its_package_share_a_name():
    package = importlib.import_module("mha_lib.convert")
    importlib.import_module("mha_lib.convert.kinds")  # a part, loaded by its address
    assert mha_lib.convert is convert is package.convert
    assert {"FORMATS", "Format", "Projection", "Weights"} <= {*vars(package)}
    assert mha_lib.checkpoints.FORMATS is package.FORMATS


def test_arguments_for_checkpoints_are_for_checkpoints():
    for extra in ({"format": "torch"}, {"num_heads": H}, {"prefix": "a."}):
        with pytest.raises(TypeError, match="got a FusedMHA, which knows its own"):
            convert(make(FusedMHA), BatchedMHA, **extra)
    with pytest.raises(ValueError, match="one of separate, .*; got None"):
        convert({}, BatchedMHA)


# --- other people's layers --------------------------------------------------------


@dataclass(frozen=True)
class Peer:
    """A class of another framework, made and called in its own way."""

    cls: type
    native: Callable[..., Any]  # a layer in evaluation mode, no parameter zero
    call: Callable[..., tuple]  # (layer, query, key, value) → output, weights
    dtype: torch.dtype = torch.float64
    crossed: bool = True  # takes a key and a value that are not the query

    def operands(self) -> tuple[Tensor, ...]:
        operands = inputs(self.dtype)
        return operands if self.crossed else operands[:1] * 3


def filled(layer: nn.Module, dtype: torch.dtype = torch.float64) -> nn.Module:
    generator = torch.Generator().manual_seed(3)
    layer = layer.to(dtype)
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.3, generator=generator)
    return layer.eval()


def torch_peer(cls: type[nn.Module] = nn.MultiheadAttention) -> Peer:
    def native(**options):
        return filled(cls(E, H, batch_first=True, **options))

    def call_torch(layer, *operands):
        return layer(*operands, average_attn_weights=False)

    return Peer(cls, native, call_torch)


def keras_peer() -> Peer:
    os.environ["KERAS_BACKEND"] = "torch"  # read once, when Keras is imported
    import keras

    def native(**options):
        generator = np.random.default_rng(3)
        options = {"key_dim": D, "dtype": "float64"} | options
        layer = keras.layers.MultiHeadAttention(H, **options)
        layer.build((B, T, E), (B, S, E), (B, S, E))
        for variable in layer.weights:
            variable.assign(0.3 * generator.standard_normal(variable.shape))
        return layer

    def call_keras(layer, query, key, value):  # with scores it computes in float64
        return layer(query, value, key, return_attention_scores=True)

    return Peer(keras.layers.MultiHeadAttention, native, call_keras)


def flax_peer() -> Peer:
    import jax
    from flax import nnx

    def native(**options):
        options = {"in_features": E, "decode": False, "rngs": nnx.Rngs(0)} | options
        layer = nnx.MultiHeadAttention(H, **options)
        state, generator = nnx.state(layer, nnx.Param), np.random.default_rng(3)

        def draw(x):
            return jax.numpy.asarray(0.3 * generator.standard_normal(x.shape), x.dtype)

        nnx.update(layer, jax.tree.map(draw, state))
        return layer

    def call_flax(layer, *operands):
        arrays = [jax.numpy.asarray(x.detach().numpy()) for x in operands]
        output = layer(*arrays, sow_weights=True)
        sown = nnx.to_pure_dict(nnx.pop(layer, nnx.Intermediate))
        weights = sown["attention_weights"][0]
        return tuple(torch.from_numpy(np.array(x)) for x in (output, weights))

    return Peer(nnx.MultiHeadAttention, native, call_flax, dtype=torch.float32)


def bert_peer() -> Peer:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertAttention

    def native(is_cross_attention=False, **options):
        options = {"hidden_dropout_prob": 0.0} | options
        config = BertConfig(hidden_size=E, num_attention_heads=H, **options)
        config._attn_implementation = "eager"
        layer = BertAttention(config, is_cross_attention=is_cross_attention)
        return filled(layer)

    def call_bert(layer, query, key, value):
        others = (key,) if layer.is_cross_attention else ()
        context, weights = layer.self(query, *others)
        return layer.output.dropout(layer.output.dense(context)), weights

    return Peer(BertAttention, native, call_bert, crossed=False)


def gpt2_peer() -> Peer:
    from transformers import GPT2Config
    from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

    def native(is_cross_attention=False, layer_idx=None, **options):
        config = GPT2Config(n_embd=E, n_head=H, **{"resid_pdrop": 0.0} | options)
        config._attn_implementation = "eager"
        return filled(GPT2Attention(config, is_cross_attention, layer_idx=layer_idx))

    def call_gpt2(layer, query, key, value):
        others = {"encoder_hidden_states": key} if layer.is_cross_attention else {}
        return layer(query, **others)

    return Peer(GPT2Attention, native, call_gpt2, crossed=False)


PEERS = {"torch": torch_peer, "dropin": partial(torch_peer, MultiheadAttention)}
PEERS |= {"keras": keras_peer, "flax": flax_peer, "bert": bert_peer, "gpt2": gpt2_peer}
TORCH = pytest.mark.parametrize(
    ("one", "other"), [("torch", "dropin"), ("dropin", "torch")]
)


@pytest.fixture(scope="module", params=PEERS)
def peer(request) -> Peer:
    return PEERS[request.param]()


@pytest.fixture(scope="module")
def get_peer() -> Callable[[str], Peer]:
    return lambda name: PEERS[name]()


def results(caller: Callable, layer: Any, operands: tuple[Tensor, ...]) -> list:
    """Output, weights and, where torch computes, the gradients of the inputs."""
    leaves = {id(x): x.detach().clone().requires_grad_() for x in operands}
    output, weights = caller(layer, *(leaves[id(x)] for x in operands))
    if not output.requires_grad:
        return [output, weights]
    loss = (output * torch.arange(E)).sum() + (weights * weights).sum()
    loss.backward()
    return [output, weights, *(x.grad for x in leaves.values())]


def assert_same(ours: list, theirs: list) -> None:
    """Equal up to rounding, as assert_close knows it for the dtype.

    In float64 that is 1e-7, a hundred million ε, and far below any mistake. Flax
    computes in float32, where it is 1e-5: about a hundred ε, for sums of 22 products.
    """
    without_gradients = theirs[0].dtype == torch.float32  # flax
    for x, y in zip(ours, theirs, strict=not without_gradients):
        assert_close(x, y)


@pytest.mark.parametrize("style", [FusedMHA, PerHeadMHA], ids=["fused", "per_head"])
def test_their_layer_computes_what_ours_does(peer, style):
    module, operands = make(style, dtype=peer.dtype), peer.operands()
    theirs = convert(module, peer.cls)
    assert type(theirs) is peer.cls
    assert_same(results(call, module, operands), results(peer.call, theirs, operands))


@pytest.mark.parametrize("style", [FusedMHA, EinsumMHA], ids=["fused", "einsum"])
def test_our_layer_computes_what_theirs_does(peer, style):
    theirs, operands = peer.native(), peer.operands()
    module = convert(theirs, style).eval()
    assert_same(results(call, module, operands), results(peer.call, theirs, operands))


def states_equal(one: nn.Module, other: nn.Module) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_there_and_back_through_their_layer_keeps_every_bit(peer, dtype):
    module = make(BatchedMHA, dtype=getattr(torch, dtype))
    theirs = convert(module, peer.cls)
    assert states_equal(convert(theirs, BatchedMHA), module)


def test_no_bias_comes_out_as_none_or_as_zeros(peer):
    module = make(FusedMHA, dtype=peer.dtype, bias=False)
    theirs, operands = convert(module, peer.cls), peer.operands()
    assert_same(results(call, module, operands), results(peer.call, theirs, operands))
    back = convert(theirs, FusedMHA)
    always = peer.cls.__name__ in ("BertAttention", "GPT2Attention")
    assert (back.out_proj.bias is not None) == always
    assert not always or not back.in_proj.bias.any()


def test_making_their_layer_leaves_torchs_random_numbers_alone(peer):
    module = make(FusedMHA, dtype=peer.dtype)
    before = torch.get_rng_state()
    convert(module, peer.cls)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.filterwarnings(  # Keras copies by saving, and so asks torch in NumPy's
    "ignore:__array__ implementation doesn't accept:DeprecationWarning"  # old way
)
def test_to_the_same_class_is_a_deep_copy(peer):
    theirs, operands = peer.native(), peer.operands()
    twin = convert(theirs, peer.cls)
    assert type(twin) is peer.cls and twin is not theirs
    assert_same(
        results(peer.call, twin, operands), results(peer.call, theirs, operands)
    )


def test_dropout_and_mode_come_along_to_their_layer_and_back(peer):
    module = FusedMHA(E, H, dropout=0.25).train()
    twin = convert(convert(module, peer.cls), FusedMHA)
    assert twin.dropout == 0.25 and twin.training
    evaluated = convert(convert(module.eval(), peer.cls), FusedMHA)
    keeps_no_mode = peer.cls.__module__.startswith("keras")
    assert evaluated.training == keeps_no_mode


def test_two_of_them_convert_into_each_other(get_peer):
    gpt2, keras = get_peer("gpt2"), get_peer("keras")
    theirs = gpt2.native()
    twin, operands = convert(theirs, keras.cls), gpt2.operands()
    assert_same(
        results(keras.call, twin, operands), results(gpt2.call, theirs, operands)
    )


@pytest.mark.parametrize("name", ["bert", "gpt2"])
def test_cross_attention_is_read_too(name, get_peer):
    peer = get_peer(name)
    theirs = peer.native(is_cross_attention=True)
    query, key, _ = inputs()
    module, operands = convert(theirs, PerHeadMHA), (query, key, key)
    assert_same(results(call, module, operands), results(peer.call, theirs, operands))


# --- what only some can hold ------------------------------------------------------


@TORCH
@pytest.mark.parametrize("kdim", [None, 14])
def test_torchs_options_survive_between_torchs_class_and_ours(
    one, other, kdim, get_peer
):
    one, other = get_peer(one), get_peer(other)
    options = {"add_bias_kv": True, "add_zero_attn": True, "kdim": kdim, "vdim": kdim}
    theirs = one.native(**options)
    twin, (query, *_) = convert(theirs, other.cls), inputs()
    assert type(twin) is other.cls and states_equal(twin, theirs)
    width = kdim or E
    generator = torch.Generator().manual_seed(4)
    key = torch.randn(B, S, width, dtype=torch.float64, generator=generator)
    found = results(other.call, twin, (query, key, key))
    assert found[1].shape == (B, H, T, S + 2)
    assert_same(results(one.call, theirs, (query, key, key)), found)


@TORCH
def test_batch_first_stays_as_it_is(one, other, get_peer):
    one, other = get_peer(one), get_peer(other)
    assert not convert(one.cls(E, H), other.cls).batch_first
    assert convert(one.cls(E, H, batch_first=True), other.cls).batch_first
    assert convert(make(EinsumMHA), other.cls).batch_first


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_further_keys_are_refused_by_name(option, get_peer):
    theirs = get_peer("torch").native(**{option: True})
    said = "bias_k" if option == "add_bias_kv" else "add_zero_attn"
    for style in STYLES:
        with pytest.raises(ValueError, match=f"{style.__name__} cannot .* {said}; Mul"):
            convert(theirs, style)
    with pytest.raises(ValueError, match=f"{said}; torch, torch_separate could"):
        convert(theirs, "keras")


def test_other_widths_of_key_and_value_go_to_keras_and_back(get_peer):
    torchs, keras, flax = (get_peer(x) for x in ("torch", "keras", "flax"))
    theirs = torchs.native(kdim=14, vdim=13)
    generator = torch.Generator().manual_seed(4)
    key, value = (
        torch.randn(B, S, width, dtype=torch.float64, generator=generator)
        for width in (14, 13)
    )
    operands = (inputs()[0], key, value)
    twin = convert(theirs, keras.cls)
    expected = results(torchs.call, theirs, operands)
    assert_same(results(keras.call, twin, operands), expected)
    back = convert(twin, torchs.cls)
    assert states_equal(back, theirs)
    with pytest.raises(ValueError, match=r"Wv must be .* got \(22, 13\); MultiheadAt"):
        convert(theirs, flax.cls)
    same = torchs.native(kdim=14, vdim=14)  # flax: key and value share one width
    assert convert(convert(same, "flax"), "flax", format="flax").keys()
    assert states_equal(convert(convert(same.float(), flax.cls), torchs.cls), same)


def test_values_and_outputs_of_another_size_stay_in_keras(get_peer):
    keras = get_peer("keras")
    theirs = keras.native(value_dim=5, output_shape=13)
    arrays = convert(theirs, "keras")
    assert arrays["value/kernel"].shape == (E, H, 5)
    assert arrays["attention_output/kernel"].shape == (H, 5, 13)
    where = {"format": "keras"}
    assert convert(arrays, keras.cls, **where).weights[-1].shape == (13,)
    said = r"Wv must be .* = \(22, 22\); got \(10, 22\); keras.layers.Mult.* could$"
    with pytest.raises(ValueError, match=said):
        convert(theirs, FusedMHA)


ON_JAX = """
import keras, torch
from mha_lib import BatchedMHA, convert

for dtype in (torch.float32, torch.bfloat16):
    module = BatchedMHA(6, 3).to(dtype)
    theirs = convert(module, keras.layers.MultiHeadAttention)
    back = convert(theirs, BatchedMHA).state_dict()
    print(all(torch.equal(back[name], x) for name, x in module.state_dict().items()))
try:
    convert(BatchedMHA(6, 3).double(), keras.layers.MultiHeadAttention)
except ValueError as error:
    print(error)
"""


def test_keras_may_compute_with_jax():
    """In a process of its own: Keras chooses once, when it is imported."""
    run = partial(subprocess.run, capture_output=True, text=True, check=True)
    hasty = "--xla_backend_optimization_level=0"  # it compiles longer than it runs
    environment = {**os.environ, "KERAS_BACKEND": "jax", "XLA_FLAGS": hasty}
    done = run([sys.executable, "-W", "ignore", "-c", ON_JAX], env=environment)
    *kept, error = done.stdout.splitlines()
    assert kept == ["True", "True"]
    assert error == (
        "JAX must be able to hold float64: set jax_enable_x64, or convert the source "
        "to float32; got float32 back"
    )


def test_what_keras_cannot_say_is_refused(get_peer):
    keras = get_peer("keras")
    with pytest.raises(ValueError, match="must be built, .* got one that is not"):
        convert(keras.cls(H, D), FusedMHA)
    theirs = keras.cls(H, D, attention_axes=(1, 2))
    theirs.build((B, T, S, E), (B, T, S, E))
    with pytest.raises(
        ValueError, match=r"along axis 1 .* got attention_axes = \(1, 2"
    ):
        convert(theirs, FusedMHA)


def test_what_flax_does_otherwise_is_refused(get_peer):
    flax = get_peer("flax")
    with pytest.raises(ValueError, match="got dropout_rate = 0.1 with broadcast_dropo"):
        convert(flax.native(dropout_rate=0.1), FusedMHA)
    with pytest.raises(ValueError, match="not decode; got attention_fn = .*, dec.*Tr"):
        convert(flax.native(decode=True), FusedMHA)
    other = flax.native(attention_fn=partial(print))
    with pytest.raises(ValueError, match="the usual attention_fn .* got .*print"):
        convert(other, FusedMHA)
    with pytest.raises(ValueError, match=r"not known: key_ln.scale \(11,\), query_ln"):
        convert(flax.native(normalize_qk=True), FusedMHA)
    with pytest.raises(ValueError, match="float64: set jax_enable_x64, .* got float32"):
        convert(make(FusedMHA), flax.cls)


def test_flax_asks_for_a_mode_where_it_drops_out(get_peer):
    flax = get_peer("flax")
    theirs = flax.native(dropout_rate=0.1, broadcast_dropout=False)
    assert theirs.deterministic is None
    assert convert(theirs, FusedMHA).training
    theirs = convert(FusedMHA(E, H, dropout=0.5).eval(), flax.cls)
    x = np.ones((B, T, E), np.float32)
    assert theirs.deterministic and np.array_equal(theirs(x), theirs(x))
    theirs.deterministic = False
    assert not np.array_equal(theirs(x), theirs(x))


def test_gpt2s_other_scales_are_refused(get_peer):
    gpt2 = get_peer("gpt2")
    with pytest.raises(ValueError, match="divided by √D; got scale_attn_weights = Fal"):
        convert(gpt2.native(scale_attn_weights=False), FusedMHA)
    inverse = {"scale_attn_by_inverse_layer_idx": True}
    with pytest.raises(ValueError, match="inverse_layer_idx in layer 3"):
        convert(gpt2.native(layer_idx=3, **inverse), FusedMHA)
    assert convert(gpt2.native(layer_idx=0, **inverse), FusedMHA)


@pytest.mark.parametrize(
    ("name", "option"), [("bert", "hidden_dropout_prob"), ("gpt2", "resid_pdrop")]
)
def test_huggingfaces_output_dropout_asks_for_a_place(name, option, get_peer):
    theirs = get_peer(name).native(**{option: 0.2})
    twin = convert(theirs, FusedMHA)
    assert twin.output_dropout == 0.2 and twin.dropout == 0.1
    again = convert(convert(twin, type(theirs)), FusedMHA)
    assert again.output_dropout == 0.2 and again.dropout == 0.1
    with pytest.raises(
        ValueError, match="which is 0.2 .make it 0 first.; FusedMHA, Be"
    ):
        convert(theirs, BatchedMHA)


def test_a_new_bert_has_a_new_norm(get_peer):
    norm = convert(make(BuiltinMHA), get_peer("bert").cls).output.LayerNorm
    assert torch.equal(norm.weight, torch.ones_like(norm.weight))
    assert not norm.bias.any() and norm.bias.dtype == torch.float64
