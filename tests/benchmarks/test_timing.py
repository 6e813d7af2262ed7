"""Ratios to the floor, on a clock that the test moves."""

import pytest
import torch

from benchmarks import timing


class Machine:
    """A clock that only calls move, and that is slower at every turn."""

    def __init__(self, drift=0.0):
        self.now, self.drift = 0.0, drift
        self.log = []

    def call(self, name, cost):
        def run():
            self.log.append(name)
            self.now += cost * (1 + self.drift * len(self.log))

        return run

    def clock(self):
        return self.now


def test_a_ratio_is_time_by_time():
    machine = Machine()
    calls = {"a": machine.call("a", 0.5), "b": machine.call("b", 0.25)}
    found = timing.race(calls, machine.call("floor", 0.25), machine.clock, budget=0)
    assert {name: own.summary()["ratio"] for name, own in found.items()} == {
        "a": 2.0,
        "b": 1.0,
    }
    assert found["a"].summary()["ms"] == 500


def test_a_machine_that_slows_down_slows_all_alike():
    machine = Machine(drift=0.05)
    calls = {name: machine.call(name, 1.0) for name in "abcdef"}
    found = timing.race(calls, machine.call("floor", 1.0), machine.clock, budget=0)
    assert machine.now > 1.5 * len(machine.log)
    for own in found.values():
        assert own.summary()["ratio"] == pytest.approx(1, abs=0.05)


def test_each_has_the_floor_beside_it_and_the_order_changes():
    machine = Machine()
    calls = {name: machine.call(name, 1.0) for name in "abcde"}
    timing.race(calls, machine.call("floor", 1.0), machine.clock, budget=0)
    log = machine.log[len(calls) + 1 :]  # after the first call of each
    for before, name, after in zip(log, log[1:], log[2:]):
        assert "floor" in (before, name, after)
    rounds = [name for name in log if name != "floor"]
    assert sorted(rounds[:5]) == sorted(rounds[5:]) == list("abcde")
    assert rounds[:5] != rounds[5:]


def test_only_the_close_and_the_unsteady_go_on():
    machine = Machine()
    calls = {"near": machine.call("near", 1.1), "far": machine.call("far", 1.5)}
    steady = machine.call("unsteady", 2.0)

    def unsteady():
        steady()
        machine.now += 0.2 * len(machine.log) % 3

    calls["unsteady"] = unsteady
    found = timing.race(calls, machine.call("floor", 1.0), machine.clock, budget=9)
    assert found["near"].summary()["rounds"] == timing.MOST_ROUNDS
    assert found["unsteady"].summary()["rounds"] > timing.LEAST_ROUNDS
    assert found["far"].summary()["rounds"] == timing.LEAST_ROUNDS


def test_no_round_is_started_after_the_budget():
    machine = Machine()
    calls = {"near": machine.call("near", 1.1)}
    found = timing.race(calls, machine.call("floor", 1.0), machine.clock, budget=-1)
    assert found["near"].summary()["rounds"] == timing.LEAST_ROUNDS


def test_short_calls_are_repeated():
    machine = Machine()
    calls = {"short": machine.call("short", timing.SHORTEST / 8)}
    floor = machine.call("floor", timing.SHORTEST)
    found = timing.race(calls, floor, machine.clock, budget=0)["short"].summary()
    assert found["ratio"] == 1 / 8
    before = len(machine.log)
    again = timing.race(calls, floor, machine.clock, budget=0, long=True)["short"]
    assert again.summary()["ratio"] == 1 / 8
    uncounted = 1  # a round that warms up
    rounds = uncounted + again.summary()["rounds"]
    assert machine.log[before:] == ["floor", "short"] * rounds
    assert timing.repeats_of(machine.call("a", timing.SHORTEST / 8), machine.clock) == 8
    assert timing.repeats_of(machine.call("a", 1.0), machine.clock) == 1


def test_page_faults_are_counted():
    if timing.resource is None:
        pytest.skip("this system does not count them")
    own = timing.race(
        {"maps": lambda: torch.empty(2**26, dtype=torch.uint8).fill_(1)},
        lambda: sum(range(10**5)),
        timing.clock_for("cpu", 1),
        budget=0,
    )["maps"]
    assert own.summary()["faults"] > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_sleep_is_not_processor_time(threads):
    clock = timing.clock_for("cpu", threads)
    took = timing.seconds(lambda: timing.time.sleep(0.02), 1, clock)
    assert (took >= 0.02) == (threads == 2)
