"""The judge's side of the sandbox: start the warm process, have one submission run.

Who knows what: the judge (this process) holds the answers; the warm process has
imported torch and `mha_lib.grade.inside`, which holds none; a child forked from it runs
one submission and sends tensors back. See `mha_lib.grade.inside.limits` for what is
taken from the child.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import torch

from mha_lib.grade.inside import limits, wire
from mha_lib.grade.inside.packages import ALLOWED

__all__ = ["Reply", "Sandbox", "Unsafe", "unprotected"]

HERE = Path(__file__).resolve().parent
ADAPTER = HERE.parent / "check" / "beside"
START = (
    "import gc, sys; gc.disable(); "  # nothing is garbage until a submission comes
    "sys.path += sys.argv[3:]; "  # torch may lie where -I does not look
    "from inside.warm import main; main()"
)
LOOK = (  # without torch, and so in no time
    "import json, sys; sys.path.append(sys.argv[1]); "
    "from inside.limits import Limits; caps = json.loads(sys.argv[2]); "
    "print(json.dumps(Limits(**caps).prepare()))"
)
GRACE = 10.0  # seconds that the warm process may take longer than the child


class Unsafe(RuntimeError):
    """This machine cannot protect you from the submissions."""


@dataclass
class Reply:
    """What a submission sent, none of which is to be believed, and how it ended.

    Attributes:
        messages: in the order in which they came.
        ending: in words, why it did not finish; empty where it did.
        cpu: seconds of CPU time of the child.
        memory: the most it had, in KiB.
    """

    messages: list = field(default_factory=list)
    ending: str = ""
    cpu: float = 0.0
    memory: int = 0


class Sandbox:
    """A warm process, in which submissions run one after the other.

    Args:
        memory: bytes that a submission may take beyond those of torch itself.
        cpu: seconds of CPU time for a submission.
        wall: seconds on the clock for a submission.
        seconds: of CPU time, for one cell or one question; three times on the clock.
        files: open files.
        hidden: folders that submissions must not read; this package is among them.
        packages: that submissions may import, by the names under which they are
            installed; what these require may be imported, too.
        adapter: the package whose ``run(submission, probes)`` calls a submission.
        unsafe: run even where nothing keeps submissions from changing your files.

    Raises:
        Unsafe: see ``unsafe``; or no process can be forked here (Windows).

    Example:
        >>> import torch
        >>> from mha_lib.grade.sandbox import Sandbox
        >>> probe = {"call": "merge_heads", "inputs": {"x": torch.ones(2, 3, 5, 7)}}
        >>> probe |= {"options": {}, "sizes": {}, "weights": None}
        >>> code = "def merge_heads(x): return x.transpose(1, 2).flatten(2)"
        >>> question = {"name": "merge_heads", "probes": [probe]}
        >>> with Sandbox() as sandbox:
        ...     reply = sandbox.run(code.encode(), "py", [question])
        >>> reply.messages[2]["outcomes"][0]["outputs"]["output"].shape
        torch.Size([2, 5, 21])
    """

    def __init__(
        self,
        *,
        memory: int = 1 << 30,
        cpu: int = 60,
        wall: float = 90.0,
        seconds: float = 20.0,
        files: int = 64,
        hidden: Iterable[os.PathLike | str] = (),
        packages: Iterable[str] = ALLOWED,
        adapter: os.PathLike | str = ADAPTER,
        unsafe: bool = False,
    ):
        self.wall, self.seconds, self.unsafe = wall, seconds, unsafe
        hidden = [os.fspath(folder) for folder in hidden]
        caps = {"memory": memory, "cpu": cpu, "files": files, "hidden": hidden}
        caps["imports"] = list(packages)
        self.settings = {"limits": caps, "wall": wall, "adapter": os.fspath(adapter)}
        self.missing: list[str] = []
        self.banned: set[str] = set()  # in the warm process that runs
        self.probes: list[list[dict]] = []  # and what it has of these
        self.process = None

    def __enter__(self) -> "Sandbox":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the warm process, unless it runs."""
        if self.process is not None:
            return
        if not hasattr(os, "fork"):
            raise Unsafe(
                "grading needs a system that can fork processes: Linux, or Windows' "
                "Subsystem for Linux"
            )
        self.control, theirs = socket.socketpair()
        with theirs:
            settings = json.dumps(self.settings)
            places = [str(HERE), str(Path(torch.__file__).parents[1])]
            arguments = [str(theirs.fileno()), settings, *places]
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-c", START, *arguments],
                pass_fds=[theirs.fileno()],
                env=_environment(),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the grader, which ends it
            )
        try:
            state = wire.receive(self.control, 0)
        except EOFError:
            self.close()
            raise RuntimeError("the warm process did not start; see above") from None
        self.missing = state["missing"]
        if state["refused"]:
            self.close()
            raise Unsafe(state["refused"])
        if {"files", "system calls"} <= set(self.missing) and not self.unsafe:
            self.close()
            raise Unsafe(
                "a submission could change and read all your files here: this system "
                "has neither Landlock nor seccomp. Grade on Linux, in a container or "
                "in a forge's runner, or pass --unsafe for code that you trust"
            )

    def close(self) -> None:
        """End the warm process; it takes its child along."""
        if self.process is not None:
            self.control.close()
            self.process.kill()
            self.process.wait()
            self.process = None
            self.banned, self.probes = set(), []

    @property
    def warnings(self) -> list[str]:
        """What this machine does not protect from, in words."""
        return [limits.PURPOSES[name] for name in self.missing]

    def run(
        self,
        content: bytes,
        kind: str,
        questions: list[dict],
        banned: Iterable[str] = (),
    ) -> Reply:
        """Run one submission, and read what it sends.

        Args:
            content: the file.
            kind: "ipynb" or "py".
            questions: each with the name of what answers it and with its probes. Those
                of the last call need not be sent again: nobody may change them.
            banned: built-ins that are taken away, such as "nn.MultiheadAttention".
                They stay away: who bans less than before waits for a new warm process.
        """
        banned = set(banned)
        if not self.banned <= banned:
            self.close()
        self.start()
        reply, problem = Reply(), ""
        ours, theirs = socket.socketpair()
        with ours:
            ours.settimeout(self.wall + GRACE)
            with theirs:
                probes = self._hand_over(
                    theirs, banned, [q["probes"] for q in questions]
                )
            request = {
                "content": wire.as_tensor(content),
                "kind": kind,
                "questions": [
                    q | {"probes": self._place(q["probes"])} for q in questions
                ],
                "banned": sorted(banned),
                "seconds": self.seconds,
            }
            try:
                if probes:
                    wire.send(ours, probes)
                wire.send(ours, request)
                for _ in range(len(questions) + 3):
                    reply.messages.append(wire.receive(ours, wire.MOST))
                    if not isinstance(reply.messages[-1], dict):
                        raise wire.WireError("a message must be a dictionary")
                    if {"done", "unreadable"} & reply.messages[-1].keys():
                        break
            except wire.WireError as error:
                problem = f"it sent what is no answer ({error})"
            except (EOFError, OSError):
                problem = "it ended itself before it had answered everything"
        try:
            self.control.settimeout(self.wall + GRACE)
            ending = wire.receive(self.control, 0)
        except (EOFError, OSError):
            self.close()  # the next one gets a new warm process
            reply.ending = "it ended the process that had started it"
            return reply
        reply.cpu, reply.memory = ending["cpu"], ending["memory"]
        if problem or ending["late"]:
            reply.ending = _in_words(ending, self.settings) or problem
        return reply

    def _hand_over(
        self, connection: socket.socket, banned: set[str], probes: list[list[dict]]
    ) -> list[list[dict]]:
        """Which probes have to go ahead."""
        try:
            return self._send(connection, banned, probes)
        except OSError:  # somebody ended the warm process meanwhile
            self.close()
            self.start()
            return self._send(connection, banned, probes)

    def _send(
        self, connection: socket.socket, banned: set[str], probes: list[list[dict]]
    ) -> list[list[dict]]:
        known = all(self._place(x) is not None for x in probes)
        self.banned, self.probes = banned, self.probes if known else probes
        text = json.dumps({"banned": sorted(banned), "new_probes": not known}).encode()
        socket.send_fds(self.control, [text], [connection.fileno()])
        return [] if known else probes

    def _place(self, probes: list[dict]) -> int | None:
        """Where the warm process has these very probes."""
        return next((n for n, x in enumerate(self.probes) if x is probes), None)


