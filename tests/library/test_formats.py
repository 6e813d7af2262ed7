"""Formats of checkpoints against what each framework computes from its arrays."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from evidence.helpers import B, D, E, H, S, T, call, inputs, make, random_mask
from mha_lib import BatchedMHA, FusedMHA, MultiheadAttention, convert
from mha_lib.checkpoints import (
    FORMATS,
    Format,
    OtherNamesError,
    Projection,
    Weights,
)

ALL = pytest.mark.parametrize("name", FORMATS)
PAIRS = pytest.mark.parametrize(("one", "other"), list(product(FORMATS, FORMATS)))


def draw(*shape: int, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


def weights_of(bias: bool = True) -> Weights:
    names = ("q", "k", "v", "out")
    return Weights(
        *(
            Projection(draw(E, E, seed=i), draw(E, seed=i) if bias else None)
            for i, _ in enumerate(names)
        ),
        num_heads=H,
    )


def assert_equal(one: Weights, other: Weights) -> None:
    assert one.num_heads == other.num_heads
    parts = other.parts
    for name, x in one.parts.items():
        if x is None:
            assert parts[name] is None, name
        else:
            assert torch.equal(x, parts[name]), name


# --- what each framework does with its arrays -------------------------------------
# (a, x) → the heads (B, length, H, D) of q, k and v; (a, context) → the output


def linear(a, name, x):
    return x @ a[f"{name}.weight"].T + a[f"{name}.bias"]


def by_linear(*names):
    """A module with a Linear for each, whose rows are the heads one after the other."""

    def project(a, q, k, v):
        heads = (linear(a, name, x) for name, x in zip(names, (q, k, v)))
        return [x.unflatten(-1, (H, D)) for x in heads]

    def finish(a, context):
        return linear(a, names[3], context.flatten(2))

    return project, finish


def by_torch(a, q, k, v):
    biases = a["in_proj_bias"].split(E)
    if "in_proj_weight" in a:
        matrices = a["in_proj_weight"].split(E)
    else:
        matrices = [a[f"{x}_proj_weight"] for x in "qkv"]
    rows = zip((q, k, v), matrices, biases)
    return [(x @ w.T + b).unflatten(-1, (H, D)) for x, w, b in rows]


def by_einsum(end):
    """Kernels (in, H, D), as Keras and flax have them."""

    def project(a, *inputs):
        return [
            torch.einsum("bse,ehd->bshd", x, a[f"{name}{end}kernel"])
            + a[f"{name}{end}bias"]
            for name, x in zip(("query", "key", "value"), inputs)
        ]

    def finish(a, context):
        name = "attention_output" if end == "/" else "out"
        output = torch.einsum("bthd,hde->bte", context, a[f"{name}{end}kernel"])
        return output + a[f"{name}{end}bias"]

    return project, finish


def conv1d(a, name, x):
    return x @ a[f"{name}.weight"] + a[f"{name}.bias"]


def by_gpt2(a, q, k, v):
    heads = [conv1d(a, "c_attn", x).split(E, dim=2)[i] for i, x in enumerate((q, k, v))]
    return [x.view(*x.shape[:-1], -1, D) for x in heads]


def by_gpt2_cross(a, q, k, v):
    key, value = (
        conv1d(a, "c_attn", x).split(E, dim=2)[i] for i, x in ((0, k), (1, v))
    )
    return [x.view(*x.shape[:-1], -1, D) for x in (conv1d(a, "q_attn", q), key, value)]


def gpt2_end(a, context):
    return conv1d(a, "c_proj", context.flatten(2))


def by_timm(a, *inputs):
    rows = (linear(a, "qkv", x).reshape(B, -1, 3, H, D) for x in inputs)
    return [x.permute(2, 0, 1, 3, 4)[i] for i, x in enumerate(rows)]


def by_bloom(a, *inputs):
    rows = (linear(a, "query_key_value", x).view(B, -1, H, 3, D) for x in inputs)
    return [x[..., i, :] for i, x in enumerate(rows)]


NATIVE = {
    "separate": by_linear("q_proj", "k_proj", "v_proj", "out_proj"),
    "torch": (by_torch, by_linear(*["out_proj"] * 4)[1]),
    "torch_separate": (by_torch, by_linear(*["out_proj"] * 4)[1]),
    "keras": by_einsum("/"),
    "flax": by_einsum("."),
    "labml": by_linear("query.linear", "key.linear", "value.linear", "output"),
    "bert": by_linear("self.query", "self.key", "self.value", "output.dense"),
    "gpt2": (by_gpt2, gpt2_end),
    "gpt2_cross": (by_gpt2_cross, gpt2_end),
    "fused_3hd": (by_timm, by_linear(*["proj"] * 4)[1]),
    "fused_h3d": (by_bloom, by_linear(*["dense"] * 4)[1]),
}


@ALL
def test_the_arrays_do_in_their_framework_what_our_layer_does(name):
    module, mask = make(BatchedMHA), random_mask(B, T, S)
    arrays = convert(module, name)
    project, finish = NATIVE[name]
    query, key, value = inputs()
    q, k, v = project(arrays, query, key, value)
    scores = torch.einsum("bthd,bshd->bhts", q, k) / D**0.5
    scores = scores.masked_fill(~mask[:, None], -torch.inf)
    weights = scores.softmax(-1).nan_to_num()  # a row without keys: zeros
    output = finish(arrays, torch.einsum("bhts,bshd->bthd", weights, v))
    ours = call(module, query, key, value, mask)
    assert_close((output, weights), ours)  # float64: 1e-7, mistakes are above 0.1


@PAIRS
def test_every_pair_of_formats_keeps_every_bit(one, other):
    weights = weights_of()
    arrays = FORMATS[one].write(weights)
    there = FORMATS[other].write(FORMATS[one].read(arrays, H))
    back = FORMATS[one].write(FORMATS[other].read(there, H))
    assert_equal(FORMATS[other].read(there, H), weights)
    assert back.keys() == arrays.keys()
    assert all(torch.equal(back[name], x) for name, x in arrays.items())


@ALL
def test_biases_are_absent_or_zero(name):
    """Who can do without, does; who cannot, gets zeros."""
    weights, format = weights_of(bias=False), FORMATS[name]
    arrays = format.write(weights)
    always = {"bert": 4, "gpt2": 2, "gpt2_cross": 3, "labml": 2}
    biases = [x for array, x in arrays.items() if "bias" in array]
    assert len(biases) == always.get(name, 0)
    assert not any(x.any() for x in biases)
    again = format.read(arrays, H)
    assert torch.equal(again.v.weight, weights.v.weight)


@ALL
def test_some_biases_bring_those_that_belong_to_them(name):
    weights = weights_of(bias=False)
    weights = replace(weights, v=replace(weights.v, bias=draw(E)))
    again = FORMATS[name].read(FORMATS[name].write(weights), H)
    assert torch.equal(again.v.bias, weights.v.bias)
    for x in (again.q.bias, again.k.bias, again.out.bias):
        assert x is None or not x.any()
    alone = {"separate": 1, "labml": 2, "fused_3hd": 3, "fused_h3d": 3}
    assert sum(x is not None for x in again.biases) == alone.get(name, 4)


@ALL
def test_written_tensors_are_new_and_contiguous(name):
    weights = weights_of()
    arrays = FORMATS[name].write(weights)
    old = {x.data_ptr() for x in weights.parts.values() if x is not None}
    new = {x.untyped_storage().data_ptr() for x in arrays.values()}
    assert len(new) == len(arrays) and not old & new
    assert all(x.is_contiguous() and x.dtype == torch.float64 for x in arrays.values())


@ALL
def test_names_outside_the_prefix_are_left_alone(name):
    weights, format = weights_of(), FORMATS[name]
    arrays = format.write(weights, prefix="block.1.")
    assert all(x.startswith("block.1.") for x in arrays)
    arrays["block.10.c_attn.weight"] = torch.zeros(1, dtype=torch.int8)
    assert_equal(format.read(arrays, H, prefix="block.1."), weights)


def test_the_rows_of_the_two_fused_formats_by_hand():
    """H = 2, D = 1: rows 0 to 5 are q0 q1 k0 k1 v0 v1, or q0 k0 v0 q1 k1 v1."""
    rows = torch.arange(6.0)
    out = torch.zeros(2, 2)
    arrays = {"qkv.weight": torch.stack([rows, rows], 1), "proj.weight": out}
    read = FORMATS["fused_3hd"].read(arrays, 2)
    assert read.k.weight[:, 0].tolist() == [2, 3]
    names = {"qkv": "query_key_value", "proj": "dense"}
    arrays = {f"{names[x[:-7]]}.weight": array for x, array in arrays.items()}
    read = FORMATS["fused_h3d"].read(arrays, 2)
    assert read.q.weight[:, 0].tolist() == [0, 3]
    assert read.k.weight[:, 0].tolist() == [1, 4]
    written = FORMATS["fused_3hd"].write(read)["qkv.weight"]
    assert written[:, 0].tolist() == [0, 3, 1, 4, 2, 5]


def test_gpt_neox_reads_its_rows_head_by_head():
    """The installed class; a rotation by an angle of 0 turns its rotary part off."""
    from transformers import GPTNeoXConfig
    from transformers.models.gpt_neox.modeling_gpt_neox import GPTNeoXAttention

    config = GPTNeoXConfig(hidden_size=E, num_attention_heads=H)
    config._attn_implementation = "eager"
    theirs = GPTNeoXAttention(config).double().eval()
    torch.nn.init.normal_(theirs.query_key_value.bias)
    module = convert(theirs.state_dict(), FusedMHA, format="fused_h3d", num_heads=H)
    x, size = inputs()[0], theirs.rotary_ndims
    upright = torch.ones(1, T, size).double(), torch.zeros(1, T, size).double()
    output, weights = theirs(x, None, position_embeddings=upright)
    assert_close(module(x), (output, weights))


# --- arrays that are not torch's --------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, lambda x: x.tolist()])
def test_arrays_may_be_numpys_or_lists(kind):
    weights = weights_of()
    arrays = {name: kind(x) for name, x in FORMATS["keras"].write(weights).items()}
    assert_equal(FORMATS["keras"].read(arrays), weights)


def test_arrays_may_be_jaxs_in_bfloat16():
    import jax

    expected = FORMATS["flax"].write(weights_of())
    arrays = {
        name: jax.numpy.asarray(x.float().numpy()).astype("bfloat16")
        for name, x in expected.items()
    }
    again = FORMATS["flax"].write(FORMATS["flax"].read(arrays))
    for name, x in again.items():
        assert torch.equal(x, expected[name].float().bfloat16())


def test_reading_keeps_no_history_and_no_copy():
    arrays = FORMATS["torch"].write(weights_of())
    arrays = {name: x.requires_grad_() for name, x in arrays.items()}
    weights = FORMATS["torch"].read(arrays, H)
    assert not weights.q.weight.requires_grad
    assert weights.q.weight.data_ptr() == arrays["in_proj_weight"].data_ptr()


# --- sizes ------------------------------------------------------------------------


def wide_weights(K=14, W=13, V=5, O=17) -> Weights:  # noqa: E741
    q = Projection(draw(E, E), draw(E))
    k, v = Projection(draw(E, K), draw(E)), Projection(draw(H * V, W), draw(H * V))
    return Weights(q, k, v, Projection(draw(O, H * V), draw(O)), H)


def narrow_weights() -> Weights:
    """Two heads of 4 for a width of 9, without biases."""
    inner = Projection(draw(8, 9), None)
    return Weights(inner, inner, inner, Projection(draw(9, 8), None), H)


def test_keras_holds_every_size():
    weights, format = wide_weights(), FORMATS["keras"]
    arrays = format.write(weights)
    assert tuple(arrays["key/kernel"].shape) == (14, H, D)
    assert tuple(arrays["value/kernel"].shape) == (13, H, 5)
    assert tuple(arrays["attention_output/kernel"].shape) == (H, 5, 17)
    assert_equal(format.read(arrays), weights)
    assert format.read(arrays).sizes == weights.sizes
    said = {"H": H, "D": D, "V": 5, "E": E, "K": 14, "W": 13, "O": 17}
    assert weights.sizes == said


def test_flax_holds_one_other_width_and_another_output():
    weights = wide_weights(W=14, V=D)
    assert_equal(FORMATS["flax"].read(FORMATS["flax"].write(weights)), weights)


def test_torch_holds_further_tokens():
    weights = replace(weights_of(), bias_k=draw(E), bias_v=draw(E, seed=8))
    for name in ("torch", "torch_separate"):
        arrays = FORMATS[name].write(replace(weights, add_zero_attn=True))
        assert tuple(arrays["bias_v"].shape) == (1, 1, E)
        assert_equal(FORMATS[name].read(arrays, H), weights)


_KERAS = FORMATS["keras"]
ROOMY = Format(  # holds whatever `Weights` can hold in arrays
    "roomy",
    _KERAS.arrays
    | {"bias_k": "bias_k: (H D) -> (H D)", "bias_v": "bias_v: (H V) -> (H V)"},
    optional=(*_KERAS.optional, ("bias_k", "bias_v")),
    square=False,
)


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (
            wide_weights(V=D, O=E),
            "format 'torch': Wk must be (H·D, E) = (22, 22); got (22, 14); "
            "torch_separate, keras could",
        ),
        (
            wide_weights(K=E, W=E, O=E),
            "format 'torch': Wv must be (H·D, E) = (22, 22); got (10, 22); keras could",
        ),
        (
            replace(weights_of(), bias_k=draw(E), bias_v=draw(E)),
            "format 'gpt2' has no place for bias_k; torch, torch_separate could",
        ),
        (
            replace(wide_weights(), bias_k=draw(E), bias_v=draw(H * 5)),
            "format 'keras' has no place for bias_k; no format could",
        ),
        (
            narrow_weights(),
            "format 'bert' must have H·D = E; got 2·4 and E = 9; keras, flax could",
        ),
    ],
)
def test_what_a_format_cannot_hold_is_said_with_who_can(weights, said):
    name = said.split("'")[1]
    with pytest.raises(ValueError) as caught:
        convert(ROOMY.write(weights), name, format=ROOMY, num_heads=H)
    assert str(caught.value) == said
    with pytest.raises(ValueError) as caught:
        FORMATS[name].write(weights)
    assert str(caught.value) == said.rpartition(";")[0]  # a format knows itself alone


def test_add_zero_attn_is_refused_where_no_format_has_it():
    module = MultiheadAttention(E, H, add_zero_attn=True)
    said = "^format 'gpt2' has no add_zero_attn; torch, torch_separate could$"
    with pytest.raises(ValueError, match=said):
        convert(module, "gpt2")


# --- what does not fit ------------------------------------------------------------


def arrays_of(name: str, **changes) -> dict[str, Tensor]:
    """The format's arrays, some of them changed, or left out by None."""
    arrays = FORMATS[name].write(weights_of()) | changes
    return {key: x for key, x in arrays.items() if x is not None}


