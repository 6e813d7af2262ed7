"""Student versions are derived, in step, blank, and worth nothing until filled in."""

import ast
import re
from dataclasses import replace
from functools import cache

import nbformat
import pytest

from mha_lib.grade.assignments import KEY, Assignment, from_notebook
from mha_lib.grade.inside.cells import parse
from mha_lib.grade.judge import Judge
from mha_lib.grade.sandbox import Sandbox
from mha_lib.grade.submission import Submission, read
from tests.tools.wrong_answers import TRAINED
from tools import assignments, book, notebook

QUESTION = {"name": "merge", "task": "merge_heads", "points": 2}
SPEC = {"id": "a9", "title": "Heads", "questions": [QUESTION]}
LIMITS = {"seconds": 100, "wall": 900, "unsafe": True}  # our own code, on any platform


def source_of(*cells, **metadata):
    new = nbformat.v4.new_notebook(cells=list(cells))
    new.metadata.update(metadata)
    return new


def code(text, *tags, **more):
    return nbformat.v4.new_code_cell(text, metadata={"tags": list(tags)}, **more)


def markdown(text, *tags):
    return nbformat.v4.new_markdown_cell(text, metadata={"tags": list(tags)})


# --- deriving -------------------------------------------------------------------------


def test_a_solution_becomes_a_blank_at_its_indent():
    source = (
        "def merge(x):\n"
        '    """One line."""\n'
        "    # BEGIN SOLUTION\n"
        "    x = x.transpose(1, 2)\n"
        "    return x.flatten(2)\n"
        "    # END SOLUTION\n"
        "\n\n"
        "class Twice:\n"
        "    # BEGIN SOLUTION\n"
        "    pass\n"
        "    # END SOLUTION"
    )
    assert assignments.without_solution(source) == (
        "def merge(x):\n"
        '    """One line."""\n'
        "    ...  # your code here\n"
        "\n\n"
        "class Twice:\n"
        "    ...  # your code here"
    )


@pytest.mark.parametrize(
    ("line", "blank"),
    [
        ("w = [1, 2]  # SOLUTION", "w = ..."),
        ("    a, b = x == 2, 3  # SOLUTION", "    a, b = ..."),
        ("named['x'] = 1", "named['x'] = 1"),
        ('print("# SOLUTION", x)', 'print("# SOLUTION", x)'),
    ],
)
def test_a_value_becomes_a_blank(line, blank):
    assert assignments.without_solution(line) == blank


@pytest.mark.parametrize(
    "source",
    [
        "# BEGIN SOLUTION\nx = 1",
        "x = 1\n# END SOLUTION",
        "# BEGIN SOLUTION\n# BEGIN SOLUTION\n# END SOLUTION",
        "return 2  # SOLUTION",
    ],
)
def test_marks_that_do_not_fit_are_refused(source):
    with pytest.raises(ValueError, match="SOLUTION"):
        assignments.without_solution(source)


def test_what_a_student_gets():
    output = nbformat.v4.new_output("stream", text="42")
    source = source_of(
        markdown("# Assignment 9 · [Masks](../04_masks.ipynb)"),
        code("import torch", "setup", "hide-input"),
        code("x = 42  # SOLUTION", execution_count=3, outputs=[output]),
        markdown("Because it is.", "answer"),
        markdown("Look for: because.", "instructor"),
        code("assert x == 42", "instructor"),
        mha_assignment=SPEC,
    )
    given = assignments.student(source)
    assert [cell.source for cell in given.cells] == [
        "# Assignment 9 · [Masks](../../04_masks.ipynb)",
        "import torch",
        "x = ...",
        "*Your answer:*",
    ]
    assert given.cells[1].metadata == {"tags": ["setup", "hide-input"]}
    assert given.cells[2].outputs == [] and given.cells[2].execution_count is None
    assert [cell.id for cell in given.cells] == [cell.id for cell in source.cells[:4]]
    assert KEY not in given.metadata
    assert source.cells[2].source == "x = 42  # SOLUTION"  # as it was


@pytest.mark.parametrize(
    ("link", "moved"),
    [
        ("../04_masks.ipynb#what-goes-wrong", "../../04_masks.ipynb#what-goes-wrong"),
        ("index.md", "../index.md"),
        ("a2_heads.ipynb", "a2_heads.ipynb"),  # student to student
        ("#rubric", "#rubric"),
        ("https://example.org/a.ipynb", "https://example.org/a.ipynb"),
    ],
)
def test_links_lead_to_the_same_place(link, moved):
    (cell,) = assignments.student(source_of(markdown(f"[x]({link})"))).cells
    assert cell.source == f"[x]({moved})"


