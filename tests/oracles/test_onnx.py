"""ONNX `Attention`: every case that the installed onnx makes for its own backends.

Specification: https://onnx.ai/onnx/operators/onnx__Attention.html, versions 23 to 25.
"""

import importlib
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from onnx import helper
from onnx.backend.test.case import node as onnx_node
from torch import Tensor
from torch.nn import functional as F

from evidence.oracles import COUNTS
from mha_lib import attention, combine_masks, masked_softmax, padding_mask
from mha_lib.layouts import merge_heads, split_heads
from tests.oracles.common import up_to

# onnx.backend.test.case.node.collect_testcases() imports the cases of all operators,
# which takes seconds and warns; importing one module fills the same list.
importlib.import_module("onnx.backend.test.case.node.attention")
CASES = [
    case
    for case in onnx_node._NodeTestCases
    if [node.op_type for node in case.model.graph.node] == ["Attention"]
]  # each has a twin "…_expanded": the same numbers, the operator spelt out in others

# What the numbers of the attribute `softmax_precision` stand for.
DTYPES = {1: torch.float32, 10: torch.float16, 11: torch.float64, 16: torch.bfloat16}

# Outputs and scores are of order 1, or exact. The specification scales
# q and k by √scale each, we scale q alone: the roundings are others, and the last digit
# differs. In float32 by 3e-7 at most. The half precisions keep 11 and 8 binary digits;
# of the last one we allow two: 2 · 2⁻¹⁰ (ONNX itself asks for 1e-3) and 2 · 2⁻⁷.
TOLERANCE = {
    torch.float32: {"rtol": 1e-6, "atol": 1e-6},
    torch.float16: {"rtol": 2 * 2**-10, "atol": 2**-14},
    torch.bfloat16: {"rtol": 2 * 2**-7, "atol": 2**-11},
}
EXACTLY = {"rtol": 0.0, "atol": 0.0}


# --- from ONNX to our names ---------------------------------------------------


def to_torch(array: np.ndarray) -> Tensor:
    """A tensor of the same numbers; numpy has no bfloat16 of its own."""
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def read(case) -> tuple[SimpleNamespace, SimpleNamespace, dict[str, Tensor]]:
    """Inputs (None where absent), attributes (ONNX' defaults) and expected outputs."""
    [node], [(arrays, expected)] = case.model.graph.node, case.data_sets
    inputs = dict.fromkeys(
        ("Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen")
    )
    options = {
        "is_causal": 0,
        "kv_num_heads": None,
        "left_window_size": -1,
        "q_num_heads": None,
        "qk_matmul_output_mode": 0,
        "right_window_size": -1,
        "scale": None,
        "softcap": 0.0,
        "softmax_precision": None,
    }
    given = dict(zip(filter(None, node.input), map(to_torch, arrays)))
    chosen = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    assert given.keys() <= inputs.keys() and chosen.keys() <= options.keys()
    wanted = dict(zip(filter(None, node.output), map(to_torch, expected)))
    return (
        SimpleNamespace(**inputs | given),
        SimpleNamespace(**options | chosen),
        wanted,
    )


def lengths(inputs) -> tuple[int, int]:
    """T and S, the cache included."""
    past = 0 if inputs.past_key is None else inputs.past_key.shape[2]
    return inputs.Q.shape[-2], past + inputs.K.shape[-2]


def position_masks(inputs, options) -> list[Tensor]:
    """What causality, the window and the lengths allow: (T, S) or (B, T, S) each."""
    (T, S), filled = lengths(inputs), inputs.nonpad_kv_seqlen
    masks, offsets = [], [0]  # the position of the first query, for each sequence
    if inputs.past_key is not None:
        offsets = [inputs.past_key.shape[2]]
    elif filled is not None:
        offsets = [length - T for length in filled.tolist()]
        masks.append(padding_mask(filled, S))

    def up_to_position_plus(distance: int) -> Tensor:
        return torch.stack([up_to(offset + distance, T, S) for offset in offsets])

    if options.is_causal:
        masks.append(up_to_position_plus(0))
    if options.right_window_size >= 0:
        masks.append(up_to_position_plus(options.right_window_size))
    if options.left_window_size >= 0:
        masks.append(~up_to_position_plus(-options.left_window_size - 1))
    return masks


def mask_and_bias(inputs, options) -> tuple[Tensor | None, Tensor | None]:
    """Our boolean mask, and what remains to be added to the scores, if anything."""
    masks, bias = position_masks(inputs, options), None
    given, S = inputs.attn_mask, lengths(inputs)[1]
    if given is not None:
        while given.dim() < 4:  # from the right, so rank 3 is (H, T, S), not (B, T, S)
            given = given[None]
        boolean = given.dtype == torch.bool
        missing = (0, S - given.shape[-1])
        given = F.pad(given, missing, value=False if boolean else -torch.inf)
        allowed = given if boolean else given > -torch.inf
        masks.append(allowed)
        if not boolean and given[allowed].any():
            bias = given.masked_fill(~allowed, 0.0)
    mask = combine_masks(*masks)
    if mask is not None and mask.dim() == 3:
        mask = mask[:, None]  # (B, 1, T, S): the same for all heads
    return mask, bias


