"""Chapters and assignments are executed, complete, tidy: see CONTRIBUTING.md."""

import ast
import copy
import re
from collections.abc import Iterator
from functools import cache

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from mha_lib.check import BUILT_IN
from mha_lib.grade.assignments import from_notebook
from tools import assignments, book, notebook, road
from tools.assignments import rubric
from tools.effort import efforts, hours

TAGS = {"setup", "hide-input", "solution", "raises-exception", "nbval-ignore-output"}
TAGS_OF_ASSIGNMENTS = TAGS - {"solution"} | {"answer", "instructor"}
OPENING = ["You will be able to", "Read first", r"\*\*Time:\*\* \d+ minutes"]
OPENING_OF_DEEPER = ["What this page proves", *OPENING[1:]]
OPENING_OF_ASSIGNMENTS = ["You will be able to", "Read first", "hours", "Hand in"]
HEADINGS = ["What goes wrong", "Exercises", "Summary", "References|Sources"]
MOST_CELLS, MOST_CODE_CELLS, LEAST_EXERCISES, LEAST_ALT = 80, 40, 4, 20
MOST_LINES, MOST_SETUP_LINES = 20, 40  # the set-up is folded on the page
MOST_SOLUTION_LINES = 32  # a student sees a blank instead
MOST_INSTRUCTOR_LINES = 40  # a student does not get the cell
KINDS = ("a nudge", "a question", "the idea", "nearly code")
HINTS = [f"<details><summary>Hint {k}: {kind}<" for k, kind in enumerate(KINDS, 1)]
MACHINE_PATH = re.compile(
    r"/(home|root|Users|tmp|work)/|site-packages|\b[A-Z]:\\\w|\bat 0x[0-9a-f]{6}"
)
EXERCISE = re.compile(r"\{exercise-start\} ?(.*)\n:label: (.*)\n(:nonumber:)?")
ASKED = re.compile(r"\{exercise-start\} ?(.*)\n(?::.*\n)+```\n+(.*)")
RATED = re.compile(r"\*\*[A-Z][a-z]+(?: [a-z]+)*, (?:easy|medium|hard)\.\*\* ")
TABLE, BAR = re.compile(r"(?:^\|.*\n?)+", re.M), re.compile(r"(?<!\\)\|")
SOLUTION_EDGE = re.compile(r"\{solution-start\} (\S+)|\{solution-(end)\}")


@cache
def parsed(path):
    """A page, which no test changes: to parse each for each test takes a minute."""
    return notebook.read(path)


def read(request):
    return parsed(request.param)


def fixture(name: str, paths: list):
    return pytest.fixture(params=paths, ids=lambda path: path.stem, name=name)(read)


chapter = fixture("chapter", book.chapters())
assignment = fixture("assignment", book.sources())
deeper = fixture("deeper", book.deeper())
lesson = fixture("lesson", book.lessons())
page = fixture("page", [*book.lessons(), *book.sources()])


@pytest.fixture(scope="module")
def specs():
    """The assignments as data, by title: their own tasks are run once, not for each."""
    return {
        page.cells[0].source: from_notebook(page)
        for page in map(parsed, book.sources())
    }


@pytest.fixture
def spec(assignment, specs):
    return specs[assignment.cells[0].source]


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
    assert set(book.DEEPER.glob("*.ipynb")) == set(book.deeper())
    assert set(book.PLAY.glob("*.ipynb")) == set(book.play())
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
    shown = [cell for cell in page.cells if "instructor" not in notebook.tags(cell)]
    assert len(shown) <= MOST_CELLS
    code = [cell for cell in shown if cell.cell_type == "code"]
    assert len(code) <= MOST_CODE_CELLS
    for cell in code_cells(page):
        most = MOST_SETUP_LINES if "setup" in notebook.tags(cell) else MOST_LINES
        if not road.FOLDED & set(notebook.tags(cell)) and road.is_class(cell.source):
            most = road.MOST_OF_A_CLASS
        if "# BEGIN SOLUTION" in cell.source:
            most = MOST_SOLUTION_LINES
        if "instructor" in notebook.tags(cell):
            most = MOST_INSTRUCTOR_LINES
        assert len(cell.source.splitlines()) <= most, cell.source


def test_every_picture_has_an_alternative_text(page):
    for cell in code_cells(page):
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) >= LEAST_ALT, cell.source


