"""What is answered to the code of a beginner, who has read a chapter or two."""

import math
import re

import pytest
import torch

from mha_lib.check import MISTAKES, check
from tests.check.layers import Right

# --- before there are masks ---------------------------------------------------------


def bent(q, k, v):
    weights = torch.tanh(q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
    return weights @ v, weights


def root_of_the_keys(q, k, v):
    weights = (q @ (k.mT / q.shape[-1]) ** 0.5).softmax(dim=-1)
    return weights @ v, weights


def of_the_first_key(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1) @ v.detach()


def far_too_sharp(q, k, v):
    return (q @ k.mT * q.shape[-1] ** 3).softmax(dim=-1) @ v


@pytest.mark.parametrize(
    "wrong", [bent, root_of_the_keys, of_the_first_key, far_too_sharp]
)
def test_before_there_are_masks_nothing_is_said_of_them(wrong):
    report = check(wrong, "attention", mask=False)
    assert not report
    said = repr(report).replace("(no mask)", "")
    assert not re.search(r"\b(mask|hidden from)", said), said
    assert "right_with_mask" not in report.diagnosis.properties


def test_nan_before_there_are_masks_comes_from_arithmetic():
    said = repr(check(root_of_the_keys, "attention", mask=False))
    assert "the root of a negative number, 0/0 or ∞/∞ makes the first NaN" in said
    assert "Next: with T = 2, S = 3 and D = 4, print each step" in said


def test_with_masks_it_is_still_told_where_it_is_right():
    def attention(q, k, v, mask=None):
        return bent(q, k, v)

    assert "It is wrong without a mask and with one." in repr(check(attention))


# --- the scale ----------------------------------------------------------------------


def over(number):
    def attention(q, k, v, mask=None):
        scores = q @ k.mT / number
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return scores.softmax(dim=-1) @ v

    return attention


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (math.sqrt(2), "divided by 1.41 in every call, whatever D is; that is √D where "
                       "D = 2 alone"),
        (2, "divided by 2 in every call, whatever D is; that is √D where D = 4 alone"),
        (8**0.5, "divided by 2.83 in every call"),
        (8, "divided by 8 in every call"),
        (3.3, "divided by 3.3 in every call, whatever D is. Take D"),
        (1 / 3, "multiplied by 3 in every call, whatever D is. Take D"),
    ],
)  # fmt: skip
def test_a_constant_is_told_with_its_number(number, said):
    for seed in range(3):
        report = check(over(number), seed=seed)
        assert report.diagnosis.mistakes == ["scale-hard-coded"]
        assert said in repr(report)


def test_what_depends_on_a_size_is_no_constant():
    def of_keys(q, k, v, mask=None):
        return over(k.shape[-2] ** 0.5)(q, k, v, mask)

    def three_roots(q, k, v, mask=None):
        return over(3 * q.shape[-1] ** 0.5)(q, k, v, mask)

    assert check(of_keys, "attention").diagnosis.mistakes == ["scale-key-length"]
    assert check(three_roots, "attention").diagnosis.verdict == "unknown"
    assert check(over(1.0)).diagnosis.mistakes == ["no-scale"]


def test_of_a_module_with_one_head_size_no_constant_is_claimed():
    class Constant(Right):
        def scale(self):
            return 3.3

    report = check(Constant(12, 2), "mha", num_heads=2)
    assert report.diagnosis.mistakes == [] and "whatever D is" not in repr(report)


def test_a_constant_and_a_mask_the_wrong_way_round_are_two():
    def attention(q, k, v, mask=None):
        return over(math.sqrt(2))(q, k, v, None if mask is None else ~mask)

    found = check(attention).diagnosis
    assert found.mistakes == ["scale-hard-coded", "mask-inverted"]


def test_a_root_of_the_batch_is_told():
    def attention(q, k, v, mask=None):
        return over(len(q) ** 0.5)(q, k, v, mask)

    assert any("(here √B" in repr(check(attention, seed=n)) for n in range(3))


# --- where to read ------------------------------------------------------------------

LATE = {  # what is explained nowhere before, or can be made nowhere before
    *("merge-batch-major", "relu-after-projection", "relu-missing", "residual"),
    *("layout-exchanged", "output-reshaped", "key-mask-from-sum"),
    *("wrong-output-dtype", "constant-dtype", "constant-device"),
}


def test_a_mistake_of_the_first_chapters_is_read_about_there():
    chapter = {
        name: int(re.search(r"\d+", mistake.section)[0])
        for name, mistake in MISTAKES.items()
    }
    assert {name for name, n in chapter.items() if n > 5} == LATE
