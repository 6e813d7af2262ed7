"""Put the stored numbers into chapter 10 and the pages of 3 and 10, and execute them.

    python -m benchmarks.chapter       # after python -m benchmarks; commit all files

The notebooks have to run where nothing of this repository is but `mha_lib`, and numbers
of one machine do not belong into a library. So they stand in the notebooks themselves,
in cells whose first line says so. A test compares them with the results file.
"""

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from benchmarks import machine, views
from benchmarks.contestants import FLOOR
from benchmarks.results import FOLDER, load, select
from benchmarks.shares import STEPS
from benchmarks.workload import Size
from tools import book, notebook

FIRST_LINE = "# Stored results, {}; written by: python -m benchmarks.chapter"
MASK = "fused + SDPA, mask as a tensor"
NO_WEIGHTS, WEIGHTS = "FusedMHA, no weights", "FusedMHA, weights per head"
LOOP, EINSUM = "loop over head slices", "EinsumMHA"
TORCH = "nn.MultiheadAttention, no weights"
TORCH_MEAN = "nn.MultiheadAttention, weights averaged"
NO_FAST_PATH = "nn.MultiheadAttention, no weights, no fast path"
RACE = (  # the floor, the six styles, and one of them without weights
    FLOOR.name,
    NO_WEIGHTS,
    WEIGHTS,
    "BuiltinMHA",
    "BatchedMHA",
    "SplitConcatMHA",
    "PerHeadMHA",
    EINSUM,
)
TO_READ = (NO_WEIGHTS, LOOP, TORCH, TORCH_MEAN, WEIGHTS, "BatchedMHA")
RATIOS = (
    FLOOR.name,
    NO_WEIGHTS,
    "x-transformers, flash",
    TORCH,
    LOOP,
    WEIGHTS,
    TORCH_MEAN,
    "PerHeadMHA",
    "BatchedMHA",
    EINSUM,
)
GROWTH = (FLOOR.name, LOOP, "BatchedMHA")
PAGES = (LOOP, WEIGHTS, "BatchedMHA", TORCH, TORCH_MEAN)
SHARES = (FLOOR.name, LOOP, "BatchedMHA", EINSUM)
TRAINED = (NO_WEIGHTS, TORCH, LOOP, WEIGHTS, TORCH_MEAN, "BatchedMHA")

OF_TWO = ("PerHeadMHA", "BatchedMHA")

Rows = dict[str, Iterable[float | None]]


def loop(content: dict) -> Iterator[str]:
    """The layer with a loop and without, at the shortest and at the longest length."""
    _, (small, *_, large) = zip(*views.rows_by_size(content).items())
    yield "# time / time of the floor, at the SMALL and the LARGE of chapter 10"
    found = {n: [small[n]["ratio"], large[n]["ratio"]] for n in OF_TWO}
    yield from table("RATIOS", found)


def on_a_gpu(_: dict) -> Iterator[str]:
    """The layer with a loop and without on a GPU, and against the number of heads."""
    content, size = load(FOLDER / "cuda.json"), Size(8, 1024, 768, 12)
    yield from where(content)
    yield f"# ms of a forward pass in bfloat16, no mask, at {tuple(size)}"
    rows = views.rows_by_size(content, dtype="bfloat16")[size]
    yield from table("GPU_MS", {n: [rows[n]["ms"]] for n in (FLOOR.name, *OF_TWO)})
    by_heads = views.cost_by(content, "heads")
    heads = sorted(by_heads[FLOOR.name])
    yield "# the same at (4, 512, 512, H)"
    yield from listing("HEADS", heads)
    yield from table("GPU_BY_H", {n: [by_heads[n][H] for H in heads] for n in GROWTH})


def race(content: dict) -> Iterator[str]:
    """The six styles at the shortest and at the longest length, with quartiles."""
    usual = views.rows_by_size(content)
    (small, at_small), *_, (large, at_large) = usual.items()
    yield from where(content)
    yield f"SMALL, LARGE = {tuple(small)}, {tuple(large)}"
    yield "# time / time of the floor: quartile, median, quartile; SMALL, then LARGE"
    found = {n: [*middle(at_small[n]), *middle(at_large[n])] for n in RACE}
    yield from table("RATIOS", found)
    rounds = [min(rows[name]["rounds"] for name in RACE) for rows in usual.values()]
    yield f"ROUNDS = {min(rounds)}  # at least"
    yield "# minor page faults of one forward pass at LARGE"
    yield from listing("FAULTS", [at_large[name]["faults"] for name in RACE])


