"""A folder of submissions."""

import shutil

import pytest

from mha_lib.grade import run
from mha_lib.grade.sandbox import Sandbox
from tests.grade.course import LIMITS, SUBMISSIONS, TOP


@pytest.fixture(scope="session", autouse=True)
def nursery(forked_sandboxes):
    """Every test here that wants a sandbox gets a fork."""


@pytest.fixture(scope="session")
def top(tmp_path_factory):
    """One folder for all tests: a process stays warm as long as it hides the same."""
    yield tmp_path_factory.mktemp(TOP)
    run.close()


@pytest.fixture
def place(top):
    """The folder, empty again after each test."""
    yield top
    for part in top.iterdir():
        shutil.rmtree(part) if part.is_dir() else part.unlink()


@pytest.fixture(scope="session")
def warm():
    """One warm process for all judges that need no folder to be hidden."""
    with Sandbox(**LIMITS) as sandbox:
        yield sandbox


@pytest.fixture
def folder(place):
    for name, text in SUBMISSIONS.items():
        path = place / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (place / "in" / ".ipynb_checkpoints").mkdir()
    (place / "in" / ".ipynb_checkpoints" / "ada.py").write_text("1 / 0")
    return place / "in"
