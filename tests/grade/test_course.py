"""A course from its files to the marks, as the command does it; and what it refuses."""

import csv
import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from mha_lib.grade import run
from mha_lib.grade.__main__ import main
from tests.grade.attacks.table import MERGE
from tests.grade.course import ASSIGNMENT, SPLIT, linux, rows_of
from tests.grade.platforms_files import CANVAS, METADATA, MOODLE, PLAIN
from tests.grade.test_alike import ATTENTION

WHOLE = MERGE + SPLIT
EXPORT = {  # as Canvas writes it: in time, late, and two files of one attempt
    "lovelaceada_101_9001_a2.py": WHOLE + ATTENTION,
    "obrienseán_LATE_102_9002_a2.py": MERGE + ATTENTION.replace("scores", "s"),
    "obrienseán_LATE_102_9003_a2-1.py": "x = 1\n",
    "obrienseán_LATE_102_9004_data.csv": "1,2",
}
PLAN = "late: {per_day: 10}\nby_hand: {essay: 4}\n"
SHEET = "student,question,points,comment\nada,essay,3,clear\n"


@pytest.fixture
def course(place, monkeypatch):
    """The files of a course, in the folder where the command is started."""
    (place / "a9.json").write_text(json.dumps({**ASSIGNMENT, "title": "Heads"}))
    (place / "roster.csv").write_text(CANVAS)
    (place / "plan.yaml").write_text(PLAN)
    (place / "sheet.csv").write_text(SHEET)
    with zipfile.ZipFile(place / "export.zip", "w") as archive:
        for name, text in EXPORT.items():
            archive.writestr(name, text)
    monkeypatch.chdir(place)
    yield place
    monkeypatch.undo()  # out of the folder, before it is emptied


def graded(*more: str, source="export.zip", output="out/a9.csv") -> None:
    given = [source, "-a", "a9.json", "-o", output, "--roster", "roster.csv"]
    main([*given, "--workers", "1", "--seed", "7", "--seconds", "40", *more])


def table(path: str) -> dict[str, dict]:
    """The rows of a table, by their first cell."""
    rows = list(csv.DictReader(io.StringIO(Path(path).read_text())))
    return {next(iter(row.values())): row for row in rows}


def page(name: str) -> str:
    return Path(f"out/a9/students/{name}.html").read_text()


def packed(path: str) -> list[str]:
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


