"""A layer that remembers is no dropout, whoever draws its numbers."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mha_lib.check import check, diagnose
from mha_lib.check.beside.observe import outcome_of
from tests.check.layers import Right


class FirstMaskForEver(Right):
    first = None

    def forward(self, query, key, value, mask=None):
        self.first = mask if self.first is None else self.first
        return super().forward(query, key, value, self.first)


class FirstMaskOfAShape(Right):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.kept = {}

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = self.kept.setdefault(mask.shape, mask)
        return super().forward(query, key, value, mask)


class MasksOnce(Right):
    calls = 0

    def forward(self, query, key, value, mask=None):
        self.calls += 1
        return super().forward(query, key, value, mask if self.calls < 2 else None)


class KeepsKeys(Right):
    """A cache that nobody empties."""

    past = None

    def forward(self, query, key, value, mask=None):
        if self.past is not None and mask is None:
            pairs = zip(self.past, (key, value))
            key, value = (torch.cat(pair, 1) for pair in pairs)
        self.past = key, value
        return super().forward(query, key, value, mask)


class KeepsKeysIfMasked(Right):
    """Fails as soon as there are more keys than the mask has columns."""

    past = None

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            if self.past is not None:
                key = torch.cat([self.past, key], 1)
            self.past = key
        return super().forward(query, key, value, mask)


class KeepsOneCall(Right):
    """What comes out depends on the last call alone, so the third is as the second."""

    past = None

    def forward(self, query, key, value, mask=None):
        last, self.past = self.past, value
        fits = last is not None and last.shape == value.shape
        return super().forward(query, key, value + last if fits else value, mask)


class OwnGenerator(Right):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.draws = torch.Generator()

    def forward(self, query, key, value, mask=None):
        noise = torch.rand(query.shape, generator=self.draws)
        return super().forward(query + noise, key, value, mask)


class Drops(Right):
    def forward(self, query, key, value, mask=None):
        return super().forward(self.kept(query), key, value, mask)

    def kept(self, x):
        return F.dropout(x, 0.1)


class DropsByNumPy(Drops):
    def kept(self, x):
        return x * torch.from_numpy(np.random.rand(*x.shape) > 0.1)


class DropsByPython(Drops):
    def kept(self, x):
        return x * (random.random() > 0.1) + random.random()


@pytest.mark.parametrize(
    "layer", [KeepsKeys, KeepsKeysIfMasked, KeepsOneCall, OwnGenerator]
)
@pytest.mark.parametrize("made", [lambda layer: layer, lambda layer: layer(16, 2)])
def test_memory_is_no_dropout(layer, made):
    found = diagnose(made(layer), "mha")
    assert (found.verdict, found.mistakes) == ("unknown", [])
    (words,) = found.to_dict()["evidence"]
    assert "something is kept from one call to the next" in words
    assert not found.properties["deterministic"]


@pytest.mark.parametrize("layer", [Drops, DropsByNumPy, DropsByPython])
def test_chance_is_dropout_whoever_draws(layer):
    state, draws = random.getstate(), np.random.get_state()[1]
    found = diagnose(layer, "mha")
    assert (found.verdict, found.mistakes) == ("named", ["dropout-in-eval"])
    assert not found.properties["deterministic"]
    if layer is Drops:
        assert random.getstate() == state
        assert (np.random.get_state()[1] == draws).all()


def test_a_module_that_remembers_its_first_mask_is_not_right_either():
    module = FirstMaskForEver(16, 2)
    found = diagnose(module, "mha")
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert found.properties["right_without_mask"]
    assert not found.properties["right_with_mask"]


@pytest.mark.parametrize("layer", [FirstMaskForEver, MasksOnce, KeepsKeys])
def test_what_a_layer_remembers_is_not_called_right(layer):
    found = diagnose(layer, "mha")
    assert found.verdict in ("named", "unknown")
    assert not found.properties["right"]


def test_what_fails_for_some_numbers_alone_remembers_nothing():
    def call(given):
        if given["x"][0] > 0:
            raise ValueError("below 0")
        return given["x"]

    x = torch.tensor([1.0, -1.0])  # turned round, it answers
    with pytest.raises(ValueError, match="below 0"):
        outcome_of(call, {"x": x}, {"repeat": True}, {})


def test_what_fails_once_it_was_called_often_is_no_chance():
    calls = []

    def call(given):
        calls.append(1)
        if len(calls) > 4:
            raise ValueError("enough")
        return given["x"] * len(calls)

    found = outcome_of(call, {"x": torch.ones(2)}, {"repeat": True}, {})
    assert found["repeat_differs"] and found["notes"] == [{"code": "remembers"}]


class MakesItsLayer(Right):
    def forward(self, query, key, value, mask=None):
        output = super().forward(query, key, value, mask)
        return nn.Linear(output.shape[-1], output.shape[-1]).to(output)(output)


def test_a_layer_that_is_made_in_each_call_is_told_where_to_make_it():
    found = diagnose(MakesItsLayer, "mha")
    assert (found.verdict, found.mistakes) == ("unknown", [])
    (words,) = found.to_dict()["evidence"]
    assert "each call makes a layer" in words and "in __init__" in words


@pytest.mark.parametrize("seed", [0, 5])
def test_what_is_right_as_the_first_call_alone_is_not_sent_to_the_training_mode(seed):
    report = check(FirstMaskOfAShape, "mha", seed=seed)
    assert report.diagnosis.verdict == "unknown"
    assert "something is kept from one call to the next" in repr(report)
    assert "self.training" not in repr(report)


class KeepsThatNothingIsHidden(Right):
    nothing = None

    def forward(self, query, key, value, mask=None):
        if mask is None:
            if self.nothing is None:
                shape = (len(query), query.shape[1], key.shape[1])
                self.nothing = torch.ones(shape, dtype=torch.bool)
            mask = self.nothing
        return super().forward(query, key, value, mask)


@pytest.mark.parametrize("seed", [0, 7])
def test_what_is_kept_of_a_call_without_a_mask_meets_other_sizes(seed):
    found = diagnose(KeepsThatNothingIsHidden, "mha", seed=seed)
    assert found.verdict == "unmet" and not found.properties["other_sizes"]
