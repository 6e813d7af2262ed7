"""What was aimed at, and whether the numbers reach it."""

from collections.abc import Iterator
from typing import NamedTuple

from benchmarks import views
from benchmarks.plan import SIZES
from benchmarks.results import select
from benchmarks.workload import Size

NO_WEIGHTS = ("FusedMHA, no weights", "mha_lib.MultiheadAttention, no weights")
WITH_WEIGHTS = (
    "mha_lib.MultiheadAttention, weights averaged",
    "mha_lib.MultiheadAttention, weights per head",
    "FusedMHA, weights per head",
)
THEIRS = "nn.MultiheadAttention, "
LOOP = "loop over head slices"
RESOLUTION = 0.03  # two equal contestants may differ by this much


class Goal(NamedTuple):
    """A goal, whether it was reached everywhere, and where it was missed most."""

    text: str
    reached: bool
    worst: str


def goals(content: dict) -> Iterator[Goal]:
    """Those for which there are numbers, at the sizes for which they were set."""
    cells = [
        e
        for e in select(content, part="sizes")
        if e.get("rows") and Size(*e["size"]) in SIZES
    ]
    for name in NO_WEIGHTS:
        yield from ratio_at_most(1.03, name, cells)
        for other in ("no weights", "no weights, no fast path"):
            yield from not_slower(name, THEIRS + other, cells)
    short = [e for e in cells if Size(*e["size"]).T <= 1024]
    for name in WITH_WEIGHTS:
        yield from ratio_at_most(1.2, name, short, " for T ≤ 1024")
        yield from not_slower(name, THEIRS + name.partition(", ")[2], cells)
        yield from not_slower(name, LOOP, cells)
    yield from linear_memory(content)


def ratio_at_most(
    bound: float, name: str, cells: list[dict], where: str = ""
) -> Iterator[Goal]:
    ratios = {place(e): e["rows"][name]["ratio"] for e in cells if name in e["rows"]}
    yield from at_most(f"{name}: at most {bound}{where}", ratios, bound)


def not_slower(name: str, other: str, cells: list[dict]) -> Iterator[Goal]:
    quotients = {
        place(e): e["rows"][name]["ratio"] / e["rows"][other]["ratio"]
        for e in cells
        if name in e["rows"] and other in e["rows"]
    }
    text = f"{name}: not slower than {other} (resolution {RESOLUTION:.0%})"
    yield from at_most(text, quotients, 1 + RESOLUTION)


def at_most(text: str, found: dict[str, float], bound: float) -> Iterator[Goal]:
    if found:
        worst = max(found, key=found.get)
        good = sum(number <= bound for number in found.values())
        where = f"{good} of {len(found)} cells; {found[worst]:.2f} at {worst}"
        yield Goal(text, good == len(found), where)


def linear_memory(content: dict) -> Iterator[Goal]:
    series = views.memory_by_length(content)
    for name in NO_WEIGHTS:
        power = views.exponent(series.get(name, {}))
        if power is not None:
            longest = max(series[name])
            text = f"{name}: memory linear in T (exponent at most 1.1)"
            yield Goal(text, power <= 1.1, f"{power:.2f} up to T = {longest}")


def place(entry: dict) -> str:
    mask = "causal" if entry["causal"] else "no mask"
    where = f"{entry['dtype']}, {entry['threads']} thread(s), {entry['allocator']}"
    return f"{tuple(entry['size'])} {entry['run']}, {mask}, {where}"