@linux
def test_from_an_export_to_what_canvas_imports(course, capsys):
    graded("--plan", "plan.yaml", "--by-hand", "sheet.csv")
    said, bar = capsys.readouterr()
    assert "starting, torch is loaded:   0%" in bar
    assert "3/3" in bar.rpartition("starting")[2], "until the first is done"
    assert "3 submissions: " in said
    assert "pairs that are alike, a hint and no verdict: 1, in " in said
    assert "3 students, 1 missing, 1 late, points by hand still open: 1 (" in said
    assert "(only their cells in canvas.csv stay empty till then); " in said
    assert "marks.csv and " in said and "canvas.csv\n" in said

    rows = table("out/a9.csv")
    assert set(rows) == set(list(EXPORT)[:3]), "what lies beside is no submission"
    assert [row["student"] for row in rows.values()] == ["101", "102", "102"]
    marks = table("out/a9/marks.csv")
    assert {id: (row["points"], row["status"]) for id, row in marks.items()} == {
        "101": ("8", "in time"), "102": ("1.8", "late"), "103": ("", "missing"),
    }  # fmt: skip
    assert marks["101"]["comment"] == "clear" and marks["102"]["still open"] == "essay"
    canvas = table("out/a9/canvas.csv")
    assert [row["Heads (77)"] for row in canvas.values()] == ["10.00", "8", "", ""]
    (pair,) = table("out/a9/alike.csv").values()
    assert (pair["student"], pair["other student"]) == ("101", "102")
    head = Path("out/a9/alike.csv").read_text().splitlines()[0]
    assert "this is a hint, never a verdict" in head

    ada = page("lovelaceada_101_9001_a2.py")
    assert 'Mark <span class="points">8 of 9</span>' in ada and ">clear<" in ada
    late = page("obrienseán_LATE_102_9002_a2.py")
    assert "1.8 of 9 so far" in late and "1 day late" in late and "−0.2" in late
    assert "Another file counts" in page("obrienseán_LATE_102_9003_a2-1.py")
    seen = Path("out/a9/summary.html").read_text()
    assert "3 students: 1 in time, 1 late, 1 missing." in seen
    assert "<li>=Evil, Eve (103)</li>" in seen and "Sean" not in seen
    assert seen.count('href="students/') == 2, "what is alike"
    counts = json.loads(Path("out/a9/summary.json").read_text())
    assert counts["handed_in"] == {"in time": 1, "late": 1, "missing": 1}
    assert counts["alike"] == 1
    assert packed("out/a9/pages.zip") == ["lovelaceada_101_9001_a2.py.html"]

    journal = rows_of(course / "out/a9/journal.jsonl")
    Path("sheet.csv").write_text(SHEET + "sean,essay,4,\n")
    graded("--plan", "plan.yaml", "--by-hand", "sheet.csv")
    assert rows_of(course / "out/a9/journal.jsonl") == journal, "nothing graded again"
    assert table("out/a9/marks.csv")["102"]["points"] == "5.4"
    assert "5.4 of 9</span>" in page("obrienseán_LATE_102_9002_a2.py")
    assert len(packed("out/a9/pages.zip")) == 2
    assert "Kept from before: 3 of 3; to grade: 0\n" in capsys.readouterr().err
    canvas = table("out/a9/canvas.csv")
    assert [row["Heads (77)"] for row in canvas.values()] == ["10.00", "8", "5.4", ""]

    before = Path("out/a9/marks.csv").read_text()
    with pytest.raises(SystemExit, match="marks.csv holds points by hand: give their"):
        graded("--plan", "plan.yaml")
    with pytest.raises(SystemExit, match="marks.csv holds points by hand: give their"):
        graded()  # nor by a plan that was forgotten
    Path("sheet.csv").write_text(SHEET.replace(",3,clear", ",,"))
    with pytest.raises(SystemExit, match="marks.csv holds points by hand: give their"):
        graded("--plan", "plan.yaml", "--by-hand", "sheet.csv")  # which is empty
    assert Path("out/a9/marks.csv").read_text() == before
    Path("out/a9/students/lovelaceada_101_9001_a2.py.json").unlink()
    Path("sheet.csv").write_text(SHEET + "103,essay,2,\n")
    capsys.readouterr()
    graded("--plan", "plan.yaml", "--by-hand", "sheet.csv")
    said = capsys.readouterr()
    assert "points by hand without a submission: 103; " in said.out
    assert "Kept from before: 2 of 3; to grade: 1\n" in said.err, "a report was lost"
    assert ">clear<" in page("lovelaceada_101_9001_a2.py")
    Path("sheet.csv").write_text("student,question,points\nada,split_heads,1\n")
    graded("--by-hand", "sheet.csv")
    with pytest.raises(SystemExit, match="marks.csv holds points by hand: give their"):
        graded()  # of a question that the grader marks


@linux
def test_gradescope_and_moodle(course):
    top = Path("in/assignment_5_export")
    for number, text in ((1, WHOLE), (2, MERGE)):
        (top / f"submission_{number}").mkdir(parents=True)
        (top / f"submission_{number}" / "a2.py").write_text(text)
    (top / "submission_metadata.yml").write_text(METADATA)
    Path("roster.csv").write_text(MOODLE)
    Path("plan.yaml").write_text("due: 2026-10-01T23:59Z\nlate: {per_day: 20}\n")
    graded("--plan", "plan.yaml", "--engine", "dask", source="in")
    grades = table("out/a9/moodle.csv")
    assert [row["Grade"] for row in grades.values()] == ["4", "2", "2"]
    assert len(table("out/a9.csv")) == 2
    assert not Path("out/a9/canvas.csv").exists()


@linux
def test_names_stay_in_their_folder(course, capsys):
    command = ["--plan", "plan.yaml", "--anonymous", "names"]
    main(
        ["sheet", "-a", "a9.json", "-o", "hand.csv", "--roster", "roster.csv", *command]
    )
    sheet = list(csv.DictReader(io.StringIO(Path("hand.csv").read_text())))
    assert len(sheet) == 3 and not any(row["name"] for row in sheet)
    code = sheet[0]["student"]
    Path("hand.csv").write_text(f"student,question,points\n{code},essay,2\n")
    graded(*command, "--by-hand", "hand.csv")
    graded(*command, "--by-hand", "hand.csv")

    shown = [x for x in Path("out").rglob("*") if x.is_file()]
    assert len(shown) > 10
    for path in shown:
        text = f"{path} {path.read_text()}".lower()
        assert not any(x in text for x in ("ada", "lovelace", "sean", "9001"))
    rows = table("out/a9.csv")
    assert f"{code}/1.py" in rows and rows[f"{code}/1.py"]["student"] == code
    assert table("out/a9/marks.csv")[code]["points"] == "7"
    assert table("names/marks.csv")["101"]["points"] == "7"
    assert table("names/canvas.csv")["Lovelace, Ada"]["Heads (77)"] == "7"
    assert "names/canvas.csv" in capsys.readouterr().out
    assert not Path("out/a9/canvas.csv").exists()
    assert packed("names/pages.zip") == ["lovelaceada_101_9001_a2.py.html"]
    assert not Path("out/a9/pages.zip").exists()
    with pytest.raises(SystemExit, match="names must lie apart from what has no names"):
        graded("--anonymous", "out/a9/names")


