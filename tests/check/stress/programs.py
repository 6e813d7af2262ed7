"""The register: wrong programs, their tasks, and the calls that show the fault."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["PROGRAMS", "Program", "wrong"]


@dataclass(frozen=True)
class Program:
    """A wrong program.

    ``make`` gives it anew, without what an earlier call left behind.
    """

    name: str
    task: str
    kind: str
    says: str
    calls: tuple
    make: Callable


PROGRAMS: dict[str, Program] = {}


def wrong(task, says, *calls, fresh=False):
    """Keep what follows; with ``fresh`` it is a function that makes the program."""

    def keep(f):
        name, module = f.__name__, f.__module__.rpartition(".")[2]
        assert name not in PROGRAMS, name
        make = f if fresh else lambda: f
        PROGRAMS[name] = Program(name, task, module.split("_")[0], says, calls, make)
        return f

    return keep
