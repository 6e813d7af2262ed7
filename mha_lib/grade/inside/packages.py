"""Which packages a submission may import: those listed here, and what they require.

The finder says it in Python's own words. What holds is that files of all other packages
are closed by the kernel, where it can: see `files`.
"""

import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType

# By the names under which they are installed. None of them has attention but torch.
ALLOWED = ("torch", "numpy", "scipy", "pandas", "einops", "opt_einsum", "jaxtyping")
ALLOWED += ("matplotlib", "seaborn", "plotly", "tqdm", "rich", "tabulate")
ALLOWED += ("ipython", "ipywidgets", "typing_extensions")


def allowed(names: Iterable[str] = ALLOWED) -> set[str]:
    """What may be imported of what is installed, and what else lies beside it."""
    found: dict[str, Distribution | None] = {}
    left = list(names)
    while left:
        name = re.sub(r"[-_.]+", "-", left.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # not here, or needed elsewhere alone
            found[name] = None
            continue
        left += [
            re.match(r"[\w.-]+", need)[0]
            for need in found[name].requires or ()
            if "extra ==" not in need
        ]
    return {part for known in found.values() if known for part in _parts(known)}


def _parts(known: Distribution) -> set[str]:
    """The files and folders of a distribution that lie in the folder of all."""
    record = known.read_text("RECORD") or ""
    parts = {line.partition("/")[0].partition(",")[0] for line in record.splitlines()}
    parts |= set((known.read_text("top_level.txt") or "").split())
    return parts - {"", "..", "__pycache__"}


def closed(known: set[str]) -> Iterator[Path]:
    """All else in the folders where packages lie."""
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    python |= {os.path.join(path, "lib-dynload") for path in python}
    python = {os.path.realpath(path) for path in python}
    for place in {os.path.realpath(path) for path in sys.path if path} - python:
        if os.path.isdir(place):
            for entry in os.listdir(place):
                described = entry.endswith((".dist-info", ".egg-info"))
                if not described and entry not in known and _stem(entry) not in known:
                    yield Path(place, entry)  # unresolved: a link must not lead out


def _stem(entry: str) -> str:
    return entry.partition(".")[0]


class Packages(MetaPathFinder, Loader):
    """The first finder: `mha_lib` says nothing, what is not allowed is not there."""

    def __init__(self, known: set[str], others: list):
        self.known = {_stem(name) for name in known} | sys.stdlib_module_names
        self.others = others

    def find_spec(self, name: str, path: object = None, target: object = None):
        """What the other finders say of an allowed package."""
        head = name.partition(".")[0]
        if head == "mha_lib":
            if name in ("mha_lib", "mha_lib.check"):
                return ModuleSpec(name, self, is_package=True)
            text = f"{name} is not available while grading"
            raise ModuleNotFoundError(text, name=name)
        if head not in self.known:
            return None
        found = (finder.find_spec(name, path, target) for finder in self.others)
        return next((spec for spec in found if spec is not None), None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty package with a silent part."""
        if spec.name == "mha_lib":
            return ModuleType("mha_lib")
        return Silent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


class Silent(ModuleType):
    """Takes every call and answers with itself: a check in a notebook does nothing."""

    __path__ = ()

    def __getattr__(self, name: str):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: object, **kwargs: object):
        """Say nothing."""
        return self

    def __repr__(self) -> str:
        return "(checks say nothing while grading)"