# --- refused -----------------------------------------------------------------------

TWICE = CANVAS + '"Lovelace, Ada",101,S1,ada@uni.edu,,CS 1,,,\n'
REFUSED = {
    "a doubled name": ("roster.csv", TWICE, "roster.csv, line 7: '101' was there be"),
    "an unknown name": (
        "roster.csv",
        PLAIN.replace("Ada", "Bo"),
        "nobody in .* lovela",
    ),
    "a broken zip": ("export.zip", "<html>", "export.zip is a broken zip"),
    "an unknown key": (
        "plan.yaml",
        PLAN + "dew: 3\n",
        "plan.yaml, line 3: the key must",
    ),
    "too many points": (
        "sheet.csv",
        SHEET + "eve,essay,5,\n",
        "sheet.csv, line 3: the ",
    ),
    "no such file": ("plan.yaml", None, "there is no file or folder .*plan.yaml"),
}


@linux
def test_what_is_refused_is_refused_before_anything_is_graded(course, monkeypatch):
    every = ["--plan", "plan.yaml", "--by-hand", "sheet.csv"]
    graded(*every)
    before = {x: x.read_bytes() for x in Path("out").rglob("*") if x.is_file()}
    monkeypatch.setattr(run, "_grade", lambda *_: 1 / 0)
    for name, text, said in REFUSED.values():
        kept = Path(name).read_bytes()
        Path(name).unlink()
        if text is not None:
            Path(name).write_text(text)
        with pytest.raises(SystemExit, match=said):
            graded(*every, "--again")
        Path(name).write_bytes(kept)
        assert before == {
            x: x.read_bytes() for x in Path("out").rglob("*") if x.is_file()
        }


@pytest.mark.parametrize(
    "given, said",
    [
        (
            ["roster.csv"],
            "nothing was handed in: .*roster.csv holds no file, or only y",
        ),
        (["export.zip", "-o", "out"], "a name with an ending, such as .*out.csv: "),
        (["export.zip", "-o", "d.csv"], "a name with an ending, such as .*d.csv: "),
        (["empty"], "nothing was handed in: .*empty holds no file"),
        (["in", "-o", "in.csv"], "folder .*in, where submissions lie.* as .*in-grades"),
        (["in/ada.py", "-o", "in.csv"], "in.csv would put its pages into the folder"),
        (["nowhere"], "mha-grade: there is no file or folder .*nowhere$"),
        (["export.zip", "--plan", "no.yaml"], "there is no file or folder .*no.yaml$"),
        (["export.zip", "--plan", "empty"], "mha-grade: .*empty: Is a directory$"),
        (["export.zip", "--template", "no.py"], "no.py: it cannot be read: No such fi"),
        (["export.zip", "--template", "plan.yaml"], "plan.yaml: a notebook .* is requ"),
    ],
)
def test_a_wrong_path_is_told_before_anything_is_written(given, said, course):
    Path("empty").mkdir()
    Path("d.csv").mkdir()
    Path("in").mkdir()
    Path("in/ada.py").write_text("x = 1")
    with pytest.raises(SystemExit, match=said):
        graded(*given[1:], source=given[0])
    assert not Path("out").exists()


@pytest.mark.parametrize("option", ["--plan", "--by-hand", "--anonymous", "--others"])
def test_what_needs_a_roster_says_so(option, course):
    value = [] if option == "--others" else ["plan.yaml"]
    with pytest.raises(SystemExit, match=f"{option} needs --roster"):
        main(["export.zip", "-a", "a9.json", "-o", "out.csv", option, *value])


def test_a_sheet_that_is_there_is_not_written_over(course):
    command = ["sheet", "-a", "a9.json", "-o", "new.csv", "--roster", "roster.csv"]
    main([*command, "--plan", "plan.yaml"])
    rows = csv.DictReader(io.StringIO(Path("new.csv").read_text()))
    names = ["Lovelace, Ada", "O'Brien, Seán", "'=Evil, Eve"]
    assert [row["name"] for row in rows] == names
    with pytest.raises(
        SystemExit, match="new.csv is there already; give another output"
    ):
        main([*command, "--plan", "plan.yaml"])
    with pytest.raises(SystemExit, match="nothing is marked by hand"):
        main([*command[:4], "other.csv", *command[5:]])


