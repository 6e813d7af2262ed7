"""Every attack ends with the mark that it deserves, and hurts nobody after it."""

import json
import os
import sys
import warnings
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

import mha_lib
from mha_lib.grade import report
from mha_lib.grade.assignments import Assignment, parse
from mha_lib.grade.judge import Judge
from mha_lib.grade.submission import LARGEST, read
from tests.grade.attacks.more import BELOW, SHARED
from tests.grade.attacks.ready_made import READY_MADE
from tests.grade.attacks.table import (
    ATTACKS,
    MERGE,
    RIGHT,
    WRONG,
    Attack,
    anywhere,
    called,
)
from tests.grade.course import notebook

ASSIGNMENT = parse(
    {
        "id": "attacks",
        "title": "Attacks",
        "banned": ["F.scaled_dot_product_attention", "nn.MultiheadAttention"],
        "questions": [
            {"name": "merge_heads", "task": "merge_heads", "points": 1},
            {"name": "attention", "task": "attention", "points": 3},
        ],
    }
)
MEMORY = {"memory": 1 << 28}
LONG = {"seconds": 60.0, "wall": 300.0, "cpu": 120}  # however busy the machine is
SHORT = {"seconds": 1.0, "wall": 4.0, "cpu": 4}  # for what ends at a limit alone
ENDLESS = {"enormous view", "connection shut down"}  # and what is "stopped after …"
LINUX = sys.platform == "linux"
pytestmark = pytest.mark.skipif(not LINUX, reason="the sandbox is Linux's")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("submissions")


@pytest.fixture(scope="module", autouse=True)
def secret():
    os.environ["SECRET_TOKEN"] = "of the instructor"
    yield
    del os.environ["SECRET_TOKEN"]


def brief(assignment: Assignment, **limits: object) -> Judge:
    """Each fourth call is enough: an attack gets around all of them, or none."""
    judge = Judge(assignment, seed=5, **MEMORY, **limits)
    judge.probes["attention"] = judge.probes["attention"][::4]
    return judge


@pytest.fixture(scope="module")
def judge(folder):
    with brief(ASSIGNMENT, hidden=[folder], **LONG) as judge:
        yield judge


@pytest.fixture(scope="module")
def hasty_judge(folder):
    with brief(ASSIGNMENT, hidden=[folder], **SHORT) as judge:
        yield judge


@pytest.fixture
def graded(judge, folder):
    """Grades a submission, then a right one, in the same warm process."""

    def grade(
        content: str | bytes, name: str = "student.py", judge: Judge = judge
    ) -> dict:
        path = folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        pid = judge.sandbox.process.pid
        result = judge.grade(read(path))
        path.unlink()

        right = folder / "right.py"
        right.write_text(MERGE + RIGHT)
        after = judge.grade(read(right))
        assert (after["points"], after["problem"]) == (4.0, "")
        assert judge.sandbox.process.pid == pid
        assert list(folder.iterdir()) == [right]
        return result

    return grade


def told(result: dict) -> str:
    """All that a student reads."""
    return unescape(report.page({"submission": "", **result}))


def judge_of(name: str, attack: Attack, judge: Judge, hasty_judge: Judge) -> Judge:
    ends = name not in ENDLESS and "stopped after" not in attack.words
    return judge if ends else hasty_judge


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name, graded, folder, judge, hasty_judge):
    attack = ATTACKS[name]
    root = str(Path(mha_lib.__file__).parents[1])
    source = attack.source.replace("PACKAGE", repr(root))
    source = source.replace("SUBMISSIONS", repr(str(folder)))
    result = graded(source, judge=judge_of(name, attack, judge, hasty_judge))
    assert result["points"] == attack.points, told(result)
    assert attack.words in told(result)
    assert result["points"] == 4.0 or len(told(result)) > 1000
    assert not Path("/tmp/owned").exists()