@pytest.mark.parametrize("fmt", ["md:myst", "py:percent"])
def test_the_points_survive_as_text(tmp_path, fmt):
    there, text, back = (tmp_path / name for name in ("a.ipynb", "a.txt", "b.ipynb"))
    notebook.write(source_of(markdown("# Assignment 9"), mha_assignment=SPEC), there)
    notebook.to_text(there, text, fmt)
    notebook.from_text(text, back, fmt)
    assert notebook.read(back).metadata == notebook.read(there).metadata
    assert notebook.read(back).metadata[KEY] == SPEC


def test_the_rubric_has_a_row_for_each_thing_that_is_worth_points():
    properties = {"inputs_unchanged": 0.5, "right_without_mask": 2}
    parts = {"name": "mha", "task": "mha", "properties": properties}
    parts["requires"] = ["weights", "mask_optional"]
    spec = SPEC | {"questions": [QUESTION, parts]}
    source = source_of(
        markdown("Text.\n\n<!-- rubric -->\nold\n<!-- /rubric -->\n\nMore."),
        mha_assignment=spec,
    )
    (cell,) = assignments.with_rubric(source).cells
    assert cell.source == (
        "Text.\n\n<!-- rubric -->\n"
        "| Question | What is checked | Points |\n|:--|:--|--:|\n"
        "| `merge` | merge of the heads | 2 |\n"
        "| `mha` | multi-head attention, batch first: right without a mask | 2 |\n"
        "| `mha` | multi-head attention, batch first: its inputs stay as they were | "
        "0.5 |\n"
        "| all | | 4.5 |\n\n"
        "This holds of `mha`, too: it returns the weights after the output; it runs "
        "without a mask.\n\n"
        "All points of a question are for an answer that `check` calls right. One "
        "that does all that the table asks of it, and is wrong elsewhere, loses the "
        "least part.\n"
        "<!-- /rubric -->\n\nMore."
    )


@cache
def asked_by(path) -> Assignment:
    """What it registers stays for this file."""
    return from_notebook(notebook.read(path), path.parent)


@pytest.mark.parametrize("path", book.sources(), ids=lambda path: path.stem)
def test_a_rubric_of_ours_has_words_for_what_it_asks(path):
    asked = asked_by(path).questions
    names = {x for q in asked for x in (*q.properties, *q.requires)}
    internal = {x for x in names if x != "right" and not x.startswith("right: ")}
    assert internal <= set(assignments.IN_WORDS)


# --- the command ----------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An assignment whose student version is not written yet."""
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "STUDENT", tmp_path / "student")
    cells = [markdown("# Assignment 9"), code("x = 42  # SOLUTION")]
    notebook.write(source_of(*cells, mha_assignment=SPEC), tmp_path / "a9_heads.ipynb")
    return tmp_path


def test_the_command_writes_once_and_then_is_content(folder, capsys):
    assert assignments.main(["--check"]) == 1
    assert "student/a9_heads.ipynb: out of step" in capsys.readouterr().out
    assert not (folder / "student").exists()
    assert assignments.main([]) == 0
    assert "x = ..." in (folder / "student" / "a9_heads.ipynb").read_text()
    assert assignments.main(["--check"]) == 0
    assert assignments.main(["a9", "--check"]) == 0


def test_a_student_version_edited_by_hand_is_out_of_step(folder, capsys):
    assignments.main([])
    path = folder / "student" / "a9_heads.ipynb"
    path.write_text(path.read_text().replace("x = ...", "y = ..."))
    assert assignments.main(["--check"]) == 1
    assert assignments.main(["a9"]) == 0
    assert assignments.main(["--check"]) == 0


def test_a_student_version_without_a_source_is_named(folder, capsys):
    assignments.main([])
    (folder / "student" / "a8_gone.ipynb").write_text("{}")
    assert assignments.main(["--check"]) == 1
    assert "a8_gone.ipynb: its source is gone" in capsys.readouterr().out


def test_an_assignment_that_does_not_exist_is_refused(folder, capsys):
    with pytest.raises(SystemExit):
        assignments.main(["a7"])
    assert "no assignment a7" in capsys.readouterr().err


def test_a_broken_source_is_one_plain_line(folder, capsys):
    cells = [code("# BEGIN SOLUTION")]
    path = folder / "a9_heads.ipynb"
    notebook.write(source_of(*cells, mha_assignment=SPEC), path)
    assert assignments.main([]) == 1
    assert "must have an # END SOLUTION" in capsys.readouterr().err


