"""The machine's two limits, and the bytes that each version asks to move.

A processor can compute no faster than its peak, and no faster than memory delivers
the numbers: Williams, Waterman and Patterson's roofline. A version's place under the
roof is its arithmetic intensity: operations for each byte moved.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.contestants import Contestant
from benchmarks.timing import seconds
from benchmarks.workload import Workload

PRODUCT = 2048  # rows and columns of the matrices of the peak
COPIED = 256 * 2**20  # bytes; no cache holds them
TRIES = 7


def limits(dtype: torch.dtype, clock: Callable[[], float], device: str) -> dict:
    """The best GFLOP/s of a square product and GB/s of a copy, of several tries."""
    like = {"dtype": dtype, "device": device}
    a, b, c = (torch.ones(PRODUCT, PRODUCT, **like) for _ in range(3))
    source = torch.ones(COPIED // a.element_size(), **like)
    target = torch.ones_like(source)
    product = best(lambda: torch.mm(a, b, out=c), clock)
    copy = best(lambda: target.copy_(source), clock)
    return {
        "gflops": round(2 * PRODUCT**3 / product / 1e9, 1),
        "gbytes": round(2 * COPIED / copy / 1e9, 2),  # each byte is read and written
    }


def best(call: Callable[[], object], clock: Callable[[], float]) -> float:
    """The fewest seconds: a limit is what can be reached, not what is usual."""
    return min(seconds(call, 1, clock) for _ in range(TRIES))


class CountBytes(TorchDispatchMode):
    """Adds up what the operations in the `with` block read and write.

    Each operation reads its operands and writes its results once; views and empty
    tensors move nothing. That is what would go through memory if no cache kept
    anything from one operation to the next.
    """

    moved = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        results = function(*args, **kwargs)
        name = function.name()
        if not (function.is_view or "view" in name or "empty" in name):
            read = {key: x for key, x in kwargs.items() if key != "out"}
            leaves = tree_leaves((args, read, results))
            self.moved += sum(x.nbytes for x in leaves if isinstance(x, Tensor))
        return results


def moved(contestant: Contestant, workload: Workload) -> int:
    """The bytes that one forward pass asks to move."""
    layer = contestant.build(workload).eval()
    with torch.no_grad(), CountBytes() as counter:
        layer(workload.x)
    return counter.moved