def refusal(name: str, arrays: dict, num_heads=H, **options) -> str:
    with pytest.raises(ValueError) as caught:
        FORMATS[name].read(arrays, num_heads, **options)
    return str(caught.value)


def test_a_missing_name_is_said_with_its_shape():
    arrays = arrays_of("torch", in_proj_bias=None)
    assert refusal("torch", arrays, prefix="") == (
        "format 'torch' expects other names; missing: in_proj_bias (3·H·D,) = (66,)"
    )
    arrays = {"attn.out.kernel": torch.zeros(H, D, E)}
    assert refusal("flax", arrays, None, prefix="attn.") == (
        "format 'flax' expects other names; missing: attn.query.kernel (E, H, D) "
        "with H = 2, D = 11, attn.key.kernel (K, H, D) with H = 2, D = 11, "
        "attn.value.kernel (K, H, D) with H = 2, D = 11"
    )


def test_a_name_that_is_not_known_is_said_with_its_shape():
    arrays = arrays_of("gpt2", **{"q_norm.weight": torch.zeros(D)})
    assert refusal("gpt2", arrays) == (
        "format 'gpt2' expects other names; not known: q_norm.weight (11,)"
    )


def test_names_of_another_format_are_recognised():
    arrays = arrays_of("bert")
    with pytest.raises(OtherNamesError) as caught:
        convert(arrays, BatchedMHA, format="torch", num_heads=H)
    said = str(caught.value)
    assert said.startswith(
        "format 'torch' expects other names; missing: in_proj_weight (3·H·D, E) with "
        "H = 2, out_proj.weight (E, H·D) with H = 2; not known: self.query.weight"
    )
    assert said.endswith(
        "self.key.bias (22,) and 4 more; these are the names of format 'bert'"
    )
    assert refusal("torch", arrays) == said.rpartition(";")[0]
    assert set(caught.value.names) == set(arrays)


