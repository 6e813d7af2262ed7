"""Sizes in messages: letters beside the numbers, and none where it would be a guess."""

import re

import pytest

from mha_lib.check import check, diagnose
from mha_lib.check.letters import legend, of_error, of_numbers, shape
from tests.check.layers import Right

SIZES = {"B": 2, "T": 7, "S": 7, "H": 3, "D": 5, "E": 15}


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([5, 15], "5 is D, 15 is E"),
        ([7, 7], "7 is T = S"),
        ([1, 0, 11], ""),
        ([6, 14, 45], "6 is B·H, 45 is 3·E"),  # 14 is B·T and B·S
    ],
)
def test_a_number_is_a_size_or_one_product_of_them(numbers, words):
    assert of_numbers(numbers, SIZES) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "The size of tensor a (5) must match the size of tensor b (3) at "
            "non-singleton dimension 2",
            "5 is D, 3 is H",
        ),
        ("shape '[2, 15, 5]' is invalid for input of size 11", "2 is B, 15 is E"),
        ("mat1 and mat2 shapes cannot be multiplied (6x5 and 15x15)", "6 is B·H"),
        ("expected a 3-D tensor, got 2D; float16, 1.5, dim 3, index 5", ""),
    ],
)
def test_in_the_messages_of_torch_sizes_are_found_and_nothing_else(text, words):
    assert of_error(text, SIZES).startswith(words)
    assert bool(words) == bool(legend(text, SIZES))
    assert of_error(text, {}) == ""


def test_a_shape_without_sizes_is_a_shape():
    assert shape((3, 4), {}) == "(3, 4)"
    assert shape((5, 1), SIZES) == "(5, 1), where 5 is D"


def test_an_error_of_torch_is_said_with_the_letters_of_its_call():
    def attention(q, k, v, mask=None):
        return (q @ k).softmax(-1) @ v

    error = diagnose(attention).error
    t, d, s = re.search(
        r"to be: \[(\d+), (\d+)\] but got: \[\1, (\d+)\]", error
    ).groups()
    assert f" Here {t} is T, {d} is D, {s} is S. " in error


def test_an_error_of_theirs_is_left_as_it_is():
    def attention(q, k, v, mask=None):
        raise RuntimeError(f"{q.shape[-1]} features")

    assert " Here " not in diagnose(attention).error


class Returns(Right):
    def forward(self, query, key, value, mask=None):
        q, k = (self.heads(f(x)) for f, x in ((self.w_q, query), (self.w_k, key)))
        return (q @ k.mT).softmax(-1), super().forward(query, key, value, mask)


def test_a_shape_that_is_due_and_one_that_came_are_told_in_letters_and_numbers():
    report = check(Returns, "mha")
    (said,) = [line for line in repr(report).splitlines() if "must have" in line]
    found = re.search(
        r"\(B, T, E\) = \((\d), (\d), \d+\); got \(\1, (\d), \2, (\d)\), "
        r"where \1 is B, \3 is H, \2 is T, \4 is S$",
        said,
    )
    assert found, said
    assert "That is the shape of the weights" in repr(report)
    assert "gradient" not in repr(report)  # of an output that is none


def test_a_mask_with_an_axis_too_many_is_told_its_shape_in_letters():
    def causal_mask(T, S):
        import torch

        return torch.ones(1, T, S, dtype=torch.bool).tril()

    assert re.search(
        r"The mask must have the shape \((\d), (\d)\); got \(1, \1, \2\), "
        r"where \1 is T, \2 is S( = H)?\.",
        repr(check(causal_mask)),
    )
