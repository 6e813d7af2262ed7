"""Training and writing: our model of each style beside torch's and Hugging Face's.

    python -m benchmarks.timers.models            # three minutes, one core
    python -m benchmarks.timers.models --quick    # does everything work?
    python -m benchmarks.timers.models --device cuda

Goals: the best of our styles at least as fast in training as the better peer, writing
at least as fast. The numbers go to benchmarks/results/models.json, those of a GPU to
models_cuda.json beside it, those of --quick to _build/benchmarks; the tables to the
standard output.
"""

import argparse
import os
import sys

from benchmarks import machine, models, plots, worker
from benchmarks.goals import RESOLUTION
from benchmarks.report import ratio, table
from benchmarks.results import FOLDER, Results, select
from benchmarks.views import trouble

SIZES = (
    models.ModelSize(16, 128, 64, 4, 3, 512),  # the kept model
    models.ModelSize(32, 96, 96, 4, 3, 128),
    models.ModelSize(8, 256, 256, 8, 4, 512),
)
ON_CUDA = (
    *SIZES[::2],
    models.ModelSize(8, 1024, 768, 12, 12, 50257),  # GPT-2, the smallest
)
QUICK = (models.ModelSize(3, 17, 24, 2, 2, 29),)
BUDGET = 20.0  # seconds for a table, after the least rounds


def jobs(sizes: tuple[models.ModelSize, ...], budget: float) -> list[worker.Job]:
    """All that is measured."""
    found = []
    for size in sizes:
        common = {"size": list(size), "budget": budget}
        names = list(models.LEARNERS)
        found.append(worker.Job("models", "learning", {**common, "names": names}))
        found.append(worker.Job("models", "writing", common))
    return found


def report(content: dict) -> str:
    """Tables of tokens a second and ratios, and whether the goals are reached."""
    parts = [f"# Models\n\n{machine.sentence(content['machine'])}."]
    for kind, title in (("learning", "Training"), ("writing", "Writing, no cache")):
        cells = [e for e in select(content, kind=kind) if e.get("rows")]
        names = dict.fromkeys(name for cell in cells for name in cell["rows"])
        rows = [[name, *(figures(cell, name) for cell in cells)] for name in names]
        header = [",".join(map(str, cell["size"])) for cell in cells]
        text = table(["tokens a second, time (B,T,E,H,L,W)", *header], rows)
        parts.append(f"## {title}\n\n{text}\n\n{goal(cells)}")
    for kind in ("refused", "cannot", "died"):
        parts += [f"{kind}: {line}" for line in trouble(content, kind)]
    return "\n\n".join(parts)


def figures(cell: dict, name: str) -> str:
    if name not in cell["rows"]:
        return "–"
    speed = models.tokens_a_second(cell, name)
    return f"{speed:,.0f}, {ratio(cell['rows'][name])}"


def goal(cells: list[dict]) -> str:
    """How fast we are in times of the better peer, size by size."""
    found = [models.best_against_peers(cell) for cell in cells]
    reached = all(number >= 1 - RESOLUTION for number in found)
    numbers = ", ".join(f"{number:.3f}" for number in found)
    word = "reached" if reached else "MISSED"
    aim = f"goal 1.0, resolution {RESOLUTION:.0%}: {word}"
    return f"Our best in times of the better peer: {numbers} ({aim})."


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.timers.models")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--budget", type=float, default=BUDGET)
    given = parser.parse_args(arguments)
    name = "models.json" if given.device == "cpu" else "models_cuda.json"
    results = Results(
        (plots.TARGET if given.quick else FOLDER) / name,
        machine.describe(given.device),
    )
    setting = worker.Setting(device=given.device)
    sizes = SIZES if given.device == "cpu" else ON_CUDA
    budget = 0.2 if given.quick else given.budget
    for job in jobs(QUICK if given.quick else sizes, budget):
        load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
        results.add(setting, job, {**worker.answer(setting, job), "load": load})
    print(report(results.content))
    return 1 if trouble(results.content, "refused") else 0


if __name__ == "__main__":
    sys.exit(main())
