"""A run over a folder: every submission once, whatever happens; readable outputs."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mha_lib.grade import engines, judge, report, run, tables
from mha_lib.grade.assignments import parse
from mha_lib.grade.handed_in import submissions
from tests.grade.attacks.table import MERGE
from tests.grade.course import (
    ASSIGNMENT,
    POINTS,
    SPLIT,
    SUBMISSIONS,
    linux,
    new_run,
    rows_of,
    table,
    wait_until,
)
from tests.grade.pages import check_page


@linux
def test_all_outputs(folder):
    counts = new_run(folder)()
    out = folder.parent / "out"
    marks = table(out / "grades.csv")
    assert {name: float(row["points"]) for name, row in marks.items()} == POINTS
    assert '\n"\'=cmd|x.py",' in (out / "grades.csv").read_text(), "a formula"
    assert marks["ada.py"]["merge_heads"] == "2" and marks["ada.py"]["out_of"] == "5"
    assert "a notebook (.ipynb) or a .py file" in marks["essay.pdf"]["problem"]
    assert marks["eve.py"]["look at"] == "cell 1, line 1: gc"
    assert marks["essay.pdf"]["not right"] == "", "nobody judged what is no program"
    assert "split_heads: failed" in marks["eve.py"]["not right"]

    students = out / "grades" / "students"
    pages = sorted(path for path in students.rglob("*") if path.is_file())
    assert len(pages) == 2 * len(SUBMISSIONS)
    ben = json.loads((students / "group 1" / "ben é.py.json").read_text())
    assert ben["points"] == 2.0 and ben["questions"][0]["points"] == 2.0

    assert counts["submissions"] == 7 and counts["full_marks"] == 2
    assert counts["histogram"][-1] == 2 and counts["histogram"][0] == 2
    assert counts["mean"] == pytest.approx(17 / 7, abs=0.01)
    summary = json.loads((out / "grades" / "summary.json").read_text())
    assert summary["verdicts"]["merge_heads"]["right"] == 4
    assert "unmatched" not in summary
    unmatched = (out / "grades" / "unmatched.json").read_text()
    assert not any(name[:4] in unmatched for name in SUBMISSIONS)
    for page in (*students.rglob("*.html"), out / "grades" / "summary.html"):
        check_page(page.read_text(), page.name)


@linux
def test_a_second_run_grades_what_is_new_or_changed_alone(folder):
    new_run(folder)()
    journal = folder.parent / "out" / "grades" / "journal.jsonl"
    before = rows_of(journal)
    (folder / "ada.py").write_text(MERGE)
    (folder / "dan.py").write_text(SPLIT)
    (folder / "essay.pdf").unlink()
    new_run(folder)()
    assert rows_of(journal) == [*before, "ada.py", "dan.py"]
    marks = table(folder.parent / "out" / "grades.csv")
    changed = POINTS | {"ada.py": 2, "dan.py": 3}
    del changed["essay.pdf"]
    assert {name: float(row["points"]) for name, row in marks.items()} == changed
    assert json.loads(journal.read_text().splitlines()[0])["seed"] == 7

    new_run(folder, again=True)()
    assert sorted(rows_of(journal)) == sorted(changed)


@linux
def test_a_run_goes_on_with_its_own_seed_and_refuses_another(folder):
    one = {"places": [folder / "ada.py"], "seed": 7}
    new_run(folder, **one)()
    new_run(folder, **one)()
    new_run(folder, **one | {"seed": None})()
    with pytest.raises(ValueError, match="began with another seed: leave out --seed"):
        new_run(folder, **one | {"seed": 8})()
    new_run(folder, **one | {"seed": 8}, again=True)()
    journal = folder.parent / "out" / "grades" / "journal.jsonl"
    assert json.loads(journal.read_text().splitlines()[0])["seed"] == 8


@linux
def test_what_is_not_protected_is_said_before_anything_runs(folder, monkeypatch, capfd):
    said = []

    def engine(function, items, workers, address):
        said.append(capfd.readouterr().err)  # until now
        for item in items:
            name, result = function(item)
            yield name, result | {"unprotected": ["a moon", "a sun"]}

    monkeypatch.setattr(run, "unprotected", lambda: ["a sun"])
    monkeypatch.setitem(engines.ENGINES, "local", engine)
    grading = new_run(folder)
    grading()
    assert said == ["Not protected here: a sun.\n"]
    assert capfd.readouterr().err == "Not protected here: a moon.\n", "once"
    grading()  # nothing is left to grade, and it is said again
    kept = f"Kept from before: {len(SUBMISSIONS)} of {len(SUBMISSIONS)}; to grade: 0\n"
    assert said[1] == said[0] + kept and capfd.readouterr().err == ""


def test_what_is_graded_and_what_is_written_is_hidden(folder, monkeypatch):
    asked = []

    def engine(function, items, workers, address):
        asked.append(json.loads(function.args[0])["limits"])
        return ()

    monkeypatch.setitem(engines.ENGINES, "local", engine)
    new_run(folder, limits={"cpu": 3})()
    out = folder.parent / "out" / "grades"
    assert asked == [{"cpu": 3, "hidden": [str(folder), str(out)]}]


def test_a_warm_process_outlives_its_judge_while_the_limits_are_the_same(monkeypatch):
    made = []

    class Kept:
        def __init__(self, **limits):
            made.append([limits["cpu"], "open"])
            self.row = made[-1]

        def close(self):
            self.row[1] = "closed"

    class Marks:
        def __init__(self, assignment, seed, sandbox):
            self.grade = lambda submission: (seed, sandbox.row[0])

    monkeypatch.setattr(run, "_LOCAL", threading.local())
    monkeypatch.setattr(run, "Sandbox", Kept)
    monkeypatch.setattr(run, "Judge", Marks)
    for seed, cpu in ((1, 9), (1, 9), (2, 9), (2, 8)):
        given = {"assignment": ASSIGNMENT, "seed": seed, "limits": {"cpu": cpu}}
        assert run._grade(json.dumps(given), ("ada.py", None))[1] == (seed, cpu)
    assert made == [[9, "closed"], [8, "open"]]
    run.close()
    assert made[1] == [8, "closed"]


@linux
def test_a_judge_that_fails_stops_nobody(folder, monkeypatch):
    def broken(task, probes, outcomes, **options):
        if task == "split_heads":
            raise ZeroDivisionError("in the judge")
        return original(task, probes, outcomes, **options)

    original = judge.conclude
    monkeypatch.setattr(judge, "conclude", broken)
    counts = new_run(folder)()
    assert counts["verdicts"]["split_heads"] == {"failed": 6}
    assert counts["verdicts"]["merge_heads"]["right"] == 4
    page = (folder.parent / "out" / "grades" / "students" / "ada.py.html").read_text()
    assert "in the judge" in page


@linux
@pytest.mark.sweep(2)
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT])
def test_a_run_that_is_killed_goes_on(stop, place):
    there = place / "killed"
    folder = there / "in"
    folder.mkdir(parents=True)
    names = [f"{number:02}.py" for number in range(8)]
    for name in names:  # half of them do not end before the run is killed
        wait = "import time; time.sleep(900)\n" if name > "03.py" else ""
        (folder / name).write_text(wait + MERGE)
    (there / "a9.json").write_text(json.dumps(ASSIGNMENT))
    arguments = [str(folder), "-a", str(there / "a9.json"), "--workers", "2"]
    arguments += ["-o", str(there / "out.csv"), "--seconds", "600", "--wall", "900"]
    command = [sys.executable, "-m", "mha_lib.grade", *arguments]
    journal = there / "out" / "journal.jsonl"

    def some_are_finished():
        assert killed.poll() is None
        return journal.exists() and journal.read_bytes().count(b"\n") >= 3

    def heard():  # a shell may have started the tests deaf to Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    options = {"start_new_session": True, "preexec_fn": heard}
    with (
        (there / "said").open("wb") as said,
        subprocess.Popen(command, stderr=said, **options) as killed,
    ):
        wait_until(some_are_finished)
        if stop == signal.SIGINT:  # which a terminal sends to the workers, too
            os.killpg(killed.pid, stop)
        else:
            killed.send_signal(stop)
    text = (there / "said").read_text(errors="replace")
    assert "Traceback" not in text
    assert ("mha-grade: stopped; the same command" in text) == (stop == signal.SIGINT)
    finished = rows_of(journal)
    assert 2 <= len(finished) <= 4 and not (there / "out.csv").exists()
    with journal.open("ab") as file:
        file.write(b'{"submission": "07.py", "points": 5')  # a line cut short

    wait_until(lambda: not processes(str(there)))  # its warm processes end, too
    for name in names[4:]:
        (folder / name).write_text(MERGE)
    new_run(folder, output=there / "out.csv", seed=None)()
    assert rows_of(journal)[: len(finished)] == finished
    assert sorted(rows_of(journal)) == names
    points = {n: float(row["points"]) for n, row in table(there / "out.csv").items()}
    assert points == dict.fromkeys(names, 2.0)


def processes(text: str) -> list[str]:
    """Command lines of processes that hold this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return [command for command in found if text in command]


