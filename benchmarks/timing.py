"""Ratios to the floor, timed in turn within one process.

One machine is never twice the same: its clock, its caches and its neighbours change
within seconds. So nobody's seconds are compared with seconds from another minute. In
each round all contestants run in a new order with the floor at every second place;
each has a floor beside it, and a contestant's ratio is the median over the rounds.
"""

import math
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

try:
    import resource
except ImportError:  # Windows counts no page faults
    resource = None

import torch

Call = Callable[[], object]

SHORTEST = 0.005  # seconds; calls that take less are repeated within one sample
LEAST_ROUNDS, MOST_ROUNDS = 2, 40
CLOSE = 1.25  # times the floor
SURE = 0.05  # quartiles that lie no further apart need no further round


@dataclass
class Samples:
    """What was measured of one contestant, a number a round."""

    seconds: list[float] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    faults: list[float] = field(default_factory=list)
    system: list[float] = field(default_factory=list)

    @property
    def worth_another_round(self) -> bool:
        """Whether a better resolution would tell something."""
        low, ratio, high = quartiles(self.ratios)
        return ratio < CLOSE or high - low > SURE * ratio

    def summary(self) -> dict[str, float]:
        """The median ratio with its quartiles, and what else was seen."""
        low, ratio, high = quartiles(self.ratios)
        return {
            "ratio": round(ratio, 4),
            "low": round(low, 4),
            "high": round(high, 4),
            "ms": float(f"{1e3 * statistics.median(self.seconds):.4g}"),
            "rounds": len(self.ratios),
            "faults": round(statistics.median(self.faults)),
            "system": round(statistics.median(self.system), 3),
        }


def quartiles(numbers: list[float]) -> tuple[float, float, float]:
    """First quartile, median, third quartile."""
    if len(numbers) == 1:
        return (numbers[0],) * 3
    return tuple(statistics.quantiles(numbers, n=4, method="inclusive"))


def clock_for(device: str, threads: int) -> Callable[[], float]:
    """Processor time of one thread; for several threads, or a GPU, the wall clock.

    Processor time leaves out what other programs take. With several threads it adds
    them all up, so that a perfect division of the work would show no gain.
    """
    if device == "cuda":

        def synchronised() -> float:
            torch.cuda.synchronize()
            return time.perf_counter()

        return synchronised
    return time.process_time if threads == 1 else time.perf_counter


def usage() -> tuple[int, float]:
    """Minor page faults and seconds in the system, of this process so far."""
    if resource is None:
        return 0, 0.0
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_minflt, used.ru_stime


def race(
    calls: dict[str, Call],
    floor: Call,
    clock: Callable[[], float],
    budget: float,
    *,
    long: bool = False,
    seed: int = 0,
) -> dict[str, Samples]:
    """Time everybody against the floor, in rounds.

    The least number of rounds is run whatever it costs. After it, for ``budget``
    seconds, only those go on whose ratio is worth a better resolution: those close to
    the floor, and those whose ratios differ from round to round. ``long`` says that
    a call takes long enough to be timed alone.
    """
    order = random.Random(seed)
    if long:  # each once more: memory that the check left free is taken now
        for call in (floor, *calls.values()):
            call()
    repeats = {n: 1 if long else repeats_of(calls[n], clock) for n in calls}
    floor_repeats = 1 if long else repeats_of(floor, clock)
    samples = {name: Samples() for name in calls}
    end = math.inf
    for done in range(MOST_ROUNDS):
        racing = list(calls)
        if done == LEAST_ROUNDS:
            end = time.perf_counter() + budget
        if done >= LEAST_ROUNDS:
            racing = [name for name in calls if samples[name].worth_another_round]
        if not racing or time.perf_counter() > end:
            break
        order.shuffle(racing)
        beside = seconds(floor, floor_repeats, clock)
        for place, name in enumerate(racing):
            faults, system = usage()
            took = seconds(calls[name], repeats[name], clock)
            faults_now, system_now = usage()
            if place % 2:
                beside = seconds(floor, floor_repeats, clock)
            own = samples[name]
            own.seconds.append(took)
            own.ratios.append(took / beside)
            own.faults.append((faults_now - faults) / repeats[name])
            own.system.append((system_now - system) / (took * repeats[name]))
    return samples


def seconds(call: Call, repeats: int, clock: Callable[[], float]) -> float:
    """Time of one call, what it returns freed again."""
    start = clock()
    for _ in range(repeats):
        call()
    return (clock() - start) / repeats


def repeats_of(call: Call, clock: Callable[[], float]) -> int:
    """How many calls make a sample long enough to be timed."""
    once = seconds(call, 1, clock)
    if once < 10 * SHORTEST:  # the first call may have been slow: it warmed up
        once = seconds(call, 1, clock)
    return max(1, round(SHORTEST / max(once, 1e-6)))