MORE = {
    "other ways to load what has no weights": anywhere(
        """
import sys
wire = sys.modules["inside.wire"]
pack = wire.pack
def forged(tree):
    for outcome in tree.get("outcomes", ()):
        outcome["alternatives"] = {"transposed": {"outputs": outcome["outputs"]}}
    return pack(tree)
wire.pack = forged
"""
    ),
    "delegation, vmap": called(
        """
inputs = (q, k, v) if mask is None else (q, k, v, mask.expand(len(q), -1, -1, -1))
return torch.func.vmap(torch.ops.aten.scaled_dot_product_attention)(*inputs)
""",
        "write what it does yourself",
    ),
    "delegation, decomposed": called(
        """
op = torch.ops.aten._scaled_dot_product_attention_math.default
hidden = None if mask is None else torch.zeros(mask.shape).masked_fill(~mask, -1e9)
return op.decompose(q, k, v, hidden)[0]
""",
        "write what it does yourself",
    ),
    "delegation, nested": called(
        """
nest = lambda x: torch.nested.as_nested_tensor(list(x), layout=torch.strided)
return torch.ops.aten.scaled_dot_product_attention(
    *map(nest, (q, k, v))).to_padded_tensor(0.0)
""",
        "write what it does yourself",
    ),
    "patched traceback": called(
        """
import linecache, traceback
traceback.extract_tb = linecache.getline = lambda *a, **k: 1 / 0
raise ValueError("x")
""",
        "cannot be printed",
    ),
    "text that is no text": called(
        r"raise ValueError('\ud800\x00\x1b[31m')", "ValueError"
    ),
    "signals of a file's owner": called(
        """
import fcntl, os
ours, theirs = os.pipe()
passed = []
for command, value in ((8, os.getppid()), (10, 9), (4, 0x2000)):
    try:
        fcntl.fcntl(ours, command, value)
        passed.append(command)
    except OSError: pass
os.write(theirs, b"x")
raise RuntimeError(f"passed {passed} in the end")
""",
        "passed [] in the end",
    ),
    "outlives the grader": called(
        """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
said = libc.prctl(1, 0), ctypes.get_errno(), libc.prctl(15, b"me")
raise RuntimeError(f"prctl said {said}")
""",
        "prctl said (-1, 13, 0)",
    ),
    "whose machine": called(
        """
import os, sys
places = sys.argv + sys.orig_argv + [os.environ.get("HOME", "")]
places = [x for x in places if "home" in x or "root" in x or SUBMISSIONS in x]
raise RuntimeError(f"found {places} in the end")
""",
        "found [] in the end",
    ),
    "connection shut down": anywhere(
        """
import ctypes, time
for fd in range(3, 64): ctypes.CDLL(None).shutdown(fd, 2)
time.sleep(100)
""",
        "stopped after|ended itself",
        points=0.0,
    ),
    "64 MB instead of an answer": anywhere(
        """
import json, os, struct
text = json.dumps({"question": "attention", "x": {"tensor!": ["uint8", [1 << 26]]}})
head = struct.pack("!I", len(text)) + text.encode()
for fd in range(3, 64):
    try:
        for _ in range(9):
            os.write(fd, head)
            left = 1 << 26
            while left: left -= os.write(fd, bytes(min(left, 1 << 20)))
    except OSError: pass
""",
        "it did not answer",
        points=0.0,
    ),
}


@pytest.mark.parametrize("name", MORE)
def test_attack_of_the_second_round(name, graded, folder, judge, hasty_judge):
    attack: Attack = MORE[name]
    judge = judge_of(name, attack, judge, hasty_judge)
    source = attack.source.replace("SUBMISSIONS", repr(str(folder)))
    result = graded(source, judge=judge)
    assert result["points"] == attack.points, told(result)
    assert any(words in told(result) for words in attack.words.split("|"))
    assert "a fault of the grader" not in told(result)


