"""`check(…, mask=False)`: what a reader writes in the chapters before the masks."""

import pytest
import torch
from torch import nn

from mha_lib import BatchedMHA
from mha_lib.check import TASKS, check, diagnose
from mha_lib.layouts import merge_heads, split_heads


def right(q, k, v):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
    return weights @ v, weights


def without_scale(q, k, v):
    weights = (q @ k.mT).softmax(dim=-1)
    return weights @ v, weights


def over_queries(q, k, v):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-2)
    return weights @ v, weights


def transposed(q, k, v):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
    return weights.mT @ v, weights


class Layer(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value):
        parts = zip((query, key, value), self.thirds())
        q, k, v = (split_heads(nn.functional.linear(x, *p), self.num_heads)
                   for x, p in parts)  # fmt: skip
        context, weights = right(q, k, v)
        return self.out_proj(merge_heads(context)), weights

    def thirds(self):
        return zip(self.in_proj.weight.chunk(3), self.in_proj.bias.chunk(3))


class CutFromQuery(Layer):
    def forward(self, query, key, value):
        return super().forward(query, query, query)


class Empty(Layer):
    def forward(self, query, key, value):
        # cut, attend, merge
        ...


@pytest.mark.parametrize("submission", [right, Layer, BatchedMHA])
def test_what_is_right_without_a_mask_is_right(submission):
    assert repr(check(submission, mask=False)).startswith("Right: ")
    assert repr(check(submission, mask=False)).endswith(" (no mask).")


@pytest.mark.parametrize(
    ("submission", "name"),
    [
        (without_scale, "no-scale"),
        (over_queries, "softmax-over-queries"),
        (transposed, "weights-transposed"),
        (CutFromQuery, "kv-from-query"),
    ],
)
def test_what_is_wrong_has_its_name_and_no_word_of_a_mask(submission, name):
    report = check(submission, mask=False)
    assert report.diagnosis.mistakes == [name]
    assert "mask" not in repr(report).replace(" (no mask)", "")


def test_what_is_not_written_yet_is_told_what_it_will_be_given():
    headline, what, required = repr(check(Empty, mask=False)).splitlines()
    assert headline.endswith("is not finished yet.")
    assert "its line" in what and "check again" in what
    assert "mask" not in required and "query (B, T, E)" in required


def test_the_same_in_64_bits_where_that_is_the_default():
    torch.set_default_dtype(torch.float64)
    try:
        assert check(Layer, mask=False)
    finally:
        torch.set_default_dtype(torch.float32)


def test_with_a_mask_it_is_still_asked_for():
    assert diagnose(right, "attention").verdict == "unfinished"


@pytest.mark.parametrize("task", sorted(TASKS.keys() - {"attention", "mha"}))
def test_a_task_that_has_no_such_form_says_so(task):
    with pytest.raises(ValueError, match=f"for attention and mha; got {task}"):
        check(right, task, mask=False)


def test_before_heads_an_axis_is_told_without_them():
    def softmax(q, k, v):
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=1) @ v

    def scale(q, k, v):
        return (q @ k.mT / q.shape[1] ** 0.5).softmax(dim=-1) @ v

    for function, words in (
        (softmax, "  dim=1 is the keys only where there is no batch: check calls"),
        (scale, "  q.shape[1] is D only where there is no batch: check calls"),
    ):
        _, first, *_ = repr(check(function, "attention", mask=False)).splitlines()
        assert first.startswith(words) and "heads," not in first