def memory(content: dict) -> Iterator[str]:
    """MiB of one forward pass against T; the causal race and the floor's own times."""
    mib = views.memory_by_length(content)
    lengths = sorted({T for name in GROWTH for T in mib[name]})
    yield from listing("LENGTHS", lengths)
    found = {name: [mib[name].get(T) for T in lengths] for name in GROWTH}
    yield from table("MIB_BY_T", found)
    usual = views.rows_by_size(content)
    causal = views.rows_by_size(content, causal=True).values()
    yield from listing("SIZES", [str(tuple(size)) for size in usual])
    yield "# ratios to the floor with is_causal=True, in one race"
    beside = {"mask as a tensor": MASK, "FusedMHA, is_causal=True": NO_WEIGHTS}
    found = {n: [rows[of]["ratio"] for rows in causal] for n, of in beside.items()}
    yield from table("CAUSAL", found)
    yield "# the floor in two races, in ms"
    of_floor = {"no mask": usual.values(), "is_causal=True": causal}
    times = {n: [rows[FLOOR.name]["ms"] for rows in r] for n, r in of_floor.items()}
    yield from table("FLOOR_MS", times)


def to_read(content: dict) -> Iterator[str]:
    """A small benchmark: quartiles and medians, and medians with pages kept."""
    size, usual = list(views.rows_by_size(content).items())[-1]
    kept = views.rows_by_size(content, allocator="keeps pages")[size]
    yield "# quartile, median, quartile; median if the program keeps its memory"
    found = {n: [*middle(usual[n]), kept[n]["ratio"]] for n in TO_READ}
    yield from table("TO_READ", found)


def sizes(content: dict) -> Iterator[str]:
    """Forward, no mask: time / time of the floor, at every size, and its spread."""
    by_size = list(views.rows_by_size(content).items())
    yield from where(content)
    yield from listing("SIZES", [str(tuple(size)) for size, _ in by_size])
    found = {n: [rows[n] for _, rows in by_size] for n in RATIOS}
    yield from table("RATIOS", {n: [r["ratio"] for r in found[n]] for n in found})
    rounds = zip(*[[row["rounds"] for row in rows] for rows in found.values()])
    yield from listing("ROUNDS", map(min, rounds))
    yield from listing("SPREAD", [f"{max(map(spread, found[n])):.2f}" for n in found])


def growth(content: dict) -> Iterator[str]:
    """Milliseconds and the system's part of them against T; ms against H."""
    ms = views.cost_by(content, "length")
    system = views.cost_by(content, "length", "system")
    by_heads = views.cost_by(content, "heads")
    lengths = sorted({T for name in GROWTH for T in ms[name]})
    heads = sorted(by_heads[FLOOR.name])
    yield from listing("LENGTHS", lengths)
    for title, rows in (("MS_BY_T", ms), ("SYSTEM_BY_T", system)):
        yield from table(title, {n: [rows[n].get(T) for T in lengths] for n in GROWTH})
    yield from listing("HEADS", heads)
    yield from table("MS_BY_H", {n: [by_heads[n][H] for H in heads] for n in GROWTH})


def pages(content: dict) -> Iterator[str]:
    """Page faults and their cost at the last size."""
    usual = views.rows_by_size(content)
    kept = views.rows_by_size(content, allocator="keeps pages")
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


def shares(content: dict) -> Iterator[str]:
    """Shares of the steps; limits, operations per byte and GFLOP/s; EinsumMHA."""
    found, limits = views.shares(content), views.limits(content)
    placed = views.on_the_roof(content)
    size = next(select(content, part="shares"))["size"]
    yield f"SIZE = {tuple(size)}"
    yield from listing("STEPS", [f'"{step}"' for step in STEPS])
    yield from table("SHARES", {n: [found[n][step] for step in STEPS] for n in SHARES})
    yield f"GFLOPS, GBYTES = {limits['gflops']}, {limits['gbytes']}"
    yield from table("POINTS", {name: placed[name] for name in SHARES})
    system = views.rows_by_size(content)[Size(*size)]["BatchedMHA"]["system"]
    yield f"IN_THE_SYSTEM = {number(system)}  # part of the time of BatchedMHA"


