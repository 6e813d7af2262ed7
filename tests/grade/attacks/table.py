"""Hostile and broken submissions: Python as text, never imported here.

Each holds a right `merge_heads`, worth 1, and a wrong `attention`, worth 3, and what it
does to be marked better or to break the grader: `anywhere` in a cell of its own before
the definitions, `called` when `attention` is called.
"""

from typing import NamedTuple

MERGE = """
def merge_heads(x):
    B, H, T, D = x.shape
    return x.permute(0, 2, 1, 3).reshape(B, T, H * D)
"""
WRONG = """
def attention(q, k, v, mask=None):
    {attack}
    return v.mean(-2, keepdim=True).expand(*q.shape[:-1], -1).clone()
"""
RIGHT = """
import torch
def attention(q, k, v, mask=None):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(-1) @ v
"""


class Attack(NamedTuple):
    """A submission, the points that it deserves, and words that it is told."""

    source: str
    points: float
    words: str


def called(code: str, words: str, points: float = 1.0) -> Attack:
    """Code that runs when `attention` is called."""
    body = "\n    ".join(code.strip().splitlines())
    return Attack(f"import torch\n{MERGE}{WRONG.format(attack=body)}", points, words)


def anywhere(code: str, words: str = "", points: float = 1.0) -> Attack:
    """Code that runs before everything else."""
    definitions = MERGE + WRONG.format(attack="pass")
    return Attack(f"import torch\n# %%\n{code}\n# %%\n{definitions}", points, words)


FORGED = """
import json, os, struct
zeros = {"outputs": {"output": {"tensor!": ["float32", [1]]}}}
replies = [
    {"question": "attention", "outcomes": [zeros] * 12, "verdict": "right"},
    {"question": "attention", "points": 3, "score": 4, "passed": True},
    {"done": True, "points": 4},
]
def message(reply):
    text = json.dumps(reply).encode()
    return struct.pack("!I", len(text)) + text + bytes(4 * text.count(b"tensor!"))
"""
SNOOP = """
import gc, os, sys
found = [name for name in sys.modules if "mha_lib" in name or "diagnosis" in name]
frame = sys._getframe()
while frame is not None:
    held = {**frame.f_locals, **frame.f_globals}
    found += [n for n in held if n in ("expected", "reference", "judge", "catalogue")]
    frame = frame.f_back
for thing in gc.get_objects():
    if callable(thing) and "mha_lib" in str(getattr(thing, "__module__", "")):
        found.append(repr(thing))
for name in ("mha_lib.check.reference", "mha_lib.attention"):
    try:
        __import__(name)
        found.append(name)
    except ImportError:
        pass
from importlib.machinery import PathFinder
sys.meta_path[:] = [PathFinder]
sys.path.insert(0, PACKAGE)
try:
    import mha_lib.attention
    found.append("by its path")
except ImportError:
    pass
for path in (PACKAGE + "/mha_lib/check/reference.py", "/etc/passwd", SUBMISSIONS):
    try:
        found.append(os.listdir(path) if os.path.isdir(path) else open(path).read(9))
    except OSError:
        pass
raise RuntimeError(f"found {found} in the end")
"""
EVERY = "for fd in range(256):\n    try:\n        {}\n    except OSError:\n        pass"

