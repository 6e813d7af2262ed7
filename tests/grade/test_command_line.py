"""The command line and the package itself, on any system."""

import ast
import errno
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from mha_lib import grade
from mha_lib.grade import sandbox
from mha_lib.grade.__main__ import cli, main, parser
from mha_lib.grade.journal import Journal
from mha_lib.grade.run import JOURNAL, Run
from mha_lib.grade.sandbox import Sandbox, Unsafe, unprotected
from tests.grade.attacks.table import MERGE
from tests.grade.course import ASSIGNMENT, linux


def test_mistakes_on_the_command_line_are_explained(tmp_path):
    with pytest.raises(SystemExit, match="an assignment must be one of"):
        main([str(tmp_path), "-a", "a0", "-o", str(tmp_path / "x.csv")])


@pytest.mark.parametrize("name", ["results", "gradescope", "actions", "sheet"])
def test_a_folder_with_the_name_of_a_command_is_told_apart(
    name, tmp_path, monkeypatch, capsys
):
    def refused(*arguments: str) -> str:
        with pytest.raises(SystemExit):
            main([*arguments])
        return capsys.readouterr().err

    monkeypatch.chdir(tmp_path)
    given = ["-a", "a1", "-o", "marks.csv"]
    first = f"the command comes first: {name} -a a1 -o marks.csv\n"
    assert refused(*given, name).endswith(first)
    Path(name).mkdir()
    hint = f"write ./{name} for the folder\n"
    assert refused(name, *given).endswith(hint)
    assert refused(name, "more", "-a", "a1", "--output=marks.csv").endswith(hint)

    graded = []

    def grading(run, progress):
        graded.append([place.absolute() for place in run.places])
        return {"submissions": 1}

    monkeypatch.setattr(Run, "__call__", grading)
    main([f"./{name}", *given])
    main([*given, name])  # not in the place of a command
    assert graded == [[tmp_path / name]] * 2


def test_a_command_beside_a_folder_of_its_name_is_a_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("actions").mkdir()
    main(["actions", "-a", "a1", "-o", "results"])  # nor is this one late
    assert Path("results/.github/assignment.json").exists()


def test_an_output_may_have_the_name_of_a_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="there is no file or folder .*nowhere"):
        main(["nowhere", "-a", "a1", "-o", "results"])


@pytest.mark.parametrize("command", ["", "results", "gradescope", "actions", "sheet"])
def test_an_id_is_looked_for_in_the_folder_that_was_given(command, tmp_path):
    submissions = ["x"] if command in ("", "results") else []
    given = ["-a", "a1", "-o", "x", "--folder", str(tmp_path), *submissions]
    given += ["--roster", "r.csv"] * (command == "sheet")
    assert parser(command).parse_args(given).folder == tmp_path
    if command == "gradescope":
        with pytest.raises(SystemExit, match=r"one of \(none here\)"):
            main([command, *given])


def test_what_is_typed_is_done(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["mha-grade", "actions", "-a", "a1", "-o", "x"])
    monkeypatch.chdir(tmp_path)
    cli()
    assert Path("x/.github/workflows/grade.yml").exists()


def test_after_ctrl_c_it_says_how_to_go_on(monkeypatch, tmp_path):
    def stopped(run, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "__call__", stopped)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="the same command goes on with what is left"):
        main(["x", "-a", "a1", "-o", "x.csv"])
    assert Path.cwd() == tmp_path, "where it was started"


def test_what_is_not_installed_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(SystemExit, match="a progress bar needs tqdm: pip install tqdm"):
        main(["x", "-a", "a1", "-o", str(tmp_path / "x.csv")])


@linux
@pytest.mark.parametrize(
    "files, score", [({"a.py": MERGE, "b.txt": ""}, 2.0), ({"b.txt": ""}, 0.0)]
)
def test_the_results_of_one_folder(files, score, tmp_path):
    (tmp_path / "a9.json").write_text(json.dumps(ASSIGNMENT))
    (tmp_path / "in").mkdir()
    for name, text in files.items():
        (tmp_path / "in" / name).write_text(text)
    words = ["results", "in", "-a", "a9.json", "-o", "out.json", "--seconds", "40"]
    words += ["--wall", "300", "--seed", "7"][: 4 if score else 2]
    main([str(tmp_path / x) if "." in x or x == "in" else x for x in words])
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["score"] == score
    assert ("must be handed in; got neither" in result["output"]) == (score == 0)


def test_results_say_what_is_not_protected(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sandbox, "unprotected", lambda: ("a submission may sing",))
    (tmp_path / "in").mkdir()
    output = tmp_path / "out.json"
    main(["results", str(tmp_path / "in"), "-a", "a1", "-o", str(output)])
    assert json.loads(output.read_text())["score"] == 0  # nothing was handed in
    assert capsys.readouterr().err == "Not protected here: a submission may sing.\n"


def test_a_second_run_over_the_same_output_is_told_to_wait(tmp_path):
    pytest.importorskip("fcntl")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "ada.py").touch()
    first = Journal(tmp_path / "marks" / JOURNAL, {"assignment": "a1"})
    words = [str(tmp_path / "in"), "-a", "a1", "-o", str(tmp_path / "marks.csv")]
    with (
        closing(first),
        pytest.raises(SystemExit, match="^mha-grade: another run is writing .*: wait"),
    ):
        main(words)


def test_what_the_system_says_of_no_file_comes_without_its_number(monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("mha_lib.grade.__main__.grade", full)
    with pytest.raises(SystemExit, match="^mha-grade: No space left on device$"):
        main(["in", "-a", "a1", "-o", "marks.csv"])


def test_the_grader_enters_check_by_its_one_door():
    entered = set()
    for path in Path(grade.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                entered |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                entered.add(node.module or "")
    assert {name for name in entered if name.startswith("mha_lib.check")} == {
        "mha_lib.check"
    }


def test_without_fork_it_says_what_to_do(monkeypatch):
    monkeypatch.delattr(os, "fork", raising=False)
    with pytest.raises(Unsafe, match="Linux, or Windows' Subsystem for Linux"):
        Sandbox().start()
    assert unprotected.__wrapped__() == ()  # nobody starts one anyway


def test_modules_import_on_every_system():
    script = """
import sys, os, socket, torch, multiprocessing, concurrent.futures.process, html
sys.modules["resource"] = sys.modules["fcntl"] = None
sys.platform = "win32"
for name in ("fork", "geteuid", "setsid"): delattr(os, name)
import mha_lib.grade.__main__, mha_lib.grade.run, mha_lib.grade.platforms
import mha_lib.grade.inside.warm
print("imported")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "imported\n", done.stderr
