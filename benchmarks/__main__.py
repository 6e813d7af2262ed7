"""Measure, print tables, write numbers and plots.

    python -m benchmarks             # forty minutes on two cores; nothing else running
    python -m benchmarks --quick     # two minutes: does everything work?
    python -m benchmarks --only fused,keras --sizes 4,512,512,8 --threads 1

The numbers go to benchmarks/results/cpu.json (or cuda.json, or --output) after every
answer, those of --quick and all plots to _build/benchmarks, the tables to the standard
output. With --resume a run that was broken off goes on.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks import machine, plots, report, views, worker
from benchmarks.plan import MEMORY_LIMIT, ON_CUDA, PARTS, QUICK, Plan
from benchmarks.results import FOLDER, Results
from benchmarks.workload import Size

BAR = "{desc}: {percentage:3.0f}% |{bar}| {elapsed}, {remaining} to go"


def parse(arguments: list[str] | None) -> tuple[Plan, argparse.Namespace]:
    """The plan, and the options that are not part of it."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small sizes, one thread, float32")
    add("--output", type=Path, help="where the numbers go")
    add("--resume", action="store_true", help="keep what the results file has")
    add("--device", choices=("cpu", "cuda"), help="cuda where there is one")
    add("--parts", type=words, help=f"of {','.join(PARTS)}")
    add("--only", type=words, help="contestants whose name contains one of these")
    add("--sizes", type=sizes, help="B,T,E,H, several separated by blanks in quotes")
    add("--masks", type=masks, help="none,causal")
    add("--runs", type=words, help="forward,training")
    add("--dtypes", type=words, help="float32,bfloat16")
    add("--threads", type=numbers, help="1,2")
    add("--allocators", type=words, help=f"of {','.join(worker.ALLOCATORS)}")
    add("--budget", type=float, help="seconds for a cell, after the least rounds")
    add("--thorough", action="store_true", help="all contestants in all settings")
    options = parser.parse_args(arguments)

    plan = QUICK if options.quick else Plan()
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    asked = {
        key: value
        for key, value in vars(options).items()
        if key in Plan.__dataclass_fields__ and value is not None
    }
    path = plots.TARGET / "quick.json" if options.quick else FOLDER / f"{device}.json"
    options.output = options.output or path
    usual = ON_CUDA if device == "cuda" else {}
    return replace(plan, **{**usual, **asked, "device": device}), options


def words(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def sizes(text: str) -> tuple[Size, ...]:
    return tuple(Size(*numbers(size)) for size in text.split())


def masks(text: str) -> tuple[bool, ...]:
    return tuple({"none": False, "causal": True}[word] for word in text.split(","))


def measure(plan: Plan, results: Results) -> None:
    """Have everything measured that the results lack."""
    groups, memory = list(plan.groups()), list(plan.memory_series())
    everything = [job for _, jobs in groups for job in jobs] + sum(memory, [])
    total = round(sum(map(plan.cost, everything)))
    with tqdm(total=total, bar_format=BAR, desc="measuring") as bar:
        for setting, jobs in groups:
            missing = [job for job in jobs if not results.has(setting, job)]
            bar.update(sum(plan.cost(job) for job in jobs if job not in missing))
            for job in missing:
                start = time.perf_counter()
                answer = worker.answer(setting, job)
                took = time.perf_counter() - start
                results.add(setting, job, {**answer, "took": round(took, 1)})
                bar.update(plan.cost(job))
        setting = worker.Setting(1, "own pages", plan.device)
        for series in memory:
            measure_memory(setting, series, results)
            bar.update(sum(map(plan.cost, series)))


def measure_memory(
    setting: worker.Setting, series: list[worker.Job], results: Results
) -> None:
    """Longer and longer sequences, as long as the next one should fit."""
    expected, length_before = 0.0, None
    for job in series:
        length = job.arguments["size"][1]
        if length_before is not None:
            expected *= (length / length_before) ** 2
        if expected > MEMORY_LIMIT:
            return
        if not results.has(setting, job):
            results.add(setting, job, worker.answer(setting, job))
        expected = results.get(setting, job).get("mib", float("inf"))
        length_before = length


def main(arguments: list[str] | None = None) -> int:
    plan, options = parse(arguments)
    described = machine.describe(plan.device)
    results = Results(options.output, described, resume=options.resume)
    try:
        measure(plan, results)
    except KeyboardInterrupt:
        print(
            f"Broken off; go on with --resume. Kept: {options.output}", file=sys.stderr
        )
    print(report.report(results.content))
    drawn = plots.draw_all(results.content, options.output.stem, plots.TARGET)
    for picture in drawn:
        print(f"plot: {picture}", file=sys.stderr)
    return 1 if views.trouble(results.content, "refused") else 0


if __name__ == "__main__":
    sys.exit(main())