@cache  # it stays what it is
def unprotected() -> tuple[str, ...]:
    """What this machine does not protect from, before any submission has run."""
    if not hasattr(os, "fork"):
        return ()  # a sandbox refuses to start here, and says why
    caps = {"memory": 0, "cpu": 1, "files": 1, "hidden": []}
    command = [sys.executable, "-I", "-c", LOOK, str(HERE), json.dumps(caps)]
    done = subprocess.run(command, env=_environment(), cwd="/", capture_output=True)
    if done.returncode:  # then no sandbox starts either, and says why
        return ()
    return tuple(limits.PURPOSES[name] for name in json.loads(done.stdout))


def _environment() -> dict[str, str]:
    """One thread, no GPU, and no secret: a runner's environment may hold tokens."""
    one = ("OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "OPENBLAS_NUM_THREADS")
    one += ("MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    paths = {"PATH": os.defpath, "HOME": os.path.expanduser("~"), "LANG": "C.UTF-8"}
    without = {"CUDA_VISIBLE_DEVICES": "", "MPLBACKEND": "agg"}
    return paths | without | dict.fromkeys(one, "1")


def _in_words(ending: dict, settings: dict) -> str:
    """Why a child ended, from how it did; empty where that says nothing."""
    if ending["late"]:
        return f"it was stopped after {settings['wall']:g} seconds: a loop without end?"
    cpu = settings["limits"]["cpu"]
    if ending["code"] == -signal.SIGXCPU or ending["cpu"] >= cpu:
        return f"it was stopped after {cpu} seconds of CPU time"
    if ending["code"] == -signal.SIGKILL:
        return "it was stopped by the system, mostly because memory ran out"
    if ending["code"] < 0:
        named = {x.value: x.name for x in signal.Signals}  # not all have a name
        name = named.get(-ending["code"], f"signal {-ending['code']}")
        return f"it crashed ({name}): too deep a recursion, or too much memory?"
    return ""
