"""The parts of the sandbox that can be looked at one by one."""

import ast
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch.testing import assert_close

from mha_lib.check import beside
from mha_lib.grade import sandbox
from mha_lib.grade.inside import cells, limits, wire

INSIDE = Path(limits.__file__).parent
linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
alarm = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


# --- messages -----------------------------------------------------------------------


def sent(data: bytes, limit: int = 1 << 10) -> object:
    """What is read where somebody has written these bytes and has gone."""
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(data)
        return wire.receive(ours, limit)


def raw(text: str, tail: bytes = b"") -> bytes:
    return struct.pack("!I", len(text)) + text.encode() + tail


@pytest.mark.parametrize("dtype", wire.NAMES, ids=wire.NAMES.get)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5, 3)], ids=str)
def test_a_tensor_arrives_as_it_left(dtype, shape):
    x = torch.randint(0, 2 if dtype == torch.bool else 100, shape).to(dtype)
    tree = {"a": [1, "é", None, {"x": x}], "turned": x.T if x.dim() == 2 else x}
    got = sent(wire.pack(tree))
    assert got["a"][:3] == [1, "é", None]
    assert_close(got["a"][3]["x"], x, rtol=0, atol=0)


def test_a_transposed_tensor_arrives_in_its_own_order():
    x = torch.randn(4, 7).mT[1:, ::2].requires_grad_()
    assert_close(sent(wire.pack(x)), x.detach(), rtol=0, atol=0)


def test_only_plain_tensors_leave():
    class Mine(torch.Tensor):
        pass

    x = torch.ones(2)
    for other, words in (
        (x.as_subclass(Mine), "a plain torch.Tensor is required; got .*Mine"),
        (torch.nn.Parameter(x), "got torch.nn.parameter.Parameter"),
        (
            x.to(torch.complex64),
            "dtype must be one of float64, .*; got torch.complex64",
        ),
        (object(), "got builtins.object"),
    ):
        with pytest.raises(TypeError, match=words):
            wire.pack([other])
    for other in (x.to("meta"), x.to_sparse()):
        with pytest.raises((RuntimeError, NotImplementedError, TypeError)):
            wire.pack(other)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[" * 100_000,
        '{"tensor!": 3}',
        '{"tensor!": ["float32"]}',
        '{"tensor!": ["object", [1]]}',
        '{"tensor!": ["float32", [-1]]}',
        '{"tensor!": ["float32", [true]]}',
        '{"tensor!": ["float32", [1.0]]}',
        '{"tensor!": ["float32", [0, 4294967295, 4294967295]]}',
        '{"tensor!": ["uint8", [1025]]}',
        '[{"tensor!": ["uint8", [1024]]}, {"tensor!": ["uint8", [0]]}]',
        '{"tensor!": ["uint8", [' + "1," * 16 + "1]]}",
        "1" * 10_000,
    ],
    ids=lambda text: text[:40],
)
def test_what_is_no_message_is_refused_before_it_is_read(text):
    with pytest.raises(wire.WireError):
        sent(raw(text, b"\0" * 99))


def test_a_long_text_is_refused_and_a_short_one_is_awaited():
    with pytest.raises(wire.WireError, match=r"may have 1048576 bytes; got 4294967295"):
        sent(b"\xff" * 99)
    with pytest.raises(EOFError):
        sent(raw('{"tensor!": ["uint8", [9]]}', b"12345678"))


def test_a_boolean_tensor_holds_true_and_false_alone():
    x = sent(raw('{"tensor!": ["bool", [3]]}', b"\0\1\xff"))
    assert x.tolist() == [False, True, True]
    assert torch.equal(x.to(torch.uint8), torch.tensor([0, 1, 1], dtype=torch.uint8))


# --- cells --------------------------------------------------------------------------


def ran(*sources: str, seconds: float = 5.0) -> tuple[dict, list[str]]:
    module = ModuleType("submission")
    return module.__dict__, cells.run(module, list(sources), seconds)


MAGICS = {
    "%matplotlib inline\nx = 1": 1,
    "!ls\nx = 1": 1,
    "  \n%%time\nx = 1": 1,
    "%%capture out\nx = 1": 1,
    "%%bash\nx = 2": None,
    "%%writefile a.py\nx = 2": None,
    "%time x = 1": 1,
    "%timeit -n 3 -r 2 pass\nx = 1": 1,
    "x = 1\nx?\n?x\nx??": 1,
    "files = !ls\nx = 1": 1,
    "if True:\n    %time x = 1\n    !ls\n": 1,
    "x = (9\n%4)": 1,
    "x = len('''\n!''') // 2": 1,
}


@alarm
@pytest.mark.parametrize("source", MAGICS)
def test_magics_are_stripped_and_python_is_not(source):
    names, notes = ran(source)
    assert (names.get("x"), notes) == (MAGICS[source], [])


