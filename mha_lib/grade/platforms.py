"""The grader elsewhere: Gradescope's autograder and a workflow for a course repository.

Formats: Gradescope's documentation of autograders ("Autograder specifications") and
GitHub's of workflows.
"""

import json
import zipfile
from html import escape
from pathlib import Path

from mha_lib.check import repository
from mha_lib.grade import report
from mha_lib.grade.assignments import Assignment
from mha_lib.grade.handed_in import Member, submissions
from mha_lib.grade.journal import write
from mha_lib.grade.submission import SUFFIXES

__all__ = ["gradescope", "results", "workflow"]

PACKAGE = Path(__file__).resolve().parents[1]
UNKNOWN = "https://github.com/YOUR_NAME/mha-book"  # to be replaced by hand
# A container of 768 MB and half a processor: what is left beside torch, twice.
SMALL = "--memory 192 --seconds 60 --wall 240 --cpu 120"

SETUP = """\
#!/usr/bin/env bash
set -e
apt-get update
apt-get install -y python3-venv
python3 -m venv /autograder/venv
/autograder/venv/bin/pip install --no-cache-dir {pip} torch numpy
chmod 700 /autograder/source /autograder/results
"""
RUN = """\
#!/usr/bin/env bash
cd /autograder/source
/autograder/venv/bin/python -m mha_lib.grade results /autograder/submission \\
    -a assignment.json -o /autograder/results/results.json {limits}
"""
WORKFLOW = """\
# Grades the notebook in this repository at every push: {title}.
# Who may push here may also change this file: take it as feedback, and collect the
# notebooks and grade them on a machine of yours for marks that count.
name: grade
on: [push]
permissions:
  contents: read
jobs:
  grade:
    runs-on: ubuntu-latest
    timeout-minutes: 15
    steps:
      - uses: actions/checkout@v4
        with:
          persist-credentials: false
      - uses: actions/setup-python@v5
        with:
          python-version: "3.12"
      - run: pip install "mha_lib[grade] @ git+{repository}"
      - run: mha-grade *.ipynb -a .github/assignment.json -o grades.csv
      - run: cat grades.csv >> "$GITHUB_STEP_SUMMARY"
      - uses: actions/upload-artifact@v4
        with:
          name: report
          path: grades/students
"""


def gradescope(assignment: Assignment, output: Path, pip: str = "") -> None:
    """Write the zip that Gradescope asks for.

    Args:
        assignment: what is asked.
        output: the zip file.
        pip: options for pip, such as the index that has torch without CUDA.
    """
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(PACKAGE.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                archive.write(path, path.relative_to(PACKAGE.parent).as_posix())
        archive.writestr("assignment.json", json.dumps(assignment.to_dict(), indent=1))
        for name, text in {
            "setup.sh": SETUP.format(pip=pip),
            "run_autograder": RUN.format(limits=SMALL),
        }.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = 0o755 << 16
            archive.writestr(info, text)


def results(result: dict) -> dict:
    """A result as Gradescope's results.json; what holds for all is said once."""
    said = [report.question(question) for question in result["questions"]]
    problem = escape(result["problem"])
    if problem and all(problem in output for output in said):  # nothing was graded
        said = ["<p>Not graded: the reason stands on top.</p>"] * len(said)
    tests = [
        {
            "name": f"{question['name']}: {question['title']}",
            "score": question["points"],
            "max_score": question["out_of"],
            "status": "passed"
            if question["points"] == question["out_of"]
            else "failed",
            "output": output,
            "output_format": "html",
        }
        for question, output in zip(result["questions"], said)
    ]
    notes = "".join(f"<li>{escape(note)}</li>" for note in result["notes"])
    return {
        "score": result["points"],
        "output": f"<p>{problem}</p><ul>{notes}</ul>",
        "output_format": "html",
        "tests": tests,
    }


def only(folder: Path) -> Path | Member:
    """The one notebook, or the one .py file, that was handed in."""
    files = submissions([folder])
    for suffix in SUFFIXES:
        found = [name for name in files if name.lower().endswith(suffix)]
        if len(found) == 1:
            return files[found[0]]
        if found:
            names = ", ".join(found)
            raise ValueError(f"exactly one notebook must be handed in; got {names}")
    raise ValueError("a notebook (.ipynb) or a .py file must be handed in; got neither")


def workflow(assignment: Assignment, folder: Path) -> None:
    """Write a workflow, and the assignment beside it, into a course repository."""
    source = repository() or UNKNOWN
    text = WORKFLOW.format(title=assignment.title, repository=source)
    write(folder / ".github" / "workflows" / "grade.yml", text)
    data = json.dumps(assignment.public().to_dict(), indent=1)  # students read it
    write(folder / ".github" / "assignment.json", data)
