"""The drop-in in other programs: compiled, exported, mapped, in a transformer."""

import copy
import io
import pickle
from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from evidence.helpers import B, E, H, S, T
from mha_lib import MultiheadAttention, _tiles
from tests.library.torch_pair import (
    F64,
    MASKS,
    NAMES,
    SHORT,
    STOCK,
    additive,
    causal,
    hiding,
    make,
    one_thread,  # noqa: F401
    pair,
    random_numbers,  # noqa: F401
    results,
    sources,
    tensor,
)

pytestmark = pytest.mark.long

# torch's compiler and jvp still import modules that script a function.
SCRIPTED = pytest.mark.filterwarnings("ignore:`torch.jit.script`:DeprecationWarning")
# torch says so of every nested tensor, those of its own encoder included.
NESTED = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")

# --- programs made of the layer -------------------------------------------------


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("kind", ["none", "boolean", "float"])
def test_autocast(kind, need_weights, training, dtype, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 12)
    options = {"add_bias_kv": True, "add_zero_attn": True, "dropout": 0.2}
    ours, theirs = pair(torch.float32, **options)
    inputs = [tensor(n, B, E, dtype=torch.float32) for n in (T, S, S)]
    mask = None if kind == "none" else MASKS[kind](T, S)
    if kind == "float":
        mask = mask.float()
    found = []
    for layer in (ours.train(training), theirs.train(training)):
        torch.manual_seed(9)
        with torch.autocast("cpu", dtype):
            output, weights = layer(*inputs, attn_mask=mask, need_weights=need_weights)
        total = (output * torch.linspace(-1, 1, E)).sum()
        slopes = torch.autograd.grad(total, [*inputs, *layer.parameters()])
        found.append([output, weights, *slopes])
    assert found[0][0].dtype == dtype
    for x, y in zip(*found):
        if y is not None:  # of the same dtype, and close for that dtype
            atol = SHORT[dtype] * max(1.0, y.abs().max().item())
            assert_close(x, y, rtol=0, atol=atol)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
def test_autocast_brings_inputs_to_one_dtype(dtype):
    ours, theirs = pair(torch.float32)
    query, key, value = sources(ours, "three")
    inputs = [query.float(), key.to(dtype), value.float()]
    with torch.autocast("cpu", dtype):
        for x, y in zip(ours(*inputs), theirs(*inputs)):
            assert_close(x, y, rtol=0, atol=SHORT[dtype])


@pytest.fixture
def compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@SCRIPTED
@pytest.mark.sweep(3)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_compiled_in_one_graph(need_weights, backend, compiler, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 12)
    torch.manual_seed(1)
    ours = make(MultiheadAttention, add_bias_kv=True, batch_first=True)
    compiled = torch.compile(ours, backend=backend, fullgraph=True)
    for masked, source in product((False, True), ("self", "three")):
        inputs = sources(ours, source)
        keys = T if source == "self" else S
        options = {"need_weights": need_weights}
        if masked:
            options["attn_mask"] = hiding(T, keys)
            options["key_padding_mask"] = hiding(B, keys)
        found, expected = (results(m, inputs, **options) for m in (compiled, ours))
        for name, x in zip(found, expected):  # the compiled one has other names
            assert_close(found[name], expected[x])


EXPORTED = {
    "plain": {},
    "padded": {"key_padding_mask": hiding},
    "3-D, appended": {"attn_mask": additive},
}


@SCRIPTED
@pytest.mark.sweep(2)  # each case once, with weights or without
@pytest.mark.parametrize("case", EXPORTED)
@pytest.mark.parametrize("need_weights", [False, True])
def test_exported_with_sizes_left_open(need_weights, case, monkeypatch):
    appended = {"add_bias_kv": True, "add_zero_attn": True} if "app" in case else {}
    ours = make(MultiheadAttention, batch_first=True, **appended)
    batch, queries, keys = (torch.export.Dim(name, min=2, max=4096) for name in "bts")

    def arguments(B, T, S):
        given = {n: tensor(B, x, E).detach() for n, x in zip(NAMES, (T, S, S))}
        if "attn_mask" in EXPORTED[case]:
            given["attn_mask"] = additive(B * H, T, S)
        if "key_padding_mask" in EXPORTED[case]:
            given["key_padding_mask"] = hiding(B, S)
        return given | {"need_weights": need_weights}

    given = arguments(B, T, S)
    open_sizes = {
        "query": {0: batch, 1: queries},
        "key": {0: batch, 1: keys},
        "value": {0: batch, 1: keys},
        "attn_mask": {0: H * batch, 1: queries, 2: keys},
        "key_padding_mask": {0: batch, 1: keys},
        "need_weights": None,
    }
    program = torch.export.export(
        ours, (), given, dynamic_shapes={name: open_sizes[name] for name in given}
    ).module()
    for sizes in ((B, T, S), (4, 9, 6), (2, 31, 17)):
        given = arguments(*sizes)
        monkeypatch.setattr(_tiles, "TILE", 12)
        assert_close(program(**given), ours(**given))


