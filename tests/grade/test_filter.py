"""The filter of system calls: what it refuses on both processors, what it lets by."""

import errno
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from mha_lib.grade.inside import kernel
from tests.grade.course import linux

MACHINES = list(kernel.ARCHITECTURES)
SIGNALS = {  # to the owner of a file, or not any more when the grader ends
    "F_SETOWN": ("fcntl", 3, 8, 1234),
    "F_SETSIG": ("fcntl", 3, 10, 9),
    "F_SETOWN_EX": ("fcntl", 3, 15, 1 << 40),
    "O_ASYNC": ("fcntl", 3, 4, 0x2000 | 0x800),
    "FIOSETOWN": ("ioctl", 3, 0x8901, 1 << 40),
    "SIOCSPGRP": ("ioctl", 3, 0x8902, 1 << 40),
    "FIOASYNC": ("ioctl", 3, 0x5452, 1 << 40),
    "PR_SET_PDEATHSIG": ("prctl", 1, 0),
}
NUMBERS = {"fcntl": (72, 25), "ioctl": (16, 29), "prctl": (157, 167)}
HONEST = {
    "F_GETFL": ("fcntl", 3, 3, 0),
    "O_NONBLOCK": ("fcntl", 3, 4, 0x800),
    "F_SETLK": ("fcntl", 3, 6, 0x2000),  # a pointer, not a flag
    "F_SETPIPE_SZ": ("fcntl", 3, 1031, 8),
    "FIONREAD": ("ioctl", 3, 0x541B, 0x8901),
    "PR_SET_NAME": ("prctl", 15, 1 << 40),
}


def verdict(program: kernel.Program, machine: str, number: int, *arguments: int) -> int:
    """What a filter returns for a call: an interpreter of its five instructions."""
    words = {kernel.NUMBER: number, kernel.ARCHITECTURE: architecture(machine)}
    for place, value in enumerate(arguments):
        words[kernel.ARGUMENTS + 8 * place] = value & 0xFFFFFFFF
    place, loaded = 0, None
    while True:
        step = program.code[place]
        match step.code:
            case kernel.RETURN:
                return step.value
            case kernel.LOAD:
                loaded, holds = words.get(step.value, 0), None
            case kernel.EQUALS:
                holds = loaded == step.value
            case kernel.AT_LEAST:
                holds = loaded >= step.value
            case kernel.ANY_BIT:
                holds = bool(loaded & step.value)
        place += 1 + {None: 0, True: step.true, False: step.false}[holds]


def architecture(machine: str) -> int:
    return kernel.ARCHITECTURES[machine][1]


@pytest.fixture(params=MACHINES)
def judged(request, monkeypatch):
    """What the filter of one processor says to a call and its arguments."""
    machine = request.param
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(kernel, "prctl", lambda *_: 0)
    program = kernel.system_call_filter()

    def judge(number: int | tuple[int, int], *arguments: int) -> int:
        if isinstance(number, tuple):
            number = number[MACHINES.index(machine)]
        return verdict(program, machine, number, *arguments)

    return judge


def refused(error: int) -> int:
    return kernel.FAIL | error


@pytest.mark.parametrize("way", SIGNALS)
def test_who_gets_which_signal_is_not_for_a_submission_to_say(way, judged):
    name, *arguments = SIGNALS[way]
    assert judged(NUMBERS[name], *arguments) == refused(errno.EACCES)


@pytest.mark.parametrize("way", HONEST)
def test_what_honest_code_asks_passes(way, judged):
    name, *arguments = HONEST[way]
    assert judged(NUMBERS[name], *arguments) == kernel.ALLOW


def test_files_are_opened_for_reading_alone(judged):
    assert judged((257, 56), 3, 0, 0) == kernel.ALLOW
    assert judged((257, 56), 3, 0, 1) == refused(errno.EACCES)
    assert judged((302, 261), 0, 7) == kernel.ALLOW
    assert judged((302, 261), 1234, 7) == refused(errno.EACCES)
    assert judged((0, 63), 3, 0, 9) == kernel.ALLOW  # read


OTHERS = {  # what reaches other processes, or files by another way
    "shmat": (30, 196),
    "semop": (65, 193),
    "msgrcv": (70, 188),
    "mq_unlink": (241, 181),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "ioprio_set": (251, 30),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262),
    "kexec_file_load": (320, 294),
}


@pytest.mark.parametrize("name", OTHERS)
def test_calls_that_reach_others_are_refused(name, judged):
    assert judged(OTHERS[name]) == refused(errno.EPERM)


def test_numbers_that_the_filter_does_not_know_are_no_calls(judged):
    """463 is setxattrat, 466 removexattrat, 467 open_tree_attr, 469 file_setattr."""
    for number in (463, 466, 467, 469, 470, 500, (1 << 30) - 1, 335, 423):
        assert judged(number) == refused(errno.ENOSYS), number
    for number in ((334, 293), 439, 449, 462):  # rseq, faccessat2, futex_waitv, mseal
        assert judged(number) == kernel.ALLOW, number
    assert judged(1 << 30) == kernel.KILL  # of x32, which has others


# --- in the kernel itself --------------------------------------------------------

FILTERED = """
import ctypes, os, sys
sys.path.insert(0, {folder!r})
from inside import kernel
ours, theirs = os.pipe()
kernel.prctl(kernel.SET_NO_NEW_PRIVS, 1, 0, 0, 0)
program = ctypes.byref(kernel.system_call_filter())
kernel.prctl(kernel.SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, program)
{code}
"""
SIGNALLING = """
import fcntl, resource, struct
me = os.getpid()
ways = [(fcntl.fcntl, 8, me), (fcntl.fcntl, 10, 9), (fcntl.fcntl, 4, 0x2000),
        (fcntl.fcntl, 15, struct.pack("ii", 1, me)),
        *((fcntl.ioctl, x, struct.pack("i", me)) for x in (0x8901, 0x5452))]
passed = []
for how, *arguments in ways:
    try:
        how(ours, *arguments)
        passed.append(arguments[0])
    except OSError:
        pass
os.set_blocking(ours, False)
os.write(theirs, b"x")
assert fcntl.ioctl(ours, 0x541B, b"....") == struct.pack("i", 1)
print(passed, os.read(ours, 1))
"""


def filtered(code: str) -> str:
    """What code prints that runs under the filter and nothing else."""
    folder = str(Path(kernel.__file__).parents[1])
    command = [sys.executable, "-c", FILTERED.format(folder=folder, code=code)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@linux
def test_the_kernel_sends_no_signal_for_a_file():
    assert filtered(SIGNALLING) == "[] b'x'"


REACHING = """
libc = ctypes.CDLL(None, use_errno=True)
import errno, platform
column = kernel.ARCHITECTURES[platform.machine()][0]
for numbers in {numbers!r}:
    libc.syscall(ctypes.c_long(numbers[column]), -1, 0, 0, 0, 0, 0)
    print(errno.errorcode[ctypes.get_errno()], end=" ")
"""


@linux
def test_the_kernel_asks_the_filter():
    numbers = [*OTHERS.values(), (463, 463), (466, 466), (470, 470)]
    said = filtered(REACHING.format(numbers=numbers)).split()
    assert said == ["EPERM"] * len(OTHERS) + ["ENOSYS"] * 3
