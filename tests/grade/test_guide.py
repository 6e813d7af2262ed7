"""The guide's first class: its commands, as they stand there, from an empty folder."""

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tools
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


def test_the_first_class_needs_what_the_guide_installs_and_no_more(tmp_path):
    """The packages that build the book are missing where `.[grade]` was installed."""
    assert 'pip install -e ".[grade]"' in FIRST
    hidden = [*tools.NEEDED, "nbformat", "sphinx", "distributed", "anywidget"]
    code = f"import sys; sys.modules.update(dict.fromkeys({hidden!r}))"
    (tmp_path / "sitecustomize.py").write_text(code)
    (made,) = commands(FIRST, "python -m tools.practice")
    made[0], made[3] = sys.executable, str(tmp_path / "practice")
    where = {"cwd": practice.ROOT, "env": {**os.environ, "PYTHONPATH": str(tmp_path)}}
    done = subprocess.run(made, **where, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "practice" / "export.zip").exists()
    made[2] = "tools.assignments"
    refused = subprocess.run(made, **where, capture_output=True, text=True)
    assert "Install the book's packages" in refused.stderr


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

    assert not Path("../practice/a1/pages.zip").exists(), "all is open"
    main(sheet[1:])
    filled = Path("../practice/by_hand.csv")
    files = [x["submission"] for x in rows(filled)]
    assert len(files) == 12 and files.count("") == 1
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
    with zipfile.ZipFile("../practice/a1/pages.zip") as packed:
        assert packed.namelist() == sorted(f"{x}.html" for x in files if x)
    for path in Path("../practice/a1/students").glob("*.json"):
        assert "2.5 of 4" in path.with_suffix(".html").read_text()
        report = path.read_text()  # its pictures may hold any number
        assert "2.5 of 4" not in report and "mark" not in json.loads(report)


ROSTER = "id,name,login\n7,Ada Lovelace,ada\n8,Ben,ben\n"
DOUBLED = ROSTER.replace("ben", "ada"), ROSTER.replace("Ben,ben", '"Lovelace, Ada",')
SHEET = "student,question,points\n7,words,{}\n"
WRONG = [  # a file, what is in it, and in the order of the guide what is said
    ("in.zip", None),
    ("in.zip", {}),
    ("in.zip", {"zoe.py": "x = 1"}),
    ("roster.csv", DOUBLED[0]),
    ("roster.csv", DOUBLED[1]),
    ("plan.yaml", "by_hand:\n  words: 4\nbyhand: 3\n"),
    ("sheet.csv", SHEET.format("4.5")),
    ("roster.csv", ROSTER.replace("Ben", "Bén").encode("latin-1")),
    ("sheet.csv", SHEET.format("")),
]


def test_what_the_guide_says_of_refusals_is_what_is_said(tmp_path, monkeypatch):
    table = FIRST.partition("**If it refuses,**")[2].partition("\n\n**")[0]
    lines = [line.split("|")[1] for line in table.splitlines() if line[:3] == "| `"]
    quoted = [text for line in lines for text in re.findall("`([^`]*)`", line)]
    assert len(quoted) == len(WRONG)
    monkeypatch.chdir(tmp_path)
    Path("a1").mkdir()
    for text, (wrong, content) in zip(quoted, WRONG):
        Path("plan.yaml").write_text("by_hand:\n  words: 4\n")
        Path("roster.csv").write_text(ROSTER)
        Path("sheet.csv").write_text(SHEET.format("3"))
        Path("a1/marks.csv").write_text("student,by hand,comment\n7,words,\n")
        before = Path("a1/marks.csv").read_bytes()
        write(Path("in.zip"), {"ada.py": "x = 1"})
        write(Path(wrong), content)
        words = ["in.zip", "-a", "a1", "-o", "a1.csv", "--roster", "roster.csv"]
        words += ["--plan", "plan.yaml", "--by-hand", "sheet.csv"]
        with pytest.raises(SystemExit) as error:
            main(words)
        parts = [re.escape(x.strip()) for x in text.split("…")]
        assert re.search(".*".join(parts), str(error.value)), (text, error.value)
        assert Path("a1/marks.csv").read_bytes() == before
        assert [x.name for x in Path("a1").iterdir()] == ["marks.csv"]


def write(path: Path, content: str | bytes | dict | None) -> None:
    """A file of this content; a dict is a zip, None no file at all."""
    path.unlink(missing_ok=True)
    if isinstance(content, dict):
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in content.items():
                archive.writestr(name, text)
    elif content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


def test_the_plan_of_the_guide_has_every_key_that_there_is():
    text = GUIDE.partition("```yaml")[2].partition("```")[0]
    assert set(parse(text, "guide").fields()) == set(plan.READERS)
    assert text.strip() in plan.__doc__


@pytest.mark.parametrize("option", ["--others", "--template", "--anonymous", "--seed"])
def test_the_guide_names_what_the_command_can(option):
    assert f"`{option}" in GUIDE
