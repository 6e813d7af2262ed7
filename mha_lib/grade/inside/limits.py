"""What is taken from a child before it runs a submission.

`Limits.prepare` runs once, in the warm process; `Limits.apply` in every child, where a
protection that was there in the warm process and now fails ends the child. What of it
is the Linux kernel's stands in `kernel`, `files` and `spaces`.
"""

import ctypes
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from . import files, kernel, packages, spaces

PURPOSES = {
    "files": "a submission can read every file that you can read, the answers too",
    "packages": "a submission can import every package that is installed here",
    "system calls": "a submission can write files, open connections and start programs",
    "namespaces": "a submission shares processes, mounts and network with this machine",
    "user": "a submission runs under your user id (start as root to change that)",
    "orphans": "a process that a submission detaches may go on running",
    "memory": "a submission can use all memory of this machine",
}


class Limits:
    """The limits of one warm process and its children.

    Args:
        memory: bytes that a child may take beyond those of the warm process.
        cpu: seconds of CPU time.
        files: open files.
        hidden: folders that hold answers or other people's work.
        imports: packages that a child may import, and with them what they require.
    """

    def __init__(
        self,
        memory: int,
        cpu: int,
        files: int,
        hidden: Iterable[str],
        imports: Iterable[str] = packages.ALLOWED,
    ):
        self.memory, self.cpu, self.files = memory, cpu, files
        self.hidden = [Path(folder).resolve() for folder in hidden]
        self.imports = list(imports)
        self.root = hasattr(os, "geteuid") and os.geteuid() == 0
        self.user = self.ruleset = self.filter = None
        self.first = 0  # process of the children's namespace

    def prepare(self) -> list[str]:
        """Set up what the children share; which protections this system lacks."""
        missing = []
        within = (self.root, self.hidden)
        apart = kernel.LINUX and spaces.possible(spaces.enter, *within)
        if apart:
            spaces.enter(*within)
            self.first = spaces.first_process()
        try:
            # What a child detaches becomes ours to kill.
            kernel.prctl(kernel.SET_CHILD_SUBREAPER, 1)
            kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)
            os.stat(spaces.CHILDREN.format(os.getpid()))
        except OSError:
            missing.append("orphans")
        self.known = packages.allowed(self.imports)
        self.close([])
        if self.ruleset is None:
            missing += [] if self.root and apart else ["files"]
            missing += ["packages"]
        self.filter = attempt(kernel.system_call_filter)
        if self.filter is None:
            missing.append("system calls")
        if not apart:
            missing.append("namespaces")
        user = spaces.USERS[os.getpid() % len(spaces.USERS)]
        if self.root and spaces.possible(spaces.take, user):
            self.user = user
        else:
            missing.append("user")
        if kernel.LINUX:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            self.memory += pages * os.sysconf("SC_PAGE_SIZE")
        else:
            self.memory = None  # where others count address space, they do it loosely
            missing.append("memory")
        return missing

    def close(self, more: Iterable[Path]) -> None:
        """Which files a child can read: what is allowed, less these."""
        if self.ruleset is not None:
            os.close(self.ruleset)
        hidden = {*self.hidden, *packages.closed(self.known), *more}
        self.ruleset = attempt(files.ruleset, hidden)

    def apply(self) -> None:
        """Take the rights of this process away, for good."""
        import resource  # there is none on Windows

        os.setsid()  # a group of its own, to be killed as one
        caps = {"CPU": self.cpu, "NOFILE": self.files, "FSIZE": 0, "CORE": 0}
        caps |= {"NPROC": 1, "AS": self.memory} if kernel.LINUX else {}
        for name, cap in caps.items():
            hard = cap + (name == "CPU")  # if the first signal is blocked
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (cap, hard))
        if self.first:
            spaces.alone()
        if self.user is not None:
            spaces.become(self.user, may_read=self.ruleset is not None)
        elif kernel.LINUX:
            kernel.keep_capabilities(0)
        if kernel.LINUX:
            kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)
            kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if self.ruleset is not None:
            kernel.system(kernel.LANDLOCK_RESTRICT_SELF, self.ruleset, 0)
            os.close(self.ruleset)
        if self.filter is not None:
            program = ctypes.byref(self.filter)
            kernel.prctl(kernel.SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, program)


def attempt(protection: object, *arguments: object) -> object:
    """What it returns, or None where the system has or grants no such thing."""
    try:
        return protection(*arguments) if kernel.LINUX else None
    except OSError:
        return None
