"""The grader imports nothing from where it is started, and nothing handed in."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import mha_lib
from mha_lib.grade import start
from tests.grade.attacks.table import MERGE
from tests.grade.course import linux, table

ROOT = Path(mha_lib.__file__).parents[1]
SCRIPT = """\
import sys
from mha_lib.grade.__main__ import cli
if __name__ == "__main__":
    sys.exit(cli())
"""
OFTEN = {"torch", "numpy", "tqdm", "matplotlib", "distributed", "einops", "IPython"}
A9 = (
    '{"id": "a9", "title": "T", "questions": '
    '[{"name": "merge_heads", "task": "merge_heads", "points": 2}]}'
)


@pytest.fixture
def handed_in(tmp_path):
    """A folder of modules with the names of others, which tell that they were run."""
    folder = tmp_path / "submissions"
    folder.mkdir()
    for name in OFTEN | sys.stdlib_module_names | {"sitecustomize"}:
        told = f"open({str(tmp_path / 'run')!r}, 'a').write({name!r} + ' ')\n"
        (folder / f"{name}.py").write_text(told + MERGE)
    (folder / "ada").mkdir()
    (folder / "ada" / "hw.py").write_text(MERGE)
    (tmp_path / "a9.json").write_text(A9)
    return folder


def graded(folder: Path, *how: str, path: str = "", workers: int = 1) -> str:
    """Grades what lies in it from within it; says what of it was imported."""
    place = folder.parent
    command = [sys.executable, *how, "ada", "-a", "../a9.json", "-o", "../out.csv"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{path}"}
    more = ["--folder", ".", "--workers", str(workers), "--again"]
    done = subprocess.run(
        [*command, *more], cwd=folder, env=environment, capture_output=True, text=True
    )
    run = place / "run"
    imported = run.read_text() if run.exists() else ""
    assert done.returncode == 0, imported + done.stderr
    assert table(place / "out.csv")["hw.py"]["points"] == "2"
    assert f"1 submissions: {place}" in done.stdout
    return imported


@linux
def test_the_command_imports_nothing_that_was_handed_in(handed_in, tmp_path):
    script = tmp_path / "bin" / "mha-grade"  # as an installation writes it
    script.parent.mkdir()
    script.write_text(SCRIPT)
    (handed_in / "mha_lib.py").write_text((handed_in / "torch.py").read_text())
    assert graded(handed_in, str(script), workers=2) == ""


@linux
@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.10 finds its runpy")
def test_the_module_imports_no_library_that_was_handed_in(handed_in):
    assert graded(handed_in, "-m", "mha_lib.grade") == ""


@linux
def test_an_empty_place_in_pythonpath_is_not_searched(handed_in):
    for name in sys.stdlib_module_names | {"sitecustomize"}:  # imported before ours
        (handed_in / f"{name}.py").unlink(missing_ok=True)
    places = f"{os.pathsep}{os.pathsep}{handed_in}"
    assert graded(handed_in, "-m", "mha_lib.grade", path=places, workers=2) == ""


def test_the_command_is_that_of_the_package():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    scripts = project.partition("[project.scripts]\n")[2].partition("\n\n")[0]
    assert scripts == 'mha-grade = "mha_lib.grade.__main__:cli"'


# --- which places are forgotten -----------------------------------------------------


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """What is left of an import path and of PYTHONPATH after `start.forget`."""
    for name in ("here/below", "in/eve/lib", "else", "venv/lib"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "argv", ["-m", "../in", "../else/a.py", "--wall", "9"])

    def search(*places: str) -> tuple[list[str], str]:
        monkeypatch.setattr(sys, "path", list(places))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
        start.forget()
        return sys.path, os.environ["PYTHONPATH"]

    return search


def test_places_of_students_are_forgotten(searched, tmp_path):
    (tmp_path / "else" / "a.py").touch()
    places = ["", ".", str(tmp_path / "here"), "../in", "../in/eve/lib", "../else"]
    assert searched(*places) == ([], "")


def test_places_of_others_are_kept(searched, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "in"))
    kept = [str(ROOT), str(tmp_path / "here" / "below"), str(tmp_path / "in/eve/lib")]
    assert searched(*kept, str(tmp_path / "here")) == (kept, os.pathsep.join(kept))


def test_the_package_is_found_where_it_was_found(searched, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert searched(str(ROOT), "below") == ([str(ROOT), "below"],) + (
        os.pathsep.join([str(ROOT), str(ROOT / "below")]),
    )


@pytest.mark.parametrize("words", [["-m", "mha_lib.grade"], ["/bin/mha-grade", "x"]])
def test_it_is_the_first_thing_that_happens(words, monkeypatch):
    happened = []
    monkeypatch.setattr(start, "forget", lambda: happened.append(1))
    monkeypatch.setattr(sys, "orig_argv", ["python", *words])
    runpy.run_path(mha_lib.__file__)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "pytest"])
    runpy.run_path(mha_lib.__file__)
    assert happened == [1]
