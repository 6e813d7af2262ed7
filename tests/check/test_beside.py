"""Weights find their way into a student's module, and it is given back as it was."""

import copy
import functools
import re
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.nn as nn

from mha_lib.check import TASKS, beside, check, conclude, diagnose
from mha_lib.check.beside.find import _by_shape, places_of
from mha_lib.check.beside.load import _keeps_out_in
from mha_lib.check.beside.making import axes_of, construct, roles_of
from tests.check.submissions_right import (
    HEAD_COUNTS,
    Annotated,
    AsModule,
    BareCubes,
    Conv1D,
    FusedHeadByHead,
    Lazy,
    Listed,
    ManyHeads,
    Projects,
    Returns,
    StackedMixed,
    counted,
    cuts,
    normed,
    of,
)
from tests.check.submissions_wrong import Base
from tests.check.unusual.layers import (
    Cubes,
    DictionaryOfHeads,
    HeadThenKind,
    Koepfe,
    OfConfig,
    OneCube,
    ThreeOfHeads,
)


class Renamed(nn.Module):
    """Right, with names that say nothing and inputs that do."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.h = num_heads
        self.a, self.b2, self.c2, self.d2 = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            f(x).unflatten(-1, (self.h, -1)).transpose(1, 2)
            for f, x in ((self.c2, query), (self.a, key), (self.b2, value))
        )
        s = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -torch.inf)
        return self.d2((s.softmax(-1) @ v).transpose(1, 2).flatten(2))


class OneInput(Renamed):
    """Nothing tells which layer is which: all three see the query."""

    def forward(self, query, key, value, mask=None):
        return super().forward(query, query, query, None)


def test_layers_are_found_by_name():
    four = places_of(Base(6, 2))
    assert four == {"q": ["w_q"], "k": ["w_k"], "v": ["w_v"], "o": ["w_o"]}
    assert places_of(FusedHeadByHead(6, 2)) == {"qkv": ["qkv"], "o": ["proj"]}
    heads = places_of(ManyHeads(6, 2))
    assert heads["q"] == ["heads.0.query", "heads.1.query"]
    fused = places_of(nn.MultiheadAttention(6, 2))
    assert fused == {"qkv": ["in_proj_weight"], "o": ["out_proj"]}


def test_layers_without_names_are_found_by_what_flows_in():
    assert check(Renamed, "mha")
    assert check(Renamed(14, 2), "mha")


def test_a_mapping_says_where_layers_are():
    layers = {"q": "c2", "k": "a", "v": "b2", "o": "d2"}
    assert check(Renamed, "mha", layers=layers)
    swapped = layers | {"q": "a", "k": "c2"}
    assert diagnose(Renamed, "mha", layers=swapped).mistakes == ["wq-wk-swapped"]


def test_advice_where_layers_cannot_be_told():
    text = repr(check(OneInput, "mha"))
    assert "found a, b2, c2, d2. Say which is which with layers=" in text
    text = repr(check(Renamed, "mha", layers={"q": "nowhere"}))
    assert "layers names 'nowhere'; your module has a, b2, c2, d2" in text
    text = repr(check(nn.Linear(4, 4), "mha"))
    assert "the number of heads must be known" in text
    text = repr(check(nn.Linear(4, 4), "mha", num_heads=2))
    assert "found weight. Say which is which" in text


def test_letters_that_tell_another_order_are_asked_for():
    layer = cuts("3hd", "kqv", "proj")  # its rows lie as q, k, v all the same
    text = repr(check(layer, "mha"))
    assert "found kqv, proj. Say which is which with layers=" in text
    assert '"kqv" if its rows lie in that order' in text
    assert check(layer, "mha", layers={"qkv": "kqv", "o": "proj"})
    found = diagnose(layer, "mha", layers={"kqv": "kqv", "o": "proj"})
    assert found.mistakes == ["wq-wk-swapped"]
    text = repr(check(layer, "mha", layers={"qq": "kqv", "o": "proj"}))
    assert "layers names 'qq'" in text


def old_weight_norm(self, width, out):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated
        return nn.utils.weight_norm(nn.Linear(width, out))


def spectral(self, width, out):
    return nn.utils.parametrizations.spectral_norm(nn.Linear(width, out))


@pytest.mark.parametrize("layer", [old_weight_norm, spectral])
def test_weights_that_are_computed_are_no_fault(layer):
    found = diagnose(cuts("3hd", "qkv", "proj", layer=layer), "mha")
    assert (found.verdict, found.mistakes) == ("failed", [])
    assert found.error.startswith("qkv computes its weights from others")


def test_a_dictionary_must_tell_its_output():
    layer = type("Layer", (Returns,), {"answer": lambda self, *x: dict(zip("ab", x))})
    words = "which of a, b is the output? Call it output"
    assert words in diagnose(layer, "mha").error


@pytest.mark.long
@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "layer",
    [
        cuts("hd3"),
        cuts("h3d", "c_attn", "c_proj", layer=of(Conv1D)),
        cuts("3hd", "qkv", "proj", layer=normed),
        StackedMixed,
        Listed,
    ],
)
def test_a_mistake_is_named_wherever_the_weights_lie(layer):
    class NoScale(layer):
        def attended(self, q, k, v, mask):
            return super().attended(q * q.shape[-1] ** 0.5, k, v, mask)

    found = diagnose(NoScale, "mha", seed=3)
    assert found.mistakes == ["no-scale"]
    assert found.properties["gradients"] and found.properties["any_device"]


def test_a_partial_that_cannot_be_made_is_a_sentence():
    found = diagnose(functools.partial(Renamed, 15, heads=3), "mha")
    assert found.error.startswith("Renamed() could not be made: TypeError")
    (outcome, *_) = beside.run(functools.partial(Renamed, 15), TASKS["mha"].probes(0))
    assert outcome["code"] == "not-made" and "num_heads" in outcome["error"]


def test_a_class_that_wants_more_than_sizes_is_told_so():
    class Odd(Renamed):
        def __init__(self, embed_dim, num_heads, tokenizer):
            super().__init__(embed_dim, num_heads)

    text = repr(check(Odd, "mha"))
    assert "Odd must be made as Odd(embed_dim, num_heads); it also wants 'tok" in text

    class Broken(Renamed):
        def __init__(self, embed_dim, num_heads):
            raise RuntimeError("no heads today")

    text = repr(check(Broken, "mha"))
    E, H = (TASKS["mha"].probes()[0]["sizes"][x] for x in "EH")
    asked = f"Broken(embed_dim={E}, num_heads={H})"
    assert f"{asked} could not be made: RuntimeError" in text


def test_a_module_is_given_back_as_it_was():
    torch.manual_seed(0)
    module = Annotated(2, 22, dropout=0.2)
    module(torch.randn(1, 3, 22), *torch.randn(2, 1, 4, 22))  # leaves a map behind
    before = copy.deepcopy(module.state_dict())
    parameters, attn = list(module.parameters()), module.attn
    assert check(module, "mha")
    assert all(a is b for a, b in zip(parameters, module.parameters()))
    for name, x in module.state_dict().items():
        assert torch.equal(x, before[name])
    assert module.training and module.dropout.p == 0.2 and module.attn is attn


def test_random_numbers_of_the_notebook_go_on_as_if_nothing_happened():
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    check(Renamed, "mha")
    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_module_is_asked_in_its_own_dtype(dtype):
    module = Renamed(14, 2).to(dtype)
    found = diagnose(module, "mha")
    assert found.verdict == "right" and found.properties["output_dtype"]


def test_outcomes_are_plain_data():
    probes = TASKS["mha"].probes(0)
    for outcome in beside.run(BareCubes, probes):
        for name, x in outcome.get("outputs", {}).items():
            assert name in ("output", "weights") and type(x) is torch.Tensor
            assert not x.requires_grad


ORDER = ("words", "observe", "ways", "find", "load", "making", "driven", "unfinished")
ORDER += ("run",)


def test_what_runs_beside_a_submission_imports_in_one_direction_and_no_more_of_ours():
    folder = Path(beside.__file__).parent
    assert {path.stem for path in folder.glob("*.py")} == {"__init__", *ORDER}
    for place, name in enumerate(ORDER):
        source = (folder / f"{name}.py").read_text(encoding="utf-8")
        assert "mha_lib" not in re.findall(r"(?:from|import) (\w+)", source)
        assert {*re.findall(r"from \.(\w*)", source)} <= {*ORDER[:place]}


# --- modules ------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", HEAD_COUNTS.split())
def test_the_number_of_heads_has_many_names(name):
    layer = counted(name)
    assert diagnose(layer, "mha").verdict == "right"
    assert beside.sizes(layer(12, **{name: 3})) == (12, 3)


class Merge(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("num_heads", [None, 3])
@pytest.mark.parametrize(
    "module, task", [(AsModule(), "attention"), (Merge(), "merge_heads")]
)
def test_a_module_without_weights_is_asked_as_a_function(module, task, num_heads):
    assert diagnose(module, task, num_heads=num_heads).verdict == "right"


def test_a_lazy_module_has_to_be_called_once():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = Lazy(16, 2)
    words = "call your module once before it is checked: it has lazy layers"
    assert diagnose(module, "mha", num_heads=2).error == words
    module(*torch.randn(3, 2, 5, 16))
    assert diagnose(module, "mha", num_heads=2).verdict == "right"


def test_so_has_one_that_is_asked_as_a_function():
    class Learned(nn.Module):
        """An attention of features that it turns first, of a width yet unknown."""

        def __init__(self):
            super().__init__()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.turn = nn.LazyLinear(4)

        def forward(self, q, k, v, mask=None):
            return AsModule()(self.turn(q), self.turn(k), v, mask)

    words = "call your module once before it is checked: it has lazy layers"
    assert words in repr(check(Learned(), "attention"))


@pytest.mark.parametrize("num_heads", [-2, 0, 17])
def test_a_number_of_heads_that_cannot_be_is_a_sentence(num_heads):
    words = f"the number of heads must be from 1 to 16, the width; got {num_heads}"
    assert diagnose(Projects(16, 2), "mha", num_heads=num_heads).error == words


# --- where sizes stand, and what is kept head by head --------------------------------


def made(source):
    names = {}
    exec(f"class Made:\n def __init__(self, {source}): pass", names)
    return names["Made"]


@pytest.mark.parametrize(
    ("source", "roles"),
    [
        ("num_units, num_heads", {"num_units": "E", "num_heads": "H"}),
        ("C, N", {"C": "E", "N": "H"}),
        ("h, n", {"h": "E", "n": "H"}),  # what is hidden, and a number
        ("h, d", {"h": "H", "d": "E"}),  # both are told
        ("h, d_model", {"h": "H", "d_model": "E"}),
        ("n_heads, C", {"n_heads": "H", "C": "E"}),
        ("channels, num_blocks", {"channels": "E", "num_blocks": "H"}),
        ("units=512, parts=8", {"units": "E", "parts": "H"}),
        ("width, parts=8, causal=False", {"width": "E", "parts": "H"}),
        ("d_model, d_k", {"d_model": "E", "d_k": "D"}),
        ("*sizes", {"sizes": "EH"}),
        ("breite, *rest", {"breite": "E", "rest": "H"}),
        ("width, *rest", {"width": "E", "rest": "H"}),
        ("embed_dim, num_heads, *rest", {"embed_dim": "E", "num_heads": "H"}),
        ("cfg", {}),
    ],
)
def test_sizes_are_told_by_name_or_by_place(source, roles):
    assert roles_of(made(source)) == roles


def test_a_class_of_a_config_is_told_how_it_must_be_made():
    words = "OfConfig must be made as OfConfig(embed_dim, num_heads); it also wants"
    assert diagnose(OfConfig, "mha").error.startswith(words)


@pytest.mark.parametrize("config", [{"n_head": 3}, SimpleNamespace(n_head=3)])
def test_a_config_may_know_the_number_of_heads(config):
    layer = Koepfe(15, 3)
    layer.config, layer.kind = config, Koepfe
    assert beside.sizes(layer) == (15, 3)
    layer.num_heads = 5  # its own number is believed first
    assert beside.sizes(layer) == (15, 5)


def test_the_axes_of_cubes_are_read_off_a_layer_of_other_sizes():
    (probe, *_) = TASKS["mha"].probes(0)
    assert axes_of(OneCube, probe) == {"W": "ehnd", "U": "hde"}
    assert axes_of(Lazy, probe) == axes_of(AsModule, probe) == {}

    class OneSizeOnly(OneCube):
        def __init__(self, embed_dim, num_heads):
            if embed_dim != probe["sizes"]["E"]:
                raise ValueError("not that size")
            super().__init__(embed_dim, num_heads)

    assert axes_of(OneSizeOnly, probe) == {}
    assert axes_of(lambda embed_dim, num_heads: None, probe) == {}


@pytest.mark.long
@pytest.mark.sweep(2)
@pytest.mark.parametrize("E, H", [(16, 2), (15, 3), (12, 4)])
@pytest.mark.parametrize("layer", [OneCube, HeadThenKind, ThreeOfHeads, Cubes])
def test_cubes_of_a_module_are_found_by_their_sizes(layer, E, H):
    assert beside.sizes(layer(E, H), H) == (E, H)
    assert diagnose(layer(E, H), "mha", num_heads=H).verdict == "right"


@pytest.mark.parametrize("layer", [OneCube, HeadThenKind])
def test_a_mistake_is_named_in_cubes(layer):
    class Turned(layer):
        def forward(self, query, key, value, mask=None):
            mask = None if mask is None else ~mask
            return super().forward(query, key, value, mask)

    assert diagnose(Turned, "mha").mistakes == ["mask-inverted"]


def test_a_cube_of_another_shape_is_a_sentence():
    class Wide(OneCube):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            self.U = nn.Parameter(torch.zeros(num_heads, embed_dim, embed_dim))

    layers = {"qkv": "W", "o": "U"}
    words = "`U` must have the shape (H, D, E) = (3, 5, 15); yours has (3, 15, 15)"
    words += ". Here 3 is H, 5 is D, 15 is E."
    assert diagnose(Wide, "mha", layers=layers).error == words


def test_a_stack_of_another_shape_is_a_sentence():
    class HeadByHead(nn.Module):
        """One matrix a head, in which q, k and v stand side by side."""

        def __init__(self, embed_dim, num_heads):
            super().__init__()
            width = 3 * embed_dim // num_heads
            self.qkv = nn.Parameter(torch.randn(num_heads, embed_dim, width))
            self.out_proj = nn.Linear(embed_dim, embed_dim)

        def forward(self, query, key, value, mask=None):
            matrices = self.qkv.chunk(3, -1)
            q, k, v = (x[:, None] @ W for x, W in zip((query, key, value), matrices))
            seen = None if mask is None else mask[:, None]
            context = nn.functional.scaled_dot_product_attention(q, k, v, seen)
            return self.out_proj(context.transpose(1, 2).flatten(2))

    words = "`qkv` must have the shape (3, E, E) = (3, 24, 24); yours has (4, 24, 18)"
    assert words in repr(check(HeadByHead, "mha"))


def test_heads_are_counted_anew_for_each_probe():
    probes = TASKS["mha"].probes(0)[:1]
    for E, H in ((6, 1), (22, 11), (8, 2)):
        probes += TASKS["mha"].probes(0, embed_dim=E, num_heads=H)[:4]
    for order in (probes, probes[::-1], probes[1:]):
        for layer in (ManyHeads, DictionaryOfHeads, Annotated, OneCube):
            assert conclude("mha", order, beside.run(layer, order)).verdict == "right"


@pytest.mark.parametrize(("asked", "given"), [({}, 0.5), ({"dropout": None}, 0.1)])
def test_a_dropout_of_none_leaves_a_class_its_own(asked, given):
    (probe, *_) = TASKS["mha"].probes(0)
    layer = construct(Annotated, probe | {"options": asked})
    assert layer.dropout.p == given


class KeysAndValues(HeadThenKind):
    """One parameter (2, H, D, E) for two parts."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        W, b = self.W_in.movedim(1, 0), self.b_in.movedim(1, 0)
        self.W_q, self.b_q = nn.Parameter(W[0].clone()), nn.Parameter(b[0].clone())
        self.W_kv, self.b_kv = nn.Parameter(W[1:].clone()), nn.Parameter(b[1:].clone())
        del self.W_in, self.b_in

    def forward(self, query, key, value, mask=None):
        self.W = torch.cat([self.W_q[None], self.W_kv])
        self.b = torch.cat([self.b_q[None], self.b_kv])
        q, k, v = (
            torch.einsum("bte,hde->bhtd", x, W) + b.unsqueeze(1)
            for x, W, b in zip((query, key, value), self.W, self.b)
        )
        seen = None if mask is None else mask[:, None]
        context = nn.functional.scaled_dot_product_attention(q, k, v, seen)
        return nn.functional.linear(
            context.transpose(1, 2).flatten(2), self.W_out, self.b_out
        )


