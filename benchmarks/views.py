"""What tables, plots and the chapter need of a results file."""

import math
import statistics
from collections.abc import Sequence

from benchmarks.results import select
from benchmarks.workload import Size

LONG = 1024  # exponents are fitted from this length on: below it, overhead counts
MAIN = {"threads": 1, "allocator": "system", "causal": False, "run": "forward"}

Series = dict[str, dict[int, float]]  # for each contestant: size → cost


def rows_by_size(content: dict, **where: object) -> dict[Size, dict[str, dict]]:
    """The rows of the cells of part "sizes", float32 and the main setting unless said.

    For example ``rows_by_size(content, causal=True)``. The shortest sequences come
    first, in whatever order they were measured.
    """
    wanted = {**MAIN, "dtype": "float32", **where}
    cells = [cell for cell in select(content, part="sizes", **wanted) if "rows" in cell]
    cells.sort(key=lambda cell: Size(*cell["size"]).T)
    return {Size(*cell["size"]): cell["rows"] for cell in cells}


def cost_by(content: dict, part: str, what: str = "ms") -> Series:
    """A cost against the length (part "length") or the heads (part "heads")."""
    series: Series = {}
    for cell in select(content, part=part):
        size = Size(*cell["size"])
        for name, row in cell.get("rows", {}).items():
            against = size.T if part == "length" else size.H
            series.setdefault(name, {})[against] = row[what]
    return series


def memory_by_length(content: dict) -> Series:
    """MiB against the length."""
    series: Series = {}
    for point in select(content, part="memory"):
        if "mib" in point:
            series.setdefault(point["name"], {})[point["size"][1]] = point["mib"]
    return series


def exponent(costs: dict[int, float], least: int = LONG) -> float | None:
    """How a cost grows from size ``least`` on; None if there are too few numbers."""
    kept = {size: cost for size, cost in costs.items() if size >= least and cost > 0}
    return power(list(kept), list(kept.values())) if len(kept) > 1 else None


def power(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """p of cost ≈ c · sizeᵖ: the slope of a straight line through the logarithms."""
    xs, ys = map(math.log, sizes), map(math.log, costs)
    return statistics.linear_regression(list(xs), list(ys)).slope


def shares(content: dict) -> dict[str, dict[str, float]]:
    """For each contestant the shares of the steps."""
    found = select(content, part="shares")
    return {entry["name"]: entry["shares"] for entry in found if "shares" in entry}


def limits(content: dict, dtype: str = "float32") -> dict[str, float] | None:
    """The machine's GFLOP/s and GB/s."""
    return next(select(content, kind="limits", dtype=dtype), None)


def on_the_roof(content: dict) -> dict[str, tuple[float, float]]:
    """For each contestant its operations per byte and its GFLOP/s."""
    placed = {}
    for entry in select(content, kind="moved"):
        size, name = Size(*entry["size"]), entry["name"]
        row = rows_by_size(content).get(size, {}).get(name)
        if row and "bytes" in entry:
            speed = size.flops / row["ms"] / 1e6
            placed[name] = (size.flops / entry["bytes"], speed)
    return placed


def trouble(content: dict, kind: str) -> list[str]:
    """Who was "refused", or "cannot" run, or at what a process "died", and why."""
    found = []
    for entry in content["entries"]:
        reasons = entry.get(kind, {})
        if isinstance(reasons, str):
            reasons = {entry.get("name", "everybody"): reasons}
        where = ", ".join(
            str(entry[key])
            for key in ("part", "size", "run", "dtype", "threads", "allocator")
            if key in entry
        )
        found += [f"{name}: {why} [{where}]" for name, why in reasons.items()]
    return found
