"""What is said where no mistake has a name: what was seen, and no more."""

import pytest
import torch

from mha_lib.check import check, diagnose
from tests.check.stress.typical import TYPICAL, made

SAID = {
    "attention: rounded": "weights-right",
    "attention: always causal": "weights-first",
    "batched: D and H exchanged": "heads-and-features",
    "batched: new Linear each call": "it-makes-layers",
    "batched: attention(q, v, k)": "as-if-exchanged",
    "batched: transpose left out": "as-if-left",
    "style: causal inverted": "as-if-inverted",
    "split: reversed": "numbers-moved",
    "looped: mask per head": "masks-unknown",
}
NAMED = {
    "batched: heads reversed": ["merge-reversed"],
    "looped: first head each time": ["merge-first-head"],
    "attention: scores times v": ["no-softmax"],
    "attention: scores beside": ["weights-returned-wrong"],
    "attention: mask turned": ["mask-transposed"],
}


@pytest.mark.long
@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", SAID)
def test_a_fact_is_said_and_no_name(name):
    found = diagnose(made(name, TYPICAL[name].source), TYPICAL[name].task)
    assert (found.verdict, found.mistakes, found.candidates) == ("unknown", [], [])
    assert SAID[name] in [fact.code for fact in found.evidence]


@pytest.mark.parametrize("name", NAMED)
def test_a_name_stands_without_what_follows_from_it(name):
    found = diagnose(made(name, TYPICAL[name].source), TYPICAL[name].task)
    assert found.mistakes == NAMED[name]


def scored(q, k, mask):
    scores = q @ k.mT
    return scores if mask is None else scores.masked_fill(~mask, -torch.inf)


def test_weights_that_are_none_are_named_beside_a_mistake():
    def attention(q, k, v, mask=None):
        weights = scored(q, k, mask).softmax(-1)
        return weights @ v, 2 * weights

    found = diagnose(attention)
    assert found.mistakes == ["no-scale", "weights-returned-wrong"]


def squares(q, k, v, mask=None):
    weights = (q[..., :1] * scored(q, k, mask)).softmax(-1)
    return weights.square() @ v, weights


def signs(q, k, v, mask=None):
    weights = (q[..., :1] * scored(q, k, mask)).softmax(-1)
    return (weights - 0.5) @ v


def reordered(x, num_heads):
    return x.unflatten(-1, (num_heads, -1)).transpose(1, 2) + 1


def test_an_output_that_is_not_of_the_returned_weights_is_no_map():
    words = repr(check(squares, "attention"))
    assert "The output is not the weights that you return times the values" in words
    assert "rows sum" not in words


def test_a_map_without_returned_weights_is_read_off_the_output():
    codes = [fact.code for fact in diagnose(signs, "attention").evidence]
    assert codes[:2] == ["map-sums", "map-negative"]


def test_other_numbers_have_not_moved():
    assert diagnose(reordered, "split_heads").evidence == []


@pytest.mark.long
def test_a_route_that_says_nothing_of_most_answers_is_no_explanation():
    name = "style: heads joined by reshape"
    found = diagnose(made(name, TYPICAL[name].source), "split_concat")
    assert (found.verdict, found.mistakes) == ("unknown", [])
