"""A file is read once: what is graded is what is noted, whatever changes meanwhile."""

import hashlib
import json
import os
from pathlib import Path

from mha_lib.grade import submission
from mha_lib.grade.submission import Submission, read
from tests.grade.attacks.table import MERGE
from tests.grade.course import SPLIT, linux, new_run, table


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@linux
def test_the_digest_is_of_the_bytes_that_were_graded(place, monkeypatch):
    """Whoever opens the file leaves another content behind."""
    path = place / "in" / "ada.py"
    path.parent.mkdir(parents=True)
    path.write_text(MERGE)
    grading = new_run(path.parent)
    opened = []

    def open_and_change(self, *mode, **more):
        file = original(self, *mode, **more)
        if self == path and mode == ("rb",):
            opened.append(path)
            (place / "other").write_text(MERGE + SPLIT * len(opened))
            os.replace(place / "other", path)  # who has it open reads the old one
        return file

    original = Path.open
    monkeypatch.setattr(Path, "open", open_and_change)
    for times, (graded, points) in enumerate([(MERGE, "2"), (MERGE + SPLIT, "5")], 1):
        grading()
        assert len(opened) == times
        *_, last = (grading.place / "journal.jsonl").read_text().splitlines()
        assert json.loads(last)["digest"] == sha(graded)
        assert table(grading.output)["ada.py"]["points"] == points
    assert path.read_text() == MERGE + SPLIT * 2


def test_what_cannot_be_graded_is_told_apart_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(submission, "LARGEST", 3)
    path = tmp_path / "a.py"
    path.write_text("123")
    assert read(path) == Submission(b"123", "py", sha("123"))
    path.write_text("1234")
    large = read(path)
    assert "clear the outputs" in large.problem and large.content == b""
    path.write_text("12345")
    assert read(path).digest != large.digest
    essay = tmp_path / "essay.pdf"
    essay.touch()
    assert read(essay).problem.startswith("a notebook (.ipynb) or a .py file")
    assert read(tmp_path).problem == "it is no file, but a link or a folder"
    assert read(tmp_path / "gone.py").problem.startswith("it cannot be read: No such")


def test_what_the_system_does_not_open_has_a_reason(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "a.IPYNB"
    path.touch()
    monkeypatch.setattr(Path, "open", refuse)
    assert read(path).problem == "it cannot be read: Permission denied"