def einsum(content: dict) -> Iterator[str]:
    """Where its layout costs little, and where it costs most."""
    yield from where(content)
    yield "# EinsumMHA / floor: by T at (1, T, 512, 8), by H at (4, 512, 512, H)"
    for part in ("length", "heads"):
        by = sorted(views.cost_by(content, part, "ratio")[EINSUM].items())
        pairs = ", ".join(f"{size}: {number(ratio)}" for size, ratio in by)
        text = f"EINSUM_BY_{part.upper()} = {{{pairs}}}"
        yield from textwrap.wrap(text, 80, subsequent_indent="    ")
    yield "# with a causal mask, at the four sizes of the chapter"
    causal = views.rows_by_size(content, causal=True).values()
    yield from listing("EINSUM_CAUSAL", [number(r[EINSUM]["ratio"]) for r in causal])


def training(content: dict) -> Iterator[str]:
    """Forward and backward in float32; once more if the program keeps its memory."""
    yield from where(content)
    usual = views.rows_by_size(content, run="training")
    yield from listing("SIZES", [str(tuple(size)) for size in usual])
    yield "# time / time of the floor, forward and backward"
    yield from table("TRAINING", trained(usual))
    kept = views.rows_by_size(content, run="training", allocator="keeps pages")
    yield "# the same at the last size, if the program keeps its memory"
    last = [ratios[-1] for ratios in trained(kept).values()]
    yield from listing("TRAINING_KEPT", map(number, last))


def bfloat16(content: dict) -> Iterator[str]:
    """In half precision, forward alone and with the backward pass."""
    yield "# time / time of the floor, both in bfloat16"
    for title, run in (("SHORT", "forward"), ("SHORT_TRAINING", "training")):
        found = views.rows_by_size(content, dtype="bfloat16", run=run)
        yield from table(title, trained(found))


def trained(by_size: dict[Size, dict[str, dict]]) -> dict[str, list[float]]:
    """The ratios of those that were timed in every setting."""
    rows = by_size.values()
    return {name: [row[name]["ratio"] for row in rows] for name in TRAINED}


CELLS = {  # page: title of the cell: what is in it
    "10_what_it_costs": {
        "six styles": race,
        "a table to read": to_read,
        "memory and masks": memory,
    },
    "deeper/03_is_batched_faster": {"loop and batched": loop, "a GPU": on_a_gpu},
    "deeper/10_what_a_page_costs": {
        "sizes": sizes,
        "growth": growth,
        "pages": pages,
    },
    "deeper/10_what_counters_see": {"EinsumMHA": einsum, "steps": shares},
    "deeper/10_half_precision_and_training": {
        "training": training,
        "bfloat16": bfloat16,
    },
}


def notebooks() -> list[Path]:
    return [book.ROOT / "book" / f"{page}.ipynb" for page in CELLS]


def sources(content: dict) -> dict[Path, list[str]]:
    """The cells of stored numbers of each page."""
    return {
        path: [
            "\n".join([FIRST_LINE.format(title), *part(content)])
            for title, part in parts.items()
        ]
        for path, parts in zip(notebooks(), CELLS.values())
    }


def where(content: dict) -> Iterator[str]:
    """The machine, as source."""
    first, *more = textwrap.wrap(machine.sentence(content["machine"]), 64)
    yield f'MACHINE = ("{first}"'
    yield from (f'    " {line}"' for line in more[:-1])
    yield f'    " {more[-1]}")'


def middle(row: dict) -> list[float]:
    """First quartile, median, third quartile."""
    return [row["low"], row["ratio"], row["high"]]


def spread(row: dict) -> float:
    """The distance of the quartiles, as part of the median."""
    return (row["high"] - row["low"]) / row["ratio"]


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


def write(path: Path, wanted: list[str]) -> None:
    """Replace the sources of the cells of stored numbers."""
    page = notebook.read(path)
    new = {source.partition("\n")[0]: source for source in wanted}
    found = []
    for cell in page.cells:
        title = cell.source.partition("\n")[0]
        if title in new:
            cell.source = new[title]
            found.append(title)
    if found != list(new):
        raise ValueError(f"{path} needs a cell for each of {list(new)}; got {found}")
    notebook.write(page, path)


def main() -> None:
    for path, wanted in sources(load(FOLDER / "cpu.json")).items():
        write(path, wanted)
        notebook.write(notebook.execute(path), path)
        print(f"{path.relative_to(book.ROOT)}: done")


if __name__ == "__main__":
    main()
