"""What a system can protect from, what it lacks, and how that is said."""

import ast
import importlib.util
import os
import platform
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mha_lib.check import beside
from mha_lib.grade import sandbox
from mha_lib.grade.inside import kernel, limits, packages, spaces
from tests.grade.course import BARE, linux

INSIDE = Path(limits.__file__).parent
WITHOUT = """
import sys
sys.path.insert(0, {folder!r})
from inside import files, kernel, limits, spaces
def lacks(*_): raise OSError("not here")
for name in {names!r}:
    module = next(x for x in (files, kernel, spaces) if hasattr(x, name))
    setattr(module, name, lacks)
kernel.LINUX = {linux!r}
made = limits.Limits(memory=1, cpu=1, files=1, hidden=[])
made.root = {root!r}
print(",".join(made.prepare()))
"""


@linux
@pytest.mark.parametrize(
    ("names", "root", "on_linux", "missing"),
    [
        ([], True, True, ""),
        ([], False, True, "user"),
        (["ruleset"], False, True, "files,packages,user"),
        (["ruleset", "enter"], True, True, "files,packages,namespaces"),
        (["enter"], False, True, "namespaces,user"),
        (["prctl", "enter"], True, True, "orphans,system calls,namespaces"),
        (["take"], True, True, "user"),
        (["system_call_filter"], False, True, "system calls,user"),
        (
            [],
            False,
            False,
            "orphans,files,packages,system calls,namespaces,user,memory",
        ),
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
    assert set(filter(None, missing.split(","))) <= set(limits.PURPOSES)


@pytest.fixture
def bare(monkeypatch):
    monkeypatch.setattr(sandbox, "START", BARE)


@linux
@pytest.mark.parametrize("probes", [[], [[]]], ids=["answers unread", "probes unsent"])
def test_a_judge_that_is_killed_leaves_a_silent_warm_process(
    tmp_path, monkeypatch, bare, probes
):
    class Written(subprocess.Popen):
        def __init__(self, *arguments, **more):
            super().__init__(*arguments, stderr=said, **more)

    monkeypatch.setattr(sandbox.subprocess, "Popen", Written)
    with (tmp_path / "said").open("wb") as said:
        warm = sandbox.Sandbox()
        warm.start()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            warm._send(theirs, set(), probes)
        if not probes:
            select.select([warm.control], [], [], 60)  # how that child ended, and
        warm.control.close()  # nobody reads it: the judge is gone
        assert warm.process.wait(60) == 0
    assert (tmp_path / "said").read_text() == ""


@pytest.fixture(scope="module")
def trusting():
    """One for all that change nothing of it; who bans most comes last."""
    with sandbox.Sandbox(unsafe=True) as started:
        yield started


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
def test_a_look_ahead_sees_what_the_warm_process_lacks(trusting, monkeypatch):
    look = sandbox.unprotected.__wrapped__  # not what was seen before
    assert [*look()] == trusting.warnings
    lacking = sandbox.LOOK.replace(
        "caps =", "Limits.prepare = lambda _: ['user']; caps ="
    )
    monkeypatch.setattr(sandbox, "LOOK", lacking)
    assert look() == (limits.PURPOSES["user"],)
    monkeypatch.setattr(sandbox, "LOOK", "import sys; sys.exit(1)")
    assert look() == ()


@linux
def test_a_call_that_the_kernel_refuses_is_an_error_in_its_words():
    with pytest.raises(OSError, match="Invalid argument"):
        kernel.prctl(-1)


@linux
def test_on_a_processor_without_a_filter_it_is_said(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="no filter was written for this processor"):
        kernel.system_call_filter()
    other = "import platform; platform.machine = lambda: 'riscv64'; "
    monkeypatch.setattr(sandbox, "LOOK", other + sandbox.LOOK)
    assert limits.PURPOSES["system calls"] in sandbox.unprotected.__wrapped__()


@linux
def test_a_warm_process_that_has_threads_does_not_start(tmp_path, monkeypatch):
    """A fork would have one of them alone, and wait for what the others hold."""
    said = tmp_path / "said"
    begun = (
        "import os, threading; "
        f"os.dup2(os.open({str(said)!r}, os.O_CREAT | os.O_WRONLY), 2); "
        "threading.Thread(target=threading.Event().wait, daemon=True).start(); "
    )
    monkeypatch.setattr(sandbox, "START", begun + sandbox.START)
    with pytest.raises(RuntimeError, match="the warm process did not start; see above"):
        sandbox.Sandbox(unsafe=True).start()
    assert said.read_text().endswith("a process with threads must not be forked\n")


@linux
def test_a_warm_process_that_is_killed_is_told_and_another_one_goes_on(
    monkeypatch, bare
):
    """A machine that is out of memory kills it, for instance."""
    with sandbox.Sandbox(unsafe=True) as started:
        send = sandbox.wire.send

        def send_and_kill(connection, message):
            send(connection, message)
            if "questions" in message:
                started.process.kill()

        with monkeypatch.context() as patched:
            patched.setattr(sandbox.wire, "send", send_and_kill)
            reply = started.run(b"import time; time.sleep(9)", "py", [QUESTION])
        assert reply.ending == "it ended the process that had started it"
        assert started.run(b"", "py", [QUESTION]).ending == ""


@linux
def test_an_answer_that_is_no_dictionary_is_none(trusting):
    source = """
import os, struct
for file in range(3, 64):
    try:
        os.write(file, struct.pack("!I", 2) + b"[]")
    except OSError:
        pass
"""
    reply = trusting.run(source.encode(), "py", [QUESTION])
    said = "it sent what is no answer (a message must be a dictionary)"
    assert reply.ending == said


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


# --- a user and namespaces of its own -----------------------------------------------

QUESTION = {"name": "x", "probes": []}
WHO = b"import os\nraise RuntimeError(os.getppid(), os.getuid(), os.listdir('/'))"
ORDINARY = (  # root that does as others have to
    "import inside.limits as l; prepare = l.Limits.prepare; "
    "l.Limits.prepare = lambda x: setattr(x, 'root', False) or prepare(x); "
    "from inside.warm"
)
root = pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root's rights"
)
APART = """
import os, signal, sys
sys.path.insert(0, {folder!r})
from inside import kernel, spaces
kernel.prctl(kernel.SET_CHILD_SUBREAPER, 1)
spaces.enter({root!r}, [])
{before}
first = spaces.first_process()
def forked(task):
    pid = os.fork()
    if not pid:
        task()
        os._exit(0)
    return pid
def stay():
    signal.pause()
{code}
"""


def apart(code: str, before: str = "", **how: object) -> subprocess.Popen:
    """A process with a namespace of processes, which then does something."""
    given = {"folder": str(INSIDE.parent), "root": os.geteuid() == 0}
    script = APART.format(**given, before=before, code=code)
    return subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, **how
    )