def test_names_of_no_format_stay_unknown():
    arrays = arrays_of("gpt2", **{"q_norm.weight": torch.zeros(D)})
    with pytest.raises(OtherNamesError, match=r"not known: q_norm.weight \(11,\)$"):
        convert(arrays, BatchedMHA, format="gpt2", num_heads=H)


def test_a_wrong_prefix_is_put_right():
    arrays = FORMATS["bert"].write(weights_of(), prefix="encoder.layer.0.attention.")
    arrays |= FORMATS["bert"].write(weights_of(), prefix="encoder.layer.1.attention.")
    for prefix in ("", "encoder.layer.0.", "layer.0.attention."):
        assert refusal("bert", arrays, prefix=prefix).endswith(
            "; prefixes with self.query.weight: 'encoder.layer.0.attention.', "
            "'encoder.layer.1.attention.'"
        )


def test_names_beside_attention_are_ignored_where_they_belong():
    norm = {f"output.LayerNorm.{x}": torch.ones(E) for x in ("gamma", "beta")}
    assert_equal(FORMATS["bert"].read(arrays_of("bert", **norm), H), weights_of())
    mask = {"bias": torch.ones(1, 1, T, T, dtype=torch.uint8)}
    assert_equal(FORMATS["gpt2"].read(arrays_of("gpt2", **mask), H), weights_of())
    assert "not known: bias (1, 1, 5, 5)" in refusal(
        "labml", arrays_of("labml", **mask)
    )


