"""What is taken from a child before it runs a submission.

`Limits.prepare` runs once, in the warm process; `Limits.apply` in every child, where a
protection that was there in the warm process and now fails ends the child. Numbers of
system calls and constants are those of the Linux kernel's headers.
"""

import ctypes
import errno
import os
import platform
import signal
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

OWN_USER = 64999  # an id that no account has
PURPOSES = {
    "files": "a submission can read every file that you can read, the answers too",
    "system calls": "a submission can write files, open connections and start programs",
    "user": "a submission runs under your user id (start as root to change that)",
    "orphans": "a process that a submission detaches may go on running",
    "memory": "a submission can use all memory of this machine",
}
LINUX = sys.platform == "linux"


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
            prctl(SET_CHILD_SUBREAPER, 1)  # what a child detaches becomes ours to kill
            prctl(SET_PDEATHSIG, signal.SIGKILL)
        except OSError:
            missing.append("orphans")
        private = self.root and attempt(separate, self.hidden)
        self.ruleset = attempt(landlock, self.hidden)
        if self.ruleset is None and not private:
            missing.append("files")
        self.filter = attempt(system_call_filter)
        if self.filter is None:
            missing.append("system calls")
        if not self.root:
            missing.append("user")
        if LINUX:
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
        caps |= {"NPROC": 1, "AS": self.memory} if LINUX else {}
        for name, cap in caps.items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (cap, cap))
        if self.root:
            become(OWN_USER, may_read=self.ruleset is not None)
        if LINUX:
            prctl(SET_PDEATHSIG, signal.SIGKILL)
            prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if self.ruleset is not None:
            system(LANDLOCK_RESTRICT_SELF, self.ruleset, 0)
            os.close(self.ruleset)
        if self.filter is not None:
            prctl(SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(self.filter))


def attempt(protection: object, *arguments: object) -> object:
    """What it returns, or None where the system has or grants no such thing."""
    try:
        return protection(*arguments) if LINUX else None
    except OSError:
        return None


# --- calling the kernel -------------------------------------------------------------

SET_PDEATHSIG, SET_SECCOMP, SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS = 1, 22, 36, 38
SECCOMP_MODE_FILTER = 2


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def prctl(*arguments: object) -> int:
    """The system call prctl; OSError where it fails or there is none."""
    if not LINUX:
        raise OSError(errno.ENOSYS, "there is no prctl here")
    return _checked(ctypes.CDLL(None, use_errno=True).prctl(*arguments))


def system(number: int, *arguments: object) -> int:
    """A system call by its number."""
    libc = ctypes.CDLL(None, use_errno=True)
    return _checked(libc.syscall(ctypes.c_long(number), *arguments))


# --- a user id of its own: root alone ------------------------------------------------

SET_KEEPCAPS, CAPABILITIES_3, CAP_DAC_READ_SEARCH = 8, 0x20080522, 1 << 2


def become(user: int, may_read: bool) -> None:
    """Another user, without any privilege of root's but where Python lies in /root.

    There that user may read all files, if ``may_read``: Landlock then says which.
    """
    os.setgroups([])
    os.setgid(user)
    if not LINUX:
        os.setuid(user)
        return
    prctl(SET_KEEPCAPS, 1, 0, 0, 0)
    os.setuid(user)
    kept = 0
    if not os.access(os.__file__, os.R_OK):
        if not may_read:
            raise PermissionError(
                f"user {user}, under whose id submissions run, must be able to read "
                f"{os.__file__}; install Python and this package elsewhere, or start "
                "the grader as another user than root"
            )
        kept = CAP_DAC_READ_SEARCH
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    rights = (ctypes.c_uint32 * 6)(kept, kept)  # effective, permitted, inheritable
    _checked(ctypes.CDLL(None, use_errno=True).capset(header, rights))


# --- namespaces: root alone ---------------------------------------------------------

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWNET = 0x20000, 0x8000000, 0x40000000
MS_RDONLY, MS_PRIVATE_AND_ALL_BELOW = 1, 1 << 18 | 1 << 14


def separate(hidden: Iterable[Path]) -> bool:
    """No network, an empty /tmp, and nothing where the hidden folders are."""
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWNET))
    _checked(libc.mount(None, b"/", None, MS_PRIVATE_AND_ALL_BELOW, None))
    needed = {Path(sys.prefix), Path(sys.base_prefix), Path(os.__file__)}
    for folder in {Path(tempfile.gettempdir()).resolve(), *hidden}:
        if folder.is_dir() and not any(x.is_relative_to(folder) for x in needed):
            place = os.fsencode(folder)
            _checked(libc.mount(b"tmpfs", place, b"tmpfs", MS_RDONLY, b"size=4k"))
    return True


# --- Landlock: file access by path, for anybody, Linux 5.13 and later -----------------

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
READ_FILE, READ_DIR = 1 << 2, 1 << 3
SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share", "/etc/localtime")
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")


class _Handled(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("files", "network", "scopes")]


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("access", ctypes.c_uint64), ("folder", ctypes.c_int32)]


