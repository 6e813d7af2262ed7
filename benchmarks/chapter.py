"""Put the stored numbers into chapter 10, and execute it.

    python -m benchmarks.chapter       # after python -m benchmarks; commit both files

The notebook has to run where nothing of this repository is but `mha_lib`, and numbers
of one machine do not belong into a library. So they stand in the notebook itself, in
cells whose first line is one of TITLES. A test compares them with the results file.
"""

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks import machine, views
from benchmarks.contestants import FLOOR
from benchmarks.results import FOLDER, load, select
from benchmarks.shares import STEPS
from tools import book, notebook

NOTEBOOK = book.ROOT / "book" / "10_what_it_costs.ipynb"
TITLES = tuple(
    f"# Stored results {part}; written by: python -m benchmarks.chapter"
    for part in ("1 of 4: ratios", "2 of 4: growth", "3 of 4: pages", "4 of 4: shares")
)
MASK = "fused + SDPA, mask as a tensor"
RATIOS = (
    FLOOR.name,
    "FusedMHA, no weights",
    "x-transformers, flash",
    "nn.MultiheadAttention, no weights",
    "loop over head slices",
    "FusedMHA, weights per head",
    "nn.MultiheadAttention, weights averaged",
    "PerHeadMHA",
    "BatchedMHA",
    "EinsumMHA",
)
GROWTH = (FLOOR.name, "loop over head slices", "BatchedMHA")
PIECES = "FusedMHA, is_causal=True"
PAGES = (
    "loop over head slices",
    "FusedMHA, weights per head",
    "BatchedMHA",
    "nn.MultiheadAttention, no weights",
    "nn.MultiheadAttention, weights averaged",
)
NO_FAST_PATH = "nn.MultiheadAttention, no weights, no fast path"
EINSUM = "EinsumMHA"
SHARES = (FLOOR.name, "loop over head slices", "BatchedMHA", "EinsumMHA")

Rows = dict[str, Iterable[float | None]]


def sources(content: dict) -> dict[str, str]:
    """The source of each cell of stored numbers, by its first line."""
    parts = (ratios, growth, pages, shares)
    return {
        title: "\n".join([title, *part(content)]) for title, part in zip(TITLES, parts)
    }


def ratios(content: dict) -> Iterator[str]:
    """Forward, no mask: time / time of the floor; in bfloat16 for RATIOS[1]."""
    by_size = list(views.rows_by_size(content).items())
    first, *more = textwrap.wrap(machine.sentence(content["machine"]), 64)
    yield f'MACHINE = ("{first}"'
    yield from (f'    " {line}"' for line in more[:-1])
    yield f'    " {more[-1]}")'
    yield from listing("SIZES", [str(tuple(size)) for size, _ in by_size])
    found = {n: [rows[n] for _, rows in by_size] for n in RATIOS}
    yield from table("RATIOS", {n: [r["ratio"] for r in found[n]] for n in found})
    rounds = zip(*[[row["rounds"] for row in rows] for rows in found.values()])
    yield from listing("ROUNDS", map(min, rounds))
    yield from listing("SPREAD", [f"{max(map(spread, found[n])):.2f}" for n in found])
    for name, run in (("BFLOAT16", "forward"), ("BFLOAT16_TRAINING", "training")):
        short = views.rows_by_size(content, dtype="bfloat16", run=run).values()
        yield from listing(name, [number(rows[RATIOS[1]]["ratio"]) for rows in short])


def spread(row: dict) -> float:
    """The distance of the quartiles, as part of the median."""
    return (row["high"] - row["low"]) / row["ratio"]


def growth(content: dict) -> Iterator[str]:
    """Milliseconds, the system's part of them and MiB against T; ms against H."""
    ms, mib = views.cost_by(content, "length"), views.memory_by_length(content)
    system = views.cost_by(content, "length", "system")
    by_heads = views.cost_by(content, "heads")
    lengths = sorted({T for name in GROWTH for T in (*ms[name], *mib[name])})
    heads = sorted(by_heads[FLOOR.name])
    yield from listing("LENGTHS", lengths)
    for title, rows in (("MS_BY_T", ms), ("SYSTEM_BY_T", system), ("MIB_BY_T", mib)):
        yield from table(title, {n: [rows[n].get(T) for T in lengths] for n in GROWTH})
    yield from listing("HEADS", heads)
    yield from table("MS_BY_H", {n: [by_heads[n][H] for H in heads] for n in GROWTH})


