"""Derive what students get from the assignments with their solutions.

    python -m tools.assignments                 # write book/assignments/student/
    python -m tools.assignments --check         # only say what is out of step (exit 1)
    python -m tools.assignments a2              # one of them
    python -m tools.assignments a2 --otter out  # for a course that uses otter-grader

An assignment's source is a notebook in `book/assignments/`, executed, with solutions.
Its student version is that notebook without outputs, and without

* the lines from ``# BEGIN SOLUTION`` to ``# END SOLUTION``: a blank instead;
* the value of a line that ends in ``# SOLUTION``: ``name = ...`` instead;
* cells tagged `instructor`;
* the text of cells tagged `answer`: a place for one instead.

The marks are those of otter-grader. Between ``<!-- rubric -->`` and
``<!-- /rubric -->`` a source gets the table of its points, which its metadata
`mha_assignment` holds, and `tools.effort` writes minutes and difficulty into the
headings of its tasks. With ``--otter`` a folder gets the student version and beside it
``tests/``, a file of otter-grader's format for each question that `check` knows: tasks
of the author's own would show their solution there.
"""

import argparse
import pprint
import re
import sys
from dataclasses import asdict
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from mha_lib.check.tasks import TASKS
from mha_lib.grade.assignments import Assignment, Question, from_notebook
from tools import book, notebook
from tools.effort import with_effort

BEGIN, END = "# BEGIN SOLUTION", "# END SOLUTION"
BLANK = "...  # your code here"
ANSWER = "*Your answer:*"
VALUE = re.compile(r"(?P<name>\s*[\w.,\[\] ]+?) = .*# SOLUTION")
RUBRIC = re.compile(r"(<!-- rubric -->\n).*?(<!-- /rubric -->)", re.DOTALL)
# A link to a neighbour leads to its student version; any other goes one folder up.
LINK = re.compile(r"(\]\(<?)(?!\w+:|#|a\d+_\w+\.ipynb)(?=[\w.])")
KEPT_BACK = (
    "All points of a question are for an answer that `check` calls right. One that "
    "does all that the table asks of it, and is wrong elsewhere, loses the least part."
)
IN_WORDS = {  # what a rubric gives points for, or asks for besides, by its property
    "biases": "its linear layers have biases",
    "call_by_place": "it takes its arguments by place, in the order of the task",
    "gradients": "gradients reach all inputs",
    "inputs_unchanged": "its inputs stay as they were",
    "mask_as_given": "it takes the mask in the shape and the meaning of the task",
    "mask_broadcasts": "it takes a mask with an axis of size 1",
    "mask_for_all": "it takes one mask, (T, S), for all sequences",
    "mask_optional": "it runs without a mask",
    "no_dropout": "in training mode, too, it drops nothing",
    "projection_names": "its linear layers are called as the task says",
    "right_with_mask": "right with a mask",
    "right_without_mask": "right without a mask",
    "three_axes": "it takes q (B, T, D) and a mask (B, T, S)",
    "weights": "it returns the weights after the output",
    "weights_gradients": "gradients flow through the weights that it returns",
}
# A doctest that prints nothing where there are points, and else what `check` says.
OTTER = """\
>>> from mha_lib.check import check
>>> from mha_lib.grade.assignments import Question
>>> asked = Question(**{question})
>>> report = check({name}, asked.task, requires=asked.requires)
>>> if not asked.earned(report.diagnosis.properties)["{part}"]: print(report)
"""


def student(source: NotebookNode) -> NotebookNode:
    """What a student gets."""
    cells = [_cell(c) for c in source.cells if "instructor" not in notebook.tags(c)]
    return notebook.normalise(nbformat.v4.new_notebook(cells=cells))


def _cell(cell: NotebookNode) -> NotebookNode:
    if cell.cell_type == "code":
        new = nbformat.v4.new_code_cell(without_solution(cell.source))
        kept = [tag for tag in notebook.tags(cell) if tag in ("setup", "hide-input")]
        if kept:
            new.metadata["tags"] = kept
    elif "answer" in notebook.tags(cell):
        new = nbformat.v4.new_markdown_cell(ANSWER)
    else:
        new = nbformat.v4.new_markdown_cell(LINK.sub(r"\1../", cell.source))
    new.id = cell.id
    return new


def without_solution(source: str) -> str:
    """Code with a blank for each solution, at its indent.

    Raises:
        ValueError: a mark without its partner, or on a line that assigns nothing.
    """
    lines, inside = [], False
    for line in source.splitlines():
        mark = line.strip()
        if mark in (BEGIN, END):
            if inside == (mark == BEGIN):
                raise ValueError(f"{BEGIN} and {END} must alternate; got:\n{source}")
            inside = mark == BEGIN
            if inside:
                lines.append(line.replace(BEGIN, BLANK))
        elif not inside and line.endswith("# SOLUTION"):
            found = VALUE.fullmatch(line)
            if found is None:
                raise ValueError(f"a # SOLUTION must be `name = value`; got {line}")
            lines.append(f"{found['name']} = ...")
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"{BEGIN} must have an {END}; got:\n{source}")
    return "\n".join(lines)


