"""A fault of a size is told by the size, and no other reason is given for it."""

import re

import pytest
import torch

from mha_lib.check import TASKS, check, diagnose
from mha_lib.check.by_size import told_by_size
from mha_lib.check.reference import posed
from mha_lib.check.search import Case
from tests.check.layers import Right
from tests.check.test_guessed import attention


def wrong_where(wrong):
    """An attention that is wrong at some sizes, whatever its mask."""

    def attend(q, k, v, mask=None):
        out = attention(q, k, v, mask)
        return out * 1.1 if wrong(q, k) else out

    return attend


def layer_wrong_where(wrong):
    class Layer(Right):
        def forward(self, query, key, value, mask=None):
            out = super().forward(query, key, value, mask)
            return out * 1.1 if wrong(query, key) else out

    return Layer


ONE = {
    "T": lambda q, k: q.shape[-2] == 1,
    "S": lambda q, k: k.shape[-2] == 1,
    "B": lambda q, k: q.shape[0] == 1,
}
FROM = {
    "T": (64, lambda q, k: q.shape[-2] > 64),
    "S": (64, lambda q, k: k.shape[-2] > 64),
    "B": (8, lambda q, k: q.shape[0] > 8),
}


def one_fact(report):
    (said,) = re.findall(r"In our tries, .*", repr(report))
    assert "mask" not in repr(report).partition("Required")[0]
    return said


def wrong_program(task, wrong):
    """A layer, or an attention, which may be given fewer axes."""
    if task == "mha":
        return layer_wrong_where(wrong)
    return wrong_where(lambda q, k: q.dim() == 4 and wrong(q, k))


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("letter", ONE)
@pytest.mark.parametrize("task", ["attention", "mha"])
def test_what_is_wrong_at_one_alone_is_told_so(task, letter, seed):
    said = one_fact(check(wrong_program(task, ONE[letter]), task, seed=seed))
    assert said == f"In our tries, it is wrong only where {letter} is 1."


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("letter", FROM)
@pytest.mark.parametrize("task", ["attention", "mha"])
def test_what_is_wrong_from_a_size_on_is_told_so(task, letter, seed):
    limit, wrong = FROM[letter]
    said = one_fact(check(wrong_program(task, wrong), task, seed=seed))
    words = rf"it is right for {letter} up to (\d+), and wrong from {letter} = (\d+) on"
    right, least = map(int, re.search(words, said).groups())
    assert right <= limit < least


def test_a_size_at_which_a_mask_is_wrong_is_told_of_masks_alone():
    def short_mask(q, k, v, mask=None):
        if mask is not None and q.shape[-2] > 64:
            mask = mask | (torch.arange(q.shape[-2]) > 63)[:, None]
        return attention(q, k, v, mask)

    said = repr(check(short_mask, "attention"))
    assert "of those with a mask, it is right for T up to" in said


def test_sizes_that_make_it_fail_are_told_too():
    def squeezes(q, k, v, mask=None):
        s = (q @ k.mT / q.shape[-1] ** 0.5).squeeze()
        if mask is not None:
            s = s.masked_fill(~mask, -torch.inf)
        return s.softmax(-1) @ v

    report = check(squeezes, "attention")
    assert report.diagnosis.verdict == "unknown"  # most of its answers are right
    assert "it is wrong only where T, S or H is 1." in repr(report)


def test_where_no_size_tells_nothing_is_said():
    def halved(q, k, v, mask=None):
        return attention(q / 2.1, k, v, mask)

    found = diagnose(halved, "attention")
    assert not any("tries" in text for text in found.to_dict()["evidence"])


def test_a_part_that_is_wrong_at_a_size_is_told_so():
    def split_heads(x, num_heads):
        B, T, E = x.shape
        heads = x.reshape(B, T, num_heads, E // num_heads).transpose(1, 2)
        return heads.flip(0) if T > 64 else heads

    said = repr(check(split_heads))
    assert re.search(r"right for T up to \d+ and .* wrong with T = 5\d\d", said)


@pytest.mark.parametrize(
    ("holds", "said"),
    [
        ({3: True, 5: True, 9: False, 11: False}, ("wrong-from", [("T", 5, 9)])),
        ({3: True, 5: True, 9: False}, None),  # one call, and not far away
        ({3: True, 5: True, 70: False}, ("wrong-from", [("T", 5, 70)])),
        ({3: True, 6: False, 9: True}, None),
        ({3: True, 5: False, 9: True}, ("wrong-alike", ["T", "D"])),  # D = 5
        ({1: False, 3: True, 9: True}, ("wrong-at-one", ["T"])),
        ({1: True, 3: False, 9: False}, None),  # no more than a trivial case is right
        ({3: True, 5: True}, None),
    ],
)
def test_a_statement_is_true_of_every_call(holds, said):
    x = TASKS["split_heads"].probes(0)[0]
    cases = []
    for T, right in holds.items():
        tensor = x["inputs"]["x"][:, :1].repeat(1, T, 1)
        probe = x | {"inputs": x["inputs"] | {"x": tensor}}
        probe["sizes"] = {"T": T, **{k: x["sizes"][k] for k in "BHDE"}}
        p = posed(probe)
        heads = tensor.unflatten(-1, (p.H, p.D)).transpose(1, 2)
        cases.append(Case(p, heads if right else -heads))
    fact = told_by_size(cases)
    values = [*fact.values.values()][1:] if fact else []
    assert ((fact.code, *values) if fact else None) == said


def test_a_part_that_is_wrong_where_two_sizes_agree_is_told_which():
    def merge_heads(x):
        return (x if x.shape[1] == x.shape[2] else x.transpose(1, 2)).flatten(2)

    assert "In our tries, it is wrong only where T = H." in repr(check(merge_heads))


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", [0, 5])
def test_a_layer_that_asks_shapes_which_axis_is_which_is_not_sent_to_its_mask(seed):
    class Asks(Right):
        def forward(self, query, key, value, mask=None):
            if len(query) == query.shape[1] == key.shape[1]:
                query, key, value = (x.transpose(0, 1) for x in (query, key, value))
            return super().forward(query, key, value, mask)

    said = repr(check(Asks, "mha", seed=seed))
    assert "it is wrong only where T = S = B" in said
    assert "Without a mask all is right" not in said


@pytest.mark.parametrize("seed", [0, 7])
def test_of_two_sizes_that_are_large_together_a_wrong_call_is_told(seed):
    def causal_mask(T, S):
        t, s = (torch.arange(n).to(torch.int8) for n in (T, S))
        return s <= t[:, None]

    said = repr(check(causal_mask, seed=seed))
    T, S = map(int, re.search(r"wrong with T = (\d+) and S = (\d+)\.", said).groups())
    assert max(T, S) > 127 and "large together" not in said
