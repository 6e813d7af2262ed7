"""A task, an assignment and a class in a folder outside: CONTRIBUTING, step by step."""

import csv
import json
import os
import re
import shlex
import subprocess
import sys

import nbformat
import pytest

from mha_lib.check import registered
from tests.grade.course import linux
from tools import assignments, book, notebook

PAGE = (book.ROOT / "CONTRIBUTING.md").read_text("utf-8")
SECTION = PAGE.partition("## Add a task outside the package\n")[2].partition("\n## ")[0]
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", SECTION, re.DOTALL | re.MULTILINE)
FILE, METADATA, CELL, COMMAND = (text for _, text in BLOCKS)
RIGHT = """
def rotate(x):
    T, D = x.shape[-2:]
    angles = torch.outer(torch.arange(T), 10000 ** (-torch.arange(0, D, 2) / D))
    both = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    turned = both * torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(turned).flatten(-2)
"""
IN_HALVES = """
def rotate(x):
    T, D = x.shape[-2:]
    angles = torch.outer(torch.arange(T), 10000 ** (-torch.arange(0, D, 2) / D))
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    a, b = x[..., : D // 2], x[..., D // 2 :]
    return x * cos + torch.cat([-b, a], dim=-1) * sin
"""
BASE = RIGHT.replace("10000", "1000")  # a mistake that the task does not know


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Whose notebook defines a `rotate` of its own before it imports the task."""
    monkeypatch.setenv("PYTHONPATH", str(book.ROOT))
    (tmp_path / "my_tasks.py").write_text(FILE)
    imports = "import torch\nfrom mha_lib.check import check"
    source = nbformat.v4.new_notebook(
        cells=list(map(nbformat.v4.new_code_cell, (imports, RIGHT, CELL)))
    )
    source.cells[-1].metadata["tags"] = ["instructor"]
    source.metadata.update(json.loads(METADATA))
    nbformat.write(source, tmp_path / "rotary.ipynb")
    (tmp_path / "handed_in").mkdir()
    for name, code in {"ada": RIGHT, "bob": IN_HALVES, "eve": BASE}.items():
        (tmp_path / "handed_in" / f"{name}.py").write_text(f"import torch\n{code}")
    with registered():
        yield tmp_path


def test_the_notebook_imports_the_task_and_checks(folder):
    done = notebook.execute(folder / "rotary.ipynb")
    (said,) = done.cells[-1].outputs
    assert said.data["text/plain"] == "Right: rotary."


def test_what_students_get_is_derived_without_the_task(folder):
    path = folder / "rotary.ipynb"
    texts = assignments.wanted(path)
    assert "my_tasks" in texts[path]
    assert "my_tasks" not in texts[folder / "student" / path.name]


@linux
def test_a_class_is_graded_and_the_mistake_has_its_name(folder):
    program, *arguments = shlex.split(COMMAND)
    assert program == "mha-grade"
    alone = ["--workers", "1"]  # three submissions are not worth two more processes
    done = subprocess.run(
        [sys.executable, "-m", "mha_lib.grade", *arguments, "--wall", "300", *alone],
        cwd=folder,
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    with (folder / "marks.csv").open() as file:
        rows = {row["submission"]: row for row in csv.DictReader(file)}
    marks = {name: (row["points"], row["mistakes"]) for name, row in rows.items()}
    assert marks == {
        "ada.py": ("3", ""),
        "bob.py": ("0", "rotate: rotary-in-halves"),
        "eve.py": ("0", ""),
    }
    bob, eve = (
        (folder / "marks" / "students" / f"{name}.html").read_text()
        for name in ("bob.py", "eve.py")
    )
    assert "One mistake in your rotary." in bob
    assert "Feature i is turned with feature i + D/2, as some" in bob
    assert "in a way that has no name here" in eve
    assert "It is right in 1 of 2 cases (one token), and wrong in drawn." in eve