def test_each_row_of_a_table_has_the_cells_of_its_head(page):
    """A bar in a name would end its cell, and what follows would be lost."""
    for cell in page.cells:
        shown = [
            x.get("data", {}).get("text/markdown", "") for x in cell.get("outputs", [])
        ]
        for text in [cell.source] * (cell.cell_type == "markdown") + shown:
            for table in TABLE.findall(text):
                rows = [len(BAR.findall(row)) for row in table.splitlines()]
                assert {*rows} == {rows[0]}, table.splitlines()[rows.index(max(rows))]


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


def test_tags_from_the_closed_list(lesson):
    assert {tag for cell in lesson.cells for tag in notebook.tags(cell)} <= TAGS


def test_exercises_have_executed_solutions(lesson):
    labels = [label for _, label, _ in EXERCISE.findall(prose(lesson))]
    assert sorted(set(solved(lesson))) == sorted(labels)


def test_enough_exercises(chapter):
    assert len(EXERCISE.findall(prose(chapter))) >= LEAST_EXERCISES


def test_exercises_say_their_kind_and_how_hard_they_are(chapter):
    asked = ASKED.findall(prose(chapter))
    assert len(asked) == len(EXERCISE.findall(prose(chapter)))
    assert [number for number, text in asked if not RATED.match(text)] == []


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_exercises_are_numbered_by_chapter(path):
    pages = [notebook.read(path), *map(notebook.read, beneath(path))]
    title = re.match(r"# (\d+) · ", pages[0].cells[0].source)
    assert title, "the first line is not: # NUMBER · TITLE"
    number = title[1]
    found = [exercise for page in pages for exercise in EXERCISE.findall(prose(page))]
    first = 0 if found[0][0].endswith(".0") else 1  # 0 is the warm-up
    assert found == [
        (f"{number}.{k}", f"ex-{number}-{k}", ":nonumber:")
        for k in range(first, first + len(found))
    ]


def beneath(path) -> list:
    """The deeper pages of a chapter: their names begin with its number."""
    number = path.stem.partition("_")[0]
    return [p for p in book.deeper() if p.stem.startswith(f"{number}_")]


def solved(lesson) -> Iterator[str]:
    """Yield the label of the solution around each code cell tagged as one."""
    label = None
    for cell in lesson.cells:
        if cell.cell_type == "markdown":
            for start, _ in SOLUTION_EDGE.findall(cell.source):
                label = start or None
        else:
            in_solution = label is not None
            assert in_solution == ("solution" in notebook.tags(cell)), cell.source
            if in_solution:
                yield label


# --- deeper pages -------------------------------------------------------------------


def test_first_cell_opens_the_deeper_page(deeper):
    first = deeper.cells[0]
    assert first.cell_type == "markdown"
    assert re.match(r"# Deeper (\d+) · \w", first.source)
    for words in OPENING_OF_DEEPER:
        assert re.search(words, first.source), f"the first cell lacks: {words}"


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_deeper_pages_and_chapter_know_each_other(path):
    lessons, below = book.lessons(), beneath(path)
    place = lessons.index(path) + 1
    assert lessons[place : place + len(below)] == below, "in _toc.yml, beneath it"
    number = int(path.stem.partition("_")[0])
    for page in below:
        first = notebook.read(page).cells[0].source
        assert first.startswith(f"# Deeper {number} · ")
        assert f"](../{path.name})" in first
        assert f"](deeper/{page.name}" in prose(notebook.read(path))


def test_every_deeper_page_has_a_chapter():
    below = [page for path in book.chapters() for page in beneath(path)]
    assert below == book.deeper()


# --- assignments, with their solutions ------------------------------------------------


def test_first_cell_opens_the_assignment(assignment):
    first = assignment.cells[0]
    assert first.cell_type == "markdown"
    assert re.match(r"# Assignment \d · \w", first.source)
    for words in OPENING_OF_ASSIGNMENTS:
        assert words in first.source, f"the first cell lacks: {words}"


def test_assignment_tells_itself_apart_by_number_and_title(assignment, spec):
    title = f"# Assignment {spec.id.removeprefix('a')} · {spec.title}"
    assert assignment.cells[0].source.splitlines()[0] == title


