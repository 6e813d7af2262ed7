"""The drop-in does what torch.nn.MultiheadAttention does, option by option."""

import ast
import inspect
import random
from collections import Counter
from itertools import combinations, product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from evidence.helpers import B, D, E, H, S, T
from mha_lib import MultiheadAttention, _tiles, tiled
from mha_lib.attention import attend
from tests.library.torch_pair import (
    F64,
    MASKS,
    NAMES,
    SHORT,
    STOCK,
    additive,
    assert_same,
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

# --- the grid -------------------------------------------------------------------

LAYERS = [
    dict(zip(("bias", "add_bias_kv", "add_zero_attn", "widths", "batch_first"), values))
    for values in product(
        (True, False),
        (False, True),
        (False, True),
        ((None, None), (9, 13), (9, 9), (None, 13)),
        (False, True),
    )
]
CALLS = [
    dict(zip(("batched", "source", "attn", "padding", "weights", "training"), values))
    for values in product(
        (True, False),
        ("self", "memory", "three"),
        ("none", "2-D boolean", "2-D float", "3-D boolean", "3-D float"),
        ("none", "boolean", "float"),
        ("none", "averaged", "each"),
        (False, True),
    )
]


def possible(layer: dict, call: dict) -> bool:
    kdim, vdim = layer["widths"]
    if call["source"] == "self" and not kdim == vdim is None:
        return False  # one tensor has one width
    if call["source"] == "memory" and kdim != vdim:
        return False
    # torch warns of masks of two kinds: a test of their own is below
    return "none" in (call["attn"], call["padding"]) or (
        call["attn"].split()[1] == call["padding"]
    )


def sample() -> list[tuple[dict, list[dict]]]:
    """For each layer some of the calls, the same ones in every run."""
    chooser = random.Random(3)
    return [
        (layer, chooser.sample([call for call in CALLS if possible(layer, call)], 16))
        for layer in LAYERS
    ]


def pairs_of(options: dict) -> set:
    return set(combinations(sorted(options.items()), 2))


def test_the_sample_covers_every_pair_of_options():
    every, sampled = set(), set()
    for layer, calls in sample():
        for call in CALLS:
            if possible(layer, call):
                every |= pairs_of(layer | call)
        for call in calls:
            sampled |= pairs_of(layer | call)
    assert sampled == every


def only_without_weights(*operands, need_weights, **options):
    assert not need_weights, "the weights must come from tiles"
    return attend(*operands, need_weights=False, **options)


@pytest.fixture(params=["formula", "tiles"])
def path(request, monkeypatch):
    """The grid is small: once as it comes, once with tiles small enough to be used."""
    if request.param == "formula":
        monkeypatch.setattr(tiled, "_Tiled", None)
    else:
        monkeypatch.setattr(_tiles, "TILE", 12)
        monkeypatch.setattr(tiled, "attend", only_without_weights)
    return request.param


NAMES_OF_LAYERS = ["-".join(map(str, layer.values())) for layer in LAYERS]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(("options", "calls"), sample(), ids=NAMES_OF_LAYERS)
def test_output_weights_and_gradients(options, calls, path):
    options = dict(options)
    kdim, vdim = options.pop("widths")
    ours, theirs = pair(**options, kdim=kdim, vdim=vdim)
    for call in calls:
        batched, self_attention = call["batched"], call["source"] == "self"
        keys = T if self_attention else S
        shapes = {"2-D": (T, keys), "3-D": ((B if batched else 1) * H, T, keys)}
        chosen = {
            "need_weights": call["weights"] != "none",
            "average_attn_weights": call["weights"] == "averaged",
        }
        if call["attn"] != "none":
            rank, kind = call["attn"].split()
            chosen["attn_mask"] = MASKS[kind](*shapes[rank])
        if call["padding"] != "none":
            shape = (B, keys) if batched else (keys,)
            chosen["key_padding_mask"] = hiding(*shape)
            if call["padding"] == "float":
                chosen["key_padding_mask"] = additive(*shape)
        inputs = sources(ours, call["source"], batched)
        ours.train(call["training"]), theirs.train(call["training"])
        assert_same(ours, theirs, inputs, note=call, **chosen)


@pytest.mark.parametrize("same", ["query, key", "query, value"])
def test_two_of_the_three_may_be_one_tensor(same):
    ours, theirs = pair()
    shape, options = (T, B, H * D), {"dtype": torch.float64, "requires_grad": True}
    x, y = (torch.randn(shape, **options) for _ in range(2))
    inputs = (x, x, y) if same == "query, key" else (x, y, x)
    assert_same(ours, theirs, inputs)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
def test_the_output_can_be_viewed(need_weights, batch_first):
    ours = make(MultiheadAttention, batch_first=batch_first)
    output, _ = ours(*sources(ours, "three"), need_weights=need_weights)
    assert output.is_contiguous()  # theirs is so without batch_first


# --- beside the grid ------------------------------------------------------------


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("appended", [False, True])
def test_masks_that_learn(need_weights, appended):
    ours, theirs = pair(add_bias_kv=appended, add_zero_attn=appended)
    attn_mask, key_padding_mask = tensor(B * H, T, S), tensor(B, S)
    options = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}
    inputs = sources(ours, "three")
    assert "gradient of attn_mask" in results(ours, inputs, **options)
    assert_same(ours, theirs, inputs, need_weights=need_weights, **options)


