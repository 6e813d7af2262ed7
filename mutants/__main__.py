"""Put small faults into the library, one at a time, and see whether the tests notice.

    python -m mutants                    # all; goes on where it was stopped
    python -m mutants --fresh            # from the start
    python -m mutants attention convert  # these modules or packages only
    python -m mutants --show "attention.attention: q * scale → q / scale"
    python -m mutants --held-out 300     # by other rules, drawn at random

A full run writes `mutants/result.json`, from which the README quotes. A survivor
is a fault that no test noticed: write a test, or say in `mutants/equivalent.py`
why there is nothing to notice.
"""

import argparse
import contextlib
import difflib
import importlib
import json
import os
import platform
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import accumulate
from math import inf

import torch
from tqdm import tqdm

from mutants import held_out
from mutants.equivalent import EQUIVALENT
from mutants.mistakes import mistakes
from mutants.modules import MODULES, TABLES, digest, source, sources
from mutants.operators import Mutant, mutants
from mutants.result import HELD_OUT, RESULT, SENTENCE
from mutants.trial import Fork, Tests, collected, in_forks
from tools.book import ROOT

TESTS = (
    *("attention", "layouts", "masks", "styles", "tiled", "dropin"),
    *("dropin_programs", "convert", "formats", "properties"),
)
PROGRESS = ROOT / "_build" / "mutants.jsonl"
REACH = ROOT / "_build" / "mutants_reach.json"


def named(names: list[str]) -> list[str]:
    """The modules of these names, and all modules of the packages among them."""
    found = []
    for name in names:
        some = [x for x in MODULES + TABLES if f"{x}.".startswith(f"{name}.")]
        if not some:
            raise SystemExit(f"No module or package has this name: {name}")
        found += some
    return list(dict.fromkeys(found))


def faults(modules: list[str]) -> list[Mutant]:
    """Those that the rules make, then those that people have made."""
    made = [fault for module in modules for fault in mutants(module, source(module))]
    return made + [x for x in mistakes(source) if x.module in modules]


class Reach:
    """Which tests come across a line: first the module's own, and the fastest."""

    def __init__(self, tests: Tests, jobs: int) -> None:
        files = list(dict.fromkeys(test.split("::")[0] for test in tests.items))
        rooms = ("tests/library", "evidence")
        paths = [path for room in rooms for path in ROOT.glob(f"{room}/*.py")]
        texts = [path.read_text(encoding="utf-8") for path in paths]
        of = digest(sources(), *files, *sorted(texts))
        known = json.loads(REACH.read_text()) if REACH.exists() else {}
        if known.get("of") != of:
            known = {"of": of, "lines": {}, "seconds": {}, "imports": []}
            tasks = ((path, partial(Fork, tests.reach, path)) for path in files)
            bar = tqdm(in_forks(tasks, jobs), "reach", len(files), unit="file")
            for _, (lines, seconds, imports, failed) in bar:
                if failed:
                    sys.exit(f"The tests must pass before they are tried; see {failed}")
                known["seconds"] |= seconds
                known["imports"] += sorted(imports)
                for line, names in lines.items():
                    known["lines"].setdefault(line, []).extend(names)
            REACH.write_text(json.dumps(known))
        self.lines, self.seconds = known["lines"], known["seconds"]
        for name in known["imports"]:
            with contextlib.suppress(Exception):  # some are no modules of their own
                importlib.import_module(name)

    def tests(self, fault: Mutant, limit: float) -> list[str]:
        """Those that run the statement, or at least the module; so many seconds."""
        found, module = set(), f"{fault.module}:"
        for line in fault.lines:
            found.update(self.lines.get(f"{module}{line}", ()))
        if not found:  # tables and classes are read when the module is imported
            for line, names in self.lines.items():
                found.update(names if line.startswith(module) else ())
        own = tuple(f"tests/library/test_{x}" for x in fault.module.split("."))
        names = sorted(found, key=lambda x: (not x.startswith(own), self.seconds[x]))
        total = accumulate(map(self.seconds.__getitem__, names))
        return [name for name, seconds in zip(names, total) if seconds <= limit]


def run(chosen: list[Mutant], options: argparse.Namespace, note: Callable) -> None:
    """Try every fault and note it with the test that noticed it, or None."""

    def work(tests: Tests) -> None:
        reached = Reach(tests, options.jobs)

        def start(fault: Mutant) -> Fork:
            names = reached.tests(fault, options.seconds)
            seconds = 30 + 4 * sum(map(reached.seconds.__getitem__, names))
            return Fork(tests.notice, fault, names, seconds=seconds)

        tasks = ((fault, partial(start, fault)) for fault in chosen)
        bar = tqdm(in_forks(tasks, options.jobs), "faults", len(chosen), unit="fault")
        for fault, test in bar:
            note(fault, test)

    collected([f"tests/library/test_{name}.py" for name in options.tests], work)


