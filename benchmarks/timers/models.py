"""Training and writing: our model of each style beside torch's and Hugging Face's.

    python -m benchmarks.timers.models            # three minutes, one core
    python -m benchmarks.timers.models --quick    # does everything work?

Goals: the best of our styles at least as fast in training as the better peer, writing
at least as fast. The numbers go to benchmarks/results/models.json, those of --quick to
_build/benchmarks; the tables to the standard output.
"""

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
    words = sys.argv[1:] if arguments is None else arguments
    quick = "--quick" in words
    path = plots.TARGET / "models.json" if quick else FOLDER / "models.json"
    results = Results(path, machine.describe("cpu"))
    setting = worker.Setting()
    for job in jobs(QUICK if quick else SIZES, 0.2 if quick else BUDGET):
        load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
        results.add(setting, job, {**worker.answer(setting, job), "load": load})
    print(report(results.content))
    return 1 if trouble(results.content, "refused") else 0


if __name__ == "__main__":
    sys.exit(main())
