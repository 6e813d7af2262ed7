"""A process for each job, and both ends of its pipe: one JSON object each way.

:func:`answer` starts ``python -m benchmarks.worker``, and outlives it. Threads and the
allocator are set by the environment, before Python starts there.
"""

import gc
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass

import torch

from benchmarks import jobs
from tools import book

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
class Job:
    """One thing to measure: for which part of the report, its kind, its arguments."""

    part: str
    kind: str
    arguments: dict[str, object]


def answer(setting: Setting, job: Job) -> dict:
    """What a fresh process answers; ``{"died": reason}`` if it dies of the job.

    A process of its own: glibc takes a large tensor from whatever earlier jobs left
    free, if there is room, and else as new pages, whose faults can double its cost. A
    GPU's memory has no such past, and its jobs follow one another in this process.
    """
    if setting.device == "cuda":
        return answer_here(setting, job)
    message = {**asdict(setting), "kind": job.kind, "arguments": job.arguments}
    worker = subprocess.run(
        [sys.executable, "-m", "benchmarks.worker"],
        cwd=book.ROOT,
        env=setting.environment(),
        input=json.dumps(message),
        capture_output=True,
        text=True,
    )
    if worker.returncode:
        return {"died": last_words(worker.stderr, worker.returncode)}
    return json.loads(worker.stdout)


def answer_here(setting: Setting, job: Job) -> dict:
    """What this process answers; ``{"died": reason}`` if the job fails."""
    try:
        return do(job.kind, job.arguments, setting.threads, setting.device)
    except Exception as error:
        return {"died": jobs.reason(error)}
    finally:
        torch.compiler.reset()  # it compiles one function for a few sizes only
        gc.collect()


def do(kind: str, arguments: dict, threads: int, device: str) -> dict:
    torch.set_num_threads(threads)
    return jobs.BY_KIND[kind](**arguments, threads=threads, device=device)


def last_words(complaints: str, returncode: int) -> str:
    """The last line that a dead worker wrote."""
    lines = complaints.strip().splitlines() or ["it said nothing"]
    return f"exit status {returncode}: {lines[-1][:160]}"


def main() -> None:
    """The worker: do the job that comes on the standard input.

    Whatever a library prints goes to standard error.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    order = json.load(sys.stdin)
    asked = (order[key] for key in ("kind", "arguments", "threads", "device"))
    found = do(*asked)
    with answers:
        json.dump(found, answers)


if __name__ == "__main__":
    main()
