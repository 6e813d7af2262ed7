"""What is written for otter-grader: its format, its doctests, our words."""

import contextlib
import doctest
import io
import runpy

import nbformat
import pytest
import torch

from tests.grade.attacks.table import MERGE, RIGHT
from tools import assignments, book, notebook

SPEC = {
    "id": "a9",
    "title": "Heads",
    "questions": [
        {"name": "merge_heads", "task": "merge_heads", "points": 2},
        {
            "name": "attention",
            "task": "attention",
            "properties": {"right_with_mask": 3, "inputs_unchanged": 0.5},
        },
    ],
}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """The folder that the command writes for one assignment."""
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "STUDENT", tmp_path / "student")
    cells = [
        nbformat.v4.new_markdown_cell("# Assignment 9"),
        nbformat.v4.new_code_cell("import torch", metadata={"tags": ["setup"]}),
        nbformat.v4.new_code_cell("x = 42  # SOLUTION"),
    ]
    source = nbformat.v4.new_notebook(cells=cells)
    source.metadata["mha_assignment"] = SPEC
    notebook.write(source, tmp_path / "a9_heads.ipynb")
    assert assignments.main(["a9", "--otter", str(tmp_path / "out")]) == 0
    return tmp_path / "out"


def run(folder, name: str, code: str) -> list[tuple[float, str]]:
    """The points of each case, and what a student is told where it fails."""
    test = runpy.run_path(str(folder / "tests" / f"{name}.py"))
    assert test["OK_FORMAT"] is True and test["test"]["name"] == name
    ((suite,), names) = test["test"]["suites"], {"torch": torch}
    assert (suite["type"], suite["scored"]) == ("doctest", True)
    exec(code, names)
    told = []
    for case in suite["cases"]:
        parsed = doctest.DocTestParser().get_doctest(
            case["code"], dict(names), name, None, 0
        )
        with contextlib.redirect_stdout(io.StringIO()) as out:
            failed, tried = doctest.DocTestRunner(verbose=False).run(parsed)
        assert tried == 5
        told.append((0.0 if failed else case["points"], out.getvalue()))
    return told


def test_what_is_right_gets_all_points_and_says_nothing(written):
    assert run(written, "merge_heads", MERGE) == [(2, "")]
    assert run(written, "attention", RIGHT) == [(3, ""), (0.5, "")]


def test_what_is_wrong_is_told_in_our_words(written):
    wrong = RIGHT.replace("~mask", "mask")
    (masked, words), (unchanged, nothing) = run(written, "attention", wrong)
    assert (masked, unchanged, nothing) == (0.0, 0.5, "")
    assert "[mask-inverted]" in words and "Read: chapter" in words


def test_a_blank_gets_nothing_though_it_changes_no_input(written):
    blank = "def attention(q, k, v, mask=None): ..."
    told = run(written, "attention", blank)
    assert [points for points, _ in told] == [0.0, 0.0]
    assert all("is a `return` missing?" in words for _, words in told)


def test_the_notebook_is_the_student_version_with_otter_around_it(written):
    given = notebook.read(written / "a9_heads.ipynb")
    assert [cell.source for cell in given.cells] == [
        "# Assignment 9",
        "import torch",
        'import otter\n\ngrader = otter.Notebook("a9_heads.ipynb")',
        "x = ...",
        "grader.check_all()",
    ]
    nbformat.validate(given)
    assert "mha_assignment" not in given.metadata
    assert len(list((written / "tests").iterdir())) == 2
