"""Every chapter is executed, complete and tidy: the rules of CONTRIBUTING.md."""

import ast
import copy
import re
from collections.abc import Iterator

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from tools import book, notebook

TAGS = {"setup", "hide-input", "solution", "raises-exception", "nbval-ignore-output"}
OPENING = ["You will be able to", "Read first", r"\d+ minutes"]
HEADINGS = ["What goes wrong", "Exercises", "Summary", "References|Sources"]
MOST_CELLS, MOST_CODE_CELLS, LEAST_EXERCISES, LEAST_ALT = 80, 40, 4, 20
MOST_LINES, MOST_SETUP_LINES = 20, 40  # the set-up is folded on the page
MACHINE_PATH = re.compile(
    r"/(home|root|Users|tmp|work)/|site-packages|\b[A-Z]:\\\w|\bat 0x[0-9a-f]{6}"
)
EXERCISE = re.compile(r"\{exercise-start\} ?(.*)\n:label: (.*)\n(:nonumber:)?")
SOLUTION_EDGE = re.compile(r"\{solution-start\} (\S+)|\{solution-(end)\}")


@pytest.fixture(params=book.notebooks(), ids=lambda path: path.stem)
def chapter(request):
    return notebook.read(request.param)


def code_cells(chapter) -> list:
    return [cell for cell in chapter.cells if cell.cell_type == "code"]


def prose(chapter) -> str:
    return "\n".join(c.source for c in chapter.cells if c.cell_type == "markdown")


def outputs(chapter, kind: str) -> list:
    every = (output for cell in code_cells(chapter) for output in cell.outputs)
    return [output for output in every if output.output_type == kind]


def test_table_of_contents_names_every_notebook():
    on_disk = set((book.ROOT / "book").glob("*.ipynb"))
    assert on_disk
    assert on_disk == set(book.notebooks())


def test_first_cell_opens_the_chapter(chapter):
    first = chapter.cells[0]
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    for words in OPENING:
        assert re.search(words, first.source), f"the first cell lacks: {words}"


def test_second_cell_is_the_only_setup(chapter):
    is_setup = ["setup" in notebook.tags(cell) for cell in chapter.cells]
    assert is_setup[1] and sum(is_setup) == 1
    assert 'find_spec("mha_lib")' in chapter.cells[1].source


def test_required_headings(chapter):
    for words in HEADINGS:
        heading = re.compile(rf"^##+ .*({words})", re.MULTILINE)
        assert heading.search(prose(chapter)), f"no heading: {words}"


def test_executed_once_from_top_to_bottom(chapter):
    # Without counts, strict nbval passes a notebook and compares nothing.
    counts = [cell.execution_count for cell in code_cells(chapter)]
    asked = list(range(1, len(counts) + 1))
    assert counts == asked, "run it first: python -m tools.notebook run FILE"


def test_no_empty_cell(chapter):
    assert all(cell.source.strip() for cell in chapter.cells)


def test_nothing_on_stderr(chapter):
    assert [o.text for o in outputs(chapter, "stream") if o.name == "stderr"] == []


def test_errors_where_announced_and_nowhere_else(chapter):
    for cell in code_cells(chapter):
        failed = any(output.output_type == "error" for output in cell.outputs)
        assert failed == ("raises-exception" in notebook.tags(cell)), cell.source


def test_tags_from_the_closed_list(chapter):
    assert {tag for cell in chapter.cells for tag in notebook.tags(cell)} <= TAGS


def test_ignored_outputs_have_a_reason(chapter):
    for cell in code_cells(chapter):
        if "nbval-ignore-output" in notebook.tags(cell):
            assert len(cell.metadata.get("reason", "")) >= 10, cell.source


def test_size(chapter):
    assert len(chapter.cells) <= MOST_CELLS
    assert len(code_cells(chapter)) <= MOST_CODE_CELLS
    for cell in code_cells(chapter):
        most = MOST_SETUP_LINES if "setup" in notebook.tags(cell) else MOST_LINES
        assert len(cell.source.splitlines()) <= most, cell.source


def test_every_picture_has_an_alternative_text(chapter):
    for cell in code_cells(chapter):
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            alt = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")
            assert len(alt) >= LEAST_ALT, cell.source


def test_written_by_our_tool(chapter):
    # No widget state, times, frames of tracebacks, foreign metadata; unique ids.
    assert notebook.normalise(copy.deepcopy(chapter)) == chapter


def test_no_path_of_a_machine(chapter):
    assert MACHINE_PATH.search(str(chapter.cells)) is None


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


def test_library_names_are_not_redefined(chapter):
    statements = [s for cell in code_cells(chapter) for s in statements_of(cell)]
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