def test_tags_of_assignments_from_the_closed_list(assignment):
    tags = {tag for cell in assignment.cells for tag in notebook.tags(cell)}
    assert tags <= TAGS_OF_ASSIGNMENTS


def test_rubric_and_hand_in(assignment, spec):
    assert f"<!-- rubric -->\n{rubric(spec)}<!-- /rubric -->" in prose(assignment)
    for heading in ("## Rubric", "## Hand in"):
        assert f"\n{heading}\n" in f"\n{prose(assignment)}\n", f"no heading: {heading}"


def test_every_question_has_an_example_and_a_check(assignment, spec):
    cells = [
        cell.source
        for cell in code_cells(assignment)
        if "instructor" not in notebook.tags(cell)
    ]
    shown = "\n".join(cells)
    for question in spec.questions:
        assert re.search(rf"^((def|class) )?{question.name}\b", shown, re.M)
        asked = f'check({question.name}, task="{question.task}"'
        # in a cell of its own, so that it speaks while the example still fails
        ours = question.task in BUILT_IN
        assert not ours or any(map(lambda c: c.startswith(asked), cells)), asked
        examples = [c for c in cells if "assert" in c and question.name in c]
        assert examples, f"no example by hand for {question.name}"


def test_every_check_of_a_solution_says_right(assignment, spec):
    names = "|".join(question.name for question in spec.questions)
    for cell in code_cells(assignment):
        if re.search(rf"^check\(({names}),", cell.source, re.MULTILINE):
            (result,) = (o for o in cell.outputs if o.output_type == "execute_result")
            assert result.data["text/plain"].startswith("Right: "), cell.source


def test_four_hints_to_a_task(assignment):
    counts = [prose(assignment).count(hint) for hint in HINTS]
    assert set(counts) == {len(efforts(assignment))} != {0}
    assert prose(assignment).count("<details>") == prose(assignment).count("</details>")


def test_no_hint_is_the_solution(assignment):
    """Without what the gaps leave open, no new line of a solution stands in a hint."""
    given = "\n".join(
        assignments.without_solution(c.source) for c in code_cells(assignment)
    )
    hints = "\n".join(re.findall(r"<details>(.*?)</details>", prose(assignment), re.S))
    told = {line.strip() for line in hints.splitlines()} | set(
        re.findall(r"`([^`\n]+)`", hints)
    )
    for cell in code_cells(assignment):
        for solution in re.findall(
            r"# BEGIN SOLUTION\n(.*?)# END SOLUTION", cell.source, re.S
        ):
            lines = {line.strip() for line in solution.splitlines()}
            new = {line for line in lines if line and line not in given}
            new -= {"with torch.no_grad():"}  # the text of the task says it
            assert not new & told, new & told


def test_every_assertion_says_what_is_wrong(assignment):
    for cell in code_cells(assignment):
        source = TransformerManager().transform_cell(cell.source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Assert):
                assert node.msg is not None, ast.unparse(node)
            assert "assert_close" not in ast.dump(node), ast.unparse(node)


def test_a_student_sees_the_tensor_before_the_assertion(assignment):
    """Unless a cell asks first whether there is an answer at all."""
    for cell in assignments.student(assignment).cells:
        blank = r"(?m)^assert (\.\.\. not in |.* is not \.\.\.,)"
        source = re.sub(blank, "", f"\n{cell.source}")
        before, asserts, _ = source.partition("\nassert ")
        assert not asserts or "print(" in before, cell.source


def test_headings_tell_minutes_and_difficulty(assignment):
    found = efforts(assignment)
    headings = re.findall(r"^## ((?:Task|Patient) \d.*)$", prose(assignment), re.M)
    assert headings == [f"{name} · {effort}" for name, effort in found.items()]
    assert f"**Time:** {hours(found)}, without reading" in prose(assignment)
    table = (book.STUDENT.parent / "index.md").read_text(encoding="utf-8")
    title = assignment.cells[0].source.splitlines()[0].removeprefix("# Assignment ")
    (row,) = (line for line in table.splitlines() if line.startswith(f"| [{title}]"))
    assert row.endswith(f"| {hours(found)} |")


def test_an_answer_in_words_is_followed_by_what_to_look_for(assignment):
    for cell, after in zip(assignment.cells, assignment.cells[1:]):
        if "answer" in notebook.tags(cell):
            assert "instructor" in notebook.tags(after), cell.source
