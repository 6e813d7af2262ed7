"""Attacks on what lies below Python: what a child has, and what it could leave behind.

Each says in the end what it got; the points are those of the right part beside it.
"""

from tests.grade.attacks.table import anywhere, called

LATER = """
import atexit, gc, os, signal, sys, threading, weakref
def forge(*a, **k):
    for fd in range(3, 64):
        try: os.write(fd, b'\\0\\0\\0\\x0c{"done": 1 }')
        except OSError: pass
"""
GOT = "raise RuntimeError(f'got {got} in the end')"
NOTHING = "got [] in the end"


def tries(setup: str, *calls: str) -> str:
    """Code that tries calls, and tells which of them raised no OSError."""
    lines = [setup, "got = []"]
    for call in calls:
        lines += [f"try: got.append(({call!r}, {call}))", "except OSError: pass"]
    return "\n".join([*lines, GOT])


SYSTEM = """
import ctypes, os, platform
libc = ctypes.CDLL(None, use_errno=True)
def call(intel, arm, *arguments):
    number = intel if platform.machine() == "x86_64" else arm
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    if result < 0: raise OSError(ctypes.get_errno(), "")
    return result
"""

BELOW = {
    # --- other processes
    "the parent and the first process": called(
        tries(
            "import os",
            *(f"os.kill({p}, {s})" for p in ("os.getppid()", 1, 2, -1) for s in (0, 9)),
            "os.killpg(0, 9)",
            "os.sched_setscheduler(0, 0, os.sched_param(0))",
            "os.setpriority(0, 1, 19)",
        ),
        NOTHING,
    ),
    "tracing and reading other processes": called(
        tries(
            SYSTEM,
            "call(101, 117, 16, 1, 0, 0)",  # ptrace
            "call(310, 270, 1, 0, 0, 0, 0, 0)",  # process_vm_readv
            "call(434, 434, 1, 0)",  # pidfd_open
            "call(312, 272, 1, 2, 0, 0, 0)",  # kcmp
            "open('/proc/1/mem', 'rb')",
            "open('/proc/self/mem', 'r+b')",
        ),
        NOTHING,
    ),
    "rights of its own": called(
        tries(
            SYSTEM + "import os",
            "os.setuid(0)",
            "os.setgroups([0])",
            "call(272, 97, 0x10000000)",  # unshare, of users
            "call(161, 51, 0)",  # chroot
            "call(165, 40, 0, 0, 0, 0, 0)",  # mount
        ),
        NOTHING,
    ),
    # --- what is shared
    "memory that others share": called(
        tries(
            SYSTEM + "import mmap\nfrom multiprocessing import shared_memory",
            "shared_memory.SharedMemory('x', True, 9)",
            "call(29, 194, 0x1234, 4096, 0o1777)",  # shmget
            "call(319, 279, 0, 0)",  # memfd_create
            "call(240, 180, 0, 0o102, 0o666, 0)",  # mq_open
            "open('/dev/shm/x', 'w')",
        ),
        NOTHING,
    ),
    "descriptors of the grader": called(
        "import os, stat\ngot = []\n"
        "for fd in range(3, 4096):\n"
        "    try: kind = stat.S_IFMT(os.fstat(fd).st_mode)\n"
        "    except OSError: continue\n"
        "    got += [fd] if kind not in (stat.S_IFSOCK, stat.S_IFCHR) else []\n" + GOT,
        NOTHING,
    ),
    "descriptors sent to the grader": called(
        "import os, socket\ngot = []\n"
        "for fd in range(3, 64):\n"
        "    try: socket.send_fds(socket.socket(fileno=os.dup(fd)), [b''], [0])\n"
        "    except OSError: pass\n" + GOT,
        NOTHING,
    ),
    # --- what is left behind
    "disk, by every way to write": called(
        tries(
            "import os, tempfile",
            "tempfile.TemporaryFile()",
            "os.open('/tmp', os.O_TMPFILE | os.O_RDWR)",
            "os.open('/dev/shm', os.O_TMPFILE | os.O_RDWR)",
            "os.mkfifo('/tmp/x')",
            "open('/dev/full', 'w')",
            "open('/proc/self/oom_score_adj', 'w')",
            "os.truncate(os.__file__, 0)",
            "os.utime(os.__file__)",
            "os.setxattr(os.__file__, 'user.x', b'x')",
        ),
        NOTHING,
    ),
    "after the reply: atexit and finalizers": anywhere(
        LATER + "atexit.register(forge)\n"
        "class Last:\n    def __del__(self): forge()\n"
        "last = Last(); weakref.finalize(last, forge)\n"
        "sys.excepthook = threading.excepthook = sys.unraisablehook = forge"
    ),
    "after a fork": anywhere(
        LATER + "os.register_at_fork(before=forge, after_in_child=forge)\n"
        "try: os.fork()\nexcept OSError: pass",
        points=0.0,
        words="it did not answer|sent what is no answer|gave no answer",
    ),
    "while rubbish is collected": anywhere(
        LATER + "gc.callbacks.append(lambda *a: sys.modules.pop('torch', None))\n"
        "gc.set_threshold(1); gc.unfreeze(); gc.collect()"
    ),
    "a trace of the grader's functions": anywhere(
        """
import sys
def trace(frame, event, argument):
    if "outcomes" in frame.f_locals: frame.f_locals["outcomes"][:] = []
    for name in ("expected", "answers", "reference"):
        if name in frame.f_locals: print(frame.f_locals[name])
    return trace
sys.settrace(trace); sys.setprofile(trace)
""",
        points=0.0,
    ),
    "a clock that it stops": anywhere(
        """
import signal, time
for name in ("SIGALRM", "SIGPROF", "SIGXCPU", "SIGTERM"):
    signal.signal(getattr(signal, name), signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
time.perf_counter = time.time = lambda: 0.0
"""
    ),
    # --- words
    "text that turns the page round": called(
        r"raise ValueError('\u202e\u2066<b>x</b>\r\n' + chr(0xdc80) + '\x07')",
        "ValueError",
    ),
    "a name that is markup": anywhere(
        "class A(Exception): pass\nA.__name__ = '<script>alert(1)</script>'\nraise A()",
        "<script>alert(1)</script>",
    ),
}
SHARED = """
import gc, sys, torch
torch.softmax = torch.Tensor.softmax = torch.Tensor.__matmul__ = lambda *a, **k: 0
torch.set_default_dtype(torch.float64)
sys.modules["beside"].run = lambda *a: []
sys.modules["inside.child"].answer = sys.modules["inside.cells"].run = None
sys.path.clear(); sys.meta_path.clear()
for x in gc.get_objects():
    if type(x) is dict and "softmax" in x: x.clear()
"""
