"""Code that is not written yet is told so, with the line; finished code never is."""

import functools
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from mha_lib.check import HEADLINES, check, diagnose
from mha_lib.check.beside.words import UNFINISHED
from tests.check.layers import Right


def dots(q, k, v, mask=None):
    """The blank of an assignment."""
    scores = ...  # your code here
    return scores @ v


def only_dots(q, k, v, mask=None): ...


def returned(q, k, v, mask=None):
    return ...


def passes(q, k, v, mask=None):
    """What it will do."""
    pass


def says_what_it_will_do(q, k, v, mask=None):
    """The scores, the weights, the context."""


def refuses(q, k, v, mask=None):
    raise NotImplementedError("later")


def to_do(q, k, v, mask=None):
    scores = q @ k.mT  # noqa: F841
    # TODO: scale, softmax, values


def helper(x):
    raise NotImplementedError


def uses_a_helper(q, k, v, mask=None):
    return helper(q) @ v


class NoForward(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.q_proj = nn.Linear(embed_dim, embed_dim)


class BlankInit(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        ...

    def forward(self, query, key, value, mask=None):
        return self.out_proj(query)


class BlankForward(Right):
    def forward(self, query, key, value, mask=None):
        q = self.w_q(query)
        weights = ...
        return weights @ q


BLANK = {  # the name that is said, and what stands there
    dots: ("attention", "dots", "scores = ...  # your code here"),
    only_dots: ("attention", "only_dots", "def only_dots(q, k, v, mask=None): ..."),
    returned: ("attention", "returned", "return ..."),
    passes: ("attention", "passes", "pass"),
    says_what_it_will_do: ("attention", "says_what_it_will_do", '"""The scores'),
    refuses: ("attention", "refuses", 'raise NotImplementedError("later")'),
    to_do: ("attention", "to_do", "# TODO: scale, softmax, values"),
    uses_a_helper: ("attention", "helper", "raise NotImplementedError"),
    functools.partial(dots, mask=None): ("attention", "dots", "scores = ..."),
    BlankInit: ("mha", "__init__", "..."),
    BlankForward: ("mha", "forward", "weights = ..."),
}


@pytest.mark.parametrize("submission", BLANK, ids=lambda x: getattr(x, "__name__", "x"))
def test_what_is_not_written_is_told_so_with_its_line(submission):
    task, name, text = BLANK[submission]
    report = check(submission, task)
    assert report.diagnosis.verdict == UNFINISHED and not report
    assert report.diagnosis.properties == {"runs": False}
    headline, said, required = repr(report).splitlines()
    assert headline.startswith("Your ") and headline.endswith(" is not finished yet.")
    number, there = re.search(r"its line (\d+) still is `(.*)`\. Write", said).groups()
    assert said.startswith(f"  {name} is not finished:") and there.startswith(text)
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert lines[int(number) - 1].strip() == there
    assert required.startswith("  Required: ")


def test_a_partial_of_a_class_is_read_as_the_class():
    found = diagnose(functools.partial(NotYet, bias=True), "mha")
    assert found.verdict == UNFINISHED and "its line" in found.error


class NotYet(nn.Module):
    def __init__(self, embed_dim, num_heads, bias):
        super().__init__()
        self.q_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, mask=None): ...


def test_a_class_without_forward_is_told_so():
    found = diagnose(NoForward, "mha")
    assert found.verdict == UNFINISHED
    assert "NoForward is not finished: it has no forward." in found.error


def test_a_part_that_is_not_written_is_named_where_the_rest_answers():
    def attention(q, k, v, mask=None):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            ...
        return scores.softmax(-1) @ v

    found = diagnose(attention)
    assert found.mistakes == ["fill-thrown-away"]
    assert found.to_dict()["evidence"][0].endswith(
        "of attention: is that part written?"
    )


def finished(q, k, v, mask=None):
    """Right; it refuses what nobody asks for."""
    if q.dim() > 9:
        raise NotImplementedError("ten axes")
    scores = q @ k.mT / q.shape[-1] ** 0.5  # TODO: a faster way
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ v


def fails(q, k, v, mask=None):
    """Wrong for a reason of its own, beside what is not written."""
    if q.dim() > 9:
        raise NotImplementedError("ten axes")
    return q @ nn.functional.pad(k.mT, (0, 0, 0, 1))  # TODO: look at this again


class Passes(Right):
    def reset_parameters(self):
        pass

    def forward(self, query, key, value, mask=None):
        raise KeyError("an error of another kind")


def test_finished_code_that_fails_is_not_called_unfinished():
    assert diagnose(finished, "attention").verdict == "right"
    found = diagnose(fails, "attention")
    assert found.verdict == "failed" and "Expected size" in found.error
    found = diagnose(Passes, "mha")
    assert found.verdict == "failed" and "another kind" in found.error
    found = diagnose(lambda q, k, v, mask=None: None, "attention")
    assert found.verdict == "failed" and "is a `return` missing?" in found.error


def test_what_has_no_source_or_lies_about_itself_stops_nothing():
    class Lies:
        @property
        def __class__(self):
            raise RuntimeError("nobody's")

    space = {}
    exec("def attention(q, k, v, mask=None): ...", space)
    assert diagnose(space["attention"]).verdict == "failed"
    assert diagnose(len, "attention").verdict == "failed"
    space["other"] = Lies()  # looked at, as both name it
    exec("def fails(q, k, v, mask=None): return other(q)", space)
    assert "not callable" in diagnose(space["fails"], "attention").error
    exec("def answers(q, k, v, mask=None): return (other, q)[1]", space)
    assert "must have the shape" in diagnose(space["answers"], "attention").error


def test_the_verdict_has_a_headline():
    assert UNFINISHED in HEADLINES


class WithoutMask(nn.Module):
    """A layer of chapter 3 as it is before it takes masks."""

    sharper = 1

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (
            nn.Linear(embed_dim, embed_dim) for _ in range(4)
        )

    def forward(self, query, key, value):
        q, k, v = (
            project(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for project, x in zip(
                (self.q_proj, self.k_proj, self.v_proj), (query, key, value)
            )
        )
        weights = (self.sharper * q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights


class WithoutMaskAndWrong(WithoutMask):
    sharper = 2


def attention_without_mask(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


@pytest.mark.parametrize(
    ("submission", "task", "name"),
    [
        (WithoutMask, "mha", "forward"),
        (attention_without_mask, "attention", "attention_without_mask"),
    ],
)
def test_what_takes_no_mask_is_unfinished_and_told_to_take_one(submission, task, name):
    headline, what, *rest = repr(check(submission, task)).splitlines()
    assert headline.endswith("is not finished yet.")
    assert what.startswith(f"  {name} takes no mask: add mask=None to its arguments")
    assert rest[-1] == "  Where it answers, it is right."
    assert not any(words in line for line in rest for words in ("Next:", "TypeError"))


@pytest.mark.long
def test_what_takes_no_mask_and_is_wrong_without_one_is_told_both():
    report = check(WithoutMaskAndWrong)
    found = report.diagnosis
    assert found.verdict == "unknown" and "add mask=None" in found.error
    assert "2.000 times" in repr(report)
    assert not found.unmet  # the same error, from another probe


def test_one_that_takes_whatever_comes_is_not_told_to_take_a_mask():
    def attention(*inputs, **others):
        return attention_without_mask(*inputs)

    assert "takes no mask" not in repr(check(attention, "attention"))
