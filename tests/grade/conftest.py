"""A folder of submissions."""

import shutil

import pytest

from mha_lib.grade import run
from tests.grade.course import SUBMISSIONS


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield tmp_path_factory.mktemp("run")
    run.close()


@pytest.fixture
def folder(place):
    """Always the same one: a judge stays warm as long as its settings are the same."""
    for name, text in SUBMISSIONS.items():
        path = place / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (place / "in" / ".ipynb_checkpoints").mkdir()
    (place / "in" / ".ipynb_checkpoints" / "ada.py").write_text("1 / 0")
    yield place / "in"
    for part in place.iterdir():
        shutil.rmtree(part)