def test_one_cube_may_hold_two_parts():
    assert diagnose(KeysAndValues, "mha").verdict == "right"


class Hidden(nn.Module):
    """Matrices where torch does not look, beside a list of numbers."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads, self.sizes = num_heads, [embed_dim, num_heads]
        self.matrices = [nn.Parameter(torch.eye(embed_dim)) for _ in range(4)]

    def forward(self, query, key, value, mask=None):
        return query


def test_matrices_in_a_plain_list_are_told_how_to_be_kept():
    text = repr(check(Hidden, "mha"))
    assert "self.matrices is a plain list" in text
    assert "Make it nn.ParameterList([…])" in text


def test_a_matrix_is_no_fused_one_where_a_part_of_it_is_known():
    module = nn.Module()
    module.three = nn.Linear(5, 15)
    assert _by_shape(module, ["three"], {}) == {"qkv": ["three"]}
    assert _by_shape(module, ["three"], {"q": ["two"]}) == {}


def test_which_way_a_matrix_is_kept_is_seen_where_it_is_called_as_a_layer():
    child = Turned()
    assert _keeps_out_in(child) is False
    child.forward = None  # called otherwise, if at all
    assert _keeps_out_in(child) is None


class Turned(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))

    def forward(self, x):
        return x @ self.weight


def test_a_partial_without_sizes_is_still_to_be_made():
    made = functools.partial(Base, num_heads=2)
    assert beside.unwrapped(made) is made
    assert isinstance(beside.unwrapped(functools.partial(Base, 6, 2)), Base)