# --- those of the book -------------------------------------------------------------


@pytest.fixture(params=book.sources()[::-1], ids=lambda path: path.stem)
def path(request):
    """The last bans nothing, so it comes first: one warm process does for all."""
    return request.param


@pytest.fixture(scope="module")
def sandbox(forked_sandboxes):
    with Sandbox(**LIMITS) as warm:
        yield warm


def hasty(given: Submission) -> Submission:
    """With one step of training in place of hundreds, which only TRAINED asks for."""
    content = re.sub(rb"steps=\d+", b"steps=1", given.content)
    return replace(given, content=re.sub(rb"pieces, \d+\)", b"pieces, 1)", content))


@cache
def grades(path, sandbox) -> tuple[dict, dict]:
    """The marks of the source, and of the student version as it is handed out."""
    judge = Judge(asked_by(path), seed=7, sandbox=sandbox)
    source, given = read(path), read(path.parent / "student" / path.name)
    return judge.grade(hasty(source)), judge.grade(hasty(given))


def test_every_student_version_is_in_step(monkeypatch):
    known = {asked.id: asked for asked in map(asked_by, book.sources())}

    def from_notebook(source, folder):
        return known[source.metadata[KEY]["id"]]

    monkeypatch.setattr(assignments, "from_notebook", from_notebook)
    assert assignments.main(["--check"]) == 0, "run: python -m tools.assignments"


def checks(source):
    """What the calls of check in a cell ask, by the name that they check."""
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "check":
            named = {x.arg: ast.literal_eval(x.value) for x in node.keywords}
            yield node.args[0].id, (named["task"], tuple(named.get("requires", ())))


def test_a_notebook_checks_what_the_grader_asks(path):
    source = notebook.read(path)
    asked = {q.name: (q.task, q.requires) for q in asked_by(path).questions}
    cells = [c.source for c in source.cells if c.cell_type == "code"]
    checked = {name: ask for cell in cells for name, ask in checks(cell)}
    assert checked == {name: asked[name] for name in checked}
    # Of six patterns in one loop the notebook shows the first.
    loop = {"linear", "scores_of", "context_of", "own_scores", "penalty"}
    assert asked.keys() - checked.keys() == loop & asked.keys()


def test_solutions_get_full_marks(path, sandbox):
    """What cells check and assert of a trained model, nbval sees in the notebook."""
    full, _ = grades(path, sandbox)
    trains = hasty(read(path)) != read(path)
    said = [x for x in full["notes"] if not (trains and "AssertionError" in x)]
    assert full["problem"] == "" and said == []
    for question in full["questions"]:
        if f"{full['assignment']} {question['name']}" not in TRAINED:
            assert question["points"] == question["out_of"] > 0, question["lines"]


@pytest.mark.exhaustive
def test_a_solution_that_trains_has_nothing_noted(path, sandbox):
    full = Judge(asked_by(path), seed=7, sandbox=sandbox).grade(read(path))
    assert full["points"] == full["out_of"] and full["notes"] == []


def test_a_blank_gets_nothing_and_a_sentence(path, sandbox):
    _, blank = grades(path, sandbox)
    assert blank["points"] == 0
    for question in blank["questions"]:
        assert question["points"] == 0
        said = " ".join(line["text"] for line in question["lines"])
        assert re.search(r"\bmust be\b|\bmistake|Required:|is right", said), said


def test_no_solution_is_left_in_a_student_version(path):
    text = (path.parent / "student" / path.name).read_text(encoding="utf-8")
    assert "SOLUTION" not in text
    assert assignments.BLANK in text


@pytest.mark.sweep(3)  # 0, 3 and 6 alone, 1, 4 and 7 with all after it
@pytest.mark.parametrize("also", [False, True], ids=["it alone", "all after it"])
@pytest.mark.parametrize("first", range(8))
def test_what_is_still_to_write_is_said_in_words(first, also):
    """Each example of assignment 2 fails in words where an answer is missing."""
    (path,) = (path for path in book.sources() if path.stem.startswith("a2_"))
    cells = [c for c in notebook.read(path).cells if c.cell_type == "code"]
    answers = [c for c in cells if "SOLUTION" in c.source]
    assert len(answers) == 8
    blank = answers[first:] if also else answers[first : first + 1]
    names, said = {}, []
    for cell in cells:
        if "instructor" in notebook.tags(cell):
            continue
        source = assignments.without_solution(cell.source)
        text = source if cell in blank else cell.source
        try:
            exec(re.sub(r"%\S+", "pass  #", text), names)
        except AssertionError as error:
            said.append(str(error))
    assert said and all(said)