def landlock(hidden: list[Path]) -> int:
    """A ruleset under which Python's own files can be read, and nothing else."""
    version = system(LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)  # how many this kernel knows
    handled = _Handled((1 << rights) - 1, 0b11 if version >= 4 else 0, 0)
    handled.scopes = 0b11 if version >= 6 else 0
    size = ctypes.c_size_t(8 if version < 4 else 16 if version < 6 else 24)
    ruleset = system(LANDLOCK_CREATE_RULESET, ctypes.byref(handled), size, 0)
    libraries = {sysconfig.get_path(x) for x in ("stdlib", "platstdlib", "purelib")}
    libraries |= {path for path in sys.path if path}
    for path in map(Path, (*libraries, *SYSTEM)):
        _allow(ruleset, path, READ_DIR)  # importing lists a folder first
        for part in _beside(path.resolve(), hidden):
            _allow(ruleset, part, READ_FILE)
    for device in DEVICES:
        _allow(ruleset, Path(device), READ_FILE)
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
    if not path.exists() or (access == READ_DIR and not path.is_dir()):
        return
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    rule = _Beneath(access, place)
    system(LANDLOCK_ADD_RULE, ruleset, 1, ctypes.byref(rule), 0)
    os.close(place)


# --- seccomp: system calls, for anybody ---------------------------------------------

# name:x86_64:aarch64. An allow-list would have to follow torch and the C library.
REFUSED = {
    errno.EPERM: """
        execve:59:221 execveat:322:281 ptrace:101:117 process_vm_readv:310:270
        process_vm_writev:311:271 pidfd_open:434:434 pidfd_getfd:438:438
        kill:62:129 tkill:200:130 tgkill:234:131 pidfd_send_signal:424:424
        rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 setpriority:141:140
        socket:41:198 socketpair:53:199 connect:42:203 bind:49:200 listen:50:201
        accept:43:202 accept4:288:242 shmget:29:194 semget:64:190 msgget:68:186
        mq_open:240:180 add_key:248:217 request_key:249:218 keyctl:250:219
        mount:165:40 umount2:166:39 pivot_root:155:41 chroot:161:51 unshare:272:97
        setns:308:268 open_tree:428:428 move_mount:429:429 fsopen:430:430
        fsconfig:431:431 fsmount:432:432 fspick:433:433 mount_setattr:442:442
        open_by_handle_at:304:265 bpf:321:280 perf_event_open:298:241
        userfaultfd:323:282 memfd_create:319:279 memfd_secret:447:447
        init_module:175:105 finit_module:313:273 delete_module:176:106
        kexec_load:246:104 reboot:169:142""",
    errno.EACCES: """
        creat:85: mkdir:83: mkdirat:258:34 rmdir:84: unlink:87: unlinkat:263:35
        rename:82: renameat:264:38 renameat2:316:276 link:86: linkat:265:37
        symlink:88: symlinkat:266:36 mknod:133: mknodat:259:33 truncate:76:45
        ftruncate:77:46 fallocate:285:47 chmod:90: fchmod:91:52 fchmodat:268:53
        fchmodat2:452:452 chown:92: fchown:93:55 lchown:94: fchownat:260:54 utime:132:
        utimes:235: futimesat:261: utimensat:280:88 setxattr:188:5 lsetxattr:189:6
        fsetxattr:190:7 removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16""",
    errno.EAGAIN: "fork:57: vfork:58: clone:56:220",  # no thread either
    errno.ENOSYS: """clone3:435:435 openat2:437:437 io_uring_setup:425:425
        io_uring_enter:426:426 io_uring_register:427:427""",  # callers fall back
}
# name:x86_64:aarch64:argument: refused where the argument has one of these bits
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
REFUSED_WITH = {"open:2::1": WRITING, "openat:257:56:2": WRITING}
REFUSED_WITH |= {"prlimit64:302:261:0": 0xFFFFFFFF}  # limits of another process

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
LOAD, EQUALS, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets into struct seccomp_data


class _Instruction(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("true", ctypes.c_uint8)]
    _fields_ += [("false", ctypes.c_uint8), ("value", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.POINTER(_Instruction))]


def system_call_filter() -> _Program:
    """The filter for this processor; OSError where there is none."""
    if platform.machine() not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, "no filter was written for this processor")
    prctl(21, 0, 0, 0, 0)  # PR_GET_SECCOMP fails where the kernel has none
    column, architecture = ARCHITECTURES[platform.machine()]
    code = [(LOAD, 0, 0, ARCHITECTURE), (EQUALS, 1, 0, architecture)]
    code += [(RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    code += [(AT_LEAST, 0, 1, 1 << 30), (RETURN, 0, 0, KILL)]  # x32's second set
    for error, table in REFUSED.items():
        for call in table.split():
            if number := call.split(":")[1:][column]:
                code += [(EQUALS, 0, 1, int(number)), (RETURN, 0, 0, FAIL | error)]
    for call, bits in REFUSED_WITH.items():
        *numbers, argument = call.split(":")[1:]
        if numbers[column]:
            code += [(EQUALS, 0, 4, int(numbers[column]))]
            code += [(LOAD, 0, 0, ARGUMENTS + 8 * int(argument))]
            code += [(ANY_BIT, 0, 1, bits), (RETURN, 0, 0, FAIL | errno.EACCES)]
            code += [(RETURN, 0, 0, ALLOW)]
    code += [(RETURN, 0, 0, ALLOW)]
    return _Program(len(code), (_Instruction * len(code))(*code))
