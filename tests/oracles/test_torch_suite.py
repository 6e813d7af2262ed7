"""The tool that runs torch's own tests runs them on ours, and says what is lost."""

import inspect
from itertools import product
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close

from evidence.helpers import B, D, E, H, S, T
from tests.oracles import torch_suite

F64 = torch.float64
FILE = Path(__file__).with_name("torch_like.py")
THEIRS = F.multi_head_attention_forward
PASSED_BY_BOTH = [
    "test_an_empty_row_is_nan",
    "test_in_an_encoder",
    "test_refused",
    "test_the_function_need_weights_False",
    "test_the_function_need_weights_True",
]


@pytest.fixture(scope="module")
def outcomes():
    return torch_suite.compare(FILE)


@pytest.fixture(autouse=True)
def random_numbers():
    torch.manual_seed(1)


def tensor(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=F64).requires_grad_()


def hiding(*shape: int) -> Tensor:
    """Boolean, True = hidden, as torch has it; the first key is always seen."""
    mask = torch.rand(shape) < 0.4
    mask[..., 0] = False
    return mask


def test_each_test_ran_on_torchs_layer_and_on_ours(outcomes):
    theirs, ours = outcomes
    expected = dict.fromkeys(PASSED_BY_BOTH, "passed") | {
        "test_that_fails_in_torch_too": "failed",
        "test_for_another_device": "skipped",
    }
    only = {"test_two_masks_fast_path_mock", "test_that_no_other_layer_passes"}
    assert theirs.found == expected | dict.fromkeys(only, "passed")
    assert ours.found == expected | dict.fromkeys(only, "failed")
    assert torch_suite.lost(theirs, ours) == ["test_that_no_other_layer_passes"]


def test_ours_was_called_and_has_gone_again(outcomes):
    # two calls beside those of the function, and one in each of four other tests
    assert torch_suite.CALLS == {"class": 6, "function": 2}
    assert F.multi_head_attention_forward is THEIRS
    assert nn.MultiheadAttention is nn.modules.transformer.MultiheadAttention
    assert nn.MultiheadAttention is not torch_suite.InTorchsWords


def test_the_report(outcomes):
    lines = torch_suite.report(*outcomes).splitlines()
    assert "passed   passed   test_refused" in lines
    assert "skipped  skipped  test_for_another_device" in lines
    at = lines.index("passed   failed   test_two_masks_fast_path_mock")
    assert lines[at + 1].strip() == "it asserts that torch's fused kernel is called"
    at = lines.index("passed   failed   test_that_no_other_layer_passes")
    assert lines[at + 1].strip().startswith("AssertionError: ")
    assert lines[-3:] == [
        "torch: 7 passed, 1 failed, 1 skipped",
        "ours: 5 passed, 3 failed, 1 skipped",
        "calls of our class: 6, function: 2",
    ]


@pytest.mark.parametrize("arguments", [[], ["missing.py"], [str(FILE), str(FILE)]])
def test_how_to_call_it(arguments, capsys):
    assert torch_suite.main(arguments) == 2
    assert "python -m tests.oracles.torch_suite test_multihead_attention.py" in (
        capsys.readouterr().err
    )


def test_its_status_is_that_something_is_lost(capsys, monkeypatch):
    assert torch_suite.main([str(FILE)]) == 1
    assert "ours: 5 passed" in capsys.readouterr().out
    monkeypatch.setitem(torch_suite.CANNOT_PASS, "no_other_layer", "it is ours")
    assert torch_suite.main([str(FILE)]) == 0


def test_a_file_without_tests_passes_nothing(tmp_path, capsys):
    (tmp_path / "empty.py").touch()
    assert torch_suite.main([str(tmp_path / "empty.py")]) == 1


# --- the function ---------------------------------------------------------------


def test_the_function_has_torchs_parameters():
    ours, theirs = (
        inspect.signature(function).parameters.values()
        for function in (torch_suite.multi_head_attention_forward, THEIRS)
    )
    assert [(x.name, x.default) for x in ours] == [(x.name, x.default) for x in theirs]


def arguments(batched: bool, separate: str | None) -> dict:
    """Those of the function that have to be given."""
    kdim, vdim = {"wide": (9, 13)}.get(separate, (E, E))
    inputs = (tensor(T, B, E), tensor(S, B, kdim), tensor(S, B, vdim))
    query, key, value = inputs if batched else (x[:, 0] for x in inputs)
    given = {"query": query, "key": key, "value": value}
    given |= {"embed_dim_to_check": E, "num_heads": H}
    given |= {"in_proj_weight": None if separate else tensor(3 * E, E)}
    given |= {"in_proj_bias": tensor(3 * E), "bias_k": None, "bias_v": None}
    given |= {"add_zero_attn": False, "dropout_p": 0.0}
    given |= {"out_proj_weight": tensor(E, E), "out_proj_bias": tensor(E)}
    if separate:
        given |= {"use_separate_proj_weight": True}
        widths = {"q": E, "k": kdim, "v": vdim}
        given |= {f"{n}_proj_weight": tensor(E, width) for n, width in widths.items()}
    return given


def assert_same(given: dict) -> None:
    both = []
    for function in (torch_suite.multi_head_attention_forward, THEIRS):
        torch.manual_seed(3)
        both.append(function(**given))
    assert_close(*both)


@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("separate", [None, "square", "wide"])
@pytest.mark.parametrize(
    "without", ["nothing", "in_proj_bias", "out_proj_bias", "both"]
)
def test_the_function_by_our_layer(without, separate, batched):
    torch.manual_seed(1)
    given = arguments(batched, separate)
    for name in ("in_proj_bias", "out_proj_bias"):
        if without in (name, "both"):
            given[name] = None
    for need_weights, average in product((True, False), (True, False)):
        shown = {"need_weights": need_weights, "average_attn_weights": average}
        masks = {"key_padding_mask": hiding(B, S) if batched else hiding(S)}
        masks["attn_mask"] = hiding((B if batched else 1) * H, T, S)
        assert_same(given | shown | masks)


def test_its_other_options():
    torch.manual_seed(1)
    given = arguments(True, None)
    appended = {"bias_k": tensor(1, 1, E), "bias_v": tensor(1, 1, E)}
    assert_same(given | appended | {"add_zero_attn": True})
    assert_same(given | {"dropout_p": 0.5, "training": True})
    assert_same(given | {"dropout_p": 0.5, "training": False})
    causal = torch.ones(T, S, dtype=torch.bool).triu(1)
    assert_same(given | {"attn_mask": causal, "is_causal": True, "need_weights": False})


@pytest.mark.parametrize("batched", [True, False])
def test_keys_and_values_that_come_projected(batched):
    torch.manual_seed(1)
    given, sequences = arguments(batched, None), B if batched else 1
    static = {
        name: torch.randn(sequences * H, S, D, dtype=F64)
        for name in ("static_k", "static_v")
    }
    for names in (["static_k"], ["static_v"], ["static_k", "static_v"]):
        assert_same(given | {name: static[name] for name in names})
    appended = {"bias_k": tensor(1, 1, E), "bias_v": tensor(1, 1, E)}
    for name, x in static.items():
        for function in (torch_suite.multi_head_attention_forward, THEIRS):
            with pytest.raises(AssertionError, match="bias cannot be added to static"):
                function(**(given | appended | {name: x}))