def test_a_sheet_says_which_files_are_whose_and_who_handed_in_none(course):
    plan = PLAN + "groups: [[sean, eve]]\n"
    (course / "in").mkdir()
    for name in ("plan.yaml", "roster.csv", "export.zip"):
        os.replace(name, f"in/{name}")
    Path("in/plan.yaml").write_text(plan)
    rules = ["--roster", "in/roster.csv", "--plan", "in/plan.yaml"]
    # What is ours is nobody's; the submissions may come first, last or between.
    for place, order in enumerate((1, 3, 5, 9)):
        words = ["sheet", "-a", "a9.json", "-o", f"s{place}.csv", *rules]
        main([*words[:order], "in", *words[order:]])
    rows = list(csv.DictReader(io.StringIO(Path("s0.csv").read_text())))
    assert [Path(f"s{n}.csv").read_bytes() for n in range(4)].count(
        Path("s0.csv").read_bytes()
    ) == 4
    ada, *late = (f"export.zip/{name}" for name in list(EXPORT)[:3])
    assert {x["student"]: x["submission"] for x in rows} == {
        "101": ada, "102": "; ".join(late), "103": "; ".join(late),
    }  # fmt: skip
    coded = ["--anonymous", "names"]
    main(["sheet", "in", "-a", "a9.json", "-o", "coded.csv", *rules, *coded])
    first = next(csv.DictReader(io.StringIO(Path("coded.csv").read_text())))
    assert first["submission"] == f"{first['student']}/1.py" and not first["name"]


@pytest.mark.parametrize("command", ["", "sheet"])
@pytest.mark.parametrize("inside", ["-o", "--anonymous"])
def test_nothing_is_written_into_a_clone(command, inside, course):
    clone = course / "mha-book"
    (clone / "mha_lib" / "grade").mkdir(parents=True)
    given = {"-o": "out.csv", "--anonymous": "names"}
    words = ["sheet"] if command else ["export.zip"]
    words += ["-a", "a9.json", "--roster", "roster.csv", "--plan", "plan.yaml"]
    given[inside] = "mha-book/deep/x"
    (clone / ".git").write_text("gitdir: elsewhere")  # of a worktree it is a file
    with pytest.raises(SystemExit) as error:
        main([*words, *(word for pair in given.items() for word in pair)])
    assert f"lies in the repository {clone}" in str(error.value)
    assert str(error.value).endswith(f"beside it: {course / 'course' / 'x'}")
    (clone / ".git").unlink()
    if command:
        main([*words, *(word for pair in given.items() for word in pair)])


def test_the_template_of_an_assignment_is_found(tmp_path):
    from mha_lib.grade import __main__ as command
    from mha_lib.grade.assignments import parse

    options = command.parser("").parse_args(["x", "-a", "a9", "-o", "x"])
    options.folder, options.assignment = tmp_path, parse(ASSIGNMENT)
    assert command._template(options) is None
    (tmp_path / "student").mkdir()
    (tmp_path / "student" / "a9_heads.ipynb").touch()
    (tmp_path / "student" / "a99_tails.ipynb").touch()
    assert command._template(options) == tmp_path / "student" / "a9_heads.ipynb"
    assert os.listdir(command.FOLDER / "student"), "where those of the book are"


# --- in a folder, which hides another place, and so needs another warm process ----


@linux
def test_a_group_and_others_and_the_template(course):
    Path("in").mkdir()
    for name in ("ada", "eve", "zoe"):
        Path(f"in/{name}.py").write_text(WHOLE + ATTENTION)
    Path("roster.csv").write_text(PLAIN)
    Path("in/plan.yaml").write_text("groups:\n- [ada, eve]\n")
    graded("--plan", "in/plan.yaml", "--others", source="in")
    rows = table("out/a9.csv")
    assert list(rows) == ["ada.py", "eve.py", "zoe.py"], "nobody handed in the plan"
    assert rows["zoe.py"]["student"] == "" and len(table("out/a9/marks.csv")) == 3
    assert not list(Path("out").rglob("canvas.csv")), "the roster is of no platform"
    pairs = list(csv.reader(io.StringIO(Path("out/a9/alike.csv").read_text())))[1:]
    assert [(x[0], x[2]) for x in pairs] == [("ada.py", "zoe.py"), ("eve.py", "zoe.py")]
    Path("template.py").write_text(WHOLE + ATTENTION)
    Path("in/plan.yaml").unlink()
    graded("--others", "--template", "template.py", source="in")
    assert len(Path("out/a9/alike.csv").read_text().splitlines()) == 1
