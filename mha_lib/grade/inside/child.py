"""One submission in its own process: run its cells, answer the probes, end.

Nothing that is sent from here is believed: a submission can send what it likes. Only
numbers that are right under secret inputs are worth anything.
"""

import os
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from socket import socket
from types import ModuleType

from . import bans, cells, wire

REQUEST = 1 << 27  # bytes that a submission and its probes may have
WORTH_A_LOOK = {
    *("ops", "_C", "ctypes", "gc", "_getframe", "inspect", "import_module", "reload"),
    *("__import__", "eval", "exec", "pickle", "subprocess", "socket", "os"),
}


def serve(connection: socket, adapter: Callable) -> None:
    """Read one request and answer it, a message for the cells and for each question."""
    request = wire.receive(connection, REQUEST)
    kind, seconds, banned = (request[k] for k in ("kind", "seconds", "banned"))
    module = ModuleType("__main__" if kind == "ipynb" else "submission")
    try:
        sources = cells.read(request["content"].numpy().tobytes(), kind)
    except cells.NotASubmission as error:
        wire.send(connection, {"unreadable": str(error)})
        return
    names = {name.rpartition(".")[2] for name in banned}
    found = cells.mentions(sources, names | WORTH_A_LOOK)
    wire.send(connection, {"mentions": found})  # before any of its code runs
    bans.apply(banned)
    notes = run_cells(module, sources, seconds)
    wire.send(connection, {"notes": notes})
    for question in request["questions"]:
        wire.send(connection, answer(question, module, adapter, seconds))
    wire.send(connection, {"done": True})


def run_cells(module: ModuleType, sources: list[str], seconds: float) -> list[str]:
    """Execute them as Jupyter would; the checks of mha_lib are there and silent."""
    sys.modules[module.__name__] = module
    sys.meta_path.insert(0, NoAnswers())
    sys.stdin = open(os.devnull)  # noqa: SIM115
    module.__dict__["get_ipython"] = Silent("get_ipython")
    return cells.run(module, sources, seconds)


def answer(question: dict, module: ModuleType, adapter: Callable, seconds: float):
    """The outcomes of one question, or why there are none."""
    name = question["name"]
    if name not in module.__dict__:
        return {"question": name, "failed": f"nothing is called {name}"}
    try:
        with cells.time_limit(seconds):
            outcomes = adapter(module.__dict__[name], question["probes"])
        return {"question": name, "outcomes": [sendable(x) for x in outcomes]}
    except BaseException as error:  # also SystemExit; the next question still counts
        return {"question": name, "failed": cells.describe(error)}


def sendable(outcome: dict) -> dict:
    """The outcome; an error instead, if it holds what cannot be sent."""
    try:
        wire.pack(outcome)
        return outcome
    except (TypeError, RuntimeError, MemoryError) as error:
        return {"error": cells.describe(error)}


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


class NoAnswers(MetaPathFinder, Loader):
    """Imports of mha_lib: its checks do nothing, everything else does not exist."""

    def find_spec(self, name: str, path: object = None, target: object = None):
        """A silent module for the checks, an error for the rest of the package."""
        if name.partition(".")[0] != "mha_lib":
            return None
        if name in ("mha_lib", "mha_lib.check"):
            return ModuleSpec(name, self, is_package=True)
        raise ModuleNotFoundError(f"{name} is not available while grading", name=name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """An empty package with a silent part."""
        if spec.name == "mha_lib":
            return ModuleType("mha_lib")
        return Silent(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""
