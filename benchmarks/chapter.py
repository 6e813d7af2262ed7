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
PAGES = ("loop over head slices", "FusedMHA, weights per head", "BatchedMHA")
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
    by_size = views.rows_by_size(content)
    short = views.rows_by_size(content, dtype="bfloat16")
    yield "MACHINE = ("
    for line in textwrap.wrap(machine.sentence(content["machine"]), 72):
        yield f'    "{line} "'
    yield ")"
    yield from listing("SIZES", [str(tuple(size)) for size in by_size])
    yield from table(
        "RATIOS", {n: [rows[n]["ratio"] for rows in by_size.values()] for n in RATIOS}
    )
    found = [rows[RATIOS[1]]["ratio"] for rows in short.values()]
    yield from listing("BFLOAT16", map(number, found))


def growth(content: dict) -> Iterator[str]:
    """Milliseconds and MiB against T, milliseconds against H."""
    ms, mib = views.time_by(content, "length"), views.memory_by_length(content)
    by_heads = views.time_by(content, "heads")
    lengths = sorted({T for name in GROWTH for T in (*ms[name], *mib[name])})
    heads = sorted(by_heads[FLOOR.name])
    yield from listing("LENGTHS", lengths)
    yield from table("MS_BY_T", {n: [ms[n].get(T) for T in lengths] for n in GROWTH})
    yield from table("MIB_BY_T", {n: [mib[n].get(T) for T in lengths] for n in GROWTH})
    yield from listing("HEADS", heads)
    yield from table("MS_BY_H", {n: [by_heads[n][H] for H in heads] for n in GROWTH})


def pages(content: dict) -> Iterator[str]:
    """Page faults and their cost at the last size; causality at every size."""
    usual = views.rows_by_size(content)
    kept = views.rows_by_size(content, allocator="keeps pages")
    causal = views.rows_by_size(content, causal=True)
    size = list(kept)[-1]
    yield f"PAGES_SIZE = {tuple(size)}"
    yield "# page faults, part of the time in the system, ratio, ratio with pages kept"
    found = {}
    for name in PAGES:
        row = usual[size][name]
        found[name] = [row["faults"], row["system"], row["ratio"]]
        found[name].append(kept[size][name]["ratio"])
    yield from table("PAGES", found)
    floor = [rows[FLOOR.name]["ms"] for rows in causal.values()]
    times = {
        "no mask": [rows[FLOOR.name]["ms"] for rows in usual.values()],
        "is_causal=True": floor,
    }
    # By their ratios to the floor beside them: milliseconds are of different minutes.
    for name, of in {"mask as a tensor": MASK, PIECES: RATIOS[1]}.items():
        by = [rows[of]["ratio"] for rows in causal.values()]
        times[name] = [ratio * ms for ratio, ms in zip(by, floor)]
    yield from table("CAUSAL_MS", times)


def shares(content: dict) -> Iterator[str]:
    """Shares of the steps; the machine's limits; operations per byte and GFLOP/s."""
    found, limits = views.shares(content), views.limits(content)
    placed = views.on_the_roof(content)
    size = next(select(content, part="shares"))["size"]
    yield f"SHARES_SIZE = {tuple(size)}"
    yield from listing("STEPS", [f'"{step}"' for step in STEPS])
    yield from table("SHARES", {n: [found[n][step] for step in STEPS] for n in SHARES})
    yield f"GFLOPS, GBYTES = {limits['gflops']}, {limits['gbytes']}"
    yield from table("POINTS", {name: placed[name] for name in SHARES})


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
    for key, values in rows.items():
        yield f'    "{key}": [{", ".join(map(number, values))}],'
    yield "}"


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
