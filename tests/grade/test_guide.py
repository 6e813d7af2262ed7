"""The guide's first class: its commands, as they stand there, from an empty folder."""

import csv
import io
import re
import shlex
import sys
from pathlib import Path

import pytest

from mha_lib.grade import plan, run
from mha_lib.grade.__main__ import main
from mha_lib.grade.lines import parse
from tests.grade.course import linux
from tools import practice

GUIDE = (practice.ROOT / "book" / "instructors_guide.md").read_text("utf-8")
FIRST = GUIDE.partition("## First class in an hour")[2].partition("\n## ")[0]


def commands(text: str, *starts: str) -> list[list[str]]:
    """The lines in blocks of code that start like this."""
    blocks = re.findall(r"^```\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(starts)]


def rows(path: str) -> list[dict]:
    return list(csv.DictReader(io.StringIO(Path(path).read_text())))


@linux
def test_the_first_class_is_graded_as_the_guide_says(tmp_path, monkeypatch, capsys):
    clone = tmp_path / "mha-book"
    clone.mkdir()
    monkeypatch.chdir(clone)
    (made,) = commands(FIRST, "python -m tools.practice")
    assert made[-2:] == ["--students", "30"]
    monkeypatch.setattr(sys, "argv", [*made[2:-1], "12"])  # fewer are graded alike
    practice.main()
    first, sheet, again = commands(FIRST, "mha-grade")
    one = ["--workers", "1", "--seconds", "60", "--wall", "300"]
    main([*first[1:], *one])
    capsys.readouterr()
    marks = rows("../practice/a1/marks.csv")
    assert [x["status"] for x in marks].count("missing") == 1 and len(marks) == 12
    assert (
        any(x["points"] == "20" for x in marks)
        and Path("../practice/a1/summary.html").exists()
    )

    main(sheet[1:])
    filled = Path("../practice/by_hand.csv")
    filled.write_text(filled.read_text().replace('"words",""', '"words","2.5"'))
    main([*again[1:], *one])
    run.close()
    said = capsys.readouterr().out
    assert "12 students, 1 missing" in said and " open" not in said
    by_hand = rows("../practice/a1/marks.csv")
    assert {x["words"] for x in by_hand} == {"2.5"}
    canvas = rows("../practice/a1/canvas.csv")
    (column,) = (name for name in canvas[0] if name.endswith(" (4711)"))
    points = {x["ID"]: x[column] for x in canvas}
    assert points.pop("") == "24"
    assert points == {x["student"]: x["points"] for x in by_hand}


def test_the_plan_of_the_guide_has_every_key_that_there_is():
    text = GUIDE.partition("```yaml")[2].partition("```")[0]
    assert set(parse(text, "guide").fields()) == set(plan.READERS)
    assert text.strip() in plan.__doc__


@pytest.mark.parametrize("option", ["--others", "--template", "--anonymous", "--seed"])
def test_the_guide_names_what_the_command_can(option):
    assert f"`{option}" in GUIDE