@pytest.mark.parametrize("attn, padding", [(hiding, additive), (additive, hiding)])
def test_masks_of_two_kinds(attn, padding, path):
    ours, theirs = pair()
    masks = {"attn_mask": attn(T, S), "key_padding_mask": padding(B, S)}
    inputs = sources(ours, "three")
    found = results(ours, inputs, **masks)  # without a warning
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
        expected = results(theirs, inputs, **masks)
    assert_close(found, expected)


@pytest.mark.parametrize("masked", ["no mask", "attn_mask", "key_padding_mask", "both"])
@pytest.mark.parametrize("weights", ["none", "averaged", "each"])
def test_inference_is_torchs_fast_path(weights, masked, path, monkeypatch):
    calls, native = [], torch._native_multi_head_attention
    monkeypatch.setattr(
        torch,
        "_native_multi_head_attention",
        lambda *args: calls.append(args) or native(*args),
    )
    ours, theirs = pair(batch_first=True)
    torch.manual_seed(1)
    x = torch.randn(B, T, E, dtype=F64)
    options = {
        "need_weights": weights != "none",
        "average_attn_weights": weights == "averaged",
    }
    if masked in ("attn_mask", "both"):
        options["attn_mask"] = hiding(T, T)
    if masked in ("key_padding_mask", "both"):
        options["key_padding_mask"] = hiding(B, T)
    with torch.no_grad():
        found = ours(x, x, x, **options)
        assert not calls
        expected = theirs(x, x, x, **options)
        assert len(calls) == 1
    assert_close(found, expected)


