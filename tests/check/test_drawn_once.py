"""Probes are drawn once and kept: nothing that is called may change them."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from mha_lib import BatchedMHA
from mha_lib.check import TASKS, check, conclude, diagnose
from mha_lib.check.beside import run


def rude(*given, **named):
    """Takes whatever comes, and leaves zeros."""
    for x in tree_leaves((given, named)):
        if isinstance(x, Tensor):
            x.zero_()
    return next(x for x in tree_leaves((given, named)) if isinstance(x, Tensor))


class Rude(BatchedMHA):
    def forward(self, query, key=None, value=None, mask=None):
        answer = super().forward(query, key, value, mask)
        with torch.no_grad():
            rude(query, key, value, mask, list(self.parameters()))
        return answer


@pytest.mark.sweep(5)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("submission", [rude, Rude], ids=["function", "class"])
def test_a_call_that_changes_everything_changes_no_probe(task, submission):
    probes = TASKS[task].probes(3)
    before = deepcopy(probes)
    conclude(task, probes, run(submission, probes))
    pairs = list(zip(tree_leaves(probes), tree_leaves(before), strict=True))
    assert task == "causal_mask" or any(isinstance(x, Tensor) for x, _ in pairs)
    for x, y in pairs:
        assert torch.equal(x, y) if isinstance(x, Tensor) else x == y


def test_what_was_drawn_without_gradients_serves_with_them():
    asked = {"seed": 4321, "dtype": torch.float64}  # so that no cast copies them
    with torch.inference_mode():
        first = str(check(BatchedMHA, **asked))
    assert str(check(BatchedMHA, **asked)) == first
    assert diagnose(BatchedMHA, **asked).verdict == "right"


def test_the_default_dtype_draws_no_other_numbers():
    for task in TASKS.values():
        drawn = []
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            try:
                drawn.append(tree_leaves(task.probes(5)))
            finally:
                torch.set_default_dtype(torch.float32)
        for x, y in zip(*drawn, strict=True):
            same = (
                torch.equal(x, y) and x.dtype == y.dtype
                if isinstance(x, Tensor)
                else x == y
            )
            assert same, task.name
