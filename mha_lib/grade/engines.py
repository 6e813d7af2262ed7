"""Where the work is done: in this process, in processes of this machine, or elsewhere.

An engine takes a function and its arguments one by one, and yields what the function
returns, in the order in which it is done. Only a few arguments are ahead of the work,
so that ten thousand need no more memory than ten.
"""

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing import get_context

from mha_lib.grade.inside.kernel import SET_PDEATHSIG, prctl

__all__ = ["ENGINES"]

AHEAD = 4  # arguments given to an engine for each worker


def local(function: Callable, items: Iterable, workers: int, address: str) -> Iterator:
    """Processes of this machine; with one worker, this process."""
    if workers == 1:
        yield from map(function, items)
        return
    spawn = get_context("spawn")  # a fork would share the threads of a progress bar
    with ProcessPoolExecutor(workers, spawn, initializer=_die_with_parent) as executor:
        yield from ahead(executor, function, items, workers)


def dask(function: Callable, items: Iterable, workers: int, address: str) -> Iterator:
    """The workers of a Dask scheduler; without an address, a cluster made here."""
    from distributed import Client

    where = {"address": address} if address else {"n_workers": workers}
    with Client(**where) as client, client.get_executor(pure=False) as executor:
        workers = len(client.scheduler_info()["workers"])
        yield from ahead(executor, function, items, workers)


def ray(function: Callable, items: Iterable, workers: int, address: str) -> Iterator:
    """The workers of a Ray cluster; without an address, one started here."""
    from ray.util.multiprocessing import Pool

    where = {"ray_address": address} if address else {"processes": workers}
    with Pool(**where) as pool:
        yield from pool.imap_unordered(function, items)


ENGINES = {"local": local, "dask": dask, "ray": ray}


def ahead(
    executor: Executor, function: Callable, items: Iterable, workers: int
) -> Iterator:
    """Results as they come, with no more arguments given out than are needed."""
    pending = set()
    for item in items:
        pending.add(executor.submit(function, item))
        while len(pending) >= AHEAD * workers:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    while pending:
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        yield from (future.result() for future in done)


def _die_with_parent() -> None:
    """Where the system can do so; elsewhere a killed run may leave workers behind."""
    with suppress(OSError):
        prctl(SET_PDEATHSIG, signal.SIGKILL)
