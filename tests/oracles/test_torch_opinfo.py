"""torch OpInfo: the samples on which torch tests multi_head_attention_forward itself.

They come from `torch.testing._internal`, which is installed with torch; importing it
takes longer than they do, so they are asked for when a test runs. Half of them drop
weights at random; with one seed both sides drop the same ones.
"""

import inspect
from collections import Counter
from functools import cache

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from evidence.helpers import seed
from evidence.oracles import COUNTS
from tests.oracles.common import gradients
from tests.oracles.torch_suite import multi_head_attention_forward

NAME = "nn.functional.multi_head_attention_forward"
DTYPES = (torch.float64, torch.float32)  # the shorter ones overflow: inputs reach 9
THEIRS = F.multi_head_attention_forward


@cache
def samples(dtype: torch.dtype) -> list:
    from torch.testing._internal.common_methods_invocations import op_db

    [info] = [op for op in op_db if op.name == NAME]
    seed(0)  # they are made at random
    # With requires_grad torch makes fewer samples; results() asks for gradients of all.
    return list(info.sample_inputs("cpu", dtype, requires_grad=False))


def results(function, sample) -> list[Tensor]:
    """Output, weights, and the gradients of all floating arguments."""
    given = [sample.input, *sample.args, *sample.kwargs.values()]
    tensors = [x.requires_grad_() for x in given if isinstance(x, Tensor)]
    seed(1)  # the same weights are dropped
    output, weights = function(sample.input, *sample.args, **sample.kwargs)
    both = torch.cat([output.flatten(), weights.flatten()])
    return [output, weights, *gradients(both, tensors)]


# Rounding of float64 and float32, relative to the largest number of a tensor: inputs
# reach 9, outputs 10⁴, and what is small came about by cancelling. Seen: 9e-12, 3e-7.
ROUNDING = {torch.float64: 1e-10, torch.float32: 1e-5}


@pytest.mark.parametrize("number", range(COUNTS["torch_opinfo"]["samples"]))
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_output_weights_and_gradients(dtype, number):
    sample = samples(dtype)[number]
    found = results(multi_head_attention_forward, sample)
    expected = results(THEIRS, sample)
    for ours, theirs in zip(found, expected, strict=True):
        assert theirs.isfinite().all()
        atol = ROUNDING[dtype] * theirs.abs().max().item()
        assert_close(ours, theirs, rtol=0, atol=atol)


def test_the_adapter_has_torchs_signature():
    ours, theirs = map(inspect.signature, (multi_head_attention_forward, THEIRS))
    assert [(x.name, x.default) for x in ours.parameters.values()] == [
        (x.name, x.default) for x in theirs.parameters.values()
    ]


def test_as_many_cases_as_counted():
    kinds = Counter(sample.kwargs["training"] for sample in samples(torch.float32))
    assert {
        "cases": kinds.total() * len(DTYPES),
        "samples": kinds.total(),
        "deterministic": kinds[False],
        "dtypes": len(DTYPES),
    } == COUNTS["torch_opinfo"]
