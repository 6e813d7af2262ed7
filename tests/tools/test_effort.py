"""Minutes and difficulty follow from what a task asks for."""

import nbformat

from tools import assignments, notebook
from tools.effort import Effort, efforts, hours, with_effort

WORDS = "word " * 100
HINT = "<details><summary>Hint 1: a nudge</summary>\n\n" + WORDS + "\n\n</details>"


def markdown(text, *tags):
    return nbformat.v4.new_markdown_cell(text, metadata={"tags": list(tags)})


def code(text, *tags):
    return nbformat.v4.new_code_cell(text, metadata={"tags": list(tags)})


def solution(*lines):
    inside = "".join(f"    {line}\n" for line in lines)
    return f"def f(x):\n    # BEGIN SOLUTION\n{inside}    # END SOLUTION"


def task(*cells, heading="## Task 1: a thing"):
    new = nbformat.v4.new_notebook()
    first = markdown(
        "# Assignment 9\n\n**Time:** long, without reading · **Hand in:** x"
    )
    new.cells = [first, markdown(f"{heading}\n\nText."), *cells]
    (effort,) = efforts(new).values()
    return new, effort


def test_words_values_answers_and_operations_are_counted():
    cells = [
        markdown(WORDS + HINT),
        code("a = 1  # SOLUTION\nb = 2"),
        code("assert a == 1"),
        code(solution("y = -x[0] + x[0]", "return y.sum() + torch.sum(y)")),
        markdown("Because.", "answer"),
        markdown(WORDS, "instructor"),
        code(solution("return x.mean()"), "instructor"),
    ]
    _, effort = task(*cells)
    assert (effort.words, effort.values, effort.answers) == (101, 1, 1)
    assert effort.operations == 4  # minus, [0], plus, sum


def test_lines_that_the_text_gives_are_not_written_again():
    given = code("def ill(x):\n    y = x.exp()\n    return y.sum(0)")
    _, effort = task(given, code(solution("y = x.exp()", "return y.sum(-1)")))
    assert effort.operations == 2  # sum, and the minus


def test_minutes_are_rounded_and_never_none():
    assert Effort().minutes == (5, 10)
    assert Effort(words=1000).minutes == (10, 25)
    assert Effort(words=1100, answers=1).minutes == (15, 40)


def test_difficulty_has_three_words():
    def named(count):
        return Effort(solutions=[f"x = {' + '.join(f'f{i}()' for i in range(count))}"])

    assert [named(n).difficulty for n in (2, 3, 9, 10)] == [
        "easy", "medium", "medium", "hard",
    ]  # fmt: skip


def test_headings_and_the_time_on_top_are_written_once():
    source, _ = task(code(solution("return x.sum()")), markdown(30 * WORDS))
    once = [cell.source for cell in with_effort(source).cells]
    assert "**Time:** 0:30 to 1:25 hours, without reading · **Hand in:** x" in once[0]
    assert once[1].splitlines()[0] == "## Task 1: a thing · 30 to 85 min · easy"
    assert [cell.source for cell in with_effort(source).cells] == once
    assert hours(efforts(source)) == "0:30 to 1:25 hours"


def test_what_is_no_task_stays_as_it_is():
    source = nbformat.v4.new_notebook(cells=[markdown("# A\n\n## Rubric\n\nText.")])
    before = source.cells[0].source
    assert with_effort(source).cells[0].source == before


def test_student_versions_have_the_headings(tmp_path):
    source, _ = task(heading="## Patient 2: the padding · 5 to 95 min · hard")
    path = tmp_path / "a9_heads.ipynb"
    question = {"name": "merge", "task": "merge_heads", "points": 2}
    spec = {"id": "a9", "title": "Heads", "questions": [question]}
    source.metadata["mha_assignment"] = spec
    notebook.write(source, path)
    for text in assignments.wanted(path).values():
        assert "## Patient 2: the padding · 5 to 10 min · easy" in text