def namespaces() -> bool:
    """Whether this machine grants them."""
    return limits.PURPOSES["namespaces"] not in sandbox.unprotected()


@linux
def test_a_child_collects_its_garbage_and_not_what_it_shares(warm):
    source = (
        b"import gc\nraise RuntimeError(gc.isenabled(), gc.get_freeze_count() > 9999)"
    )
    (note,) = warm.run(source, "py", [QUESTION]).messages[1]["notes"]
    assert "RuntimeError: (True, True)" in note


@pytest.fixture
def of_an_ordinary_user(monkeypatch):
    start = sandbox.START.replace("from inside.warm", ORDINARY)
    monkeypatch.setattr(sandbox, "START", start)
    with sandbox.Sandbox(unsafe=True) as started:
        yield started


@linux
@pytest.mark.parametrize("whose", ["trusting", "of_an_ordinary_user"])
def test_a_child_sees_no_other_process(whose, request):
    """Its parent is outside of its namespace, and so has no number there."""
    if not namespaces():
        pytest.skip("this system grants no namespaces")
    started, ordinary = request.getfixturevalue(whose), whose != "trusting"
    (note,) = started.run(WHO, "py", [QUESTION]).messages[1]["notes"]
    said = limits.PURPOSES["user"] in started.warnings
    assert "PermissionError" in note or "RuntimeError: (0, " in note
    assert said == (ordinary or os.geteuid() != 0)