@pytest.mark.parametrize(
    ("name", "changed", "shape", "said"),
    [
        ("torch", "in_proj_weight", (65, E), "(3·H·D, E) with H = 2; got (65, 22)"),
        ("torch", "in_proj_weight", (0, E), "(3·H·D, E) with H = 2; got (0, 22)"),
        ("torch", "in_proj_weight", (3 * E,), "(3·H·D, E) with H = 2; got (66,)"),
        ("torch", "out_proj.weight", (21, E), "(E, H·D) = (22, 22); got (21, 22)"),
        ("torch", "out_proj.weight", (44, E), "(E, H·D) = (22, 22); got (44, 22)"),
        ("torch", "in_proj_bias", (0,), "(3·H·D,) = (66,); got (0,)"),
        (
            "keras",
            "key/kernel",
            (E, D, H),
            "(K, H, D) with H = 2, D = 11; got (22, 11,",
        ),
        ("gpt2", "c_attn.weight", (3 * E, E), "(E, 3·H·D) with H = 2; got (66, 22)"),
        ("bert", "self.key.weight", (E, 21), "(H·D, E) = (22, 22); got (22, 21)"),
    ],
)
def test_a_shape_that_does_not_fit_is_said(name, changed, shape, said):
    arrays = arrays_of(name, **{changed: torch.zeros(shape, dtype=torch.float64)})
    found = refusal(name, arrays)
    assert found.startswith(f"format '{name}': {changed} must be {said}")


