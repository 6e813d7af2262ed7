"""The numbers of a results file as pictures.

    python -m benchmarks.plots             # of benchmarks/results/cpu.json
    python -m benchmarks.plots FILE.json

They go to _build/benchmarks, as those of a run do.
"""

import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # files only; no screen is needed
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator

from benchmarks import machine, views
from benchmarks.results import FOLDER, load
from benchmarks.shares import STEPS
from mha_lib.plots import COLOURS
from tools import book

TARGET = book.ROOT / "_build" / "benchmarks"
MARKERS = "osD^vPX*<>"
HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo")


def draw_all(content: dict, name: str, target: Path) -> Iterator[Path]:
    """Draw what the numbers allow, and yield each file."""
    target.mkdir(parents=True, exist_ok=True)
    for title, figure in figures(content):
        figure.suptitle(machine.sentence(content["machine"]), fontsize=7)
        path = target / f"{name}_{title}.png"
        figure.savefig(path, dpi=150)
        plt.close(figure)
        yield path


def figures(content: dict) -> Iterator[tuple[str, Figure]]:
    for run in ("forward", "training"):
        for causal in (False, True):
            rows = views.rows_by_size(content, run=run, causal=causal)
            if rows:
                mask = "causal" if causal else "no_mask"
                yield f"{run}_{mask}", ratios(rows, f"{run}, {mask}".replace("_", " "))
    lines = (
        ("length", views.cost_by(content, "length"), "T", "milliseconds"),
        ("heads", views.cost_by(content, "heads"), "H", "milliseconds"),
        ("memory", views.memory_by_length(content), "T", "MiB"),
    )
    for title, series, against, cost in lines:
        if series:
            yield title, growth(series, against, cost)
    if views.shares(content):
        yield "shares", bars(views.shares(content))
    if views.limits(content) and views.on_the_roof(content):
        yield "roofline", roofline(views.limits(content), views.on_the_roof(content))


def ratios(rows: dict, title: str) -> Figure:
    """A line for each contestant, a marker for each size, quartiles as a bar."""
    names = list(dict.fromkeys(name for of_size in rows.values() for name in of_size))
    last = list(rows.values())[-1]
    names.sort(key=lambda name: -last.get(name, {"ratio": 0})["ratio"])
    figure, ax = plt.subplots(figsize=(8, 0.3 * len(names) + 1.6), layout="constrained")
    for k, (size, of_size) in enumerate(rows.items()):
        places = [i for i, name in enumerate(names) if name in of_size]
        found = [of_size[names[i]] for i in places]
        middle = [row["ratio"] for row in found]
        spread = [
            [row["ratio"] - row["low"] for row in found],
            [row["high"] - row["ratio"] for row in found],
        ]
        ax.errorbar(
            middle,
            [i + 0.15 * (k - 1.5) for i in places],
            xerr=spread,
            fmt=MARKERS[k % len(MARKERS)],
            color=COLOURS[(5, 6, 2, 3)[k % 4]],
            label=str(tuple(size)),
            markersize=5,
        )
    ax.axvline(1, color="black", linewidth=1)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(FixedLocator([1.5, 3, 6]))
    ax.xaxis.set_minor_formatter("{x:g}")
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.grid(axis="y", alpha=0.3)
    ax.set(xlabel="time / time of the floor", title=title)
    ax.legend(title="B, T, E, H", fontsize=8)
    return figure


def growth(series: views.Series, against: str, cost: str) -> Figure:
    """A line for each contestant on logarithmic axes; its slope is the exponent."""
    figure, ax = plt.subplots(figsize=(9.5, 4.6), layout="constrained")
    for (name, costs), marker, colour in zip(
        series.items(), cycle(MARKERS), cycle(COLOURS[:4] + COLOURS[5:])
    ):
        power = views.exponent(costs, views.LONG if against == "T" else 1)
        label = name if power is None else f"{name}: {against}^{power:.2f}"
        sizes = sorted(costs)
        costs = [costs[size] for size in sizes]
        ax.plot(sizes, costs, marker=marker, color=colour, label=label)
    logarithmic(ax, against, cost)
    return figure


def logarithmic(ax: Axes, xlabel: str, ylabel: str) -> None:
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.yaxis.set_major_formatter("{x:g}")
    ax.set(xlabel=xlabel, ylabel=ylabel)
    ax.grid(alpha=0.3)
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def bars(shares: dict[str, dict[str, float]]) -> Figure:
    """A bar for each contestant, cut into the shares of the steps."""
    figure, ax = plt.subplots(
        figsize=(8, 0.45 * len(shares) + 1.4), layout="constrained"
    )
    left = [0.0] * len(shares)
    for step, colour, hatch in zip(STEPS, COLOURS, HATCHES):
        parts = [of_one[step] for of_one in shares.values()]
        look = {"color": colour, "hatch": hatch, "edgecolor": "white"}
        ax.barh(list(shares), parts, left=left, label=step, **look)
        left = [a + b for a, b in zip(left, parts)]
    ax.invert_yaxis()
    ax.set(xlabel="part of the time", xlim=(0, 1))
    ax.legend(ncols=4, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def roofline(limit: dict[str, float], placed: dict[str, tuple[float, float]]) -> Figure:
    """The two limits, and a point for each contestant under them."""
    figure, ax = plt.subplots(figsize=(9.5, 4.6), layout="constrained")
    ridge = limit["gflops"] / limit["gbytes"]
    ends = [ridge / 16, ridge, ridge * 64]
    roof = [min(limit["gflops"], end * limit["gbytes"]) for end in ends]
    ax.plot(ends, roof, color="black", label="the roof")
    for (name, point), marker, colour in zip(
        placed.items(), cycle(MARKERS), cycle(COLOURS[:4] + COLOURS[5:])
    ):
        ax.plot(*point, marker, color=colour, markersize=8, label=name)
    logarithmic(ax, "operations per byte", "GFLOP/s")
    return figure


def main(paths: list[str]) -> None:
    for path in map(Path, paths or [FOLDER / "cpu.json"]):
        for picture in draw_all(load(path), path.stem, TARGET):
            print(picture)


if __name__ == "__main__":
    main(sys.argv[1:])
