"""Chapters and assignments are executed, complete, tidy: see CONTRIBUTING.md."""

import ast
import copy
import re
from collections.abc import Iterator

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from mha_lib.grade.assignments import parse
from tools import book, notebook
from tools.assignments import rubric

TAGS = {"setup", "hide-input", "solution", "raises-exception", "nbval-ignore-output"}
TAGS_OF_ASSIGNMENTS = TAGS - {"solution"} | {"answer", "instructor"}
OPENING = ["You will be able to", "Read first", r"\d+ minutes"]
OPENING_OF_ASSIGNMENTS = ["You will be able to", "Read first", "hours", "Hand in"]
HEADINGS = ["What goes wrong", "Exercises", "Summary", "References|Sources"]
MOST_CELLS, MOST_CODE_CELLS, LEAST_EXERCISES, LEAST_ALT = 80, 40, 4, 20
MOST_LINES, MOST_SETUP_LINES = 20, 40  # the set-up is folded on the page
MOST_SOLUTION_LINES = 32  # a student sees a blank instead
HINTS = [f"<details><summary>Hint {k}: " for k in (1, 2, 3)]
MACHINE_PATH = re.compile(
    r"/(home|root|Users|tmp|work)/|site-packages|\b[A-Z]:\\\w|\bat 0x[0-9a-f]{6}"
)
EXERCISE = re.compile(r"\{exercise-start\} ?(.*)\n:label: (.*)\n(:nonumber:)?")
SOLUTION_EDGE = re.compile(r"\{solution-start\} (\S+)|\{solution-(end)\}")


def read(request):
    return notebook.read(request.param)


def fixture(name: str, paths: list):
    return pytest.fixture(params=paths, ids=lambda path: path.stem, name=name)(read)


chapter = fixture("chapter", book.chapters())
assignment = fixture("assignment", book.sources())
page = fixture("page", [*book.chapters(), *book.sources()])


def code_cells(page) -> list:
    return [cell for cell in page.cells if cell.cell_type == "code"]


def prose(page) -> str:
    return "\n".join(c.source for c in page.cells if c.cell_type == "markdown")


def outputs(page, kind: str) -> list:
    every = (output for cell in code_cells(page) for output in cell.outputs)
    return [output for output in every if output.output_type == kind]


def test_table_of_contents_names_every_notebook():
    on_disk = set((book.ROOT / "book").glob("*.ipynb"))
    assert on_disk
    assert on_disk == set(book.chapters())
    handed_out = {book.STUDENT / path.name for path in book.sources()}
    assert handed_out == set(book.assignments())


# --- both kinds -----------------------------------------------------------------------


def test_second_cell_is_the_only_setup(page):
    is_setup = ["setup" in notebook.tags(cell) for cell in page.cells]
    assert is_setup[1] and sum(is_setup) == 1
    assert 'find_spec("mha_lib")' in page.cells[1].source


def test_executed_once_from_top_to_bottom(page):
    # Without counts, strict nbval passes a notebook and compares nothing.
    counts = [cell.execution_count for cell in code_cells(page)]
    asked = list(range(1, len(counts) + 1))
    assert counts == asked, "run it first: python -m tools.notebook run FILE"


def test_no_empty_cell(page):
    assert all(cell.source.strip() for cell in page.cells)


def test_nothing_on_stderr(page):
    assert [o.text for o in outputs(page, "stream") if o.name == "stderr"] == []


def test_errors_where_announced_and_nowhere_else(page):
    for cell in code_cells(page):
        failed = any(output.output_type == "error" for output in cell.outputs)
        assert failed == ("raises-exception" in notebook.tags(cell)), cell.source


def test_ignored_outputs_have_a_reason(page):
    for cell in code_cells(page):
        if "nbval-ignore-output" in notebook.tags(cell):
            assert len(cell.metadata.get("reason", "")) >= 10, cell.source


def test_size(page):
    assert len(page.cells) <= MOST_CELLS
    assert len(code_cells(page)) <= MOST_CODE_CELLS
    for cell in code_cells(page):
        most = MOST_SETUP_LINES if "setup" in notebook.tags(cell) else MOST_LINES
        if "# BEGIN SOLUTION" in cell.source:
            most = MOST_SOLUTION_LINES
        assert len(cell.source.splitlines()) <= most, cell.source


def test_every_picture_has_an_alternative_text(page):
    for cell in code_cells(page):
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) >= LEAST_ALT, cell.source


def test_written_by_our_tool(page):
    # No widget state, times, frames of tracebacks, foreign metadata; unique ids.
    assert notebook.normalise(copy.deepcopy(page)) == page


def test_no_path_of_a_machine(page):
    assert MACHINE_PATH.search(str(page.cells)) is None


def test_library_names_are_not_redefined(page):
    statements = [s for cell in code_cells(page) for s in statements_of(cell)]
    ours = {n for s in statements if is_ours(s) for n in bound_by(s)}
    others = [n for s in statements if not is_ours(s) for n in bound_by(s)]
    assert ours.intersection(others) == set()


def statements_of(cell) -> list[ast.stmt]:
    return ast.parse(TransformerManager().transform_cell(cell.source)).body


