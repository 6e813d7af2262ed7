"""The warm process: it has imported torch, knows no answers, forks a child for each.

It is started with the number of its end of a socket and with its settings as JSON. The
judge sends a list of what is banned and, with it, the socket on which the child is to
talk; the answer says how the child ended. New probes come first on that socket: they
are read here, once for a class, and each child finds them in its memory.
"""

import gc
import importlib
import importlib.machinery
import importlib.util
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch
import torch.library

from . import bans, child, packages, wire
from .limits import Limits
from .spaces import clean

OFTEN_IMPORTED = ("numpy", "matplotlib.pyplot", "IPython.display", "einops", "tqdm")
FINDERS = "BuiltinImporter", "FrozenImporter", "PathFinder"


def main() -> None:
    """Serve until the judge closes the connection."""
    control = socket.socket(fileno=int(sys.argv[1]))
    settings = json.loads(sys.argv[2])
    adapter = load(settings["adapter"]).run
    imports()
    sys.argv[1:], sys.orig_argv[1:] = [], []  # they say where things lie,
    os.environ["HOME"] = os.sep  # and whose machine it is
    limits = Limits(**settings["limits"])
    limits.hidden += [Path(__file__).resolve().parents[2]]
    missing = limits.prepare()
    sys.meta_path[:] = [packages.Packages(limits.known, sys.meta_path[:])]
    # A killed judge leaves answers unread, or probes unsent.
    with suppress(ConnectionError, EOFError):
        wire.send(control, {"missing": missing, "refused": trial(limits)})
        serve(control, limits, adapter, settings["wall"])


def serve(
    control: socket.socket, limits: Limits, adapter: Callable, wall: float
) -> None:
    """Fork a child for each connection that comes over ``control``, until it closes."""
    banned, probes = [], []
    gc.freeze()  # children share what is there now, and do not look through it
    gc.enable()
    while True:
        text, descriptors, *_ = socket.recv_fds(control, 1 << 16, 1)
        if not descriptors:
            return
        (connection,) = descriptors
        asked = json.loads(text)
        if asked["banned"] != banned:  # once: the judge asks for more, never for less
            gc.disable()  # it would look through all of torch, again and again
            gc.unfreeze()
            banned = asked["banned"]
            limits.close(bans.apply(banned))
            gc.collect()
            gc.freeze()
            gc.enable()
        if asked["new_probes"]:
            with socket.socket(fileno=os.dup(connection)) as ahead:
                probes = wire.receive(ahead, child.REQUEST)
            gc.freeze()
        wire.send(control, forked(connection, limits, adapter, probes, wall))


def forked(
    descriptor: int, limits: Limits, adapter: Callable, probes: list, wall: float
) -> dict:
    """Have a child serve a connection; how it ended."""
    start = time.perf_counter()
    pid = os.fork()
    if not pid:
        become_child(descriptor, limits, adapter, probes)
    os.close(descriptor)
    return watch(pid, wall, limits.first) | {"seconds": time.perf_counter() - start}


def load(path: str):
    """The adapter, a package that needs torch alone, without the one it lies in."""
    first = Path(path, "__init__.py")
    spec = importlib.util.spec_from_file_location("beside", first)
    module = sys.modules["beside"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def imports() -> None:
    """Import what submissions import, then forget every way to our own package."""
    torch.set_num_threads(1)
    for name in OFTEN_IMPORTED:
        with suppress(ImportError):
            importlib.import_module(name)
    for device in ("cpu", "meta"):  # which import a lot at their first operation
        x = torch.ones(2, 2, device=device)
        torch.softmax((x @ x).masked_fill(x > 0, 1.0), -1)
    ours = Path(__file__).resolve().parents[2]
    places = {path: Path(path).resolve() for path in sys.path if path}
    sys.path[:] = [
        path
        for path, place in places.items()
        if place != ours.parent and not place.is_relative_to(ours)
    ]
    for name in [name for name in sys.modules if "mha_lib" in name]:
        del sys.modules[name]  # of an editable installation
    sys.meta_path[:] = [f for f in sys.meta_path
                        if getattr(f, "__name__", "") in FINDERS]  # fmt: skip
    threads = Path("/proc/self/task")
    if threads.exists() and len(list(threads.iterdir())) > 1:
        raise RuntimeError("a process with threads must not be forked")


def become_child(
    descriptor: int, limits: Limits, adapter: Callable, probes: list
) -> None:
    """Keep one connection, take everything else away, serve, end."""
    try:
        isolate(limits, descriptor)
        child.serve(socket.socket(fileno=descriptor), adapter, probes)
    finally:
        os._exit(0)


def isolate(limits: Limits, *kept: int) -> None:
    """Close all files but those kept, and apply the limits."""
    null = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(null, standard)
    kept = sorted({*kept, *([limits.ruleset] if limits.ruleset else [])})
    edges = [2, *kept, os.sysconf("SC_OPEN_MAX")]
    for before, after in zip(edges, edges[1:]):
        os.closerange(before + 1, after)
    limits.apply()


def trial(limits: Limits) -> str:
    """Whether a child can be isolated here: the reason why not, or nothing."""
    ours, theirs = socket.socketpair()
    with ours:
        pid = os.fork()
        if not pid:
            try:
                isolate(limits, theirs.fileno())
            except BaseException as error:
                theirs.send(f"{type(error).__name__}: {error}".encode()[:500])
            finally:
                os._exit(0)
        theirs.close()
        os.waitpid(pid, 0)
        return ours.recv(500).decode(errors="replace")


def watch(pid: int, wall: float, first: int) -> dict:
    """Wait for a child, no longer than ``wall`` seconds; leave nothing of it behind.

    ``first`` is that of its namespace of processes, and stays; 0 where there is none.
    """
    late = False

    def stop(*_: object) -> None:
        nonlocal late
        late = True
        kill(os.kill, pid)

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, wall)
    _, status, usage = os.wait4(pid, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    kill(os.killpg, pid)
    clean(first)
    code = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    return {"late": late, "code": code, "cpu": cpu, "memory": usage.ru_maxrss}


def kill(how: Callable, target: int) -> None:
    """Kill a process or a group, if there is still one."""
    with suppress(ProcessLookupError, PermissionError):
        how(target, signal.SIGKILL)
