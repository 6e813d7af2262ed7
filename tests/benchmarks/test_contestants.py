"""Every contestant computes what the floor computes; whoever does not is refused."""

import pytest
import torch

from benchmarks import jobs, parity
from benchmarks.contestants import Contestant, Floor
from benchmarks.jobs import EVERYBODY
from benchmarks.workload import Size, Workload
from evidence.helpers import B, E, H, T

SIZE = Size(B, T, E, H)
HERE = [c for c in EVERYBODY.values() if "cpu" in c.devices]


def races():
    """Every contestant in every kind of race that it enters."""
    for contestant in HERE:
        for run in contestant.passes:
            for causal in contestant.masks:
                for dtype in contestant.dtypes:
                    mask = "causal" if causal else "plain"
                    name = f"{contestant.name}-{run}-{mask}-{dtype}"
                    yield pytest.param(contestant, run, causal, dtype, id=name)


@pytest.fixture
def distances(monkeypatch):
    """Of all that is compared."""
    found, distance = [], parity.distance
    monkeypatch.setattr(
        parity, "distance", lambda *x: found.append(distance(*x)) or found[-1]
    )
    return found


# Keras, flax and x-transformers warn of what they do themselves when imported or
# traced; what they compute is compared here with the floor.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(("contestant", "run", "causal", "dtype"), races())
def test_every_contestant_computes_what_the_floor_computes(
    contestant, run, causal, dtype, distances
):
    workload = Workload.draw(SIZE, causal=causal, dtype=getattr(torch, dtype))
    reference = parity.Reference(workload, training=run == "training")
    distances.clear()  # those of the floor to the formula
    jobs.ready(contestant, reference)()  # checked, then called as it will be timed
    compared = 1 + 2 * (run == "training") + bool(contestant.weights)
    assert len(distances) == compared and max(distances) <= reference.tolerance


# --- parity -------------------------------------------------------------------


class NoBias(Floor):
    def merge(self, context):
        return super().merge(context) - self.out_bias


class Unscaled(Floor):
    def attend(self, q, k, v):
        return super().attend(q * q.shape[-1] ** 0.5, k, v)


class Detached(Floor):
    def split(self, x):
        q, k, v = super().split(x)
        return q, k, v.detach()


class Frozen(Floor):
    def __init__(self, workload):
        super().__init__(workload)
        self.in_bias.requires_grad_(False)


class NotANumber(Floor):
    def forward(self, x):
        return super().forward(x)[0] * float("nan"), None


class OtherShape(Floor):
    def forward(self, x):
        return super().forward(x)[0].flatten(0, 1), None


class SecretWeights(Floor):
    def forward(self, x):
        return super().forward(x)[0], torch.zeros(B, H, T, T)


class Averaged(Floor):
    """Weights of head 0, where the mean over the heads is due."""

    def forward(self, x):
        q, k, _ = self.split(x)
        weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1)
        return super().forward(x)[0], weights[:, 0]


class Heads(Averaged):
    """All weights as they are announced."""

    def forward(self, x):
        q, k, _ = self.split(x)
        weights = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1)
        return Floor.forward(self, x)[0], weights.mean(1)


def check(build, run="forward", **options):
    contestant = Contestant("x", build, **options)
    reference = parity.Reference(Workload.draw(SIZE), training=run == "training")
    reference.check(contestant, build(reference.workload))


@pytest.mark.parametrize(
    ("build", "run", "weights", "message"),
    [
        (NoBias, "forward", "", "output: off by"),
        (Unscaled, "forward", "", "output: off by"),
        (NotANumber, "forward", "", "output: off by nan"),
        (OtherShape, "forward", "", r"output: shape \(15, 22\), not \(3, 5, 22\)"),
        (Detached, "training", "", "gradient of x: off by"),
        (Frozen, "training", "", "gradient of the parameters: off by"),
        (SecretWeights, "forward", "", "announced no weights, and returns some"),
        (Floor, "forward", "averaged", "announced weights, and returns none"),
        (Averaged, "forward", "averaged", "weights: off by"),
    ],
)
def test_wrong_contestants_are_refused(build, run, weights, message):
    with pytest.raises(parity.Refused, match=message):
        check(build, run, weights=weights)


def test_right_contestants_are_not_refused(distances):
    check(Floor, "training")
    check(Heads, weights="averaged")
    assert len(distances) == (1 + 3) + (1 + 2)  # the floor's own comes first
    assert max(distances) < 1e-6


def test_the_reference_is_the_formula():
    workload = Workload.draw(SIZE, causal=True)
    reference = parity.Reference(workload, training=False)
    q, k, v = (
        part.double().unflatten(-1, (H, E // H)).transpose(1, 2)
        for part in (workload.x @ workload.in_weight.T + workload.in_bias).chunk(3, -1)
    )
    scores = q @ k.transpose(-2, -1) / (E / H) ** 0.5
    weights = scores.masked_fill(~workload.mask, float("-inf")).softmax(-1)
    joined = (weights @ v).transpose(1, 2).flatten(2)
    output = joined @ workload.out_weight.double().T + workload.out_bias
    # float32 sums of a few dozen terms against float64
    torch.testing.assert_close(reference.output.double(), output, rtol=0, atol=1e-5)
    torch.testing.assert_close(reference.weights.double(), weights, rtol=0, atol=1e-6)


def test_the_tolerance_lies_between_rounding_and_the_least_mistake():
    assert parity.TOLERANCE.keys() == {torch.float32, torch.bfloat16}
    for dtype, tolerance in parity.TOLERANCE.items():
        assert 4 * torch.finfo(dtype).eps < tolerance < 0.28 / 4