# --- names -------------------------------------------------------------------------

FORGED = {  # names of files, and what stands in the table
    "eve\rben.py": r"eve\rben.py",
    'eve\n"ben.py","5","5"': r'eve\n"ben.py","5","5"',
    "eve\x85ben\u2028cleo.py": r"eve\x85ben\u2028cleo.py",
    "\x1b[2Jeve.py": r"\x1b[2Jeve.py",
    "eve\u202eyp.neb": r"eve\u202eyp.neb",
    "\u200bben.py": r"\u200bben.py",
    os.fsdecode(b"caf\xe9.py"): r"caf\udce9.py",
    r"eve\rben.py": r"eve\\rben.py",  # no other name reads like it
    "=1+1.py": "'=1+1.py",
    " @SUM(A1).py": "' @SUM(A1).py",
    "\uff1d1+1.py": "'\uff1d1+1.py",
    "'=1+1.py": "''=1+1.py",
    "eve;=1+1.py": "eve;=1+1.py",
    "ben é; 山田\u3000太郎, علی\u200cرضا.py": "ben é; 山田\u3000太郎, علی\u200cرضا.py",
}


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_name_forges_no_row_of_the_table_and_no_formula(separator):
    marks = {"points": 1.0, "out_of": 5, "problem": "a\rb", "mistakes": []}
    marks |= {"by_question": {"merge_heads": 1.0, "split_heads": 0.0}, "mentions": []}
    marks |= {"verdicts": {"merge_heads": "right", "split_heads": "unmet"}}
    rows = [{"submission": name, **marks} for name in FORGED]
    text = report.table(rows, parse(ASSIGNMENT))
    assert len(text.splitlines()) == len(FORGED) + 1
    read = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    assert len(read) == len(FORGED) + 1  # whatever separates cells where it is opened
    assert not any(cell.startswith(tables.FORMULA) for row in read for cell in row)
    if separator == ",":
        assert [row[0] for row in read[1:]] == list(FORGED.values())
        assert {len(row) for row in read} == {9}
        assert {row[7] for row in read[1:]} == {r"a\rb"}