def beyond_us(options) -> list[str]:
    """The arithmetic in this case that our `attention` does not have."""
    parts = {
        "soft cap": options.softcap > 0,
        "precision of the softmax": options.softmax_precision is not None,
    }
    return [name for name, present in parts.items() if present]


WHOLE = [case for case in CASES if not beyond_us(read(case)[1])]
IN_PARTS = [case for case in CASES if beyond_us(read(case)[1])]


# --- the operator -------------------------------------------------------------


def run(inputs, options, need_weights: bool = True) -> dict[str, Tensor | None]:
    """All outputs: by `attention`, or by explicit steps round our `masked_softmax`."""
    q, k, v = inputs.Q, inputs.K, inputs.V
    if q.dim() == 3:
        q = split_heads(q, options.q_num_heads)
        k, v = (split_heads(x, options.kv_num_heads) for x in (k, v))
    if inputs.past_key is not None:
        k = torch.cat((inputs.past_key, k), dim=2)
        v = torch.cat((inputs.past_value, v), dim=2)
    outputs = {"present_key": k, "present_value": v}
    H, D = q.shape[1], q.shape[3]
    # H/G query heads in a row share one key head. Ours wants a key for each.
    k, v = (x.repeat_interleave(H // x.shape[1], dim=1) for x in (k, v))

    mask, bias = mask_and_bias(inputs, options)
    scale = D**-0.5 if options.scale is None else options.scale
    product = (q * scale) @ k.transpose(-2, -1)
    capped = product
    if options.softcap:
        capped = options.softcap * torch.tanh(product / options.softcap)
    scores = capped if bias is None else capped + bias

    if beyond_us(options):
        precision = DTYPES.get(options.softmax_precision, q.dtype)
        weights = masked_softmax(scores.to(precision), mask).to(v.dtype)
        context = weights @ v
    else:
        context, weights = attention(
            q, k, v, mask, bias=bias, scale=options.scale, need_weights=need_weights
        )

    outputs["Y"] = merge_heads(context) if inputs.Q.dim() == 3 else context
    hidden = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    modes = (product, capped, hidden, weights)
    outputs["qk_matmul_output"] = modes[options.qk_matmul_output_mode]
    return outputs


# --- the tests ----------------------------------------------------------------


def check(outputs: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    for name, wanted in expected.items():
        joined = name.startswith("present")  # not computed
        tolerance = EXACTLY if joined else TOLERANCE[wanted.dtype]
        torch.testing.assert_close(outputs[name], wanted, **tolerance)


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_attention_computes_the_case(case):
    inputs, options, expected = read(case)
    check(run(inputs, options), expected)


@pytest.mark.parametrize("case", WHOLE, ids=lambda case: case.name)
def test_attention_computes_the_context_without_weights(case):
    inputs, options, expected = read(case)
    outputs = run(inputs, options, need_weights=False)
    check(outputs, {"Y": expected["Y"]})


@pytest.mark.parametrize("case", IN_PARTS, ids=lambda case: case.name)
def test_our_masks_and_softmax_compute_the_case(case):
    inputs, options, expected = read(case)
    check(run(inputs, options), expected)


def test_as_many_cases_as_counted():
    # A new onnx may bring new cases: read them, then correct the numbers.
    with_feature = Counter()
    for case in CASES:
        inputs, options, expected = read(case)
        windows = (options.left_window_size, options.right_window_size)
        with_feature.update(beyond_us(options))
        with_feature["added bias"] += mask_and_bias(inputs, options)[1] is not None
        with_feature["window"] += max(windows) >= 0
        with_feature["lengths"] += inputs.nonpad_kv_seqlen is not None
        with_feature["scores or weights returned"] += "qk_matmul_output" in expected
    counted = {"cases": len(CASES), "whole": len(WHOLE), "in parts": len(IN_PARTS)}
    assert counted | with_feature == COUNTS["onnx"]


def test_a_fully_masked_row_is_zero_there_as_here():
    # Not a matter of course: torch's own layer, Keras and flax decide otherwise.
    empty_rows = 0
    for case in CASES:
        inputs, options, expected = read(case)
        mask, _ = mask_and_bias(inputs, options)
        if mask is None or inputs.Q.dim() == 3:
            continue
        empty = ~mask.any(-1).expand(expected["Y"].shape[:3])
        assert not expected["Y"][empty].any()
        empty_rows += int(empty.sum())
    assert empty_rows > 0
