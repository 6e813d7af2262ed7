"""One file of numbers, written after every answer, so that none is lost."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from benchmarks.worker import Job, Setting

FOLDER = Path(__file__).parent / "results"
SCHEMA = 1
NOT_KEPT = {"names", "budget"}  # of a job: how it was asked, not what was


class Results:
    """What was measured, and where."""

    def __init__(self, path: Path, machine: dict, *, resume: bool = False) -> None:
        self.path = path
        self.content = {"schema": SCHEMA, "machine": machine, "entries": []}
        if resume and path.exists():
            kept = [e for e in load(path)["entries"] if "died" not in e]
            self.content["entries"] = kept
        self.known = {identity(entry) for entry in self.content["entries"]}

    def has(self, setting: Setting, job: Job) -> bool:
        """Whether this was measured before."""
        return identity(describe(setting, job)) in self.known

    def get(self, setting: Setting, job: Job) -> dict:
        """The entry of a job that was measured."""
        wanted = identity(describe(setting, job))
        return next(e for e in self.content["entries"] if identity(e) == wanted)

    def add(self, setting: Setting, job: Job, answer: dict) -> None:
        """Keep an answer, at once."""
        entry = describe(setting, job)
        self.known.add(identity(entry))
        self.content["entries"].append({**entry, **answer})
        self.save()

    def save(self) -> None:
        """One entry a line: small, and readable in a diff."""
        head = {k: v for k, v in self.content.items() if k != "entries"}
        lines = [json.dumps(entry) for entry in self.content["entries"]]
        text = json.dumps(head, indent=1)[:-2] + ',\n "entries": [\n'
        text += ",\n".join(lines) + "\n]}\n"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, self.path)


def describe(setting: Setting, job: Job) -> dict:
    """A job and its setting in one flat entry."""
    asked = {k: v for k, v in job.arguments.items() if k not in NOT_KEPT}
    return {"part": job.part, "kind": job.kind, **asdict(setting), **asked}


IDENTITY = (
    *("part", "kind", "threads", "allocator", "device"),
    *("size", "causal", "run", "dtype", "name"),
)


def identity(entry: dict) -> str:
    """What was asked, without what was answered."""
    return json.dumps([entry.get(key) for key in IDENTITY])


def load(path: Path) -> dict:
    """Read a results file of this schema."""
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("schema") != SCHEMA:
        raise ValueError(f"{path} has schema {content.get('schema')}; need {SCHEMA}")
    return content


def select(content: dict, **wanted: object) -> Iterator[dict]:
    """The entries whose fields have the wanted values."""
    for entry in content["entries"]:
        if all(entry.get(key) == value for key, value in wanted.items()):
            yield entry
