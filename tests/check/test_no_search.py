"""Without a search the verdict, the properties and so the points are the same."""

import pytest
import torch

from mha_lib.check import TASKS, beside, conclude, explained, search
from tests.check.executed import SEARCHED, executed
from tests.check.layers import NoScale, Right
from tests.check.submissions_right import BareMatrices, FusedHeadByHead
from tests.check.submissions_wrong import AlwaysOn, changes_q, forgot_to_scale


@pytest.fixture
def no_search(monkeypatch):
    def never(*arguments, **more):
        raise AssertionError("it searched")

    for module in (explained, search):
        monkeypatch.setattr(module, "explain", never)


def asked(submission, task):
    probes = TASKS[task].probes(2)
    return task, probes, beside.run(submission, probes)


def leaves_the_mask_out(layer):
    class Layer(layer):
        def forward(self, query, key, value, mask=None):
            return super().forward(query, key, value)

    return Layer


def fails_if_masked(layer):
    class Layer(layer):
        def forward(self, query, key, value, mask=None):
            if mask is not None:
                raise RuntimeError("no masks here")
            return super().forward(query, key, value)

    return Layer


@pytest.mark.parametrize("layer", [Right, FusedHeadByHead, BareMatrices])
def test_what_is_right_is_right_however_its_weights_lie(layer, no_search):
    found = conclude(*asked(layer, "mha"), search=False)
    assert (found.verdict, found.mistakes) == ("right", [])


@pytest.mark.parametrize("task", SEARCHED)
def test_the_reference_is_right_without_a_search(task, no_search):
    assert conclude(task, *executed(task, ()), search=False).verdict == "right"


@pytest.mark.long
@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("submission", "task"),
    [
        (NoScale, "mha"),
        (leaves_the_mask_out(Right), "mha"),
        (leaves_the_mask_out(BareMatrices), "mha"),
        (fails_if_masked(Right), "mha"),
        (fails_if_masked(NoScale), "mha"),
        (forgot_to_scale, "attention"),
        (AlwaysOn, "mha"),
        (lambda T, S: torch.ones(T, S).bool(), "causal_mask"),
        (lambda x: x.sin().transpose(1, 2).flatten(2), "merge_heads"),
    ],
)
def test_what_is_wrong_loses_its_name_and_keeps_its_properties(
    submission, task, monkeypatch
):
    told = asked(submission, task)
    named = conclude(*told)
    for module in (explained, search):
        monkeypatch.setattr(module, "explain", None)
    found = conclude(*told, search=False)
    assert found.verdict != "right" and found.error == named.error
    assert found.properties == named.properties
    assert set(found.mistakes) <= {"dropout-in-eval"}


def test_what_is_seen_without_a_search_is_still_named(no_search):
    found = conclude(*asked(changes_q, "attention"), search=False)
    assert (found.verdict, found.mistakes) == ("named", ["inputs-changed"])