def pages(content: dict) -> Iterator[str]:
    """Page faults and their cost at the last size; causality at every size."""
    usual = views.rows_by_size(content)
    kept = views.rows_by_size(content, allocator="keeps pages")
    causal = views.rows_by_size(content, causal=True).values()
    size = list(kept)[-1]
    yield f"PAGES_SIZE = {tuple(size)}"
    yield "# page faults, part of the time in the system, ratio, ratio with pages kept"
    found = {}
    for name in PAGES:
        row = usual[size][name]
        found[name] = [row["faults"], row["system"], row["ratio"]]
        found[name].append(kept[size][name]["ratio"])
    yield from table("PAGES", found)
    yield f"NO_FAST_PATH = {number(usual[size][NO_FAST_PATH]['ratio'])}"
    yield "# the floor in two races, in ms"
    of_floor = {"no mask": usual.values(), "is_causal=True": causal}
    times = {n: [rows[FLOOR.name]["ms"] for rows in r] for n, r in of_floor.items()}
    yield from table("CAUSAL_MS", times)
    yield "# ratios to the floor with is_causal=True, in one race"
    beside = {"mask as a tensor": MASK, PIECES: RATIOS[1]}
    found = {n: [rows[of]["ratio"] for rows in causal] for n, of in beside.items()}
    yield from table("CAUSAL", found)


def shares(content: dict) -> Iterator[str]:
    """Shares of the steps; limits, operations per byte and GFLOP/s; EinsumMHA."""
    found, limits = views.shares(content), views.limits(content)
    placed = views.on_the_roof(content)
    size = next(select(content, part="shares"))["size"]
    yield f"SHARES_SIZE = {tuple(size)}"
    yield from listing("STEPS", [f'"{step}"' for step in STEPS])
    yield from table("SHARES", {n: [found[n][step] for step in STEPS] for n in SHARES})
    yield f"GFLOPS, GBYTES = {limits['gflops']}, {limits['gbytes']}"
    yield from table("POINTS", {name: placed[name] for name in SHARES})
    yield "# EinsumMHA / floor: against LENGTHS, against HEADS, causal at SIZES"
    for part in ("length", "heads"):
        by = sorted(views.cost_by(content, part, "ratio")[EINSUM].items())
        yield from listing(f"EINSUM_BY_{part.upper()}", [number(r) for _, r in by])
    causal = views.rows_by_size(content, causal=True).values()
    yield from listing("EINSUM_CAUSAL", [number(r[EINSUM]["ratio"]) for r in causal])


def number(value: float | None) -> str:
    """Three significant digits; whole numbers stay whole."""
    if value is None or isinstance(value, int):
        return str(value)
    return f"{float(f'{value:.3g}'):.10g}"


def listing(name: str, items: Iterable[object]) -> Iterator[str]:
    """A list as source."""
    text = f"{name} = [{', '.join(map(str, items))}]"
    yield from textwrap.wrap(text, 80, subsequent_indent="    ")


def table(name: str, rows: Rows) -> Iterator[str]:
    """A dictionary of lists as source, a line each."""
    yield f"{name} = {{"
    lines = [f'"{key}": [{", ".join(map(number, rows[key]))}]' for key in rows]
    yield from (f"    {line}," for line in lines[:-1])
    yield f"    {lines[-1]}}}"


def write(path: Path, content: dict) -> None:
    """Replace the sources of the cells of stored numbers."""
    chapter, wanted = notebook.read(path), sources(content)
    found = []
    for cell in chapter.cells:
        title = cell.source.partition("\n")[0]
        if title in wanted:
            cell.source = wanted[title]
            found.append(title)
    if found != list(TITLES):
        raise ValueError(f"{path} needs a cell for each of {TITLES}; got {found}")
    notebook.write(chapter, path)


def main() -> None:
    write(NOTEBOOK, load(FOLDER / "cpu.json"))
    notebook.write(notebook.execute(NOTEBOOK), NOTEBOOK)
    print(f"{NOTEBOOK.relative_to(book.ROOT)}: done")


if __name__ == "__main__":
    main()