@linux
@root
def test_the_user_of_a_child_is_none_of_the_system(trusting):
    source = b"import os\nraise RuntimeError(os.getuid(), os.getgid(), os.getgroups())"
    (note,) = trusting.run(source, "py", [QUESTION]).messages[1]["notes"]
    user, group, groups = ast.literal_eval(note.partition("RuntimeError: ")[2])
    assert (user, groups) == (group, []) and user in spaces.USERS


@linux
@pytest.mark.parametrize(
    "before",
    ["", "os.closerange = lambda *_: signal.pause()"],
    ids=["as it waits", "as soon as it is heard"],
)
def test_what_a_child_leaves_is_killed_and_the_first_process_stays(before):
    """The other end of a pipe closes when the last process that has it is gone."""
    if not namespaces():
        pytest.skip("this system grants no namespaces")
    code = """
ours, theirs = os.pipe()
child = forked(lambda: forked(lambda: forked(stay)))
os.close(theirs)
os.waitpid(child, 0)
spaces.clean(first)
print(os.read(ours, 1), os.waitpid(first, os.WNOHANG), flush=True)
child = forked(lambda: os._exit(7))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    with apart(code, before) as process:
        try:
            said, _ = process.communicate(timeout=120)
        finally:
            process.kill()
        assert said == "b'' (0, 0)\n7\n"


@linux
def test_nothing_in_it_outlives_the_warm_process():
    if not namespaces():
        pytest.skip("this system grants no namespaces")
    ours, theirs = os.pipe()
    code = f"os.dup2({theirs}, 1000)\nforked(stay)\nprint('here', flush=True)\nstay()"
    with apart(code, pass_fds=[theirs]) as process:
        os.close(theirs)
        assert process.stdout.readline() == "here\n"
        process.kill()
        ended, _, _ = select.select([ours], [], [], 120)  # seconds
        assert ended and os.read(ours, 1) == b""
    os.close(ours)


@linux
def test_the_first_process_ends_where_the_warm_one_was_killed_before_it_began():
    """It is held back until the warm process is dead, whose end it then cannot hear."""
    if not namespaces():
        pytest.skip("this system grants no namespaces")
    (held, begun), (wait, go) = os.pipe(), os.pipe()
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(INSIDE.parent)!r})
from inside import kernel, spaces
prctl = kernel.prctl
def late(*arguments):
    os.write({begun}, b".")
    os.read({wait}, 1)
    return prctl(*arguments)
kernel.prctl = late
spaces.enter({os.geteuid() == 0!r}, [])
spaces.first_process()
signal.pause()
"""
    warm = subprocess.Popen([sys.executable, "-c", code], pass_fds=[begun, wait])
    assert os.read(held, 1) == b"."
    first = Path(spaces.CHILDREN.format(warm.pid)).read_text()
    ended = os.pidfd_open(int(first))
    warm.kill()
    warm.wait()
    os.write(go, b".")
    try:
        assert select.select([ended], [], [], 120)[0], "it outlives the warm process"
    finally:
        for file in (ended, held, begun, wait, go):
            os.close(file)


@linux
@root
def test_where_that_user_cannot_read_python_it_says_what_to_do(
    tmp_path, monkeypatch, bare
):
    """Python lies in /root, and the system has no Landlock."""
    private = tmp_path / "os.py"
    private.touch(0o600)
    there = (
        f"import os; os.__file__ = {str(private)!r}; import inside.files as f; "
        "f.ruleset = lambda *_: os.stat(''); "  # an OSError
    )
    start = sandbox.START.replace("import inside.warm", there + "import inside.warm", 1)
    monkeypatch.setattr(sandbox, "START", start)
    if limits.PURPOSES["user"] in sandbox.unprotected():
        pytest.skip("this system grants no other user")
    words = r"PermissionError: user \d+, .* must be able to read .*os\.py; install"
    with pytest.raises(sandbox.Unsafe, match=words):
        sandbox.Sandbox(unsafe=True).start()


@linux
@root
def test_a_system_that_is_not_linux_has_users_too():
    code = """
kernel.LINUX = False
spaces.become(60706, may_read=False)
print(os.getuid(), os.getgid(), os.getgroups())
"""
    script = f"import os, sys; sys.path.insert(0, {str(INSIDE.parent)!r}); "
    script += f"from inside import kernel, spaces{code}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True
    )
    assert done.stdout == "60706 60706 []\n", done.stderr


