"""What a run has finished is kept, whatever happens to it."""

import os
import sys

import pytest

from mha_lib.grade.journal import Journal, write


def test_journal_of_another_assignment_is_refused(tmp_path):
    Journal(tmp_path / "j", {"assignment": "a"}).close()
    Journal(tmp_path / "j", {"assignment": "a"}).close()
    with pytest.raises(ValueError, match="another assignment, or to another version"):
        Journal(tmp_path / "j", {"assignment": "b"})


def test_two_runs_cannot_write_one_journal(tmp_path):
    pytest.importorskip("fcntl")
    journal = Journal(tmp_path / "j", {"assignment": "a"})
    journal.add({"submission": "ada", "digest": "1"})
    with pytest.raises(BlockingIOError, match="another run is writing .*/j: wait"):
        Journal(tmp_path / "j", {"assignment": "a"}, new=True)
    assert [row["submission"] for row in journal.rows()] == ["ada"]
    journal.close()


def test_without_locks_it_works_too(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    journals = [Journal(tmp_path / "j", {"assignment": "a"}) for _ in range(2)]
    journals[1].add({"submission": "ada", "digest": "1"})
    assert [row["submission"] for row in journals[1].rows()] == ["ada"]
    for journal in journals:
        journal.close()


def test_the_last_row_of_a_name_counts(tmp_path):
    journal = Journal(tmp_path / "j", {"assignment": "a"})
    for name, digest in (("b", "1"), ("a", "2"), ("b", "3")):
        journal.add({"submission": name, "digest": digest})
    journal.close()
    journal = Journal(tmp_path / "j", {"assignment": "a"})
    assert [row["digest"] for row in journal.rows()] == ["2", "3"]
    assert [journal.digest(name) for name in "abc"] == ["2", "3", None]
    journal.close()


def test_write_replaces_a_file_as_a_whole(tmp_path):
    path = tmp_path / "new" / "page.html"
    write(path, "first")
    with pytest.raises(TypeError):
        write(path, None)
    assert path.read_text() == "first"
    assert os.listdir(path.parent) == ["page.html"]
