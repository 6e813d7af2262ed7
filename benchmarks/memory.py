"""The most memory that one forward pass takes on top of what is there.

Every point is measured in a fresh process: memory that an earlier call freed may stay
with the process, and the next call would seem to need none. For the same reason each
tensor has pages of its own there (:data:`benchmarks.worker.OWN_PAGES`).
"""

import re
from pathlib import Path

import torch

from benchmarks import parity
from benchmarks.contestants import Contestant
from benchmarks.workload import Size, Workload


def growth(contestant: Contestant, size: Size, device: str) -> float:
    """MiB by which the peak of one forward pass exceeds what was there before.

    A first pass with a few tokens loads the kernels and checks the contestant.
    """
    few = Workload.draw(size._replace(T=16), device=device)
    parity.Reference(few, training=False).check(contestant, contestant.build(few))
    workload = Workload.draw(size, device=device)
    layer = contestant.build(workload).eval()
    before = now(device)
    with torch.inference_mode():
        result = layer(workload.x)
    took = peak(device) - before
    del result
    return took / 2**20


def now(device: str) -> int:
    """Bytes in use, after which the peak is counted anew."""
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated()
    # Linux: writing 5 sets the peak (VmHWM) to what is in use (VmRSS).
    Path("/proc/self/clear_refs").write_text("5")
    return status("VmRSS")


def peak(device: str) -> int:
    """The most bytes that were in use since :func:`now`."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated()
    return status("VmHWM")


def status(name: str) -> int:
    text = Path("/proc/self/status").read_text()
    return 1024 * int(re.search(rf"{name}:\s+(\d+) kB", text)[1])