def done_before(every: list[Mutant]) -> dict[str, str]:
    """{key: test} of what an earlier run found and nobody has changed since."""
    if not PROGRESS.exists():
        return {}
    texts = {fault.key: digest(fault.text) for fault in every}
    entries = map(json.loads, PROGRESS.read_text(encoding="utf-8").splitlines())
    return {
        x["key"]: x["by"]
        for x in entries
        if x["by"] is not None and texts.get(x["key"]) == x["text"]
    }


def report(every: list[Mutant], found: dict[str, str], harmless: set[str]) -> dict:
    """What is printed and stored."""
    counted = [fault for fault in every if fault.key not in harmless]
    survivors = [fault for fault in counted if fault.key not in found]
    modules = Counter(fault.module for fault in counted)
    lost = Counter(fault.module for fault in survivors)
    print(f"\n{'module':20}{'faults':>8}{'found':>8}")
    for module, count in modules.items():
        print(f"{module:20}{count:8}{count - lost[module]:8}")
    for fault in survivors:
        print(f"survived, line {fault.lines.start}: {fault.key}")
    result = {"mutants": len(counted), "found": len(counted) - len(survivors)}
    print(f"\n{SENTENCE.format(**result)}.")
    print(f"{len(every) - len(counted)} more change no result.")
    return result | {
        "equivalent": len(every) - len(counted),
        "survived": [fault.key for fault in survivors],
        "modules": {x: [n - lost[x], n] for x, n in modules.items()},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "sources": sources(),
    }


def try_held_out(options: argparse.Namespace) -> None:
    """Try a sample of the other rules' faults, and store what was found."""
    modules = named(options.modules) if options.modules else list(held_out.SAMPLED)
    chosen, survived = held_out.sample(modules, options.held_out), []

    def note(fault: Mutant, test: str | None) -> None:
        if test is None:
            survived.append(fault.key)

    run(chosen, options, note)
    result = {
        "faults": len(chosen),
        "found": len(chosen) - len(survived),
        "survived": sorted(survived),
        "tests": list(options.tests),
        "torch": torch.__version__,
        "sources": sources(),
    }
    print(json.dumps(result, indent=1))
    HELD_OUT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def show(fault: Mutant, test: str | None) -> None:
    old, new = source(fault.module).splitlines(), fault.text.splitlines()
    print(*difflib.unified_diff(old, new, lineterm="", n=1), sep="\n")
    print(f"\nfound by {test}" if test else "\nnot found")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = ", ".join(MODULES + TABLES)
    parser.add_argument("modules", nargs="*", metavar="module", help=known)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    parser.add_argument("--show", metavar="KEY", help="print one fault and try it")
    parser.add_argument("--tests", nargs="*", default=TESTS, help=", ".join(TESTS))
    parser.add_argument("--seconds", type=float, default=inf, help="of tests a fault")
    parser.add_argument("--held-out", type=int, metavar="N", help="N by other rules")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a fork must not inherit a pool of threads

    PROGRESS.parent.mkdir(exist_ok=True)

    if options.held_out:
        try_held_out(options)
        return 0
    every = faults(named(options.modules) if options.modules else list(MODULES))
    harmless = {key for keys in EQUIVALENT.values() for key in keys}
    if options.show:
        chosen = [fault for fault in every if fault.key == options.show]
        run(chosen, options, show)
        return 0 if chosen else f"No fault has this key: {options.show}"
    if options.fresh:
        PROGRESS.unlink(missing_ok=True)
    found = done_before(every)
    todo = [x for x in every if x.key not in found and x.key not in harmless]
    with PROGRESS.open("a", encoding="utf-8") as log:

        def note(fault: Mutant, test: str | None) -> None:
            if test is not None:
                found[fault.key] = test
            entry = {"key": fault.key, "text": digest(fault.text), "by": test}
            log.write(json.dumps(entry) + "\n")
            log.flush()

        if todo:
            run(todo, options, note)
    result = report(every, found, harmless)
    for key in harmless - {fault.key for fault in every}:
        if not options.modules:
            print(f"mutants/equivalent.py names what does not exist: {key}")
    if not options.modules and options.tests == TESTS:
        RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 1 if result["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
