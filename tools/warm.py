"""A process that has imported what every page needs, and forks kernels from itself.

`tools.kernels` starts it, by its path. It reads a line of JSON for each kernel that is
wanted (its arguments, folder and environment), and answers with a line: the number of
the new process. It ends when its input does, and its kernels with it.
"""

import contextlib
import json
import os
import signal
import sys


def warm_up() -> None:
    """Import what takes long; nothing here starts a thread, which a fork would lose."""
    # As a kernel sets it, but before matplotlib is there to read it.
    os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"
    import ipykernel.kernelapp  # noqa: F401
    import matplotlib.figure  # noqa: F401, not pyplot: it asks for a way of drawing
    import torch  # noqa: F401

    import mha_lib  # noqa: F401


def become_kernel(arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """Go on as what `python -m ipykernel_launcher` with these arguments would be."""
    from ipykernel.kernelapp import launch_new_instance

    parent = os.getppid()  # the kernel ends when this does
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()  # the manager sends signals to the whole group
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv[1:] = arguments
    launch_new_instance([*arguments, f"--IPKernelApp.parent_handle={parent}"])


def bury(*_: object) -> None:
    """Wait for those that have ended: their processor time is then counted as ours."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main() -> None:
    del sys.path[0]  # the folder of this file: a page must not find our tools there
    warm_up()
    signal.signal(signal.SIGCHLD, bury)
    for line in sys.stdin:
        if not (child := os.fork()):
            become_kernel(**json.loads(line))
            os._exit(0)
        print(child, flush=True)


if __name__ == "__main__":
    main()