def is_ours(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.ImportFrom)
        and statement.module.split(".")[0] == "mha_lib"
    )


def bound_by(statement: ast.stmt) -> Iterator[str]:
    """The names that a top-level statement binds in the notebook."""
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield alias.asname or alias.name.split(".")[0]
    else:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


# --- chapters -----------------------------------------------------------------------


def test_first_cell_opens_the_chapter(chapter):
    first = chapter.cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    for words in OPENING:
        assert re.search(words, first.source), f"the first cell lacks: {words}"


def test_required_headings(chapter):
    for words in HEADINGS:
        heading = re.compile(rf"^##+ .*({words})", re.MULTILINE)
        assert heading.search(prose(chapter)), f"no heading: {words}"


def test_tags_from_the_closed_list(chapter):
    assert {tag for cell in chapter.cells for tag in notebook.tags(cell)} <= TAGS


def test_exercises_have_executed_solutions(chapter):
    labels = [label for _, label, _ in EXERCISE.findall(prose(chapter))]
    assert len(labels) >= LEAST_EXERCISES
    assert sorted(set(solved(chapter))) == sorted(labels)


def test_exercises_are_numbered_by_chapter(chapter):
    title = re.match(r"# (\d+) · ", chapter.cells[0].source)
    assert title, "the first line is not: # NUMBER · TITLE"
    number = title[1]
    found = EXERCISE.findall(prose(chapter))
    assert found == [
        (f"{number}.{k}", f"ex-{number}-{k}", ":nonumber:")
        for k in range(1, len(found) + 1)
    ]


def solved(chapter) -> Iterator[str]:
    """Yield the label of the solution around each code cell tagged as one."""
    label = None
    for cell in chapter.cells:
        if cell.cell_type == "markdown":
            for start, _ in SOLUTION_EDGE.findall(cell.source):
                label = start or None
        else:
            in_solution = label is not None
            assert in_solution == ("solution" in notebook.tags(cell)), cell.source
            if in_solution:
                yield label


# --- assignments, with their solutions ------------------------------------------------


def test_first_cell_opens_the_assignment(assignment):
    first = assignment.cells[0]
    assert first.cell_type == "markdown"
    assert re.match(r"# Assignment \d · \w", first.source)
    for words in OPENING_OF_ASSIGNMENTS:
        assert words in first.source, f"the first cell lacks: {words}"


def test_assignment_tells_itself_apart_by_number_and_title(assignment):
    spec = parse(assignment.metadata[notebook.ASSIGNMENT])
    title = f"# Assignment {spec.id.removeprefix('a')} · {spec.title}"
    assert assignment.cells[0].source.splitlines()[0] == title


def test_tags_of_assignments_from_the_closed_list(assignment):
    tags = {tag for cell in assignment.cells for tag in notebook.tags(cell)}
    assert tags <= TAGS_OF_ASSIGNMENTS


def test_rubric_and_hand_in(assignment):
    spec = parse(assignment.metadata[notebook.ASSIGNMENT])
    assert f"<!-- rubric -->\n{rubric(spec)}<!-- /rubric -->" in prose(assignment)
    for heading in ("## Rubric", "## Hand in"):
        assert f"\n{heading}\n" in f"\n{prose(assignment)}\n", f"no heading: {heading}"


def test_every_question_has_an_example_and_a_check(assignment):
    spec = parse(assignment.metadata[notebook.ASSIGNMENT])
    cells = [
        cell.source
        for cell in code_cells(assignment)
        if "instructor" not in notebook.tags(cell)
    ]
    shown = "\n".join(cells)
    for question in spec.questions:
        assert re.search(rf"^(def|class) {question.name}\b", shown, re.M)
        asked = f'check({question.name}, task="{question.task}"'
        # in a cell of its own, so that it speaks while the example still fails
        assert any(c.startswith(asked) for c in cells), f"no cell begins: {asked})"
        examples = [c for c in cells if "assert" in c and f"{question.name}(" in c]
        assert examples, f"no example by hand for {question.name}"


def test_every_check_of_a_solution_says_right(assignment):
    spec = parse(assignment.metadata[notebook.ASSIGNMENT])
    names = "|".join(question.name for question in spec.questions)
    for cell in code_cells(assignment):
        if re.search(rf"^check\(({names}),", cell.source, re.MULTILINE):
            (result,) = (o for o in cell.outputs if o.output_type == "execute_result")
            assert result.data["text/plain"].startswith("Right: "), cell.source


def test_three_hints_to_a_task(assignment):
    counts = [prose(assignment).count(hint) for hint in HINTS]
    questions = len(parse(assignment.metadata[notebook.ASSIGNMENT]).questions)
    assert counts[0] >= questions and len(set(counts)) == 1
    assert prose(assignment).count("<details>") == prose(assignment).count("</details>")


def test_an_answer_in_words_is_followed_by_what_to_look_for(assignment):
    for cell, after in zip(assignment.cells, assignment.cells[1:]):
        if "answer" in notebook.tags(cell):
            assert "instructor" in notebook.tags(after), cell.source