@pytest.mark.parametrize("weights", ["none", "averaged", "each"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_the_same_weights_are_dropped(weights, batch_first):
    ours, theirs = pair(dropout=0.3, batch_first=batch_first)
    options = {
        "need_weights": weights != "none",
        "average_attn_weights": weights == "averaged",
        "attn_mask": hiding(T, S),
    }
    inputs, found = sources(ours, "three"), []
    for layer in (ours.train(), theirs.train()):
        torch.manual_seed(5)
        found.append(results(layer, inputs, **options))
    assert_close(*found)
    kept = results(ours.eval(), inputs, **options)
    assert not torch.allclose(found[0]["output"], kept["output"])
    if weights == "each":  # with what is left made larger: rows do not sum to 1
        dropped = (found[0]["weights"] == 0) & (kept["weights"] > 0)
        assert dropped.any() and not dropped.all()


@pytest.mark.parametrize("need_weights", [True, False])
def test_nothing_is_dropped_in_evaluation(need_weights):
    ours, theirs = pair(dropout=0.9)
    assert_same(ours, theirs, sources(ours, "three"), need_weights=need_weights)


def test_all_weights_may_be_dropped():
    ours, theirs = pair(dropout=1.0)
    assert_same(ours.train(), theirs.train(), sources(ours, "three"))


# --- queries that may attend to nothing -----------------------------------------

EMPTY = pytest.mark.parametrize(
    "hide", list(product(("rows", "padding", "together"), MASKS)), ids=" ".join
)


def empty_rows(where: str, kind: str) -> tuple[dict[str, Tensor], Tensor]:
    """Masks, and which of the queries (T, B) see no key because of them."""
    rows, padding, nothing = (
        torch.zeros(shape, dtype=torch.bool) for shape in ((T, S), (B, S), (T, B))
    )
    if where == "rows":
        rows[-1] = nothing[-1] = True
    elif where == "padding":
        padding[1] = nothing[:, 1] = True
    else:  # each leaves keys to see
        rows[-1, 3:] = padding[1, :3] = nothing[-1, 1] = True
    masks = {"attn_mask": rows, "key_padding_mask": padding}
    masks = {name: mask for name, mask in masks.items() if mask.any()}
    if kind == "float":
        for name, mask in masks.items():
            masks[name] = mask.new_zeros(mask.shape, dtype=F64)
            masks[name][mask] = float("-inf")
    return masks, nothing


@EMPTY
@pytest.mark.parametrize("tile", [_tiles.TILE, 12])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("need_weights", [True, False])
def test_an_empty_row_is_zero(need_weights, training, tile, hide, monkeypatch):
    monkeypatch.setattr(_tiles, "TILE", tile)
    ours = make(MultiheadAttention, dropout=0.2 if training else 0.0).train(training)
    masks, nothing = empty_rows(*hide)
    contexts = []
    ours.out_proj.register_forward_pre_hook(lambda _, args: contexts.append(args[0]))
    inputs = sources(ours, "three")
    output, weights = ours(
        *inputs, **masks, need_weights=need_weights, average_attn_weights=False
    )
    assert not contexts[0].transpose(0, 1)[nothing].any()
    assert contexts[0].transpose(0, 1)[~nothing].all()
    assert_close(output[nothing], ours.out_proj.bias.expand_as(output[nothing]))
    if need_weights:
        by_query = weights.permute(2, 0, 1, 3)  # (T, B, H, S)
        assert not by_query[nothing].any()
        assert by_query[~nothing].sum(-1).all()

    factors = torch.randn(output.shape, dtype=F64) * nothing[..., None]
    total = (output * factors).sum()
    if need_weights:
        total = total + (by_query * nothing[..., None, None]).sum()
    parameters = {n: p for n, p in ours.named_parameters() if n != "out_proj.bias"}
    for slope in torch.autograd.grad(total, [*inputs, *parameters.values()]):
        assert not slope.any()  # zero, and not NaN


@EMPTY
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("where", ["class", "subclass", "instance"])
def test_torchs_empty_rows(where, need_weights, hide, path, monkeypatch):
    ours, theirs = pair()
    if where == "class":
        monkeypatch.setattr(MultiheadAttention, "torch_empty_rows", True)
    elif where == "instance":
        ours.torch_empty_rows = True
    else:

        class AsTorch(MultiheadAttention):
            torch_empty_rows = True

        ours = AsTorch(E, H, dtype=F64).eval()
        ours.load_state_dict(theirs.state_dict())
    torch.manual_seed(1)
    inputs, (masks, nothing) = sources(ours, "three"), empty_rows(*hide)
    found, expected = (
        results(layer, inputs, need_weights=need_weights, **masks)
        for layer in (ours, theirs)
    )
    assert_close(found, expected, equal_nan=True)
    assert found["output"][nothing].isnan().all() == need_weights
    assert found["output"][~nothing].isfinite().all()


def test_an_appended_key_is_seen_where_all_others_are_hidden(path):
    for options in ({"add_bias_kv": True}, {"add_zero_attn": True}):
        ours, theirs = pair(**options)
        masks, nothing = empty_rows("rows", "boolean")
        inputs = sources(ours, "three")
        assert_same(ours, theirs, inputs, **masks)
        _, weights = ours(*inputs, **masks)
        rows = weights.transpose(0, 1)[nothing]  # (…, S + 1)
        assert_close(rows, F.one_hot(torch.tensor(S)).to(F64).expand_as(rows))


# --- is_causal ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["boolean", "float"])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("source", ["self", "three"])
@pytest.mark.parametrize("padded", [False, True])
def test_is_causal(padded, source, need_weights, kind, path):
    ours, theirs = pair()
    keys = T if source == "self" else S
    options = {"attn_mask": causal(T, keys, kind), "need_weights": need_weights}
    if padded:
        options["key_padding_mask"] = MASKS[kind](B, keys)
    inputs = sources(ours, source)
    assert_same(ours, theirs, inputs, is_causal=True, **options)
    assert_close(ours(*inputs, is_causal=True, **options), ours(*inputs, **options))


def test_a_hint_that_is_not_true_is_not_followed_beside_padding():
    ours, theirs = pair()
    options = {"attn_mask": hiding(T, S), "key_padding_mask": hiding(B, S)}
    inputs = sources(ours, "three")
    assert_same(ours, theirs, inputs, is_causal=True, need_weights=False, **options)


def test_is_causal_hides_nothing_that_was_appended():
    # Here torch gives the hint to its kernel, which hides what lies at the end.
    ours, theirs = pair(add_bias_kv=True, add_zero_attn=True)
    options = {"attn_mask": causal(T, S, "boolean"), "need_weights": False}
    inputs = sources(ours, "three")
    assert_same(ours, theirs, inputs, **options)
    output, _ = ours(*inputs, is_causal=True, **options)
    assert_close(output, ours(*inputs, **options)[0])
    assert not torch.allclose(output, theirs(*inputs, is_causal=True, **options)[0])


class Made(TorchDispatchMode):
    """Counts the tensors of scores' size, by dtype, that come into being."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for x in made if isinstance(made, tuple | list) else [made]:
            if isinstance(x, Tensor) and x.shape[-2:] == (T, S):
                self.counts[x.dtype] += 1
        return made


def test_no_mask_tensor_where_is_causal_says_it_all(monkeypatch):
    asked, kernel = [], F.scaled_dot_product_attention

    def spy(*args, **options):
        asked.append((args[3], options["is_causal"]))
        return kernel(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    ours, inputs = make(MultiheadAttention), None
    inputs = sources(ours, "three")
    for kind in ("boolean", "float"):
        attn_mask = causal(T, S, kind)
        with Made() as made:
            ours(*inputs, attn_mask=attn_mask, is_causal=True, need_weights=False)
        assert asked.pop() == (None, True)
        assert not made.counts[torch.bool]
        with Made() as made:
            ours(*inputs, attn_mask=attn_mask, need_weights=False)
        assert asked.pop()[1] is False
        assert made.counts[torch.bool]


# --- construction and state dicts -----------------------------------------------


@pytest.mark.parametrize("method", ["__init__", "forward"])
def test_same_parameters_of_the_call(method):
    def described(layer):
        parameters = inspect.signature(getattr(layer, method)).parameters.values()
        return [(x.name, x.default, x.kind) for x in parameters]

    assert described(MultiheadAttention) == described(STOCK)


@pytest.mark.parametrize("options", LAYERS, ids=NAMES_OF_LAYERS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_same_seed_same_parameters(dtype, options):
    options = dict(options)
    kdim, vdim = options.pop("widths")
    options |= {"dropout": 0.1, "kdim": kdim, "vdim": vdim, "dtype": dtype}
    torch.manual_seed(7)
    ours = MultiheadAttention(E, H, **options)
    torch.manual_seed(7)
    theirs = STOCK(E, H, **options)
    # the order matters to whoever zips parameters, an optimizer for instance
    expected = list(theirs.named_parameters())
    assert [name for name, _ in ours.named_parameters()] == [n for n, _ in expected]
    for parameter, (name, other) in zip(ours.parameters(), expected):
        assert torch.equal(parameter, other), name
        assert parameter.dtype == dtype and parameter.requires_grad
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name in ("in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "q_proj_weight"):
        assert (getattr(ours, name) is None) == (getattr(theirs, name) is None)
    for name in ("embed_dim", "num_heads", "head_dim", "kdim", "vdim", "dropout"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.batch_first == theirs.batch_first
    assert ours.add_zero_attn == theirs.add_zero_attn
    for source, target in ((ours, theirs), (theirs, ours)):
        with torch.no_grad():
            for parameter in source.parameters():
                parameter.normal_()
        target.load_state_dict(source.state_dict(), strict=True)
        assert_close(target.state_dict(), source.state_dict(), rtol=0, atol=0)


def test_the_parameters_can_be_made_anew():
    ours, theirs = pair(add_bias_kv=True)
    for layer in (ours, theirs):
        torch.manual_seed(8)
        layer._reset_parameters()
    states = ours.state_dict(), theirs.state_dict()
    del states[0]["out_proj.weight"], states[1]["out_proj.weight"]  # left as it was
    assert_close(*states, rtol=0, atol=0)


def test_the_device_is_where_it_was_asked_for():
    ours = MultiheadAttention(E, H, add_bias_kv=True, device="meta", dtype=F64)
    assert {(p.device.type, p.dtype) for p in ours.parameters()} == {("meta", F64)}
    for need_weights in (True, False):
        query, key, value = (x.to("meta") for x in sources(ours, "three"))
        mask = hiding(B, S).to("meta")
        output, weights = ours(query, key, value, mask, need_weights)
        assert output.shape == (T, B, E) and output.device.type == "meta"
        assert weights is None if not need_weights else weights.shape == (B, T, S + 1)
    filled = ours.to_empty(device="cpu")
    filled.load_state_dict(make(MultiheadAttention, add_bias_kv=True).state_dict())
    assert results(filled, sources(filled, "three"))["output"].isfinite().all()


def separated(state: dict[str, Tensor], prefix: str = "") -> dict[str, Tensor]:
    """A joint state dict in the older form."""
    state = dict(state)
    blocks = state.pop(f"{prefix}in_proj_weight").chunk(3)
    return state | {f"{prefix}{n}_proj_weight": x for n, x in zip("qkv", blocks)}


@pytest.mark.parametrize("nested", [False, True])
def test_an_older_state_dict_of_three_matrices(nested):
    def wrap(layer):
        return nn.ModuleDict({"block": nn.Sequential(layer)}) if nested else layer

    source, prefix = wrap(make(STOCK)), "block.0." if nested else ""
    state = separated(source.state_dict(), prefix)
    given = dict(state)
    target = wrap(MultiheadAttention(E, H, dtype=F64))
    target.load_state_dict(state, strict=True)
    assert_close(target.state_dict(), source.state_dict(), rtol=0, atol=0)
    assert state == given  # ours to read, not to change


@pytest.mark.parametrize("layer", [MultiheadAttention, STOCK])
@pytest.mark.parametrize("case", ["not square", "both", "one missing"])
def test_other_state_dicts_are_refused_as_by_torch(case, layer):
    joint = make(STOCK).state_dict()
    state = {
        "not square": make(STOCK, kdim=9, vdim=13).state_dict(),
        "both": separated(joint) | joint,
        "one missing": separated(joint),
    }[case]
    if case == "one missing":
        del state["k_proj_weight"]
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\).*"q_proj_weight"'):
        layer(E, H, dtype=F64).load_state_dict(state)


# --- odd sizes, memory and numbers ----------------------------------------------


@pytest.mark.parametrize("sizes", [(0, T, S), (B, 0, S), (B, T, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("appended", [False, True])
def test_lengths_of_zero(appended, need_weights, sizes):
    ours, theirs = pair(batch_first=True, add_bias_kv=appended)
    batch, queries, keys = sizes
    inputs = [tensor(batch, n, E) for n in (queries, keys, keys)]
    mask = torch.zeros(queries, keys, dtype=torch.bool)
    for options in ({}, {"attn_mask": mask}):
        assert_same(ours, theirs, inputs, need_weights=need_weights, **options)


@pytest.mark.parametrize("need_weights", [True, False])
def test_memory_laid_out_in_any_way(need_weights, path):
    ours, theirs = pair(batch_first=True)
    query = torch.randn(E, T, B, dtype=F64).permute(2, 1, 0).requires_grad_()
    key = torch.randn(B, 2 * S, 2 * E, dtype=F64)[:, ::2, ::2].requires_grad_()
    value = torch.randn(1, S, E, dtype=F64).expand(B, S, E).requires_grad_()
    assert not any(x.is_contiguous() for x in (query, key, value))
    masks = {
        "attn_mask": hiding(S, T, B * H).permute(2, 1, 0),
        "key_padding_mask": hiding(S, B).T,
    }
    masks["attn_mask"][..., 0] = masks["key_padding_mask"][:, 0] = False
    inputs = [query, key, value]
    assert_same(ours, theirs, inputs, need_weights=need_weights, **masks)


@pytest.mark.parametrize("dtype", SHORT, ids=str)
@pytest.mark.parametrize("need_weights", [True, False])
def test_short_numbers(need_weights, dtype, path):
    ours, theirs = pair(dtype)
    exact = make(STOCK)
    exact.load_state_dict(theirs.state_dict())
    inputs = [x.detach().to(dtype) for x in sources(ours, "three")]
    masks = {"attn_mask": hiding(T, S), "key_padding_mask": hiding(B, S)}
    found = ours(*inputs, **masks, need_weights=need_weights)
    expected = exact(*(x.to(F64) for x in inputs), **masks, need_weights=need_weights)
    for x, y in zip(found, expected):
        if y is not None:
            assert x.dtype == dtype
            assert_close(x.to(F64), y, rtol=0, atol=SHORT[dtype])


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("size", [30, 100, 200, 1000, 30000])
def test_no_overflow_where_torch_has_none(size, need_weights, path):
    ours, theirs = pair(torch.float16)
    with torch.no_grad():  # projections that leave the numbers as they come
        for layer in (ours, theirs):
            layer.in_proj_weight.copy_(torch.eye(E).repeat(3, 1))
            layer.in_proj_bias.zero_()
    query, key = (torch.full((n, B, E), size).half() for n in (T, S))
    value = torch.randn(S, B, E).half()
    overflows = (query[0, 0, :D] @ key[0, 0, :D]).isinf()  # unless scaled before
    assert overflows == (size > 77)  # √(65504/11)
    found = ours(query, key, value, need_weights=need_weights)
    expected = theirs(query, key, value, need_weights=need_weights)
    for x, y in zip(found, expected):
        if y is not None:
            assert (x.isfinite() | ~y.isfinite()).all()
            if size <= 100:
                assert y.isfinite().all()


# --- what is refused ------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 1), "embed_dim and num_heads must be at least 1; got 0 and 1"),
        ((4, 0), "embed_dim and num_heads must be at least 1; got 4 and 0"),
        ((-4, 2), "embed_dim and num_heads must be at least 1; got -4 and 2"),
        ((4, -2), "embed_dim and num_heads must be at least 1; got 4 and -2"),
        ((5, 2), "must be divisible by num_heads; got 5 and 2"),
        ((2, 4), "must be divisible by num_heads; got 2 and 4"),
        ((4, 2, 0, 9), "kdim and vdim must be at least 1; got 0 and 9"),
        ((4, 2, 9, -1), "kdim and vdim must be at least 1; got 9 and -1"),
    ],
)
def test_sizes_that_make_no_layer(sizes, message):
    named = dict(zip(("embed_dim", "num_heads", "kdim", "vdim"), sizes))
    with pytest.raises(ValueError, match=message):
        MultiheadAttention(**named)


@pytest.mark.parametrize("wrong", [4.0, True, "4", torch.tensor(4)], ids=repr)
def test_sizes_that_are_no_integers(wrong):
    first, second = "embed_dim and num_heads", "kdim and vdim"
    for sizes, names in (
        ({"embed_dim": wrong, "num_heads": 1}, first),
        ({"embed_dim": 8, "num_heads": wrong}, first),
        ({"embed_dim": 8, "num_heads": 2, "kdim": wrong}, second),
        ({"embed_dim": 8, "num_heads": 2, "vdim": wrong}, second),
    ):
        with pytest.raises(TypeError) as caught:
            MultiheadAttention(**sizes)
        assert str(caught.value).startswith(f"{names} must be integers; got")
        assert repr(wrong) in str(caught.value)


def test_the_smallest_layer():
    assert MultiheadAttention(1, 1).head_dim == 1


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((E,), (E,), (E,)), "query must have shape ({}, embed_dim); got (22,)"),
        (((1, T, B, E), (1, S, B, E), (1, S, B, E)), "query must have shape ({}, emb"),
        (((T, B, E), (S, 9), (S, B, 13)), "key must have shape ({}, kdim); got (7, 9)"),
        (((T, B, E), (S, B, 9), (S, 13)), "value must have shape ({}, vdim); got (7, "),
        (((T, E), (S, B, 9), (S, B, 13)), "key must have shape (length, kdim); got"),
        (((T, E), (S, 9), (S, B, 13)), "value must have shape (length, vdim); got"),
        (
            ((T, B, 9), (S, B, 9), (S, B, 13)),
            "query must be embed_dim = 22 wide; got 9",
        ),
        (((T, B, E), (S, B, E), (S, B, 13)), "key must be kdim = 9 wide; got 22"),
        (((T, B, E), (S, B, 9), (S, B, E)), "value must be vdim = 13 wide; got 22"),
        (((T, E), (S, 13), (S, 9)), "key must be kdim = 9 wide; got 13"),
        (((T, B, E), (S, B, 9), (T, B, 13)), "share their length S; got 7 and 5"),
        (((T, B, E), (S, B, 9), (S, 1, 13)), "share B in ({}, width); got 3, 3 and 1"),
        (((T, B, E), (S, 1, 9), (S, 1, 13)), "share B in ({}, width); got 3, 1 and 1"),
        (((T, B, E), (S, 1, 9), (S, B, 13)), "share B in ({}, width); got 3, 1 and 3"),
        (((T, E), (S, 9), (T, 13)), "key and value must share their length S; got 7"),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit(shapes, message, batch_first):
    layer = MultiheadAttention(E, H, kdim=9, vdim=13, batch_first=batch_first)
    inputs = [torch.zeros(shape) for shape in shapes]
    if batch_first:
        inputs = [x.transpose(0, 1) if x.dim() == 3 else x for x in inputs]
    with pytest.raises(ValueError) as caught:
        layer(*inputs)
    axes = "B, length" if batch_first else "length, B"
    assert message.format(axes) in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nonsense", [None, [[1.0]], "query"], ids=repr)
def test_inputs_that_are_no_tensors(nonsense, name):
    layer = make(MultiheadAttention)
    given = dict(zip(NAMES, sources(layer, "three")))
    given[name] = nonsense
    came = type(nonsense).__name__
    with pytest.raises(TypeError, match=f"{name} must be a tensor; got {came}"):
        layer(**given)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("widths", [{}, {"kdim": 9, "vdim": 13}], ids=str)
def test_one_input_of_another_dtype(widths, dtype, name):
    layer = MultiheadAttention(E, H, **widths)
    given = {n: x.detach().float() for n, x in zip(NAMES, sources(layer, "three"))}
    given[name] = given[name].to(dtype)
    first, second, third = (x.dtype for x in given.values())
    with pytest.raises(TypeError) as caught:
        layer(**given)
    came = f"got {first}, {second} and {third}"
    assert str(caught.value) == f"query, key and value must share one dtype; {came}"


@pytest.mark.parametrize("device", ["cpu", "meta"])  # which knows no autocast
def test_another_dtype_than_the_layers(device):
    layer = MultiheadAttention(E, H, kdim=9, vdim=13, device=device)
    inputs = [torch.zeros(S, B, n, dtype=F64, device=device) for n in (E, 9, 13)]
    message = "dtype of the layer; got torch.float64 for a layer of torch.float32"
    with pytest.raises(TypeError, match=message):
        layer(*inputs)


@pytest.mark.parametrize("came", [(1, S), (B, S), (S + 1,), ()], ids=str)
def test_a_padding_mask_of_unbatched_input_is_named_as_it_came(came):
    ours, x = make(MultiheadAttention), tensor(S, E)
    with pytest.raises(ValueError) as caught:
        ours(x, x, x, torch.zeros(came).bool())
    assert str(caught.value) == f"key_padding_mask must be ({S},); got {came}"


def test_a_padding_mask_of_unbatched_input_is_a_tensor():
    ours, x = make(MultiheadAttention), tensor(S, E)
    with pytest.raises(TypeError, match="key_padding_mask must be a tensor; got list"):
        ours(x, x, x, [False] * S)


@pytest.mark.parametrize("source", ["self", "three"])
def test_a_bias_of_another_dtype(source):
    # torch takes it where its inputs do not lie in memory as its kernel wants them
    ours, theirs = pair(batch_first=True)
    for layer in (ours, theirs):
        layer.in_proj_bias = nn.Parameter(layer.in_proj_bias.half())
    assert_same(ours, theirs, sources(ours, source))


@pytest.mark.parametrize(
    ("masks", "error", "message"),
    [
        ({"attn_mask": torch.zeros(T, S).long()}, TypeError, "attn_mask must be bool"),
        ({"attn_mask": torch.zeros(T, S).byte()}, TypeError, "got torch.uint8"),
        ({"key_padding_mask": torch.zeros(B, S).int()}, TypeError, "key_padding_mask"),
        (
            {"attn_mask": torch.zeros(S, T)},
            ValueError,
            r"\(5, 7\) or \(6, 5, 7\); g",
        ),
        ({"attn_mask": torch.zeros(S)}, ValueError, r"attn_mask must .* got \(7,\)"),
        ({"attn_mask": torch.zeros(B, T, S)}, ValueError, r"got \(3, 5, 7\)"),
        ({"attn_mask": torch.zeros(1, T, S)}, ValueError, r"got \(1, 5, 7\)"),
        ({"key_padding_mask": torch.zeros(S, B)}, ValueError, r"\(3, 7\); got \(7, 3"),
        ({"key_padding_mask": torch.zeros(S)}, ValueError, r"be \(3, 7\); got \(7,\)"),
        ({"is_causal": True}, ValueError, "pass attn_mask as well"),
    ],
)
def test_masks_that_do_not_fit(masks, error, message):
    ours = make(MultiheadAttention)
    for need_weights in (True, False):
        with pytest.raises(error, match=message):
            ours(*sources(ours, "three"), **masks, need_weights=need_weights)


def test_torch_refuses_what_is_refused_here():
    # so that nothing that works there is lost here
    theirs = make(STOCK)
    inputs = sources(theirs, "three")
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying"):
        theirs(*inputs, is_causal=True)
    for shape in ((S, T), (1, T, S), (B, T, S)):
        with pytest.raises(RuntimeError, match="The shape of the .D attn_mask is"):
            theirs(*inputs, attn_mask=hiding(*shape))
    with pytest.raises(RuntimeError, match="must have the same dtype"):
        theirs(*(x.float() for x in inputs))


# --- the source -----------------------------------------------------------------


def test_short_and_of_its_own_arithmetic():
    source = Path(inspect.getsourcefile(MultiheadAttention)).read_text("utf-8")
    assert len(source.splitlines()) <= 250
    assert "multi_head_attention" not in source
    code = ast.unparse(ast.parse(source.replace(MultiheadAttention.__doc__, "")))
    assert "nn.MultiheadAttention" not in code


def test_a_bias_counts_in_training_with_dropout_too():
    layer = MultiheadAttention(E, H, dropout=0.5, batch_first=True).train()
    added, x = torch.zeros(T, T), torch.randn(B, T, E)
    added[:, 0] = -50.0
    _, weights = layer(x, x, x, attn_mask=added)
    assert (weights[..., 0] < 1e-9).all() and weights.any()