@alarm
def test_the_first_failure_of_each_cell_is_noted_and_the_rest_runs():
    names, notes = ran("a = 1\nb = a / 0\nc = d\ne = 2", "def broken(:", "f = e")
    assert (names["a"], names["e"], names["f"]) == (1, 2, 2)
    assert notes[0] == "cell 1, line 2: ZeroDivisionError: division by zero"
    assert notes[1].startswith("cell 2, line 1: SyntaxError: ") and len(notes) == 2


@alarm
def test_a_cell_without_end_ends_and_the_next_one_runs():
    names, notes = ran("while True:\n    x = 1", "y = 2", seconds=0.1)
    assert names["y"] == 2
    words = "stopped after 0.1 seconds: a loop without end?"
    assert len(notes) == 1 and notes[0].endswith(words)
    assert cells.signal.getitimer(cells.signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_python_file_is_cut_into_cells():
    text = "a = 1\n# %%\nb = 2\n# In[3]:\nc = 3\nd = '# %%'\n"
    assert len(cells.read(text.encode(), "py")) == 3
    assert cells.read(b"\xef\xbb\xbfa = 1", "py") == ["a = 1"]


# --- limits -------------------------------------------------------------------------

WITHOUT = """
import sys
sys.path.insert(0, {folder!r})
import limits
def lacks(*_): raise OSError("not here")
for name in {names!r}: setattr(limits, name, lacks)
limits.LINUX = {linux!r}
made = limits.Limits(memory=1, cpu=1, files=1, hidden=[])
made.root = {root!r}
print(",".join(made.prepare()))
"""


@linux
@pytest.mark.parametrize(
    ("names", "root", "on_linux", "missing"),
    [
        ([], False, True, "user"),
        (["landlock"], False, True, "files,user"),
        (["landlock", "separate"], True, True, "files"),
        (["system_call_filter"], False, True, "system calls,user"),
        ([], False, False, "orphans,files,system calls,user,memory"),
    ],
)
def test_what_a_system_lacks_is_said(names, root, on_linux, missing):
    script = WITHOUT.format(folder=str(INSIDE), names=names, root=root, linux=on_linux)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.stdout.strip() == missing, done.stderr
    assert set(missing.split(",")) <= set(limits.PURPOSES)


class NoProcess:
    """Stands for a warm process that says what it lacks, and does nothing."""

    def __init__(self, *arguments, **more):
        self.pid = 0

    def kill(self):
        pass

    wait = kill


@linux
def test_where_nothing_protects_files_it_refuses(monkeypatch):
    state = {"missing": ["files", "system calls"], "refused": ""}
    monkeypatch.setattr(sandbox.subprocess, "Popen", NoProcess)
    monkeypatch.setattr(sandbox.wire, "receive", lambda *_: state)
    with pytest.raises(sandbox.Unsafe, match="could change and read all your files"):
        sandbox.Sandbox().start()
    with sandbox.Sandbox(unsafe=True) as trusting:
        assert trusting.warnings == [
            limits.PURPOSES["files"],
            limits.PURPOSES["system calls"],
        ]
    state = {"missing": [], "refused": "PermissionError: /root"}
    with pytest.raises(sandbox.Unsafe, match="/root"):
        sandbox.Sandbox().start()


@linux
def test_a_look_ahead_sees_what_the_warm_process_lacks(monkeypatch):
    with sandbox.Sandbox(unsafe=True) as started:
        assert sandbox.unprotected() == started.warnings
    lacking = sandbox.LOOK.replace(
        "caps =", "Limits.prepare = lambda _: ['user']; caps ="
    )
    monkeypatch.setattr(sandbox, "LOOK", lacking)
    assert sandbox.unprotected() == [limits.PURPOSES["user"]]
    monkeypatch.setattr(sandbox, "LOOK", "import sys; sys.exit(1)")
    assert sandbox.unprotected() == []


def test_both_processors_have_a_number_for_what_both_have():
    for table in limits.REFUSED.values():
        for call in table.split():
            name, intel, arm = call.split(":")
            assert intel or arm, name
            if int(intel or arm) > 423:  # one number everywhere since Linux 5.1
                assert intel == arm, name


def test_no_module_beside_a_submission_imports_pickle_or_our_package():
    alone = INSIDE, Path(beside.__file__).parent
    inside = [path for folder in alone for path in folder.glob("*.py")]
    for path in (*inside, Path(sandbox.__file__)):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, (ast.Import, ast.ImportFrom)):
                continue
            names = [alias.name for alias in node.names]
            names.append(getattr(node, "module", None) or "")
            assert not {"pickle", "marshal", "shelve"} & {*names}, path
            if path in inside:
                assert not any("mha_lib" in name for name in names), path
