"""The Linux kernel's side: how it is called, its constants and structures, a filter.

Numbers are those of the kernel's headers; a system call has one on each processor.
"""

import ctypes
import errno
import os
import platform
import sys
from pathlib import Path

LINUX = sys.platform == "linux"

# --- calls --------------------------------------------------------------------------

# of prctl
SET_PDEATHSIG, SET_KEEPCAPS, GET_SECCOMP, SET_SECCOMP = 1, 8, 21, 22
SET_CHILD_SUBREAPER, SET_NO_NEW_PRIVS = 36, 38
SECCOMP_MODE_FILTER = 2


def checked(result: int) -> int:
    """The result of a call of the C library; OSError where it failed."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def prctl(*arguments: object) -> int:
    """The system call prctl; OSError where it fails or there is none."""
    if not LINUX:
        raise OSError(errno.ENOSYS, "there is no prctl here")
    return checked(ctypes.CDLL(None, use_errno=True).prctl(*arguments))


def system(number: int, *arguments: object) -> int:
    """A system call by its number."""
    libc = ctypes.CDLL(None, use_errno=True)
    return checked(libc.syscall(ctypes.c_long(number), *arguments))


# --- capabilities and namespaces ----------------------------------------------------

CAPABILITIES_3, CAP_DAC_READ_SEARCH = 0x20080522, 1 << 2
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER = 0x20000, 0x8000000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_PRIVATE_AND_ALL_BELOW = 1, 1 << 18 | 1 << 14


def keep_capabilities(kept: int) -> None:
    """Of root's rights, those of these bits and no other, now and later."""
    header = (ctypes.c_uint32 * 2)(CAPABILITIES_3, 0)
    rights = (ctypes.c_uint32 * 6)(kept, kept)  # effective, permitted, inheritable
    checked(ctypes.CDLL(None, use_errno=True).capset(header, rights))


def unshare(spaces: int) -> None:
    """Namespaces of this process's own; Python has the call from 3.12 on."""
    checked(ctypes.CDLL(None, use_errno=True).unshare(spaces))


def mount(kind: str | None, place: Path, flags: int) -> None:
    """An empty file system at a place; without a kind, other flags of what is there."""
    named = (kind.encode(),) * 2 if kind else (None, None)
    options = b"size=4k" if kind else None
    libc = ctypes.CDLL(None, use_errno=True)
    checked(libc.mount(named[0], os.fsencode(place), named[1], flags, options))


# --- Landlock -----------------------------------------------------------------------

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
READ_FILE, READ_DIR = 1 << 2, 1 << 3