@SCRIPTED
@pytest.mark.parametrize("need_weights", [True, False])
def test_function_transforms(need_weights, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 12)
    ours, theirs = pair(batch_first=True)
    options = {"attn_mask": hiding(T, S), "need_weights": need_weights}

    def function(layer, query, key):
        output, weights = layer(query, key, key.cos(), **options)
        return output if weights is None else torch.cat([output, weights], -1)

    with sdpa_kernel(SDPBackend.MATH):  # the kernel that has forward derivatives
        one = [x[0].detach() for x in sources(ours, "memory")[:2]]
        many = [torch.randn(4, *x.shape, dtype=F64) for x in one]
        ours_of, theirs_of = (partial(function, layer) for layer in (ours, theirs))
        mapped = torch.func.vmap(ours_of)(*many)
        assert_close(mapped, torch.stack([theirs_of(*x) for x in zip(*many)]))
        for jacobian in (torch.func.jacrev, torch.func.jacfwd):
            found, expected = (
                jacobian(of, argnums=(0, 1))(*one) for of in (ours_of, theirs_of)
            )
            assert_close(found, expected)
        tangents = tuple(torch.randn_like(x) for x in one)
        found, expected = (
            torch.func.jvp(of, tuple(one), tangents) for of in (ours_of, theirs_of)
        )
        assert_close(found, expected)


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_gradient_for_each_sequence(need_weights, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 12)
    ours = make(MultiheadAttention)
    many = [torch.randn(4, n, E, dtype=F64) for n in (T, S, S)]

    def loss(state, *inputs):
        options = {"need_weights": need_weights}
        output, _ = torch.func.functional_call(ours, state, inputs, options)
        return output.square().sum()

    slope = torch.func.grad(loss)
    state = {name: x.detach() for name, x in ours.named_parameters()}
    with sdpa_kernel(SDPBackend.MATH):  # the kernel that can be mapped
        slopes = torch.func.vmap(slope, (None, 0, 0, 0))(state, *many)
        for i, inputs in enumerate(zip(*many)):
            expected = slope(state, *inputs)
            assert_close({name: x[i] for name, x in slopes.items()}, expected)


@SCRIPTED  # by forward mode
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masked", [False, True])
def test_both_derivatives(masked, need_weights, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 3)  # a row of 3 keys at a time
    layer = MultiheadAttention(4, 2, add_bias_kv=masked, batch_first=True, dtype=F64)
    with torch.no_grad():
        layer.in_proj_bias.normal_()
    options = {"need_weights": need_weights}
    if masked:  # the last query sees none but the appended key
        options["attn_mask"] = torch.tensor([[False, True, False], [True] * 3])

    def function(query, key, value, weight):
        state = {"in_proj_weight": weight}
        arguments = (query, key, value)
        output = torch.func.functional_call(layer, state, arguments, options)
        return torch.cat([x.flatten() for x in output if x is not None])

    inputs = (tensor(1, 2, 4), tensor(1, 3, 4), tensor(1, 3, 4), tensor(12, 4))
    with sdpa_kernel(SDPBackend.MATH):  # the kernel that has second derivatives
        assert gradcheck(function, inputs, check_forward_ad=True, fast_mode=True)
        assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.filterwarnings("ignore:`torch.jit.:DeprecationWarning")
# what is asked of the inputs is asked of the traced ones alone
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_a_trace_computes_the_same_at_other_sizes(padded, need_weights, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", 12)
    ours = make(MultiheadAttention, batch_first=True, add_bias_kv=True)

    def arguments(B, T, S):
        given = [tensor(B, n, E).detach() for n in (T, S, S)]
        return [*given, hiding(B, S)] if padded else given

    class Wrapped(nn.Module):
        def forward(self, query, key, value, padding=None):
            found = self.inner(query, key, value, padding, need_weights=need_weights)
            return found if need_weights else found[0]

    call = Wrapped()
    call.inner = ours
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(call, arguments(B, T, S), check_trace=False), file)
    file.seek(0)
    program = torch.jit.load(file)  # made of torch's operations alone
    for sizes in ((B, T, S), (1, 8, 4), (2, 2, 9)):
        given = arguments(*sizes)
        assert_close(program(*given), call(*given))


