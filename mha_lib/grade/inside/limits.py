"""What is taken from a child before it runs a submission.

`Limits.prepare` runs once, in the warm process; `Limits.apply` in every child, where a
protection that was there in the warm process and now fails ends the child. What of it
is the Linux kernel's stands in `kernel`.
"""

import ctypes
import os
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import kernel

OWN_USER = 64999  # an id that no account has
PURPOSES = {
    "files": "a submission can read every file that you can read, the answers too",
    "system calls": "a submission can write files, open connections and start programs",
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
    """

    def __init__(self, memory: int, cpu: int, files: int, hidden: Iterable[str]):
        self.memory, self.cpu, self.files = memory, cpu, files
        self.hidden = [Path(folder).resolve() for folder in hidden]
        self.root = hasattr(os, "geteuid") and os.geteuid() == 0
        self.ruleset = self.filter = None

    def prepare(self) -> list[str]:
        """Set up what the children share; which protections this system lacks."""
        missing = []
        try:
            # What a child detaches becomes ours to kill.
            kernel.prctl(kernel.SET_CHILD_SUBREAPER, 1)
            kernel.prctl(kernel.SET_PDEATHSIG, signal.SIGKILL)
        except OSError:
            missing.append("orphans")
        private = self.root and attempt(separate, self.hidden)
        self.ruleset = attempt(landlock, self.hidden)
        if self.ruleset is None and not private:
            missing.append("files")
        self.filter = attempt(kernel.system_call_filter)
        if self.filter is None:
            missing.append("system calls")
        if not self.root:
            missing.append("user")
        if kernel.LINUX:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            self.memory += pages * os.sysconf("SC_PAGE_SIZE")
        else:
            self.memory = None  # where others count address space, they do it loosely
            missing.append("memory")
        return missing

    def apply(self) -> None:
        """Take the rights of this process away, for good."""
        import resource  # there is none on Windows

        os.setsid()  # a group of its own, to be killed as one
        caps = {"CPU": self.cpu, "NOFILE": self.files, "FSIZE": 0, "CORE": 0}
        caps |= {"NPROC": 1, "AS": self.memory} if kernel.LINUX else {}
        for name, cap in caps.items():
            hard = cap + (name == "CPU")  # for who blocks the signal of the other one
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (cap, hard))
        if self.root:
            become(OWN_USER, may_read=self.ruleset is not None)
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


# --- a user id of its own: root alone ------------------------------------------------


def become(user: int, may_read: bool) -> None:
    """Another user, without any privilege of root's but where Python lies in /root.

    There that user may read all files, if ``may_read``: Landlock then says which.
    """
    os.setgroups([])
    os.setgid(user)
    if not kernel.LINUX:
        os.setuid(user)
        return
    kernel.prctl(kernel.SET_KEEPCAPS, 1, 0, 0, 0)
    os.setuid(user)
    kept = 0
    if not os.access(os.__file__, os.R_OK):
        if not may_read:
            raise PermissionError(
                f"user {user}, under whose id submissions run, must be able to read "
                f"{os.__file__}; install Python and this package elsewhere, or start "
                "the grader as another user than root"
            )
        kept = kernel.CAP_DAC_READ_SEARCH
    header = (ctypes.c_uint32 * 2)(kernel.CAPABILITIES_3, 0)
    rights = (ctypes.c_uint32 * 6)(kept, kept)  # effective, permitted, inheritable
    kernel.checked(ctypes.CDLL(None, use_errno=True).capset(header, rights))


# --- namespaces: root alone ---------------------------------------------------------


def separate(hidden: Iterable[Path]) -> bool:
    """No network, an empty /tmp, and nothing where the hidden folders are."""
    libc = ctypes.CDLL(None, use_errno=True)
    spaces = kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWNET
    kernel.checked(libc.unshare(spaces))
    kernel.checked(libc.mount(None, b"/", None, kernel.MS_PRIVATE_AND_ALL_BELOW, None))
    needed = {Path(sys.prefix), Path(sys.base_prefix), Path(os.__file__)}
    for folder in {Path(tempfile.gettempdir()).resolve(), *hidden}:
        if folder.is_dir() and not any(x.is_relative_to(folder) for x in needed):
            empty = b"tmpfs", os.fsencode(folder), b"tmpfs", kernel.MS_RDONLY
            kernel.checked(libc.mount(*empty, b"size=4k"))
    return True


# --- Landlock: file access by path, for anybody, Linux 5.13 and later -----------------

SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


def landlock(hidden: list[Path]) -> int:
    """A ruleset under which Python's own files can be read, and nothing else."""
    create = kernel.LANDLOCK_CREATE_RULESET
    version = kernel.system(create, None, ctypes.c_size_t(0), 1)
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)  # how many this kernel knows
    handled = kernel.Handled((1 << rights) - 1, 0b11 if version >= 4 else 0, 0)
    handled.scopes = 0b11 if version >= 6 else 0
    size = ctypes.c_size_t(8 if version < 4 else 16 if version < 6 else 24)
    ruleset = kernel.system(create, ctypes.byref(handled), size, 0)
    libraries = {sysconfig.get_path(x) for x in ("stdlib", "platstdlib", "purelib")}
    libraries |= {path for path in sys.path if path}
    for path in map(Path, (*libraries, *SYSTEM)):
        _allow(ruleset, path, kernel.READ_DIR)  # importing lists a folder first
        for part in _beside(path.resolve(), hidden):
            _allow(ruleset, part, kernel.READ_FILE)
    for device in DEVICES:
        _allow(ruleset, Path(device), kernel.READ_FILE)
    return ruleset


def _beside(path: Path, hidden: list[Path]) -> Iterator[Path]:
    """The path; where something hidden lies in it, all that lies beside that."""
    if path in hidden:
        return
    if not any(folder.is_relative_to(path) for folder in hidden):
        yield path
    elif path.is_dir():
        for part in path.iterdir():
            yield from _beside(part, hidden)


def _allow(ruleset: int, path: Path, access: int) -> None:
    if not path.exists() or (access == kernel.READ_DIR and not path.is_dir()):
        return
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = kernel.Beneath(access, place)
    kernel.system(kernel.LANDLOCK_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
    os.close(place)
