"""Starts a worker a task, and outlives it."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

# glibc gives the pages of large freed tensors back to the system, and the next tensor
# faults for each page anew. With these it keeps them, as the allocators of other
# systems and torch's own for CUDA do.
KEEP_PAGES = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(2**36),
    "MALLOC_TOP_PAD_": str(2**28),
}
# With this each tensor has pages of its own, which go when it goes: then the pages in
# use are those of the tensors that are alive.
OWN_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(2**16)}
ALLOCATORS = {"system": {}, "keeps pages": KEEP_PAGES, "own pages": OWN_PAGES}


@dataclass(frozen=True)
class Setting:
    """What is decided before a process starts."""

    threads: int = 1
    allocator: str = "system"
    device: str = "cpu"

    def environment(self) -> dict[str, str]:
        threads = str(self.threads)
        one_xla_thread = "--xla_cpu_multi_thread_eigen=false"
        return {
            **{k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")},
            **ALLOCATORS[self.allocator],
            "OMP_NUM_THREADS": threads,
            "MKL_NUM_THREADS": threads,
            "KERAS_BACKEND": "torch",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": one_xla_thread if self.threads == 1 else "",
            "PYTHONWARNINGS": "ignore",
        }


@dataclass(frozen=True)
class Task:
    """One thing to measure: for which part of the report, its kind, its arguments."""

    part: str
    kind: str
    arguments: dict[str, object]


def answer(setting: Setting, task: Task) -> dict:
    """What a fresh process answers; ``{"died": reason}`` if it dies of the task.

    A process of its own: glibc takes a large tensor from whatever earlier tasks left
    free, if there is room, and else as new pages, whose faults can double its cost.
    """
    message = {**asdict(setting), "kind": task.kind, "task": task.arguments}
    worker = subprocess.run(
        [sys.executable, "-m", "benchmarks.worker"],
        cwd=ROOT,
        env=setting.environment(),
        input=json.dumps(message),
        capture_output=True,
        text=True,
    )
    if worker.returncode:
        return {"died": last_words(worker.stderr, worker.returncode)}
    return json.loads(worker.stdout)


def last_words(complaints: str, returncode: int) -> str:
    """The last line that a dead worker wrote."""
    lines = complaints.strip().splitlines() or ["it said nothing"]
    return f"exit status {returncode}: {lines[-1][:160]}"
