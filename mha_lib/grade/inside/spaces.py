"""A user, and namespaces of processes, mounts, network and IPC, of a child's own.

Root makes them, and so does who may make a namespace of users, in which any user has
root's rights over what was made there, and over nothing else.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from . import kernel

USERS = range(60706, 61184)  # ids that systemd's table of users leaves free
CHILDREN = "/proc/{0}/task/{0}/children"


def possible(task: object, *arguments: object) -> bool:
    """Whether it works here, tried in a process of its own."""
    pid = os.fork()
    if not pid:
        try:
            task(*arguments)
            os._exit(0)
        except OSError:
            pass
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


# --- users ----------------------------------------------------------------------------


def take(user: int) -> None:
    """The id of a user, and of no group; OSError where there is no such user."""
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)


def become(user: int, may_read: bool) -> None:
    """Another user, without any privilege of root's but where Python lies in /root.

    There that user may read all files, if ``may_read``: Landlock then says which.
    """
    if not kernel.LINUX:
        take(user)
        return
    kernel.prctl(kernel.SET_KEEPCAPS, 1, 0, 0, 0)
    take(user)
    kept = 0
    if not os.access(os.__file__, os.R_OK):
        if not may_read:
            raise PermissionError(
                f"user {user}, under whose id submissions run, must be able to read "
                f"{os.__file__}; install Python and this package elsewhere, or start "
                "the grader as another user than root"
            )
        kept = kernel.CAP_DAC_READ_SEARCH
    kernel.keep_capabilities(kept)


# --- namespaces -----------------------------------------------------------------------


def enter(root: bool, hidden: Iterable[Path]) -> None:
    """No network, an empty /tmp, and nothing where the hidden folders are."""
    user, group = os.geteuid(), os.getegid()
    if not root:
        kernel.unshare(kernel.CLONE_NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWNET)
    kernel.mount(None, Path("/"), kernel.MS_PRIVATE_AND_ALL_BELOW)
    needed = {Path(sys.prefix), Path(sys.base_prefix), Path(os.__file__)}
    for folder in {Path(tempfile.gettempdir()).resolve(), *hidden}:
        if folder.is_dir() and not any(x.is_relative_to(folder) for x in needed):
            kernel.mount("tmpfs", folder, kernel.MS_RDONLY)


def alone() -> None:
    """Mounts and IPC that no other child has had; nothing in /proc and /sys."""
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    for folder in ("/proc", "/sys"):
        kernel.mount("tmpfs", Path(folder), kernel.MS_RDONLY)


def first_process() -> int:
    """Have what is forked from now on be in a namespace of processes; its first one.

    It waits, so that a child is an ordinary process, which signals end; with it all
    others in the namespace end, and it ends with the warm process.
    """
    kernel.unshare(kernel.CLONE_NEWPID)
    heard, told = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(heard)
        wait(told)
    os.close(told)
    os.read(heard, 1)  # from here on it ends with this one
    os.close(heard)
    return pid


def wait(told: int) -> None:
    """What the first process does, with no file open, until it is killed."""
    try:
        kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # what is left to it is reaped
        os.write(told, b".")  # it fails where the warm process is dead already
        os.closerange(0, os.sysconf("SC_OPEN_MAX"))
        while True:
            signal.pause()
    finally:
        os._exit(0)


def clean(first: int) -> None:
    """Kill what a child left: it went to the first process, or to this one."""
    for parent in filter(None, (first, os.getpid())):
        path = Path(CHILDREN.format(parent))
        while left := _numbers(path) - {first}:
            for pid in left:
                # The first process reaps its own, perhaps before we look.
                with suppress(ProcessLookupError, ChildProcessError):
                    os.kill(pid, signal.SIGKILL)
                    os.waitpid(pid, 0)


def _numbers(path: Path) -> set[int]:
    return {int(x) for x in path.read_text().split()} if path.exists() else set()