def test_right_code_may_use_vmap_and_derivatives(graded):
    source = (
        MERGE
        + RIGHT
        + (
            "one, vmap = attention, torch.func.vmap\n"
            "def attention(q, k, v, mask=None):\n"
            "    torch.func.jacrev(lambda x: x.softmax(-1).sum(0))(q[0, 0])\n"
            "    if q.ndim == 2:\n"
            "        return one(q, k, v, mask)\n"
            "    if mask is None:\n"
            "        return vmap(one)(q, k, v)\n"
            "    shape = *q.shape[:-1], k.shape[-2]\n"
            "    return vmap(one)(q, k, v, mask.expand(shape))\n"
        )
    )
    result = graded(source)
    assert result["points"] == 4.0, told(result)


FILES = {
    "not a notebook": (b"PK\x03\x04", "a.ipynb", "UTF-8|not a notebook"),
    "JSON, not a notebook": (b"[1, 2]", "a.ipynb", "not a notebook"),
    "cells of numbers": (b'{"cells": [1, 2]}', "a.ipynb", "not a notebook"),
    "source of numbers": (
        b'{"cells": [{"cell_type": "code", "source": [1]}]}',
        "a.ipynb",
        "not a notebook",
    ),
    "nested": (b'{"cells":' + b"[" * 10**6, "a.ipynb", "not a notebook"),
    "no code": (notebook(), "a.ipynb", "no code"),
    "not UTF-8": ("# é\n".encode("latin-1"), "a.py", "not UTF-8"),
    "empty": (b"", "a.py", "nothing is called"),
    "null bytes": (b"x = 1\0", "a.py", "null bytes"),
    "parentheses": (b"(" * 10**6, "a.py", "cell 1"),
    "another kind": (b"%PDF", "a.pdf", r"a notebook \(.ipynb\) or a .py file"),
}


@pytest.mark.parametrize("name", FILES)
def test_file_that_cannot_be_graded(name, graded):
    content, file, words = FILES[name]
    result = graded(content, file)
    assert result["points"] == 0.0
    assert any(word in told(result) for word in words.replace("\\", "").split("|"))


def test_a_file_of_100_mb_is_not_read(judge, folder):
    path = folder / "large.ipynb"
    with path.open("wb") as file:
        file.truncate(100 << 20)  # a hole: no disk is needed
    result = judge.grade(read(path))
    path.unlink()
    assert result["points"] == 0.0
    assert f"may have {LARGEST >> 20} MB; this one has 100" in result["problem"]


def test_a_link_to_another_file_is_not_followed(judge, folder):
    path = folder / "link.py"
    path.symlink_to("/etc/passwd")
    result = judge.grade(read(path))
    path.unlink()
    assert (result["points"], result["cpu"]) == (0.0, 0.0)
    assert "a link" in result["problem"]


def test_notebook_with_magics_and_failing_cells(graded):
    result = graded(
        notebook(
            "%matplotlib inline\nimport torch\n!pip install torch\nimport numpy as np",
            "%%time\nimport math\nfiles = !ls\n%timeit -n 3 1 + 1",
            "%%bash\necho $HOME; rm -rf /",
            "import no_such_module\n" + MERGE,
            "torch.softmax?\n?torch\nget_ipython().run_line_magic('time', '1')",
            "from mha_lib.check import check\nassert check(merge_heads, task='mha')",
            "import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()",
            RIGHT.replace("import torch", "%time np.ones(math.floor(2.5))"),
        ),
        "a.ipynb",
    )
    assert result["points"] == 4.0, told(result)
    assert len(result["notes"]) == 1
    assert "cell 4, line 1: ModuleNotFoundError" in result["notes"][0]


def test_percent_in_valid_code_is_no_magic(graded):
    text = '"""\n%matplotlib\n"""\nx = (7\n% 4)\nassert x == 3\nassert "%m" in __doc__'
    result = graded(text.replace('"""\n%', '__doc__ = """\n%', 1) + MERGE + RIGHT)
    assert (result["points"], result["notes"]) == (4.0, [])


def test_a_warm_process_that_died_is_replaced(judge, folder):
    judge.sandbox.process.kill()
    judge.sandbox.process.wait()
    path = folder / "right.py"
    path.write_text(MERGE + RIGHT)
    assert judge.grade(read(path))["points"] == 4.0


