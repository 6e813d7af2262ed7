"""Run tests in this process and note every comparison that they make.

Nothing is stored.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import Tensor

from evidence.distance import distance

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Comparison:
    """Two tensors that a test held to be equal, and that were."""

    test: str  # tests/file.py::test_name[case]
    dtype: torch.dtype
    numbers: int
    distance: float


def pairs(ours: object, theirs: object) -> Iterator[tuple[Tensor, Tensor]]:
    """The tensors in two values that `assert_close` takes, one by one."""
    if isinstance(theirs, Mapping):
        for key in theirs:
            yield from pairs(ours[key], theirs[key])
    elif isinstance(theirs, Sequence):
        for mine, other in zip(ours, theirs):
            yield from pairs(mine, other)
    elif isinstance(theirs, Tensor):
        yield ours, theirs


class Watch:
    """A pytest plugin that notes what passed, what failed and what was compared.

    Of the tests in ``every`` it runs each n-th case only.
    """

    def __init__(self, every: Mapping[str, int]) -> None:
        self.every = every
        self.comparisons: list[Comparison] = []
        self.passed: list[str] = []
        self.failed: list[str] = []
        self.running = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        counts, kept = Counter(), []
        for item in items:
            test = item.nodeid.split("[")[0]
            if counts[test] % self.every.get(test, 1) == 0:
                kept.append(item)
            counts[test] += 1
        items[:] = kept

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self.running = item.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.note(report)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.note(report)
        if report.passed and report.when == "call":
            self.passed.append(report.nodeid)

    def note(self, report: pytest.CollectReport | pytest.TestReport) -> None:
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = (crash.message if crash else str(report.longrepr)).splitlines()
            marked = [line[1:].strip() for line in lines if line.startswith("E ")]
            self.failed.append(f"{report.nodeid}: {(marked or lines)[0]}")

    @contextmanager
    def over(self, module, name: str) -> Iterator[None]:
        """Note every comparison that a function makes while it raises nothing."""
        real = getattr(module, name)

        def watched(actual, expected, **options):
            real(actual, expected, **options)
            for ours, theirs in pairs(actual, expected):
                far = distance(ours, theirs)
                size = theirs.numel()
                self.comparisons.append(
                    Comparison(self.running, theirs.dtype, size, far)
                )

        with patch.object(module, name, watched):
            yield


def run(
    *tests: str, every: Mapping[str, int] | None = None, root: Path = ROOT
) -> Watch:
    """Run tests, given as pytest takes them.

    Args:
        tests: "tests/oracles", "tests/library/test_styles.py::test_a_law" …
            None of their files may be imported yet: it would have the function that
            compares from before it was watched.
        every: {"tests/file.py::test_name": n} runs each n-th case of a test only.
        root: where they lie.

    Returns:
        What passed and what was compared.

    Raises:
        AssertionError: a test failed or could not be imported; it is named.
    """
    every = every or {}
    watch = Watch(every)
    options = ["-o", "addopts=", "--import-mode=importlib", "-p", "no:cacheprovider"]
    options += ["--assert=plain"]  # hypothesis is loaded: too late to rewrite it
    options += ["-p", "no:unraisableexception"]  # at the end it collects for seconds
    places = [f"{root / test}" for test in dict.fromkeys((*tests, *every))]
    report = StringIO()
    with redirect_stdout(report), watch.over(torch.testing, "assert_close"):
        status = pytest.main(
            [*options, f"--rootdir={root}", f"-c={ROOT / 'pyproject.toml'}", *places],
            plugins=[watch],
        )
    if watch.failed:
        raise AssertionError(f"{len(watch.failed)} failed, first {watch.failed[0]}")
    if status:  # nothing there to run, or pytest itself is at a loss
        raise AssertionError(report.getvalue().strip().splitlines()[-1])
    return watch