def rubric(assignment: Assignment) -> str:
    """The points as a table: a row for each question, or for each of its properties."""
    rows = ["| Question | What is checked | Points |", "|:--|:--|--:|"]
    for question in assignment.questions:
        name, title = f"`{question.name}`", TASKS[question.task].title
        for part, points in _parts(question):
            words = "" if part == "right" else f": {_in_words(part)}"
            rows.append(f"| {name} | {title}{words} | {points:g} |")
    rows += [f"| all | | {assignment.points:g} |", ""]
    for question in assignment.questions:
        if question.requires:
            more = "; ".join(map(_in_words, question.requires))
            rows += [f"This holds of `{question.name}`, too: {more}.", ""]
    if any(question.kept_back for question in assignment.questions):
        rows += [KEPT_BACK, ""]
    return "\n".join(rows)


def _in_words(name: str) -> str:
    return IN_WORDS.get(name, name.replace("_", " "))


def _parts(question: Question) -> list[tuple[str, float]]:
    """What is worth points in a question, most first."""
    parts = question.properties or {"right": question.points}
    return sorted(parts.items(), key=lambda pair: -pair[1])


def with_rubric(source: NotebookNode, folder: Path | None = None) -> NotebookNode:
    """The source with the table of its points; nothing else changes."""
    table = rubric(from_notebook(source, folder))
    for cell in source.cells:
        if cell.cell_type == "markdown":
            cell.source = RUBRIC.sub(lambda f: f[1] + table + f[2], cell.source)
    return source


def otter_test(question: Question) -> str:
    """The test file of a question: a case for each thing that is worth points."""
    cases = [
        {
            "code": OTTER.format(
                name=question.name, question=asdict(question), part=part
            ),
            "hidden": False,
            "locked": False,
            "points": points,
        }
        for part, points in _parts(question)
    ]
    suite = {"cases": cases, "scored": True, "setup": "", "teardown": ""}
    test = {"name": question.name, "suites": [{**suite, "type": "doctest"}]}
    return f"OK_FORMAT = True\n\ntest = {pprint.pformat(test, width=88)}\n"


def otter(path: Path, folder: Path) -> None:
    """Write an assignment as otter-grader hands it out."""
    source = notebook.read(path)
    (folder / "tests").mkdir(parents=True, exist_ok=True)
    for question in from_notebook(source, path.parent).public().questions:
        place = folder / "tests" / f"{question.name}.py"
        place.write_text(otter_test(question), encoding="utf-8")
    given = student(source)
    texts = (
        f'import otter\n\ngrader = otter.Notebook("{path.name}")',
        "grader.check_all()",
    )
    first, last = map(nbformat.v4.new_code_cell, texts)
    first.id, last.id = "otter-begin", "otter-end"
    given.cells = [*given.cells[:2], first, *given.cells[2:], last]
    notebook.write(given, folder / path.name)


def wanted(path: Path) -> dict[Path, str]:
    """The text that a source and its student version should have."""
    source = with_effort(with_rubric(notebook.read(path), path.parent))
    target = path.parent / "student" / path.name
    pair = {path: notebook.normalise(source), target: student(source)}
    return {place: nbformat.writes(content) + "\n" for place, content in pair.items()}


def outdated(paths: list[Path]) -> dict[Path, str]:
    """The files that are not as they should be, with the text they should have."""
    texts = {place: text for path in paths for place, text in wanted(path).items()}
    return {
        place: text
        for place, text in texts.items()
        if not place.exists() or place.read_text(encoding="utf-8") != text
    }


def orphans() -> list[Path]:
    """Student versions whose source is gone."""
    names = {path.name for path in book.sources()}
    return [p for p in book.STUDENT.glob("*.ipynb") if p.name not in names]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.assignments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("ids", nargs="*", help="such as a2; none means all")
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--otter", type=Path, help="a folder for otter-grader's files")
    options = parser.parse_args(arguments)
    paths = [
        path
        for path in book.sources()
        if not options.ids or path.stem.partition("_")[0] in options.ids
    ]
    if not paths:
        parser.error(f"no assignment {' '.join(options.ids)} in book/assignments")
    try:
        if options.otter:
            for path in paths:
                otter(path, options.otter)
            return 0
        found = outdated(paths)
    except (KeyError, ValueError) as error:
        print(f"tools.assignments: {error}", file=sys.stderr)
        return 1
    for path, text in found.items():
        said = "out of step" if options.check else "written"
        print(f"{path.relative_to(book.ROOT)}: {said}")
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    for path in orphans():
        print(f"{path.relative_to(book.ROOT)}: its source is gone; remove it")
    return int(bool(options.check and found or orphans()))


if __name__ == "__main__":
    sys.exit(main())
