"""A release: one version; a wheel of the library alone; a clone that stays clean."""

import re
import subprocess
import sys
import zipfile

import pytest

import mha_lib
from tools import book, tree

STALE = "mha_lib/deleted_long_ago.py"  # what an earlier build left
GIT = ["git", "-c", "user.name=book", "-c", "user.email=book@localhost"]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A repository of this tree as it is now, in which a wheel was built."""
    folder = tree.copy(tmp_path_factory.mktemp("clone"))
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "now"]):
        subprocess.run([*GIT, *command], cwd=folder, check=True)
    stale = folder / "build" / "lib" / STALE
    stale.parent.mkdir(parents=True)
    stale.write_text("raise RuntimeError('I am not here')\n")
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index"]
    command += ["--no-build-isolation", "--wheel-dir=dist", "."]
    subprocess.run(command, cwd=folder, check=True)
    return folder


def test_a_wheel_holds_the_library_and_nothing_else(clone):
    (wheel,) = (clone / "dist").glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    ours = {name for name in names if ".dist-info/" not in name}
    assert ours == {name for name in tree.files() if name.startswith("mha_lib/")}
    assert {"mha_lib/__init__.py", "mha_lib/widgets/common.js"} < ours
    assert "mha_lib/widgets/common.css" in ours and STALE not in ours
    assert any(name.endswith("licenses/LICENSE") for name in names - ours)


def test_building_it_leaves_the_clone_clean(clone):
    command = [*GIT, "status", "--porcelain"]
    status = subprocess.run(command, cwd=clone, capture_output=True, text=True)
    assert status.stdout == ""


def test_one_version_is_named_everywhere():
    names = ["pyproject.toml", "CITATION.cff", "CHANGELOG.md", "mha_lib/__init__.py"]
    lines = [
        r'version = "(.+)"',
        "version: (.+)",
        r"## ([\d.]+)",
        '__version__ = "(.+)"',
    ]
    texts = [(book.ROOT / name).read_text(encoding="utf-8") for name in names]
    found = {
        re.search(rf"^{line}", text, re.MULTILINE)[1]
        for line, text in zip(lines, texts)
    }
    assert found == {mha_lib.__version__}
