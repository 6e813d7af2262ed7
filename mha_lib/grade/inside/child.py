"""One submission in its own process: run its cells, answer the probes, end.

Nothing that is sent from here is believed: a submission can send what it likes. Only
numbers that are right under secret inputs are worth anything.
"""

import os
import sys
from collections.abc import Callable
from socket import socket
from types import ModuleType

from . import cells, wire
from .packages import Silent

REQUEST = 1 << 27  # bytes that a submission and its probes may have
WORTH_A_LOOK = {
    *("ops", "_C", "ctypes", "gc", "_getframe", "inspect", "import_module", "reload"),
    *(
        "__import__",
        "builtins",
        "__builtins__",
        "eval",
        "exec",
        "pickle",
        "subprocess",
        "socket",
        "os",
    ),
}


def serve(connection: socket, adapter: Callable, probes: list[list[dict]]) -> None:
    """Read one request and answer it, a message for the cells and for each question.

    A question tells its probes by their place in ``probes``.
    """
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
    notes = run_cells(module, sources, seconds)
    shown = list(notes.values())[: cells.MOST_NOTES]
    wire.send(connection, {"notes": shown})
    for question in request["questions"]:
        hit = cells.meant_for(question["name"], sources, notes)
        told = {"question": question["name"]} | ({"hit": hit} if hit else {})
        asked = question | {"probes": probes[question["probes"]]}
        connection.sendall(answer(told, asked, module, adapter, seconds))
    wire.send(connection, {"done": True})


def run_cells(module: ModuleType, sources: list[str], seconds: float) -> dict[int, str]:
    """Execute them as Jupyter would; the checks of mha_lib are there and silent."""
    sys.modules[module.__name__] = module
    sys.stdin = open(os.devnull)  # noqa: SIM115
    module.__dict__["get_ipython"] = Silent("get_ipython")
    return cells.run(module, sources, seconds)


def answer(
    told: dict, question: dict, module: ModuleType, adapter: Callable, seconds: float
) -> bytes:
    """The message with the outcomes of one question, or why there are none."""
    name = question["name"]
    if name not in module.__dict__:
        return wire.pack(told | {"failed": f"nothing is called {name}"})
    try:
        with cells.time_limit(seconds):
            stand_in(module, question.get("stand_ins", {}))
            outcomes = adapter(module.__dict__[name], question["probes"])
            return packed(told, outcomes)
    except BaseException as error:  # also SystemExit; the next question still counts
        return wire.pack(told | {"failed": cells.describe(error)})


def stand_in(module: ModuleType, sources: dict[str, str]) -> None:
    """Put right parts in the place of theirs, whose marks the judge knows already."""
    for name, source in sources.items():
        parts: dict[str, object] = {"__name__": module.__name__}
        exec(source, parts)
        module.__dict__[name] = parts[name]


def packed(told: dict, outcomes: list[dict]) -> bytes:
    """The message; in the place of an outcome that cannot be sent stands an error."""
    try:
        message = wire.pack(told | {"outcomes": outcomes})
        if len(message) <= wire.MOST:
            return message
    except (TypeError, RuntimeError, MemoryError):
        pass
    kept = [sendable(outcome) for outcome in outcomes]
    sizes, left = [len(wire.pack(x)) for x in kept], wire.MOST
    for i in sorted(range(len(kept)), key=sizes.__getitem__):  # the largest last
        left -= sizes[i]
        if left < 0 and "outputs" in kept[i]:  # an error is always sent
            shape = tuple(kept[i]["outputs"]["output"].shape)
            said = f"it returned far too many numbers, of the shape {shape}"
            kept[i] = {"error": said}
    return wire.pack(told | {"outcomes": kept})


def sendable(outcome: dict) -> dict:
    """The outcome; an error instead, if it holds what cannot be sent."""
    try:
        wire.pack(outcome)
        return outcome
    except (TypeError, RuntimeError, MemoryError) as error:
        return {"error": cells.describe(error)}