@linux
@root
def test_a_user_that_a_container_does_not_have_is_not_taken():
    code = """
kernel.unshare(kernel.CLONE_NEWUSER)
spaces.Path("/proc/self/uid_map").write_text("0 0 1")
print(spaces.possible(spaces.take, 60706))
"""
    with apart(code) as process:
        assert process.communicate(timeout=120)[0] == "False\n"


@linux
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_tried_fails_elsewhere():
    def refuses():
        raise PermissionError("not here")

    assert spaces.possible(lambda: None) and not spaces.possible(refuses)
    assert not spaces.possible(lambda: 1 / 0)


# --- packages by a list of those that are allowed ---------------------------------


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder of packages, of which `one` needs `two`, and `three` is alone."""
    needs = {"one": "Two_a >=1; python_version > '3'", "two-a": "three; extra == 'x'"}
    parts_of = {"one": ["one"], "two-a": ["two", "six.py"], "three": ["three"]}
    for name, parts in parts_of.items():
        about = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
        about.mkdir()
        need = f"Requires-Dist: {needs[name]}\n" if name in needs else ""
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\n{need}")
        (about / "RECORD").write_text("".join(f"{x},sha256=0,1\n" for x in parts))
        for part in parts:
            (tmp_path / part).touch()
    (tmp_path / "three.so").touch()
    (tmp_path / "__pycache__").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "not there")])
    return tmp_path


def test_what_an_allowed_package_requires_is_allowed(installed):
    assert packages.allowed(["One"]) == {"one", "two", "six.py"}
    assert packages.allowed(["three", "nothing"]) == {"three"}


def test_no_package_with_attention_is_required_by_those_that_are_allowed():
    others = "onnx onnxscript transformers x_transformers keras jax flax torchvision"
    assert "torch" in packages.allowed()
    assert packages.allowed().isdisjoint(others.split())


def test_all_other_packages_are_closed(installed):
    names = {path.name for path in packages.closed({"one", "two", "six.py"})}
    assert names == {"three", "three.so", "__pycache__"}


def test_a_package_without_a_record_names_what_is_on_top(installed):
    (installed / "three-1.0.dist-info" / "RECORD").unlink()
    (installed / "three-1.0.dist-info" / "top_level.txt").write_text("three\nfour\n")
    assert packages.allowed(["three"]) == {"three", "four"}


def test_the_finder_knows_what_is_allowed():
    finder = packages.Packages({"torch", "numpy"}, sys.meta_path[:])
    for name in ("torch", "numpy", "json"):
        found = finder.find_spec(name)
        assert found.origin == importlib.util.find_spec(name).origin, name
    assert finder.find_spec("pytest") is None
    assert finder.find_spec("mha_lib.check").loader is finder
    with pytest.raises(ModuleNotFoundError, match="not available while grading"):
        finder.find_spec("mha_lib.attention")


@linux
def test_all_of_our_package_is_imported_in_silence(trusting):
    source = b"from mha_lib.check import *\nimport mha_lib.check\n"
    source += b"mha_lib.check.check(print, task='mha')"
    assert trusting.run(source, "py", [QUESTION]).messages[1]["notes"] == []


@linux
def test_an_instructor_may_allow_other_packages(trusting):
    source = b"import pytest"
    (note,) = trusting.run(source, "py", [QUESTION]).messages[1]["notes"]
    assert "No module named 'pytest'" in note
    with sandbox.Sandbox(unsafe=True, packages=["torch", "pytest"]) as started:
        assert started.run(source, "py", [QUESTION]).messages[1]["notes"] == []


@linux
def test_who_bans_less_gets_what_was_taken_away(trusting):
    source = b"import torch\ntorch.nn.functional.softmax(torch.ones(1), -1)"
    notes = [
        trusting.run(source, "py", [QUESTION], banned).messages[1]["notes"]
        for banned in ([], ["F.softmax"], ["F.softmax", "nn.Linear"], ["nn.Linear"])
    ]
    assert [len(x) for x in notes] == [0, 1, 1, 0]
