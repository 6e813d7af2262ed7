"""Sandboxes for the tests: each warm process is a fork of one that has imported torch.

Nearly all of a start, two seconds of processor time, goes into imports. They are done
here, once. A fork then runs the command that would have been started, word for word.
The tests of the command line, and that of a judge that is killed, start real ones.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from contextlib import contextmanager, suppress
from types import SimpleNamespace


class Forked:
    """A process that is no child of ours, with what a sandbox asks of a Popen."""

    def __init__(self, pid: int, end: int):
        self.pid, self.end = pid, end  # a descriptor, of which its end can be heard

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.end, signal.SIGKILL)

    def wait(self) -> None:
        select.select([self.end], [], [])

    def __del__(self):
        os.close(self.end)


class Nursery:
    """Starts with the first process that is asked for, and ends with `close`."""

    def __init__(self):
        self.process = None

    def popen(self, command, *, pass_fds, env, cwd, start_new_session, **files):
        """What `Sandbox.start` asks of subprocess."""
        assert command[:3] == [sys.executable, "-I", "-c"] and start_new_session
        assert files == dict.fromkeys(("stdin", "stdout"), subprocess.DEVNULL)
        (wanted,) = pass_fds
        if self.process is None:
            self.start(command[-2:], env)
        asked = {"wanted": wanted, "argv": command[2:], "env": env, "cwd": cwd}
        socket.send_fds(self.control, [json.dumps(asked).encode()], [wanted])
        pid, (end,), *_ = socket.recv_fds(self.control, 64, 1)
        return Forked(int(pid), end)

    def start(self, places, env):
        self.control, theirs = socket.socketpair()
        with theirs:
            number = theirs.fileno()
            self.process = subprocess.Popen(
                [sys.executable, "-I", __file__, str(number), *places],
                pass_fds=[number],
                env=env,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )

    def close(self):
        if self.process is not None:
            self.control.close()
            self.process.wait()


@contextmanager
def forked_sandboxes(sandbox):
    """While it is open, the module `sandbox` gets its warm processes from a nursery."""
    nursery = Nursery()
    parts = vars(subprocess) | {"Popen": nursery.popen}
    sandbox.subprocess = SimpleNamespace(**parts)
    yield
    sandbox.subprocess = subprocess
    nursery.close()


# --- the other side -----------------------------------------------------------------


def serve(number: int, places: list[str]) -> None:
    """Import what a warm process imports; fork one for each request."""
    import gc

    gc.disable()
    sys.path += places
    from inside import warm

    before = sys.path[:], sys.meta_path[:]
    warm.imports()
    sys.path[:], sys.meta_path[:] = before
    gc.freeze()
    control = socket.socket(fileno=number)
    while True:
        text, descriptors, *_ = socket.recv_fds(control, 1 << 16, 1)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not descriptors:
            return
        (given,) = descriptors
        if not (pid := os.fork()):
            control.detach()
            become(given, **json.loads(text))
        os.close(given)
        end = os.pidfd_open(pid)
        socket.send_fds(control, [str(pid).encode()], [end])
        os.close(end)


def become(given: int, wanted: int, argv: list[str], env: dict, cwd: str) -> None:
    """Go on as what Python would be with this environment and these arguments."""
    try:
        os.setsid()
        os.chdir(cwd)
        os.environ.clear()
        os.environ.update(env)
        os.dup2(given, wanted)
        if given != wanted:
            os.close(given)
        _, code, *sys.argv[1:] = argv
        exec(code, {"__name__": "__main__"})
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(1)


if __name__ == "__main__":
    serve(int(sys.argv[1]), sys.argv[2:])
