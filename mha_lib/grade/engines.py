"""Where the work is done: in this process, in processes of this machine, or elsewhere.

An engine takes a function and its arguments one by one, and yields what the function
returns, in the order in which it is done. Only a few arguments are ahead of the work,
so that ten thousand need no more memory than ten. Dask does the work of many machines:
what a lost worker had begun it gives to another one.
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
    try:
        from distributed import Client
    except ImportError:
        raise ValueError("many machines need Dask: pip install distributed") from None
    where = {"address": address}
    # One thread each, as each has a warm process; a port that nobody else has.
    if not address:
        where = {"n_workers": workers, "threads_per_worker": 1}
        where |= {"processes": True, "dashboard_address": "127.0.0.1:0"}
    with Client(**where) as client, client.get_executor(pure=False) as executor:
        threads = sum(client.ncores().values())
        yield from ahead(executor, function, items, max(threads, 1))


ENGINES = {"local": local, "dask": dask}


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
    """Where the system can do so; elsewhere a killed run may leave workers behind.

    Ctrl-C reaches the workers, too, and ends them without a trace of calls.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with suppress(OSError):
        prctl(SET_PDEATHSIG, signal.SIGKILL)
