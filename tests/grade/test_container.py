"""The recipe of the container, and the page on what the grader withstands."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.grade import test_attacks
from tests.grade.attacks.more import BELOW
from tests.grade.attacks.ready_made import READY_MADE
from tests.grade.attacks.table import ATTACKS
from tests.grade.course import table

ROOT = Path(__file__).parents[2]
RECIPE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "book" / "what_the_grader_withstands.md").read_text(encoding="utf-8")
TESTS = "".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "grade").glob("*.py")
)
STEPS = [
    re.sub(r"\s*\\\n\s*", " ", step).split(maxsplit=1)
    for step in re.findall(r"(?m)^(?!#)\S(?:.*\\\n)*.+", RECIPE)
]


def steps(kind: str) -> list[str]:
    return [rest for name, rest in STEPS if name == kind]


def engine() -> str | None:
    """A container engine that answers; one that is merely installed does not."""
    for name in ("docker", "podman"):
        if shutil.which(name):
            done = subprocess.run([name, "info"], capture_output=True)
            if done.returncode == 0:
                return name
    return None


def test_its_python_is_one_that_the_package_supports():
    (base,) = steps("FROM")
    name, version = re.fullmatch(r"(python):(3\.\d+)-slim", base).groups()
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    least = re.search(r'requires-python = ">=3\.(\d+)"', project)[1]
    classified = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    most = re.search(r"Python 3\.\d+ to 3\.(\d+)", classified)[1]
    assert int(least) <= int(version.partition(".")[2]) <= int(most)


def test_everything_is_pinned_and_nothing_else_is_installed():
    pinned, ours = (step for step in steps("RUN") if "pip install" in step)
    assert "-c constraints.txt" in pinned
    # What packs the package is there already: pip would fetch it, of any version.
    assert pinned.split(" && ")[1].endswith(" setuptools")
    assert "--no-index --no-deps --no-build-isolation -e ." in ours
    held = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    assert re.search(r"(?m)^setuptools==[\d.]+$", held)
    names = re.search(r'grep -E "\^\((.*)\)=="', pinned)[1].split("|")
    wanted = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    for name in names:
        assert re.search(rf"(?m)^{name}==[\d.]+$", wanted), name
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for line in (r"dependencies = \[(.*)\]", r"grade = \[(.*)\]"):
        needs = re.findall(r'"(\w+)', re.search(rf"(?m)^{line}", project)[1])
        assert set(needs) <= set(names)


def test_what_it_copies_is_there_and_no_secret_is_among_it():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    copied = [word for step in steps("COPY") for word in step.split()[:-1]]
    for name in copied:
        assert (ROOT / name).exists(), name
    assert ignored[0] == "*", "what is not named is left out"
    named = {word[1:] for word in ignored if word.startswith("!")}
    assert named == set(copied)
    assert not any(re.search(r"(?i)token|secret|password|key", x) for _, x in STEPS)
    assert not steps("ADD"), "nothing comes from elsewhere"


def test_it_starts_the_grader_and_closes_the_answers():
    assert steps("ENTRYPOINT") == ['["mha-grade"]']
    (place,) = steps("WORKDIR")
    assert steps("RUN")[-1].endswith(f"chmod -R go= {place}")
    assert not steps("USER"), "root gives each submission a user of its own"


@pytest.mark.parametrize("command", ["build", "run"])
def test_the_page_and_the_recipe_say_the_same(command):
    (line,) = re.findall(rf"(?m)^#   (docker {command} .*)$", RECIPE)
    assert f"\n{line}\n" in PAGE


def test_the_page_says_how_the_marks_become_yours():
    output = Path(re.search(r"(?m)^docker run .* -o (\S+)$", PAGE)[1])
    assert f'`sudo chown -R "$USER" {output.stem} {output}`' in PAGE


def test_the_line_that_runs_it_takes_away_what_it_can():
    line = re.search(r"(?m)^docker run .*$", PAGE)[0]
    limits = "--network none,--read-only,--tmpfs /tmp,--memory 4g,--pids-limit 256"
    for option in (*limits.split(","), "--cap-drop ALL", "no-new-privileges"):
        assert option in line
    added = set(re.findall(r"--cap-add (\S+)", line))
    told = re.findall(r"(?m)^#   ([A-Z_ ]+?)  +\S", RECIPE)
    assert added == {name for names in told for name in names.split()}
    assert "privileged " not in line and "docker.sock" not in line


def test_every_row_of_the_table_names_a_test_that_there_is():
    rows = re.findall(r"(?m)^\|.*\| `([^`]+)` \|$", PAGE)
    assert len(rows) > 30 and len(set(rows)) == len(rows)
    attacks = {*ATTACKS, *READY_MADE, *BELOW, *test_attacks.MORE}
    for name in rows:
        assert name in attacks or f"def {name}(" in TESTS, name


def hand_in(folder: Path) -> dict[str, str]:
    """Submissions of a1, and the points that they deserve."""
    folder.mkdir()
    solved = ROOT / "book" / "assignments" / "a1_attention_and_masks.ipynb"
    shutil.copy(solved, folder / "ada.ipynb")
    (folder / "eve.py").write_text("import os; os._exit(0)")
    (place,) = steps("WORKDIR")
    for name in ("snooping", "network"):
        source = ATTACKS[name].source.replace("PACKAGE", repr(place))
        source = source.replace("SUBMISSIONS", repr("/course/submissions"))
        (folder / f"{name}.py").write_text(source)
    return {"ada.ipynb": "20", "eve.py": "0", "snooping.py": "0", "network.py": "0"}


@pytest.mark.exhaustive  # torch is fetched for it, and an image is gigabytes
@pytest.mark.skipif(sys.platform == "win32", reason="containers of Linux")
@pytest.mark.skipif(engine() is None, reason="no container engine answers here")
def test_it_is_built_and_grades(tmp_path):
    """MHA_GRADE_BUILD may hold more words for the build, such as PIP's."""
    name, tag = engine(), "mha-grade-test"
    more = shlex.split(os.environ.get("MHA_GRADE_BUILD", ""))
    subprocess.run([name, "build", "-t", tag, *more, str(ROOT)], check=True)
    deserved = hand_in(tmp_path / "submissions")
    line = re.search(r"(?m)^docker run (.*) mha-grade (.*)$", PAGE)
    options = line[1].replace('"$PWD"', str(tmp_path)).split()
    command = [name, "run", *options, tag, *line[2].split()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # The marks are root's: only root can have us read them, and pytest remove them.
    mount = ["--network", "none", "-v", f"{tmp_path}:/course", "-w", "/course"]
    opened = ["--entrypoint", "chmod", tag, "-R", "a+rwX", "a1", "a1.csv"]
    subprocess.run([name, "run", "--rm", *mount, *opened], check=True)
    rows = table(tmp_path / "a1.csv")
    assert {row: rows[row]["points"] for row in rows} == deserved
    for student in ("snooping", "network"):
        report = json.loads((tmp_path / f"a1/students/{student}.py.json").read_text())
        assert ATTACKS[student].words in json.dumps(report), report