def test_grouped_heads_are_recognised():
    arrays = arrays_of("separate", **{"k_proj.weight": draw(D, E)})
    assert refusal("separate", arrays).endswith(
        "k_proj.weight must be (H·D, E) = (22, 22); got (11, 22). Grouped heads (1 of "
        "keys for 2 of queries) fit no format: repeat the rows of each first"
    )
    scalar = arrays_of("separate", **{"v_proj.bias": draw(1)[0]})
    assert refusal("separate", scalar).endswith("(H·D,) = (22,); got ()")


def test_heads_that_do_not_fill_the_width_are_refused():
    arrays = {"qkv.weight": draw(3 * 8, 9), "proj.weight": draw(9, 8)}
    said = "format 'fused_3hd' must have H·D = E; got 2·4 and E = 9"
    assert refusal("fused_3hd", arrays) == said


def test_the_number_of_heads_is_asked_for_where_shapes_do_not_tell_it():
    said = "requires num_heads, which its shapes do not tell; got None"
    assert refusal("torch", arrays_of("torch"), None) == f"format 'torch' {said}"
    for came in (0, "2", 2.0):
        said = f"num_heads must be a whole number of at least 1; got {came!r}"
        assert refusal("torch", arrays_of("torch"), came) == said
    assert "= (22, 4, 11)" not in refusal("keras", arrays_of("keras"), 4)
    assert FORMATS["flax"].read(arrays_of("flax")).num_heads == H


