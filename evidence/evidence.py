"""What the tests find when they run, for the page *How we know it is right*.

`run` runs tests in this process and watches every comparison that they make.
`agreements` compares every way to attend with every other one. Nothing is stored.
"""

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn

from evidence.helpers import B, D, H, S, T, random_mask
from evidence.strategies import SUBJECTS, Case, Subject
from mha_lib import BatchedMHA, causal_mask, convert, padding_mask, tiled

ROOT = Path(__file__).resolve().parents[1]
ORACLES = ROOT / "tests" / "oracles"


# --- how far apart --------------------------------------------------------------


def distance(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest entry, or to 1 if that is less.

    So a gradient that ought to be 0, and is a rounding error on both sides, is near.
    """
    if not ours.numel():
        return 0.0
    ours, theirs = ours.detach().double(), theirs.detach().double()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())  # −inf − (−inf) is NaN
    difference = (ours - theirs).abs().masked_fill(same, 0.0).max()
    largest = theirs.abs().masked_fill(~theirs.isfinite(), 0.0).max()
    return (difference / largest.clamp(min=1.0)).item()


# --- what the tests compare -----------------------------------------------------


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


# --- other people's cases -------------------------------------------------------


@dataclass(frozen=True)
class BlindSpot:
    """A line of the table in tests/oracles/README.md."""

    oracle: str
    file: str  # "" for all of them
    blind_to: str
    seen_by: str


def blind_spots() -> list[BlindSpot]:
    """The table in tests/oracles/README.md, which has tests of its own."""
    found = []
    for line in (ORACLES / "README.md").read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and "::" in cells[-1]:
            oracle, _, blind_to, seen_by = cells
            link = re.fullmatch(r"\[(.+)\]\((.+)\)", oracle)
            name, file = link.groups() if link else (oracle, "")
            found.append(BlindSpot(name, file, blind_to, seen_by.strip("`")))
    return found


def first_line(file: str) -> str:
    """What a test file says that it is."""
    text = (ORACLES / file).read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(text)).splitlines()[0]


# --- every way to attend against every other -------------------------------------


@dataclass(frozen=True)
class Agreement:
    """Two ways to attend, and how far apart they are in one quantity."""

    mask: str
    crossed: bool
    ways: tuple[str, str]
    quantity: str
    numbers: int
    distance: float


SELF = Case(
    B=B, T=T, S=T, H=H, D=D, seed=1, dtype=torch.float64, size=1.0,
    memory="contiguous", mask=None,
)  # fmt: skip
CROSS = replace(SELF, S=S)


def masks(keys: int) -> dict[str, Tensor | None]:
    """Masks for T queries; but for the last one, every query sees a key."""
    lengths = torch.tensor([2, keys, 4])
    found = {
        "none": None,
        "causal": causal_mask(T, keys),
        "padding": padding_mask(lengths, keys),
        "random": random_mask(T, keys, seed=3),
        "random, one for each sequence": random_mask(B, T, keys, seed=4),
        "random, one for each head": random_mask(B, H, T, keys, seed=5),
    }
    for name, mask in found.items():
        if name.startswith("random"):
            mask[..., 0] = True
    return found | {"some queries see nothing": random_mask(B, T, keys, seed=6)}


def small_tiles() -> AbstractContextManager:
    """Cut small maps into tiles as well, so that the code for large ones runs."""
    return patch.object(tiled, "TILE", 12)


def everything(subject: Subject, case: Case) -> dict[str, Tensor]:
    """Output, weights if there are any, and all gradients, each as one long row."""
    module = subject.build(case.plain)
    leaves = [x.clone().requires_grad_() for x in case.inputs]
    if case.S == case.T:  # self-attention: one tensor, three times
        leaves = leaves[:1]
    inputs = leaves if len(leaves) == 3 else leaves * 3
    output, weights = subject.call(module, *inputs, case.mask)
    (output * case.upstream[0]).sum().backward()
    found = {"output": [output], "weights": [] if weights is None else [weights]}
    found["gradients of the inputs"] = [x.grad for x in leaves]
    found["gradients of the parameters"] = parameter_gradients(module)
    return {
        name: torch.cat([x.detach().flatten() for x in tensors])
        for name, tensors in found.items()
        if tensors
    }


def parameter_gradients(module: nn.Module) -> Iterable[Tensor]:
    """Gradients of the parameters, arranged as in BatchedMHA (chapter 9)."""
    twin = copy.deepcopy(module)
    for holder, parameter in zip(twin.parameters(), module.parameters()):
        holder.data = parameter.grad
    return convert(getattr(twin, "plain", twin), BatchedMHA).state_dict().values()


def agreements() -> list[Agreement]:
    """Every pair of ways, with every mask that both can take, in every quantity."""
    found = []
    for case in (SELF, CROSS):
        for name, mask in masks(case.S).items():
            able = [s for s in SUBJECTS if s.fit(mask) is mask]
            with small_tiles():
                results = {
                    s.name: everything(s, replace(case, mask=mask)) for s in able
                }
            for ways in combinations(results, 2):
                one, other = (results[way] for way in ways)
                found += [
                    Agreement(
                        name,
                        case is CROSS,
                        ways,
                        quantity,
                        one[quantity].numel(),
                        distance(one[quantity], other[quantity]),
                    )
                    for quantity in one.keys() & other.keys()
                ]
    return found


# --- in words ---------------------------------------------------------------------


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table as Markdown has it."""
    lines = [header, [":--"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def power(number: float) -> str:
    """9e-16 as "9 · 10⁻¹⁶", with spaces at which no line breaks; 0 as "none"."""
    if not number:
        return "none"
    digit, exponent = f"{number:.0e}".split("e")
    superscript = str(int(exponent)).translate(
        str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    )
    return f"{digit}\u00a0·\u00a010{superscript}"


def sentence(test: str) -> str:
    """The name of a test, which says what it holds, in words."""
    return test.split("::")[-1].removeprefix("test_").replace("_", " ")
