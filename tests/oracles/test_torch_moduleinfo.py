"""torch ModuleInfo: the inputs on which torch tests nn.MultiheadAttention itself.

They come from `torch.testing._internal`, which is installed with torch: 64 of them,
each in training and in evaluation, in float32 and in float64. Importing it takes longer
than they do, so they are asked for when a test runs.
"""

from functools import cache
from itertools import product

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from evidence.helpers import seed
from evidence.oracles import COUNTS
from mha_lib import MultiheadAttention
from tests.oracles.common import gradients


@cache
def info():
    from torch.testing._internal.common_modules import module_db

    [found] = [info for info in module_db if info.module_cls is nn.MultiheadAttention]
    return found


@cache
def inputs(dtype: torch.dtype, training: bool) -> list:
    seed(0)  # they are made at random
    return info().module_inputs_func(info(), "cpu", dtype, True, training)


DTYPES = (torch.float32, torch.float64)
NUMBERS = range(COUNTS["torch_moduleinfo"]["inputs"])
CASES = list(product(DTYPES, (False, True), NUMBERS))

# Rounding of float32: three short products of numbers of order 10.
TOLERANCE = {torch.float64: {}, torch.float32: {"rtol": 1e-5, "atol": 1e-5}}


def results(layer: nn.Module, call) -> list[torch.Tensor]:
    """Output, weights, and the gradients of the inputs and all parameters."""
    output, weights = layer(*call.args, **call.kwargs)
    both = torch.cat([output.flatten(), weights.flatten()])
    return [output, weights, *gradients(both, [*call.args, *layer.parameters()])]


@pytest.mark.parametrize(("dtype", "training", "number"), CASES, ids=str)
def test_output_weights_and_gradients(dtype, training, number):
    case = inputs(dtype, training)[number]
    made, call = case.constructor_input, case.forward_input
    theirs = nn.MultiheadAttention(*made.args, **made.kwargs, dtype=dtype)
    ours = MultiheadAttention(*made.args, **made.kwargs, dtype=dtype)
    with torch.no_grad():
        for parameter in theirs.parameters():  # the biases are not zero then
            parameter.normal_()
    ours.load_state_dict(theirs.state_dict())
    found, expected = (results(x.train(training), call) for x in (ours, theirs))
    for x, y in zip(found, expected, strict=True):
        assert_close(x, y, **TOLERANCE[dtype])
    # torch's own reference: the same in a batch of one
    reference = case.reference_fn(ours, *call.args, **call.kwargs)
    for x, y in zip(found, reference):
        assert_close(x, y, **TOLERANCE[dtype])


def test_as_many_cases_as_counted():
    modes = list(product(info().dtypes, (False, True)))
    (each,) = {len(inputs(*mode)) for mode in modes}
    assert {
        "cases": each * len(modes),
        "inputs": each,
        "modes": len(modes),
    } == COUNTS["torch_moduleinfo"]
    assert len(CASES) == each * len(modes)