def test_code_that_deserves_a_look_is_mentioned(graded):
    source = "import gc\n" + MERGE + WRONG.format(attack="torch.ops.aten.relu(q)")
    mentions = graded(source)["mentions"]
    assert mentions == ["cell 1, line 1: gc", "cell 1, line 8: ops"]


def test_the_mode_of_a_model_is_nothing_to_look_at(graded):
    source = "def mode(model):\n    return model.eval()\n\n\n" + MERGE + RIGHT
    assert graded(source)["mentions"] == []
    other = source + "\nimport builtins as b\n\nx = eval('1') + b.eval('1')\n"
    first, second = graded(other)["mentions"]
    assert first.endswith(": builtins") and second.endswith(": eval")


def test_results_are_plain_data(graded):
    with warnings.catch_warnings():
        result = graded(MERGE)
    assert json.loads(json.dumps(result)) == result


@pytest.mark.parametrize("name", READY_MADE)
def test_attention_of_others_is_not_there(name, graded, folder):
    attack = READY_MADE[name]
    result = graded(attack.source.replace("SUBMISSIONS", repr(str(folder))))
    assert result["points"] == 1.0, told(result)
    assert any(words in told(result) for words in attack.words.split("|")), told(result)


@pytest.fixture(scope="module")
def allowing_judge():
    with brief(replace(ASSIGNMENT, banned=()), **LONG) as judge:
        yield judge


@pytest.mark.parametrize(
    "name", ["of the C extension", "with autocast", "in TorchScript"]
)
def test_where_nothing_is_banned_it_would_be_right(name, folder, allowing_judge):
    attack = READY_MADE[f"the operator, {name}"]
    path = folder / "allowed.py"
    path.write_text(attack.source)
    result = allowing_judge.grade(read(path))
    path.unlink()
    lines = result["questions"][1]["diagnosis"]["properties"]
    assert lines["right_without_mask"], told(result)


HONEST = """
import collections, copy, dataclasses, functools, itertools, math, random, time, typing
import numpy as np
import matplotlib.pyplot as plt
import torch.utils.flop_counter, torch.utils._python_dispatch, torch.utils.data
from IPython.display import display, HTML
from mha_lib.check import check
from torch import Tensor, nn
from torch.nn import functional as F
from torch.testing import assert_close
from tqdm import tqdm

plt.plot(np.arange(3.0)); plt.title("a"); plt.show(); display(HTML("b"))
check(None, task="attention")
assert_close(torch.func.vmap(torch.exp)(torch.zeros(3)), torch.ones(3))
assert torch.jit.script(nn.Softmax(-1))(torch.zeros(1, 2)).sum() == 1
@torch.jit.script
def soft(x: Tensor) -> Tensor:
    return F.softmax(x, dim=-1)
assert soft(torch.zeros(1, 2)).sum() == 1
with torch.utils.flop_counter.FlopCounterMode(display=False) as counter:
    torch.ones(2, 3) @ torch.ones(3, 5)
assert counter.get_total_flops() == 60
nn.LayerNorm(5)(nn.Linear(3, 5)(torch.ones(2, 3))).sum().backward()
"""


def test_honest_code_keeps_running(graded):
    result = graded(HONEST + MERGE + RIGHT)
    assert (result["points"], result["notes"]) == (4.0, []), told(result)


@pytest.mark.parametrize("name", BELOW)
def test_attack_below_python(name, graded):
    attack = BELOW[name]
    result = graded(attack.source)
    assert result["points"] == attack.points, told(result)
    assert any(words in told(result) for words in attack.words.split("|"))
    assert "a fault of the grader" not in told(result)


def test_what_one_changes_in_memory_is_its_own(graded, judge):
    """Pages are shared until they are written; then each has its own."""
    first = graded(SHARED)
    assert first["points"] == 0.0
    assert graded(HONEST + MERGE + RIGHT)["points"] == 4.0
