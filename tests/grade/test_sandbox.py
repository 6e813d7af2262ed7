"""What a system can protect from, what it lacks, and how that is said."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from mha_lib.check import beside
from mha_lib.grade import sandbox
from mha_lib.grade.inside import kernel, limits
from tests.grade.course import linux

INSIDE = Path(limits.__file__).parent
WITHOUT = """
import sys
sys.path.insert(0, {folder!r})
from inside import kernel, limits
def lacks(*_): raise OSError("not here")
for name in {names!r}: setattr(kernel if hasattr(kernel, name) else limits, name, lacks)
kernel.LINUX = {linux!r}
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
    script = WITHOUT.format(
        folder=str(INSIDE.parent), names=names, root=root, linux=on_linux
    )
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


@linux
def test_processor_time_that_ran_out_is_not_called_memory():
    """A child that blocks the first signal is ended by the second one."""
    block = b"import signal\nsignal.pthread_sigmask(0, set(signal.Signals))\n"
    loop = b"signal.setitimer(2, 0)\nwhile True: pass"  # no limit of its cell
    question = {"name": "x", "probes": []}
    with sandbox.Sandbox(cpu=1, wall=500.0, seconds=150.0, unsafe=True) as started:
        for source in (block + loop, b"import signal\n" + loop):
            reply = started.run(source, "py", [question])
            assert reply.ending == "it was stopped after 1 seconds of CPU time"


def test_both_processors_have_a_number_for_what_both_have():
    for table in kernel.REFUSED.values():
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


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_every_signal_can_be_said():
    for code in range(1, 65):
        ending = {"late": False, "code": -code, "cpu": 0.0}
        assert sandbox._in_words(ending, {"limits": {"cpu": 1}}).startswith("it ")
    ending = {"late": False, "code": -signal.SIGSEGV, "cpu": 0.0}
    assert "(SIGSEGV)" in sandbox._in_words(ending, {"limits": {"cpu": 1}})