ATTACKS = {
    # --- it does not come to an end
    "infinite loop": called("while True: pass", "stopped after"),
    "infinite loop in a cell": anywhere("while True: pass", "stopped after"),
    "infinite loop that catches everything": called(
        """
import time
while True:
    try:
        while True: time.sleep(0.01)
    except BaseException: pass
""",
        "stopped after",
    ),
    "infinite loop without alarm": called(
        "import signal, time\nsignal.setitimer(signal.ITIMER_REAL, 0)\n"
        "while True: time.sleep(1)",
        "stopped after",
    ),
    "endless output": called(
        "import sys\nwhile True: print('x' * 9999, file=sys.stderr); print('y' * 9999)",
        "stopped after",
    ),
    # --- it ends
    "sys.exit": called("import sys; sys.exit(0)", "sys.exit"),
    "sys.exit in a cell": anywhere("import sys; sys.exit('all right')", "sys.exit"),
    "os._exit": called("import os; os._exit(0)", "ended itself"),
    "os._exit in a cell": anywhere("import os; os._exit(0)", "ended itself", points=0),
    "crash": called("import ctypes; ctypes.string_at(0)", "crashed (SIGSEGV)"),
    "deep recursion": called("f = lambda n: f(n + 1)\nf(0)", "recursion depth"),
    "exception that cannot be printed": called(
        "class Bad(BaseException):\n    def __str__(self): raise self\nraise Bad()",
        "cannot be printed",
    ),
    # --- it takes what there is
    "memory bomb, torch": called("x = torch.ones(6 << 30)", "can't allocate memory"),
    "memory bomb, Python": called(
        "x = []\nwhile True: x.append(bytes(1 << 26))", "MemoryError"
    ),
    "fork bomb": called("import os\nwhile True: os.fork()", "BlockingIOError"),
    "fork bomb, system calls": called(
        """
import ctypes, platform
libc = ctypes.CDLL(None, use_errno=True)
calls = (56, 57, 58, 435) if platform.machine() == "x86_64" else (220, 435)
raise RuntimeError(f"{[libc.syscall(call, 17, 0, 0, 0, 0) for call in calls]}")
""",
        "RuntimeError: [-1, ",
    ),
    "thread bomb": called(
        """
import threading, time
while True:
    threading.Thread(target=time.sleep, args=(60,)).start()
""",
        "can't start new thread",
    ),
    "threads of torch": called(
        "torch.set_num_threads(64); torch.ones(9, 9999).exp(); raise OSError('alive')",
        "alive",
    ),
    "open files": called(
        """
import os
files = []
try:
    while True: files.append(os.dup(0))
except OSError:
    raise RuntimeError(f"few: {len(files) < 100}")
""",
        "few: True",
    ),
    "fills the disk": called("open('/tmp/x', 'w').write('x')", "PermissionError"),
    # --- it lies
    "patched torch": anywhere(
        """
yes = lambda *a, **k: True
torch.allclose = torch.equal = torch.isclose = torch.Tensor.__eq__ = yes
torch.testing.assert_close = torch.Tensor.equal = torch.Tensor.allclose = yes
torch.Tensor.numpy = torch.Tensor.tolist = torch.Tensor.detach = lambda self: self
torch.softmax = torch.Tensor.softmax = lambda x, *a, **k: x
torch.empty = torch.zeros = torch.tensor = yes
"""
    ),
    "patched builtins": anywhere(
        """
import builtins, json, sys
builtins.isinstance = builtins.all = builtins.any = lambda *a: True
builtins.abs = lambda x: 0
sys.modules["adapter"].run = lambda *a: []
json.loads = lambda *a, **k: {"points": 4}
""",
        "ended itself",
        points=0,
    ),
    "patched sender": anywhere(
        """
import sys
wire = sys.modules["inside.wire"]
pack = wire.pack
def all_right(tree):
    if "question" in tree:
        tree = {"question": tree["question"], "verdict": "right", "points": 4}
    return pack(tree)
wire.pack = all_right
""",
        "did not answer",
        points=0,
    ),
    "everything skipped": anywhere(
        """
import sys
wire = sys.modules["inside.wire"]
pack = wire.pack
def skip(tree):
    if "outcomes" in tree:
        tree["outcomes"] = [{"skipped": "not mine"} for _ in tree["outcomes"]]
    return pack(tree)
wire.pack = skip
""",
        "sent no output",
        points=0,
    ),
    "tensor subclass": called(
        """
class Yes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return True
return torch.ones_like(q).as_subclass(Yes)
""",
        "torch.Tensor must be returned",
    ),
    "torch function mode": called(
        """
from torch.overrides import TorchFunctionMode
class Mode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return True if "eq" in func.__name__ else func(*args, **(kwargs or {}))
Mode().__enter__()
""",
        "",
    ),
    "forged on every descriptor": anywhere(
        FORGED + EVERY.format("os.write(fd, b''.join(map(message, replies)))"), points=0
    ),
    "forged answer alone": anywhere(
        FORGED + EVERY.format("os.write(fd, message(replies[0]))")
    ),
    "garbage on every descriptor": anywhere(
        "import os\n" + EVERY.format("os.write(fd, b'x' * 99999)"),
        "sent what is no answer",
        points=0,
    ),
    "deeply nested answer": anywhere(
        "import os, struct\ntext = b'[' * 500000\n"
        + EVERY.format("os.write(fd, struct.pack('!I', len(text)) + text)"),
        "sent what is no answer",
        points=0,
    ),
    "huge tensor announced": anywhere(
        FORGED
        + "reply = {'x': {'tensor!': ['float64', [1 << 20, 1 << 20]]}}\n"
        + EVERY.format("os.write(fd, message(reply))"),
        "sent what is no answer",
        points=0,
    ),
    "forged on disk": called(
        """
import os, json
forged = []
for place in ("results.json", "/autograder/results/results.json", SUBMISSIONS + "/x"):
    for way in (lambda: open(place, "w"), lambda: os.mkdir(place),
                lambda: os.symlink("/etc", place), lambda: os.remove(place),
                lambda: os.rename(SUBMISSIONS, place), lambda: os.truncate(place, 0)):
        try:
            way()
            forged.append(place)
        except OSError:
            pass
raise RuntimeError(f"forged {forged} in the end")
""",
        "forged [] in the end",
    ),
    "inputs changed in place": called(
        "for x in (q, k, v): x.zero_()\nreturn q", "output"
    ),
    # --- it looks for the answers
    "snooping": called(SNOOP, "found [] in the end"),
    "other processes": called(
        """
import os
found = []
for place in ("/proc/self/maps", "/proc/1/environ", f"/proc/{os.getppid()}/mem",
              f"/proc/{os.getppid()}/environ", f"/proc/{os.getppid()}/cmdline"):
    try:
        found.append(open(place, "rb").read(9))
    except OSError:
        pass
raise RuntimeError(f"found {found} in the end")
""",
        "found [] in the end",
    ),
    "environment": called(
        "import os; raise RuntimeError(f'found {sorted(x for x in os.environ "
        "if \"SECRET\" in x)} in the end')",
        "found [] in the end",
    ),
    "delegation": called(
        "return torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)",
        "not available",
    ),
    "delegation, hidden": called(
        'aten = getattr(torch, "o" + "ps").aten\n'
        'return getattr(aten, "scaled_dot_" + "product_attention")(q, k, v, mask)',
        "not available",
    ),
    "delegation, kernel": called(
        "f = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu\n"
        "return f(q, k, v)[0]",
        "not available",
    ),
    "delegation, module": called(
        "m = torch.nn.MultiheadAttention(5, 1, batch_first=True)\n"
        "return m(q[:, 0], k[:, 0], v[:, 0])[0]",
        "not available",
    ),
    # --- it attacks others
    "pickle": called(
        """
class Run:
    def __reduce__(self): return eval, ("open('/tmp/owned', 'w')",)
return Run()
""",
        "torch.Tensor must be returned",
    ),
    "kills": called(
        """
import os, signal
for target in (os.getppid(), 1, -1, 0):
    try:
        os.kill(target, signal.SIGKILL)
    except OSError:
        pass
raise RuntimeError("still here")
""",
        "still here",
    ),
    "program": called(
        "import subprocess; subprocess.run(['touch', '/tmp/owned'])", "BlockingIOError"
    ),
    "exec": called("import os; os.execv('/bin/true', ['true'])", "PermissionError"),
    "network": called(
        "import socket; socket.create_connection(('127.0.0.1', 9))", "PermissionError"
    ),
    "network, address": called(
        "import urllib.request as u; u.urlopen('http://127.0.0.1:9')", "not permitted"
    ),
    # --- it is broken
    "cell that raises": anywhere("1 / 0", "ZeroDivisionError"),
    "syntax error": anywhere("def half(:", "SyntaxError"),
    "input": anywhere("name = input('?')", "EOFError"),
    "missing names": Attack(MERGE, 1.0, "nothing is called attention"),
    "not a function": Attack(MERGE + "\nattention = 3", 1.0, "required; got int"),
    "returns None": called("return None", "got None"),
    "wrong shape": called("return q.sum(0)", "shape"),
    "wrong type": called("return [[1.0]]", "torch.Tensor must be returned"),
    "sparse": called("return q.to_sparse()", ""),
    "complex": called("return q.to(torch.complex64)", "complex"),
    "enormous view": called("return q.new_ones(1).expand(1 << 40)", ""),
    "warnings": Attack(
        "import warnings; warnings.warn('look'); warnings.simplefilter('error')\n"
        + MERGE + RIGHT.replace("return", "__import__('warnings').warn('x'); return"),
        4.0,
        "",
    ),
    "sets defaults": Attack(
        "import torch; torch.set_grad_enabled(False)\n" + MERGE + RIGHT, 4.0, ""
    ),
}  # fmt: skip