class Handled(ctypes.Structure):
    """What a ruleset forbids: struct landlock_ruleset_attr."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("files", "network", "scopes")]


class Beneath(ctypes.Structure):
    """What it allows below one folder: struct landlock_path_beneath_attr."""

    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("access", ctypes.c_uint64), ("folder", ctypes.c_int32)]


# --- seccomp -------------------------------------------------------------------------

# name:x86_64:aarch64. An allow-list would have to follow torch and the C library.
REFUSED = {
    errno.EPERM: """
        execve:59:221 execveat:322:281 ptrace:101:117 process_vm_readv:310:270
        process_vm_writev:311:271 pidfd_open:434:434 pidfd_getfd:438:438
        kill:62:129 tkill:200:130 tgkill:234:131 pidfd_send_signal:424:424
        rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 setpriority:141:140
        socket:41:198 socketpair:53:199 connect:42:203 bind:49:200 listen:50:201
        accept:43:202 accept4:288:242 shmget:29:194 shmat:30:196 shmctl:31:195
        semget:64:190 semop:65:193 semtimedop:220:192 semctl:66:191 msgget:68:186
        msgsnd:69:189 msgrcv:70:188 msgctl:71:187 mq_open:240:180 mq_unlink:241:181
        sched_setparam:142:118 sched_setscheduler:144:119 sched_setattr:314:274
        sched_setaffinity:203:122 ioprio_set:251:30 migrate_pages:256:238
        move_pages:279:239 kcmp:312:272 inotify_init:253: inotify_init1:294:26
        inotify_add_watch:254:27 fanotify_init:300:262 fanotify_mark:301:263
        add_key:248:217 request_key:249:218 keyctl:250:219
        mount:165:40 umount2:166:39 pivot_root:155:41 chroot:161:51 unshare:272:97
        setns:308:268 open_tree:428:428 move_mount:429:429 fsopen:430:430
        fsconfig:431:431 fsmount:432:432 fspick:433:433 mount_setattr:442:442
        open_by_handle_at:304:265 bpf:321:280 perf_event_open:298:241
        userfaultfd:323:282 memfd_create:319:279 memfd_secret:447:447
        init_module:175:105 finit_module:313:273 delete_module:176:106
        kexec_load:246:104 kexec_file_load:320:294 reboot:169:142""",
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
# (name:x86_64:aarch64, tests of arguments): refused where all of the tests hold, each
# the number of an argument, an instruction and a value.
LOAD, EQUALS, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
SETFL, SETOWN, SETSIG, SETOWN_EX, ASYNC = 4, 8, 10, 15, 0x2000  # of fcntl
FIOSETOWN, SIOCSPGRP, FIOASYNC = 0x8901, 0x8902, 0x5452  # of ioctl
REFUSED_WITH = [
    ("open:2:", (1, ANY_BIT, WRITING)),
    ("openat:257:56", (2, ANY_BIT, WRITING)),
    ("prlimit64:302:261", (0, ANY_BIT, 0xFFFFFFFF)),  # limits of another process
    ("prctl:157:167", (0, EQUALS, SET_PDEATHSIG)),  # no child outlives the grader
    # The owner of a file gets signals, also where the owner is somebody else.
    *(("fcntl:72:25", (1, EQUALS, x)) for x in (SETOWN, SETSIG, SETOWN_EX)),
    ("fcntl:72:25", (1, EQUALS, SETFL), (2, ANY_BIT, ASYNC)),
    *(("ioctl:16:29", (1, EQUALS, x)) for x in (FIOSETOWN, SIOCSPGRP, FIOASYNC)),
]

ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
# Outside of these a later kernel may put what this table does not know.
OLD = {"x86_64": 334, "aarch64": 294}  # the last number of the processor's own
COMMON, NEWEST = 424, 462  # the first and the last of all processors: Linux 6.10
ALLOW, KILL, FAIL = 0x7FFF0000, 0x80000000, 0x00050000
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # offsets into struct seccomp_data


class Instruction(ctypes.Structure):
    """One of a filter: struct sock_filter."""

    _fields_ = [("code", ctypes.c_uint16), ("true", ctypes.c_uint8)]
    _fields_ += [("false", ctypes.c_uint8), ("value", ctypes.c_uint32)]


class Program(ctypes.Structure):
    """A filter: struct sock_fprog."""

    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.POINTER(Instruction))]


def system_call_filter() -> Program:
    """The filter for this processor; OSError where there is none."""
    if platform.machine() not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, "no filter was written for this processor")
    prctl(GET_SECCOMP, 0, 0, 0, 0)  # fails where the kernel has none
    column, architecture = ARCHITECTURES[platform.machine()]
    code = [(LOAD, 0, 0, ARCHITECTURE), (EQUALS, 1, 0, architecture)]
    code += [(RETURN, 0, 0, KILL), (LOAD, 0, 0, NUMBER)]
    code += [(AT_LEAST, 0, 1, 1 << 30), (RETURN, 0, 0, KILL)]  # x32's second set
    code += [(AT_LEAST, 0, 1, NEWEST + 1), (RETURN, 0, 0, FAIL | errno.ENOSYS)]
    code += [(AT_LEAST, 2, 0, COMMON), (AT_LEAST, 0, 1, OLD[platform.machine()] + 1)]
    code += [(RETURN, 0, 0, FAIL | errno.ENOSYS)]
    for error, table in REFUSED.items():
        for call in table.split():
            if number := call.split(":")[1:][column]:
                code += [(EQUALS, 0, 1, int(number)), (RETURN, 0, 0, FAIL | error)]
    for call, *tests in REFUSED_WITH:
        if number := call.split(":")[1:][column]:
            code += _refused_with(int(number), tests)
    code += [(RETURN, 0, 0, ALLOW)]
    return Program(len(code), (Instruction * len(code))(*code))


def _refused_with(number: int, tests: list[tuple[int, int, int]]) -> list[tuple]:
    """Instructions that refuse one call where all tests of its arguments hold."""
    code = [(RETURN, 0, 0, FAIL | errno.EACCES), (LOAD, 0, 0, NUMBER)]
    for argument, test, value in reversed(tests):  # a failing one goes to the end
        load = (LOAD, 0, 0, ARGUMENTS + 8 * argument)
        code = [load, (test, 0, len(code) - 1, value), *code]
    return [(EQUALS, 0, len(code), number), *code]
