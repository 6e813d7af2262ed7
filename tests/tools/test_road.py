"""What the measure of a chapter counts, and what it finds too much."""

from dataclasses import replace

import nbformat
import pytest

from tools import notebook, road

ASKED = """```{exercise-start} 1.1
:label: ex-1-1
:nonumber:
```

Two words.

```{exercise-end}
```

"""
SOLVED = """```{solution-start} ex-1-1
:class: dropdown
```

Many words that nobody unfolds.

"""
GOOD = road.Road(2800, [3] * 10 + [6] * 9 + [15], 14, [], [480], 5)


def code(source, *tags, shows=False, width=None):
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)})
    if shows:
        cell.outputs.append(nbformat.v4.new_output("stream", text="1\n"))
    if width:
        picture = {"image/png": "", "text/plain": ""}
        size = {"image/png": {"width": width, "height": 100}}
        cell.outputs.append(
            nbformat.v4.new_output("display_data", picture, metadata=size)
        )
    return cell


def page(*cells):
    made = [
        nbformat.v4.new_markdown_cell(cell) if isinstance(cell, str) else cell
        for cell in cells
    ]
    return nbformat.v4.new_notebook(cells=made)


@pytest.mark.parametrize(
    ("prose", "count"),
    [
        ("## Two words", 2),
        ("A [link to it](page.ipynb#far-away) counts.", 5),
        ("One formula, $x + y = z$, and\n$$\na \\ne b\n$$\none more", 7),
        ("see {cite}`vaswani2017`, or `weights @ v`", 5),
        ("| $s$ | key | — |\n|---|---|---|\n| 0 | it | 1/8 |", 5),
        ("<!-- not seen -->seen <b>bold</b>", 2),
        ("```{note}\n:class: dropdown\nAs read.\n```", 2),
    ],
)
def test_words_are_what_a_reader_reads(prose, count):
    assert road.count_words(prose) == count


def test_folded_cells_and_solutions_are_not_on_the_road():
    measured = road.measure(
        page(
            "# Title",
            code("import torch\n" * 30, "setup", "hide-input"),
            code("plot()\n" * 30, "hide-input", width=300),
            code("x = 1\nx", shows=True),
            code("y = 2"),
            ASKED + SOLVED,
            code("z = 3", "solution", shows=True),
            "```{solution-end}\n```\n\nThe end.",
        )
    )
    assert measured == road.Road(
        words=5, lines=[2, 1], shown=1, early=[], widths=[300], exercises=1
    )


@pytest.mark.parametrize(
    ("source", "early"),
    [
        ("assert 1\nassert 2", False),
        ("print(1)\nassert 1", False),
        ("assert 1\nprint(1)", True),
        ("torch.testing.assert_close(x, y)\nx", True),
        ("for x in y:\n    assert_equal(x)\n%timeit x", True),
        ("assert 1\nx = 2", False),
    ],
)
def test_assertions_stand_after_what_is_shown(source, early):
    assert road.asserts_early(source) == early
    measured = road.measure(page(code(source, shows=True)))
    assert measured.early == [source.splitlines()[0]] * early


def test_stills_of_widgets_are_no_pictures():
    still = code("Widget()")
    data = {"image/png": "", "text/plain": "Widget()"}
    still.outputs.append(
        nbformat.v4.new_output("execute_result", data, execution_count=1)
    )
    assert road.measure(page(still)).widths == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"words": 2801}, "2801 words: at most 2800"),
        ({"lines": [3] * 21, "shown": 21}, "21 visible cells: at most 20"),
        ({"lines": [2] * 20}, "median of 2.0 lines: 3 to 6"),
        ({"lines": [7] * 20}, "median of 7.0 lines: 3 to 6"),
        ({"lines": [3] * 19 + [16]}, "a cell of 16 lines: at most 15"),
        ({"lines": [3] * 19 + [31], "whole": 31}, "a class of 31 lines: at most 30"),
        ({"lines": [3] * 18 + [16, 30], "whole": 30}, "a cell of 16 lines: at most 15"),
        ({"shown": 13}, "13 of 20 cells show something: 7 of 10 should"),
        ({"widths": [481]}, "a picture 481 px wide: at most 480"),
        ({"early": ["x = 1"]}, "asserts before it shows: x = 1"),
    ],
)
def test_what_is_too_much_is_named(change, fault):
    assert GOOD.faults == []
    assert replace(GOOD, **change).faults == [fault]


def test_one_class_of_a_page_may_be_longer():
    alone = "class A:\n" + 24 * "    x = 1\n"
    with_a_call, fold = f"{alone}\n\nA()", code(f"{alone}    y = 1", "hide-input")
    small = [code("x = 1\ny = 2\nx", shows=True) for _ in range(6)]
    measured = road.measure(page(*small, code(alone), fold))
    assert measured.whole == 25 and measured.faults == []
    long = "a cell of 25 lines: at most 15"
    assert road.measure(page(*small, code(alone), code(alone))).faults == [long]
    measured = road.measure(page(*small, code(with_a_call)))
    assert measured.whole == 0 and measured.faults == [long.replace("25", "28")]


def test_minutes_follow_from_words_cells_and_exercises():
    assert GOOD.time == "50 minutes, and 40 for the exercises"  # 28 + 20, 8 each
    assert replace(GOOD, exercises=0, words=3001).time == "55 minutes"


def test_the_first_page_gets_the_sum_of_four_chapters():
    intro = "So: Chapters 1 to 4 are the first lesson: 0 minutes. Read them."
    chapters = [replace(GOOD, exercises=n) for n in range(1, 7)]
    written = road.with_lesson(intro, chapters)
    told = "200 minutes, and 90 for the exercises"  # 10 + 20 + 25 + 35
    assert written == intro.replace("0 minutes", told)
    assert road.with_lesson(written, chapters) == written


def test_the_command_measures_and_writes_the_minutes(tmp_path, capsys, monkeypatch):
    path = tmp_path / "page.ipynb"
    notebook.write(page("# One\n\n**Time:** 999 minutes", "word " * 3000), path)
    monkeypatch.setattr(road.book, "ROOT", tmp_path)
    assert road.main([str(path)]) == 0
    said = capsys.readouterr().out
    assert "page.ipynb" in said and "3004 words: at most 2800" in said
    with monkeypatch.context() as patch:
        patch.setattr(road.book, "DEEPER", tmp_path)
        assert road.main([str(path)]) == 0
    assert "at most" not in capsys.readouterr().out  # a deeper page may be long
    assert "999" in path.read_text()
    assert road.main(["--write", str(path)]) == 0
    assert notebook.read(path).cells[0].source.endswith("**Time:** 35 minutes")


def test_without_names_it_measures_every_lesson(capsys):
    assert road.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(road.book.lessons())
