"""The tables, made from the numbers of a results file alone."""

from collections.abc import Iterator

from benchmarks import goals, machine, views
from benchmarks.contestants import FLOOR
from benchmarks.jobs import EVERYBODY
from benchmarks.results import select
from benchmarks.shares import STEPS


def report(content: dict) -> str:
    """Everything, as one markdown text."""
    return "\n\n".join(
        [
            heading(content),
            *ratio_tables(content),
            *allocator_tables(content),
            *growth_tables(content),
            *share_table(content),
            *roof_table(content),
            *goal_table(content),
            *trouble(content),
        ]
    )


def heading(content: dict) -> str:
    where = content["machine"]
    versions = ", ".join(f"{k} {v}" for k, v in where["versions"].items())
    return (
        f"# What attention costs\n\n{machine.sentence(where)}, {where['libc']}, "
        f"Python {where['python']}. {versions}.\n\nA ratio is a time divided by the "
        f"time of the {FLOOR.name}, which runs beside each in the same process: the "
        "median and the quartiles. One thread is timed by its processor time, several "
        "by the clock. The ratio of the floor to itself shows the "
        "resolution."
    )


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def ratio_tables(content: dict) -> Iterator[str]:
    """One for each setting, mask and pass: how many times the floor everybody takes."""
    by_title: dict[str, list[dict]] = {}
    for cell in select(content, part="sizes"):
        if "rows" in cell:
            mask = "causal mask" if cell["causal"] else "no mask"
            threads = f"{cell['threads']} thread" + "s" * (cell["threads"] > 1)
            kept = "" if cell["allocator"] == "system" else ", allocator keeps pages"
            title = f"{cell['run']}, {mask}, {cell['dtype']}, {threads}{kept}"
            by_title.setdefault(title, []).append(cell)
    for title, cells in by_title.items():
        names = dict.fromkeys(name for cell in cells for name in cell["rows"])
        rows = [
            [name, returned(name), *(ratio(cell["rows"].get(name)) for cell in cells)]
            for name in sorted(names, key=lambda name: mean_ratio(cells, name))
        ]
        sizes = [",".join(map(str, cell["size"])) for cell in cells]
        yield f"## {title}\n\n{table(['B,T,E,H', 'weights', *sizes], rows)}"


def mean_ratio(cells: list[dict], name: str) -> float:
    ratios = [c["rows"][name]["ratio"] for c in cells if name in c["rows"]]
    return sum(ratios) / len(ratios)


def returned(name: str) -> str:
    return EVERYBODY[name].weights if name in EVERYBODY else ""


def ratio(row: dict | None) -> str:
    if row is None:
        return "–"
    return f"{row['ratio']:.2f} ({row['low']:.2f}–{row['high']:.2f})"


def allocator_tables(content: dict) -> Iterator[str]:
    """What changes if freed pages are kept, at the last size."""
    for run in ("forward", "training"):
        usual = views.rows_by_size(content, run=run)
        kept = views.rows_by_size(content, run=run, allocator="keeps pages")
        both = [size for size in usual if size in kept]
        if both:
            size = both[-1]
            rows = [
                [
                    name,
                    f"{usual[size][name]['faults']:,}",
                    f"{usual[size][name]['system']:.0%}",
                    f"{usual[size][name]['ratio']:.2f}",
                    f"{row['faults']:,}",
                    f"{row['ratio']:.2f}",
                ]
                for name, row in kept[size].items()
                if name in usual[size]
            ]
            header = ["", "page faults", "in the system", "ratio"]
            header += ["page faults, pages kept", "ratio, pages kept"]
            yield f"## Page faults, {run}, {tuple(size)}\n\n{table(header, rows)}"


def growth_tables(content: dict) -> Iterator[str]:
    """Time against length and heads, memory against length, with exponents."""
    long = f"exponent from {views.LONG} on"
    for title, series, least, label in (
        ("Milliseconds against T", views.cost_by(content, "length"), views.LONG, long),
        ("Milliseconds against H", views.cost_by(content, "heads"), 1, "exponent"),
        ("MiB against T", views.memory_by_length(content), views.LONG, long),
    ):
        if series:
            sizes = sorted({size for costs in series.values() for size in costs})
            rows = []
            for name, costs in series.items():
                power = views.exponent(costs, least)
                cells = [f"{costs[s]:.4g}" if s in costs else "–" for s in sizes]
                rows.append([name, *cells, "–" if power is None else f"{power:.2f}"])
            header = ["", *map(str, sizes), label]
            yield f"## {title}\n\n{table(header, rows)}"


def share_table(content: dict) -> Iterator[str]:
    """Where the time of a forward pass goes."""
    shares = views.shares(content)
    if shares:
        rows = [
            [name, *(f"{parts[step]:.0%}" for step in STEPS)]
            for name, parts in shares.items()
        ]
        yield f"## Where the time goes\n\n{table(['', *STEPS], rows)}"


def roof_table(content: dict) -> Iterator[str]:
    """The machine's limits, and how near everybody comes."""
    for limit in select(content, kind="limits"):
        if "gflops" in limit:
            yield (
                f"## Limits, {limit['dtype']}\n\nA product of two large matrices: "
                f"{limit['gflops']} GFLOP/s. A copy: {limit['gbytes']} GB/s."
            )
    limit, placed = views.limits(content), views.on_the_roof(content)
    if limit and placed:
        rows = []
        for name, (intensity, speed) in placed.items():
            roof = min(limit["gflops"], intensity * limit["gbytes"])
            rows.append(
                [name, f"{intensity:.1f}", f"{speed:.1f}", f"{speed / roof:.0%}"]
            )
        header = ["", "operations per byte", "GFLOP/s", "of the roof"]
        yield f"## Under the roof\n\n{table(header, rows)}"


def goal_table(content: dict) -> Iterator[str]:
    """What was aimed at on a processor, and whether it was reached."""
    if "gpu" in content["machine"]:
        return
    rows = [
        ["yes" if goal.reached else "NO", goal.text, goal.worst]
        for goal in goals.goals(content)
    ]
    if rows:
        yield f"## Goals\n\n{table(['reached', 'goal', 'worst'], rows)}"


def trouble(content: dict) -> Iterator[str]:
    """Who could not run, and who was refused."""
    titles = {
        "cannot": "Could not run",
        "refused": "Computed something else, and was not timed",
        "died": "A process died",
    }
    for kind, title in titles.items():
        found = views.trouble(content, kind)
        if found:
            yield "\n".join([f"## {title}", "", *(f"- {line}" for line in found)])
