"""What people write is named, or is unknown; nothing that is right is faulted."""

import json
from functools import cache

import pytest
import torch

from mha_lib.check import TASKS, check, diagnose, judged
from mha_lib.check.catalogue import MISTAKES
from mha_lib.check.contract import property_names
from tests.check.layers import Right
from tests.check.submissions_right import (
    ADAPTED,
    RIGHT,
    Fused,
    Lazy,
    zeros_for_empty_rows,
)
from tests.check.submissions_wrong import WRONG, forgot_to_scale


def named(submission):
    return getattr(submission, "__name__", type(submission).__name__)


@cache
def diagnosed(submission, task):
    return diagnose(submission, task, seed=len(named(submission)))


@pytest.mark.sweep(7)
@pytest.mark.parametrize("submission, task", RIGHT, ids=[named(s) for s, _ in RIGHT])
def test_nothing_that_is_right_is_faulted(submission, task):
    found = diagnosed(submission, task)
    assert found.mistakes == [] and found.verdict == "right"


@pytest.mark.sweep(7)  # of those above, which are diagnosed once
@pytest.mark.parametrize("submission, task", RIGHT, ids=[named(s) for s, _ in RIGHT])
def test_properties_have_names_that_are_known(submission, task):
    told = diagnosed(submission, task).to_dict()
    assert json.loads(json.dumps(told)) == told
    found = told["properties"]
    assert found.keys() <= property_names(task)
    assert found["right"] and found.get("right_with_mask", True)


def test_a_mask_of_another_shape_is_not_as_the_task_calls_it():
    class Late(Fused):  # the caller is to give the heads an axis
        def forward(self, query, key=None, value=None, mask=None):
            if mask is not None and mask.dim() != 4:
                raise RuntimeError("the mask must have four axes")
            return super().forward(query, key, value, mask)

    found = diagnose(Late, "mha")
    assert (found.verdict, found.mistakes) == ("unmet", [])
    assert not found.properties["mask_as_given"]
    assert not found.properties["right_with_mask"]
    (words,) = found.to_dict()["unmet"]
    assert words.startswith("As the task calls it, it fails: RuntimeError: the mask")
    advice = "Add the axis of the heads yourself: mask[..., None, :, :]."
    assert words.endswith(f"It ran with a mask (B, 1, T, S). {advice}")
    assert diagnose(Fused, "mha").properties["mask_as_given"]


@pytest.mark.long
@pytest.mark.parametrize("submission, task, lacks", ADAPTED)
def test_what_has_to_be_called_in_its_own_way_is_not_right_and_has_no_name(
    submission, task, lacks
):
    report = check(submission, task)
    found = report.diagnosis
    assert (found.verdict, found.mistakes, found.error) == ("unmet", [], None)
    assert lacks == {
        name
        for name in judged(task) - {"right", "runs"}
        if not name.startswith("right_") and not found.properties.get(name, True)
    }
    headline, first, *rest = repr(report).splitlines()
    assert headline.startswith("Not right yet: your") and not report
    assert "  With that mended, the rest is right." in rest
    asked = TASKS[task].for_class() if isinstance(submission, type) else TASKS[task]
    assert f"  Required: {asked.signature}" in rest


EACH = [(one, task, names) for names, found in WRONG.items() for one, task in found]


def test_most_of_what_is_wrong_has_a_name():
    assert {name for names in WRONG for name in names} <= MISTAKES.keys()
    assert len(EACH) >= 60 and len(WRONG[frozenset()]) <= 6


@pytest.mark.long
@pytest.mark.sweep(7)
@pytest.mark.parametrize(
    "submission, task, names", EACH, ids=[named(x) for x, *_ in EACH]
)
def test_what_is_wrong_is_named_or_unknown_and_never_misnamed(submission, task, names):
    found = diagnose(submission, task, seed=len(named(submission)))
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    if not names:
        assert (found.verdict, found.mistakes) == ("unknown", [])
        return
    assert found.verdict in ("named", "stacked", "ambiguous")
    assert names in map(frozenset, found.candidates or [found.mistakes])


@pytest.mark.long
@pytest.mark.sweep(2)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes_are_judged_with_their_own_tolerance(dtype):
    names = {"sdpa", "additive", "allowed_plus_one", "float32_inside", "by_cat"}
    for submission, task in RIGHT:
        if named(submission) in names:
            assert diagnose(submission, task, dtype=dtype).verdict == "right"
    for layer in (Fused, Lazy):
        assert diagnose(layer, "mha", dtype=dtype).verdict == "right"
    found = diagnose(forgot_to_scale, "attention", dtype=dtype)
    assert found.mistakes == ["no-scale"]


@pytest.mark.parametrize(
    "submission, task",
    [
        (zeros_for_empty_rows, "attention"),
        (Right, "mha"),
        (lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(), "causal_mask"),
    ],
)
def test_a_notebook_may_have_another_default_device(submission, task):
    with torch.device("meta"):
        assert diagnose(submission, task).verdict == "right"


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_inputs_are_of_floating_point(dtype):
    words = f"dtype must be one of float64, .*, bfloat16; got {dtype}"
    with pytest.raises(ValueError, match=words):
        diagnose(zeros_for_empty_rows, "attention", dtype=dtype)
