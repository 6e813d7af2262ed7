"""Run torch's own tests of nn.MultiheadAttention on our layer.

    python -m tests.oracles.torch_suite test_multihead_attention.py

The file is `test/nn/test_multihead_attention.py` of torch's sources; it is not part of
what pip installs. tests/oracles/README.md says how to fetch it, and what passes.

It is run twice: as it is, and with ours in place of the class
`torch.nn.MultiheadAttention` *and* of the function that most of its tests call,
`torch.nn.functional.multi_head_attention_forward`.
"""

import contextlib
import importlib.util
import sys
import unittest
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_lib import MultiheadAttention

CALLS = Counter()  # of our class and of our function

# What cannot pass, and why. Whatever else torch passes, ours has to.
CANNOT_PASS = {
    "two_masks_fast_path_mock": "it asserts that torch's fused kernel is called",
}


# --- ours, in place of the function ---------------------------------------------


class GivenProjections(MultiheadAttention):
    """The drop-in with torch's empty rows; keys and values may come projected."""

    torch_empty_rows = True
    static_k: Tensor | None = None  # (B·H, S, D)
    static_v: Tensor | None = None

    def _project(self, inputs: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, ...]:
        projected = list(super()._project(inputs))
        for i, static in ((1, self.static_k), (2, self.static_v)):
            if static is not None:
                x = static.unflatten(0, (-1, self.num_heads))  # (B, H, S, D)
                x = x.permute(2, 0, 1, 3).flatten(2)  # (S, B, E)
                projected[i] = x if inputs[0].dim() == 3 else x[:, 0]
        return tuple(projected)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The function of that name in torch.nn.functional, by our layer.

    The layer is made without memory of its own and called with the given tensors.
    """
    CALLS["function"] += 1
    if bias_k is not None and not (static_k is None and static_v is None):
        raise AssertionError("bias cannot be added to static key.")  # as torch has it
    widths = {}
    if use_separate_proj_weight:
        widths = {"kdim": k_proj_weight.shape[1], "vdim": v_proj_weight.shape[1]}
    layer = GivenProjections(
        embed_dim_to_check,
        num_heads,
        dropout_p,
        add_bias_kv=bias_k is not None,
        add_zero_attn=add_zero_attn,
        device="meta",
        **widths,
    ).train(training)
    layer.static_k, layer.static_v = static_k, static_v
    tensors = {
        "in_proj_bias": in_proj_bias,
        "bias_k": bias_k,
        "bias_v": bias_v,
        "out_proj.weight": out_proj_weight,
        "out_proj.bias": out_proj_bias,
    }
    separate = (q_proj_weight, k_proj_weight, v_proj_weight)
    if layer.in_proj_weight is None:
        tensors |= {f"{n}_proj_weight": x for n, x in zip("qkv", separate)}
    elif use_separate_proj_weight:  # three square ones
        tensors["in_proj_weight"] = torch.cat(separate)
    else:
        tensors["in_proj_weight"] = in_proj_weight
    if in_proj_bias is None:
        layer.in_proj_bias = None
    if out_proj_bias is None:
        layer.out_proj.bias = None
    return torch.func.functional_call(
        layer,
        {name: x for name, x in tensors.items() if x is not None},
        (query, key, value, key_padding_mask, need_weights, attn_mask),
        {"average_attn_weights": average_attn_weights, "is_causal": is_causal},
    )


# --- ours, in place of the class ------------------------------------------------


class InTorchsWords(MultiheadAttention):
    """The drop-in with torch's empty rows, refusing in torch's words.

    torch's tests ask for an AssertionError with a certain message. Where ours refuses
    too, torch's own check of the shapes is asked how it would have said it.
    """

    torch_empty_rows = True

    @property
    def _qkv_same_embed_dim(self) -> bool:  # torch's tests read it
        return self.in_proj_weight is not None

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        CALLS["class"] += 1
        try:
            return super().forward(
                query,
                key,
                value,
                key_padding_mask,
                need_weights,
                attn_mask,
                average_attn_weights,
                is_causal,
            )
        except (TypeError, ValueError):
            masks = (key_padding_mask, attn_mask)
            F._mha_shape_check(query, key, value, *masks, self.num_heads)
            raise


@contextlib.contextmanager
def ours_in_place_of_torchs() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for module in (torch.nn, torch.nn.modules, torch.nn.modules.activation):
            stack.enter_context(
                mock.patch.object(module, "MultiheadAttention", InTorchsWords)
            )
        for module, name, new in (
            (torch.nn.modules.transformer, "MultiheadAttention", InTorchsWords),
            (F, "multi_head_attention_forward", multi_head_attention_forward),
        ):
            stack.enter_context(mock.patch.object(module, name, new))
        yield


# --- running a file -------------------------------------------------------------


class Outcomes(unittest.TestResult):
    """Which test did what: {name: "passed", "failed" or "skipped"}, and why."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}
        self.why: dict[str, str] = {}

    def note(self, test: unittest.TestCase, outcome: str, why: str = "") -> None:
        name = test.id().rpartition(".")[2]
        self.found[name], self.why[name] = outcome, why

    def addSuccess(self, test):
        super().addSuccess(test)
        self.note(test, "passed")

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.note(test, "skipped", reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.note(test, "failed", f"{err[0].__name__}: {err[1]}")

    addError = addFailure


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(path: Path) -> Outcomes:
    """Import the file anew, so that it takes its names from torch as torch is now."""
    outcomes = Outcomes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own
        unittest.defaultTestLoader.loadTestsFromModule(load(path)).run(outcomes)
    return outcomes


def compare(path: Path) -> tuple[Outcomes, Outcomes]:
    """The outcomes with torch's layer and with ours; CALLS says how often it ran."""
    theirs = run(path)
    CALLS.clear()
    with ours_in_place_of_torchs():
        ours = run(path)
    return theirs, ours


def lost(theirs: Outcomes, ours: Outcomes) -> list[str]:
    """The tests that torch passes, ours does not, and nothing explains."""
    return [
        name
        for name, outcome in ours.found.items()
        if theirs.found[name] == "passed" != outcome
        and not any(part in name for part in CANNOT_PASS)
    ]


def report(theirs: Outcomes, ours: Outcomes) -> str:
    lines = [f"{'torch':8} {'ours':8}"]
    for name, outcome in sorted(ours.found.items()):
        lines.append(f"{theirs.found[name]:8} {outcome:8} {name}")
        if outcome == "failed":
            reasons = [why for part, why in CANNOT_PASS.items() if part in name]
            said = ours.why[name].strip().splitlines()[0]
            lines.append(f"{'':18}{reasons[0] if reasons else said}")
    for who, outcomes in (("torch", theirs), ("ours", ours)):
        counts = Counter(outcomes.found.values())
        counted = ", ".join(f"{counts[x]} {x}" for x in ("passed", "failed", "skipped"))
        lines.append(f"{who}: {counted}")
    lines.append(f"calls of our class: {CALLS['class']}, function: {CALLS['function']}")
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_file():
        print(__doc__.strip(), file=sys.stderr)
        return 2
    theirs, ours = compare(Path(arguments[0]))
    print(report(theirs, ours))
    return 1 if lost(theirs, ours) or not ours.found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