# --- copies -------------------------------------------------------------------


@pytest.mark.parametrize("by", ["deepcopy", "pickle", "torch.save", "state dict"])
def test_a_copy_computes_the_same(by):
    options = {"add_bias_kv": True, "kdim": 9, "vdim": 13, "batch_first": True}
    ours = make(MultiheadAttention, **options)
    if by == "deepcopy":
        twin = copy.deepcopy(ours)
    elif by == "pickle":
        twin = pickle.loads(pickle.dumps(ours))
    else:
        file = io.BytesIO()
        torch.save(ours if by == "torch.save" else ours.state_dict(), file)
        file.seek(0)
        loaded = torch.load(file, weights_only=by == "state dict")
        twin = loaded
        if by == "state dict":
            twin = MultiheadAttention(E, H, dtype=F64, **options).eval()
            twin.load_state_dict(loaded)
    assert not {id(p) for p in ours.parameters()} & {id(p) for p in twin.parameters()}
    inputs = sources(ours, "three")
    assert_close(results(twin, inputs), results(ours, inputs), rtol=0, atol=0)


# --- inside torch's transformer -------------------------------------------------


class Counted(MultiheadAttention):
    """Ours; says how often it was called."""

    calls = 0

    def forward(self, *args, **options):
        Counted.calls += 1
        return super().forward(*args, **options)


def with_ours(model: nn.Module) -> tuple[nn.Module, int]:
    """A copy whose attention layers are ours, and how many these are."""
    model, replaced = copy.deepcopy(model), 0
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, STOCK):
                ours = Counted(E, H, child.dropout, batch_first=child.batch_first)
                ours.to(F64).load_state_dict(child.state_dict())
                setattr(parent, name, ours.train(child.training))
                replaced += 1
    Counted.calls = 0
    return model, replaced


def block(kind: type[nn.Module], batch_first: bool) -> nn.Module:
    """An encoder or decoder layer, or a transformer; only attention has dropout.

    (Other dropout draws its numbers in the order in which a tensor lies in memory.)
    """
    torch.manual_seed(0)
    options = {"dropout": 0.0, "batch_first": batch_first, "dtype": F64}
    model = kind(d_model=E, nhead=H, dim_feedforward=17, **options)
    for module in model.modules():
        if isinstance(module, STOCK):
            module.dropout = 0.2
    torch.manual_seed(1)
    return model


MODES = pytest.mark.parametrize("mode", ["train", "eval", "no_grad"])
BATCH_FIRST = pytest.mark.parametrize("batch_first", [True, False])


def assert_same_with_ours(model, mode: str, inputs: list[Tensor], **options) -> None:
    """The same output with torch's attention and with ours, which really ran."""
    model.train(mode == "train")
    ours, replaced = with_ours(model)
    both = []
    with torch.set_grad_enabled(mode != "no_grad"):
        for each in (ours, model):
            torch.manual_seed(6)
            output = each(*inputs, **options)
            found = {"output": output}
            if mode != "no_grad":
                total = (output * torch.linspace(-1, 1, E, dtype=F64)).sum()
                given = {"input": inputs[0]} | dict(each.named_parameters())
                slopes = torch.autograd.grad(total, list(given.values()))
                found |= dict(zip(given, slopes))
            both.append(found)
    assert Counted.calls == replaced > 0
    assert_close(*both)


@MODES
@BATCH_FIRST
@pytest.mark.parametrize("kind", ["none", "boolean", "float", "padding", "causal"])
def test_in_an_encoder(kind, batch_first, mode, monkeypatch):
    if kind == "float":  # there torch's fast path hides all that is not 0.0, see
        # https://github.com/pytorch/pytorch/issues/107084
        monkeypatch.setattr(torch.backends.mha, "_is_fastpath_enabled", False)
    layer = block(nn.TransformerEncoderLayer, batch_first)
    masks = {
        "none": {},
        "boolean": {"mask": hiding(T, T), "src_key_padding_mask": hiding(B, T)},
        "float": {"mask": additive(T, T), "src_key_padding_mask": additive(B, T)},
        "padding": {"src_key_padding_mask": hiding(B, T)},
        "causal": {"mask": causal(T, T, "boolean"), "is_causal": True},
    }[kind]
    x = tensor(B, T, E) if batch_first else tensor(T, B, E)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    assert_same_with_ours(encoder, mode, [x], **masks)


