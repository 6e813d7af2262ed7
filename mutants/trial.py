"""Collect the tests once; then run some of them on one fault, in a fork.

A fault inside a function is put into the functions that are loaded already: they keep
their places, so the tests, which have imported them, need not be loaded again. A fault
in a table or in a class body has to be imported; then the tests are, too.
"""

import contextlib
import importlib.abc
import importlib.util
import math
import multiprocessing
import os
import resource
import signal
import sys
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TypeVar

import coverage
import pytest

from mutants.modules import LIBRARY, file_of, module_of
from mutants.operators import Mutant

OPTIONS = (
    *("-o", "addopts=", "--import-mode=importlib", "--capture=no"),
    *("-p", "no:cacheprovider", "-p", "no:terminal"),
)
OURS = ("mha_lib", "evidence", "tests")
LARGE = ("torch", "transformers")  # what they import late is imported before a fork
MEMORY = 12 * 2**30  # a fault may ask for a map of any size

T = TypeVar("T")
fork = multiprocessing.get_context("fork")


def collected(files: list[str], work: Callable[["Tests"], T]) -> T:
    """What `work` makes of the tests in these files."""
    tests = Tests(work)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    code = pytest.main(
        [*OPTIONS, "-p", "_hypothesis_pytestplugin", *files], plugins=[tests]
    )
    if code != pytest.ExitCode.OK:
        raise SystemExit(f"pytest could not collect {' '.join(files)}: {code!r}")
    return tests.result


class Tests:
    """A pytest plugin that hands all tests to a function instead of running them."""

    def __init__(self, work: Callable[["Tests"], T]) -> None:
        self.work, self.failed, self.result = work, None, None

    def pytest_runtestloop(self, session):
        self.items = {item.nodeid: item for item in session.items}
        self.result = self.work(self)
        return True

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed = self.failed or report.nodeid

    def run(self, tests: Iterable[str]) -> Iterator[str]:
        """Run tests, in this order, until one fails; name each that was run."""
        items = [self.items[test] for test in tests]
        for item, following in zip_longest(items, items[1:]):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            yield item.nodeid
            if self.failed:
                return

    def reach(self, file: str) -> tuple[dict, dict[str, float], set[str], str | None]:
        """{"module:line": tests}, {test: seconds}, late imports; what failed."""
        mine = [test for test in self.items if test.split("::")[0] == file]
        measured = coverage.Coverage(data_file=None, include=[f"{LIBRARY}/*"])
        measured.start()
        seconds, start, before = {}, time.perf_counter(), set(sys.modules)
        measured.switch_context(mine[0])
        for test, following in zip_longest(self.run(mine), mine[1:]):
            now = time.perf_counter()
            seconds[test], start = now - start, now
            measured.switch_context(following or "")
        measured.stop()
        data, lines = measured.get_data(), {}
        for path in data.measured_files():
            module = module_of(Path(path))
            for line, names in data.contexts_by_lineno(path).items():
                lines[f"{module}:{line}"] = [name for name in names if name]
        late = {x for x in set(sys.modules) - before if x.split(".")[0] in LARGE}
        return lines, seconds, late, self.failed

    def notice(self, fault: Mutant, tests: list[str]) -> str | None:
        """The first of the tests that fails with this fault; None if none does."""
        try:
            loaded = put_in(fault)
        except Exception:
            return "importing the library"
        if loaded:
            for _ in self.run(tests):
                pass
            return self.failed
        for name in [x for x in sys.modules if x.split(".")[0] in OURS]:
            del sys.modules[name]
        sys.meta_path.insert(0, Changed(fault))
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        try:
            return collected(files, lambda again: again.notice_again(tests))
        except SystemExit:
            return "collecting the tests"

    def notice_again(self, tests: list[str]) -> str | None:
        for _ in self.run(test for test in tests if test in self.items):
            pass
        return self.failed


