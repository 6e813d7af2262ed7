"""Where an answer without a name is right, and what to do next: in sentences."""

import re

import pytest
import torch

from mha_lib.check import check
from mha_lib.check.words import WORDS
from tests.check.layers import Right
from tests.check.stress.typical import TYPICAL, made

NEXT = {  # what stands before the next step, and how this begins
    "split: reversed": (
        "It is right in 2 of 13 cases (one head, one feature), and wrong in plain,",
        "let x hold 0, 1, 2",
    ),
    "looped: mask per head": (
        "It is right without a mask, and wrong with one.",
        "with T = 2 and S = 3, hide one key",
    ),
    "attention: rounded": (
        "It is wrong without a mask and with one.",
        "with T = 2 and S = 3, let v hold 1, 2, 3",
    ),
    "attention: always causal": (
        "It is wrong without a mask and with one.",
        "with D = 4 and short vectors",
    ),
    "batched: forward returns the query": (
        "It is wrong without a mask and with one.",
        "with B = 1, T = 2, S = 3 and two heads",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", NEXT)
def test_a_sentence_says_where_and_another_what_to_do(name):
    where, step = NEXT[name]
    lines = repr(check(made(name, TYPICAL[name].source), TYPICAL[name].task)).split(
        "\n"
    )
    assert "and what to do next:" in lines[0]
    assert any(line.startswith(f"  {where}") for line in lines)
    assert lines[-1].startswith(f"  Next: {step}")
    assert not any(line.startswith(("  Holds", "  Fails")) for line in lines)


def test_attention_is_not_asked_for_heads_or_projections():
    def normalised(q, k, v, mask=None):
        s = q @ k.mT / q.shape[-1] ** 0.5
        w = (s if mask is None else s.masked_fill(~mask, -1e9)).softmax(-1)
        return w @ torch.nn.functional.normalize(v, dim=-1), w

    def bent(q, k, v, mask=None):
        s = torch.tanh(q @ k.mT / q.shape[-1] ** 0.5)
        return (s if mask is None else s.masked_fill(~mask, -1e9)).softmax(-1) @ v

    said = repr(check(normalised, "attention"))
    assert "weights that you return are right: look at the values, and" in said
    for one in normalised, bent:
        *_, last = repr(check(one, "attention")).splitlines()
        assert last.startswith("  Next: ")
        assert not re.search("head|projection|join", last), last


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(3))
def test_heads_that_are_right_are_told(seed):
    class OfHeadZero(Right):
        def forward(self, query, key, value, mask=None):
            q, k, v = (
                self.heads(f(x))
                for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
            )
            s = q @ k[:, :1].mT / q.shape[-1] ** 0.5
            if mask is not None:
                s = s.masked_fill(~mask[:, None], -1e9)
            return self.w_o(self.join(s.softmax(-1) @ v[:, :1].expand_as(v)))

    said = repr(check(OfHeadZero, "mha", seed=seed))
    assert re.search(r"  Head 0 is right, heads? 1.* (is|are) not: which", said)


def test_a_fact_that_is_a_next_step_needs_no_other():
    name = "batched: attention(q, v, k)"
    said = repr(check(made(name, TYPICAL[name].source), TYPICAL[name].task))
    assert "exchanged after the projections" in said and "Next:" not in said


def test_a_mask_is_told_where_it_is_right():
    def causal_mask(T, S):
        return torch.ones(T, S).tril().bool() if T <= S else torch.zeros(T, S).bool()

    *_, where, _ = repr(check(causal_mask)).splitlines()
    assert re.match(r"  It is right in \d+ of \d+ cases \(plain, T < S,", where)
    many = "T > S, one key, long with T > S, endless with T > S."
    assert where.endswith(f"and wrong in {many}")


def test_scores_are_told_by_what_they_are_divided():
    def divided_by(factor):
        def attention(q, k, v, mask=None):
            s = q @ k.mT / factor(q.shape[-1])
            if mask is not None:
                s = s.masked_fill(~mask, -torch.inf)
            return s.softmax(-1) @ v

        # Of some sizes D/2 is √D or H as well: then several letters, or none, are said.
        return "".join(repr(check(attention, seed=seed)) for seed in range(4))

    number = r"they are divided by [\d.]+"
    assert re.search(number + r" \(here 2D", divided_by(lambda D: 2 * D))
    assert re.search(number + r" \(here D/2", divided_by(lambda D: D / 2))
    assert re.search(number + ", where √D = ", divided_by(lambda D: 3 * D**0.5))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"count": 12, "all": 12},
            "This explains all 12 calls that were tried: mend",
        ),
        ({"count": 9, "all": 12}, "This explains 9 of the 12 calls that were tried"),
        ({"count": 1, "all": 1}, "This explains the one call that was tried"),
        ({"count": 2, "all": 2, "mistakes": 2}, "Together these explain all 2 calls"),
        ({"count": 2, "all": 2, "ways": 2}, "Each of these explains all 2 calls"),
        ({"count": 2, "all": 2, "ways": 2}, "tried: mend one, then check again."),
    ],
)
def test_what_a_name_rests_on_is_said_with_what_to_do(values, words):
    assert words in WORDS["reproduced"](**values)


def test_a_cause_stands_before_a_short_list_of_cases():
    def cut(x, num_heads):
        B, T, E = x.shape
        return x.view(B, T, E // num_heads, num_heads).transpose(1, 2)

    def join(x):
        B, T, H, D = x.shape
        return x.transpose(1, 2).reshape(B, T, H * D)

    for function, task, cause in (
        (cut, "split_heads", "cut into D heads of size H"),
        (join, "merge_heads", "the heads come before the tokens"),
    ):
        headline, first, *rest = repr(check(function, task)).splitlines()
        assert "no name" not in headline and cause in first
        assert any(line.endswith("B = H and 9 more.") for line in rest), rest


def test_a_mask_with_an_axis_in_front_is_told_first():
    def attention(q, k, v, mask=None):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[None], -torch.inf)
        return scores.softmax(-1).nan_to_num() @ v

    headline, first, *rest = repr(check(attention)).splitlines()
    assert "no name" not in headline and "as mask[None] makes it" in first
    assert not any("Next:" in line or "no mistake" in line for line in rest)