def test_names_of_submissions(folder, tmp_path):
    assert list(submissions([folder])) == sorted(SUBMISSIONS)
    one = submissions([folder / "ada.py", folder / "group 1"])
    assert list(one) == ["ada.py", "ben é.py"]
    with pytest.raises(ValueError, match="names must differ; got .* and "):
        submissions([folder / "ada.py", folder / "ada.py"])
    with pytest.raises(ValueError, match="no file or folder .*nowhere"):
        submissions([tmp_path / "nowhere"])


@linux
def test_a_name_that_is_no_text_and_a_folder_with_an_odd_one_are_graded(place):
    folder = place / "odd" / "in"
    names = [b"caf\xe9.py", b"a\nb.py", b"__ada/hw.py", b"__MACOSX/hw.py"]
    for name in names:
        path = Path(os.fsdecode(os.fsencode(folder) + b"/" + name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MERGE)
    output = place / "odd" / "out.csv"
    counts = new_run(folder, output=output)()
    assert counts["submissions"] == 3 and counts["histogram"][4] == 3
    assert {row["points"] for row in table(output).values()} == {"2"}
    assert len(list((place / "odd" / "out" / "students").rglob("*.html"))) == 3
    assert new_run(folder, output=output)()["submissions"] == 3  # nothing is left


def deep(folder: Path, bytes_of_path: int) -> Path:
    """A file in so many folders that its path is as long as asked for."""
    start = os.open(folder, os.O_RDONLY)
    path = folder
    while len(os.fsencode(path)) < bytes_of_path:
        os.mkdir("d", dir_fd=start)
        below = os.open("d", os.O_RDONLY, dir_fd=start)
        os.close(start)
        start, path = below, path / "d"
    with open(os.open("a.py", os.O_WRONLY | os.O_CREAT, dir_fd=start), "w") as file:
        file.write(MERGE)
    os.close(start)
    return path / "a.py"


@pytest.fixture
def long(place):
    (place / "long" / "in").mkdir(parents=True)
    yield place / "long" / "in"
    subprocess.run(["rm", "-r", place / "long"], check=True)  # as deep as it is


@linux
@pytest.mark.sweep(2)
@pytest.mark.parametrize("length", [4085, 4096, 9000])
def test_a_path_as_long_as_can_be_ends_nothing(length, long):
    """Readable, one byte too long, and below folders that cannot be listed."""
    folder, output = long, long.parent / "out.csv"
    (folder / "ada.py").write_text(MERGE)
    name = deep(folder, length).relative_to(folder)
    new_run(folder, output=output)()
    marks = table(output)
    ada, other = (marks.pop("ada.py"), *marks.values())
    assert (ada["points"], ada["look at"]) == ("2", "")
    assert str(name).startswith(other["submission"].removesuffix("a.py"))
    if length < 4096 - len("/a.py"):
        assert other["points"] == "2"
    else:
        assert other["problem"] == "it cannot be read: File name too long"
    report = re.fullmatch(r"its report is (students/.*\.html)", other["look at"])[1]
    assert str(name)[:9] in (output.with_suffix("") / report).read_text()


@linux
def test_links_and_folders_that_cannot_be_listed_are_said(place):
    folder = place / "links" / "in"
    (folder / "ada").mkdir(parents=True)
    (folder / "ada" / "hw.py").write_text(MERGE)
    for name in ("eve", "file.py", ".hidden"):
        (folder / name).symlink_to(folder / "ada")
    (folder / "gone.py").symlink_to(folder / "nowhere")
    output = place / "links" / "out.csv"
    new_run(folder, output=output)()
    marks = table(output)
    assert list(marks) == ["ada/hw.py", "eve", "file.py", "gone.py"]
    assert marks.pop("ada/hw.py")["points"] == "2"
    assert {row["problem"] for row in marks.values()} == {
        "it is no file, but a link or a folder"
    }


@linux
@pytest.mark.parametrize("start", [None, "", ".."])
def test_outputs_among_the_submissions_are_none(start, folder, monkeypatch):
    output = folder / "grades.csv"
    if start is not None:  # as one types it: the other paths may be absolute
        monkeypatch.chdir(folder / start)
        output = output.relative_to(Path.cwd())
    for _ in range(2):
        counts = new_run(folder, output=output)()
        assert counts["submissions"] == len(SUBMISSIONS)


def test_no_folder_of_a_report_has_the_name_of_another_report():
    for suffix in (".json", ".html", ".JSON", ".Html", ".json_"):
        folders = run._short(f"eve/hw.py{suffix}/hw.py").parts
        assert folders == ("eve", f"hw.py{suffix}_", "hw.py")
    assert run._short("eve/hw.py.json") == Path("eve/hw.py.json")