def put_in(fault: Mutant) -> bool:
    """Give the loaded functions of a module the fault's code, if that is enough."""
    if not fault.function:
        return False
    name = f"mha_lib.{fault.module}"
    changed = types.ModuleType(name)
    changed.__file__ = str(file_of(fault.module))
    called = set()  # while the module is imported
    sys.setprofile(lambda frame, *_: called.add(frame.f_code))
    exec(compile(fault.text, changed.__file__, "exec"), changed.__dict__)
    sys.setprofile(None)
    names = {x.co_name for x in called if x.co_filename == changed.__file__}
    if fault.where.split(".")[-1] in names:
        return False  # its work is done already
    new, old = functions(changed), functions(sys.modules[name])
    for place, those in old.items():
        for function, other in zip(those, new[place], strict=True):
            if function.__code__.co_freevars != other.__code__.co_freevars:
                return False  # a call of super() has gone: such code cannot be moved
            function.__code__ = other.__code__
            function.__defaults__ = other.__defaults__
            function.__kwdefaults__ = other.__kwdefaults__
    return True


def functions(module: types.ModuleType) -> dict[str, list[types.FunctionType]]:
    """{qualified name: functions} that a module defines; a property has up to two."""
    found = defaultdict(list)

    def look(names: dict[str, object]) -> None:
        for value in list(names.values()):
            if getattr(value, "__module__", module.__name__) != module.__name__:
                continue
            if isinstance(value, type):
                look(vars(value))
            clear = getattr(value, "cache_clear", None)
            if clear:
                clear()
            candidates = [getattr(value, "__wrapped__", value)]
            if isinstance(value, staticmethod | classmethod):
                candidates = [value.__func__]
            if isinstance(value, property):
                candidates = [value.fget, value.fset]
            for x in candidates:
                if isinstance(x, types.FunctionType) and x.__code__.co_filename == (
                    module.__file__
                ):
                    found[x.__qualname__].append(x)

    look(vars(module))
    return found


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import one module of the library from another text."""

    def __init__(self, fault: Mutant) -> None:
        self.name, self.text = f"mha_lib.{fault.module}", fault.text
        self.path = str(file_of(fault.module))

    def find_spec(self, fullname, path=None, target=None):
        if fullname == self.name:
            spec = importlib.util.spec_from_file_location
            return spec(fullname, self.path, loader=self)
        return None

    def is_package(self, fullname):
        return self.path.endswith("__init__.py")

    def exec_module(self, module):
        exec(compile(self.text, self.path, "exec"), module.__dict__)


# --- forks ------------------------------------------------------------------------


class Fork:
    """A function that runs in a fork and sends its result home.

    It may compute for so many seconds. A clock on the wall would count what others
    compute on the same machine; it only ends a fork that waits for ever.
    """

    def __init__(self, function: Callable, *args, seconds: float = 1800) -> None:
        self.pipe, end = fork.Pipe(duplex=False)
        self.process = fork.Process(target=_send, args=(end, seconds, function, *args))
        self.process.start()
        end.close()
        self.deadline = time.monotonic() + 20 * seconds

    def result(self) -> object:
        """What the function returned. Waits for it until the deadline."""
        try:
            if self.pipe.poll(max(0.0, self.deadline - time.monotonic())):
                return self.pipe.recv()
            self.stop()
            return "the clock"
        except EOFError:  # it died: of a signal, for want of memory or of time
            return "the end of the process"
        finally:
            self.process.join()

    def stop(self) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself
            os.killpg(self.process.pid, signal.SIGKILL)


def in_forks(tasks: Iterable[tuple[T, Callable[[], Fork]]], jobs: int):
    """(name, result) of every task as it comes in, so many at a time."""
    tasks, running = iter(tasks), {}
    try:
        while True:
            for name, start in islice(tasks, jobs - len(running)):
                running[start()] = name
            if not running:
                return
            soonest = min(task.deadline for task in running) - time.monotonic()
            ready = wait([task.pipe for task in running], max(0.0, soonest))
            for task in list(running):
                if task.pipe in ready or time.monotonic() > task.deadline:
                    yield running.pop(task), task.result()
    finally:  # somebody may have had enough
        for task in running:
            task.stop()


def _send(pipe: Connection, seconds: float, function: Callable, *args) -> None:
    """Be quiet, and easy to stop with all that is started; then do it."""
    os.setpgrp()
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(seconds),) * 2)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    quiet = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(quiet, stream)
    pipe.send(function(*args))