def test_one_dtype_and_floating_point():
    arrays = arrays_of("torch", in_proj_bias=torch.zeros(3 * E))
    assert refusal("torch", arrays) == (
        "all arrays must share one dtype and device; got torch.float64 on cpu for "
        "in_proj_weight, torch.float32 on cpu for in_proj_bias"
    )
    arrays = arrays_of("torch", in_proj_weight=torch.zeros(3 * E, E, dtype=torch.int8))
    assert refusal("torch", arrays) == (
        "in_proj_weight must hold floating-point numbers; got torch.int8"
    )


# --- formats of one's own ---------------------------------------------------------


def test_a_format_under_other_names():
    format = FORMATS["fused_3hd"].renamed({"qkv": "attn.Wqkv"})
    arrays = format.write(weights_of())
    names = ["attn.Wqkv.weight", "attn.Wqkv.bias", "proj.weight", "proj.bias"]
    assert list(arrays) == names
    assert_equal(format.read(arrays, H), weights_of())
    assert format.optional == (("attn.Wqkv.bias",), ("proj.bias",))
    with pytest.raises(ValueError, match="has the stems qkv, proj; got qvk"):
        FORMATS["fused_3hd"].renamed({"qvk": "Wqkv"})


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("Wq Wz: 2 (H D) E -> (2 H D) E", "with parts out of Wq bq .*; got 'Wq Wz"),
        ("Wq: (H D) E", "must read 'parts: our axes -> stored axes'"),
        ("Wq: (H D) E -> D E", "must have the same axes"),
        ("Wq Wk: 3 (H D) E -> 3 H D E", "several parts a first axis with their num"),
    ],
)
def test_a_line_that_cannot_be_read_is_refused(line, said):
    with pytest.raises(ValueError, match=said):
        Format("mine", {"weight": line})


def test_a_format_that_cannot_be_solved_says_what_it_wants():
    lines = {"w": "Wq Wk Wv: 3 (H D) E -> (3 H D) E", "o": "Wo: E (H D) -> H D E"}
    arrays = {"w": draw(3 * E, E), "o": draw(H, D, E)}
    format = Format("mine", lines)
    assert format.read(arrays, H).num_heads == H
    with pytest.raises(ValueError, match="w must be .3·H·D, E.; got .66, 22."):
        format.read(arrays)