@MODES
@BATCH_FIRST
@pytest.mark.parametrize("kind", ["none", "boolean", "float"])
def test_in_a_decoder(kind, batch_first, mode):
    layer = block(nn.TransformerDecoderLayer, batch_first)
    options = {}
    if kind != "none":
        options = {
            "tgt_mask": causal(T, T, kind),
            "memory_mask": MASKS[kind](T, S),
            "tgt_key_padding_mask": MASKS[kind](B, T),
            "memory_key_padding_mask": MASKS[kind](B, S),
            "tgt_is_causal": batch_first,
        }
    shapes = [(B, n, E) if batch_first else (n, B, E) for n in (T, S)]
    decoder = nn.TransformerDecoder(layer, 2)
    assert_same_with_ours(decoder, mode, [tensor(*x) for x in shapes], **options)


@MODES
@BATCH_FIRST
@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True:UserWarning")
def test_in_a_transformer(batch_first, mode):
    # Made without batch_first, it warns that it cannot use nested tensors.
    model = block(partial(nn.Transformer, num_encoder_layers=2), batch_first)
    model.encoder.use_nested_tensor = False  # tested below
    shapes = [(B, n, E) if batch_first else (n, B, E) for n in (S, T)]
    assert_same_with_ours(
        model,
        mode,
        [tensor(*x) for x in shapes],
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(T, dtype=F64),
        tgt_is_causal=True,
        src_key_padding_mask=hiding(B, S),
        memory_key_padding_mask=hiding(B, S),
    )


@NESTED
@pytest.mark.parametrize("grad", [False, True])
def test_in_an_encoder_that_leaves_padding_out(grad):
    # In inference it hands nested tensors to its layers, and fills up with zeros.
    layer = block(nn.TransformerEncoderLayer, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    ours, _ = with_ours(encoder)
    x, lengths = torch.randn(B, T, E, dtype=F64), torch.tensor([2, T, 1])
    padding = torch.arange(T) >= lengths[:, None]
    with torch.set_grad_enabled(grad):
        found, expected = (m(x, src_key_padding_mask=padding) for m in (ours, encoder))
    assert Counted.calls == (2 if grad else 2 + 2 * B)  # then each sequence for itself
    assert found[padding].any() == expected[padding].any() == grad
    assert_close(found, expected)


@NESTED
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_input(layout):
    ours, theirs = pair(batch_first=True)
    given = [[tensor(n, E) for n in lengths] for lengths in ((5, 2), (3, 7), (3, 7))]
    nested = [torch.nested.as_nested_tensor(x, layout=layout) for x in given]
    output, weights = ours(*nested, need_weights=False)
    assert weights is None and output.is_nested and output.layout == layout
    for found, inputs in zip(output.unbind(), zip(*given)):
        expected, _ = theirs(*inputs)
        assert_close(found, expected)
        slopes = [
            torch.autograd.grad(x.square().sum(), inputs, retain_graph=True)
            for x in (found, expected)
        ]
        assert_close(*slopes)
    mask = torch.zeros(2, 7, dtype=torch.bool)
    for options in (
        {},
        {"need_weights": False, "attn_mask": mask},
        {"need_weights": False, "key_padding_mask": mask},
    ):
        with pytest.raises(ValueError, match="nested input takes no mask and returns"):
            ours(*nested, **options)
    with pytest.raises(ValueError, match="pass attn_mask as well"):
        ours(*nested, need_weights=False, is_causal=True)


@NESTED
def test_nested_input_stands_beside_as_much_nested_input():
    ours = make(MultiheadAttention)
    two, three = (
        torch.nested.as_nested_tensor([tensor(n, E) for n in lengths])
        for lengths in ((5, 2), (3, 7, 1))
    )
    dense = tensor(S, 2, E)  # its first axis is no batch
    for odd in (three, dense):
        for place in range(3):
            inputs = [two, two, two]
            inputs[place] = odd
            with pytest.raises(ValueError, match="must be nested, with one B; got"):
                ours(*inputs, need_weights=False)
    for place in range(3):
        inputs = [dense, dense, dense]
        inputs[place] = two
        with pytest.raises(ValueError, match="must be nested, with one B; got"):
            ours(*inputs, need_weights=False)


@NESTED
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged], ids=str)
def test_nested_output_is_laid_out_as_the_query(layout):
    ours, other = make(MultiheadAttention, batch_first=True), torch.jagged
    if layout is torch.jagged:
        other = torch.strided
    query, key = (
        torch.nested.as_nested_tensor([tensor(n, E) for n in (5, 2)], layout=x)
        for x in (layout, other)
    )
    assert ours(query, key, key, need_weights=False)[0].layout == layout
