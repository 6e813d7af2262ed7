"""A run over a folder: every submission once, whatever happens; readable outputs."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path

import pytest

from mha_lib.grade import engines, judge, platforms, report, run
from mha_lib.grade.__main__ import main
from mha_lib.grade.assignments import load, parse
from mha_lib.grade.journal import Journal, write
from mha_lib.grade.run import Run, submissions
from mha_lib.grade.sandbox import Sandbox, Unsafe
from tests.grade.attacks.table import MERGE, RIGHT

linux = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox is Linux's")
ASSIGNMENT = {
    "id": "a9",
    "title": "Heads <and> tails",
    "banned": [],
    "questions": [
        {"name": "merge_heads", "task": "merge_heads", "points": 2},
        {"name": "split_heads", "task": "split_heads", "points": 3},
    ],
}
SPLIT = "def split_heads(x, H): return x.unflatten(2, (H, -1)).transpose(1, 2)\n"
MARKUP = "def split_heads(x, H): raise ValueError('<script>alert(1)</script>')\n"
SUBMISSIONS = {
    "ada.py": MERGE + SPLIT,
    "=cmd|x.py": MERGE + SPLIT,
    "group 1/ben é.py": MERGE,
    "group 2/cleo.py": MERGE + MARKUP,
    "x" * 230 + ".py": SPLIT,
    "essay.pdf": "%PDF",
    "eve.py": "import gc\n",
}
POINTS = dict(zip(SUBMISSIONS, (5, 5, 2, 2, 3, 0, 0)))
LIMITS = {"seconds": 5.0, "wall": 20.0, "cpu": 20, "memory": 1 << 28}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    yield tmp_path_factory.mktemp("run")
    run.close()


@pytest.fixture
def folder(place):
    """Always the same one: a judge stays warm as long as its settings are the same."""
    for name, text in SUBMISSIONS.items():
        path = place / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (place / "in" / ".ipynb_checkpoints").mkdir()
    (place / "in" / ".ipynb_checkpoints" / "ada.py").write_text("1 / 0")
    yield place / "in"
    for part in place.iterdir():
        shutil.rmtree(part)


def new_run(folder: Path, **changes) -> Run:
    fields = {
        "assignment": parse(ASSIGNMENT),
        "places": [folder],
        "output": folder.parent / "out" / "grades.csv",
        "limits": LIMITS,
        "seed": 7,
    }
    return Run(**{**fields, **changes})


def table(path: Path) -> dict[str, dict]:
    rows = csv.DictReader(io.StringIO(path.read_text()))
    return {row["submission"].removeprefix("'"): row for row in rows}


def rows_of(path: Path) -> list[str]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line["submission"] for line in lines[1:]]


@linux
def test_all_outputs(folder):
    counts = new_run(folder)()
    out = folder.parent / "out"
    marks = table(out / "grades.csv")
    assert {name: float(row["points"]) for name, row in marks.items()} == POINTS
    assert "\n'=cmd|x.py," in (out / "grades.csv").read_text(), "a formula"
    assert marks["ada.py"]["merge_heads"] == "2" and marks["ada.py"]["out_of"] == "5"
    assert "a notebook (.ipynb) or a .py file" in marks["essay.pdf"]["problem"]
    assert marks["eve.py"]["look at"] == "cell 1, line 1: gc"

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
    unmatched = (out / "grades" / "unmatched.json").read_text()
    assert not any(name[:4] in unmatched for name in SUBMISSIONS)
    for page in (*students.rglob("*.html"), out / "grades" / "summary.html"):
        check_page(page.read_text(), page.name)


class Page(HTMLParser):
    """Notes what is open, and which tags and links there are."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.links = [], set(), []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.links += [v for k, v in attributes if k in ("src", "href")]
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check_page(text: str, name: str) -> None:
    page = Page()
    page.feed(text)
    assert not page.open and "script" not in page.tags
    assert {"h1", "title", "main"} <= page.tags
    assert "Heads &lt;and&gt; tails" in text
    if "cleo" in name:
        assert "&lt;script&gt;alert(1)" in text


def test_the_summary_of_the_same_rows_is_the_same():
    counts = report._counted([list("hgfedcba"), ["c"]])
    assert "".join(counts) == "cabdefgh" and counts["c"] == 2


def test_verdicts_are_a_table_of_questions():
    counts = {"f<x>": {"named": 2, "right": 5}, "g": {"failed": 7}}
    text = report._verdicts(counts)
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t", text)
    assert cells[:4] == ["", "right", "named", "failed"]
    assert cells[4:] == ["f&lt;x&gt;", "5", "2", "0", "g", "0", "0", "7"]


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
    assert said[1] == said[0] and capfd.readouterr().err == ""


@linux
def test_a_judge_that_fails_stops_nobody(folder, monkeypatch):
    def broken(task, probes, outcomes):
        if task == "split_heads":
            raise ZeroDivisionError("in the judge")
        return original(task, probes, outcomes)

    original = judge.judge
    monkeypatch.setattr("mha_lib.grade.judge.judge", broken)
    counts = new_run(folder)()
    assert counts["verdicts"]["split_heads"] == {"failed": 7}
    assert counts["verdicts"]["merge_heads"]["right"] == 4
    page = (folder.parent / "out" / "grades" / "students" / "ada.py.html").read_text()
    assert "in the judge" in page


@linux
def test_a_run_that_is_killed_goes_on(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    names = [f"{number:02}.py" for number in range(12)]
    for name in names:
        (folder / name).write_text(f"import time; time.sleep(0.3)\n{MERGE}")
    (tmp_path / "a9.json").write_text(json.dumps(ASSIGNMENT))
    arguments = [str(folder), "-a", str(tmp_path / "a9.json"), "--workers", "2"]
    arguments += ["-o", str(tmp_path / "out.csv")]
    command = [sys.executable, "-m", "mha_lib.grade", *arguments]
    journal = tmp_path / "out" / "journal.jsonl"
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as killed:
        while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
            assert killed.poll() is None
            time.sleep(0.02)
        killed.kill()
    finished = rows_of(journal)
    assert 2 <= len(finished) < 12 and not (tmp_path / "out.csv").exists()
    with journal.open("ab") as file:
        file.write(b'{"submission": "11.py", "points": 5')  # a line cut short

    time.sleep(1.0)  # its warm processes end, too
    assert not processes(str(tmp_path))
    new_run(folder, output=tmp_path / "out.csv", seed=None)()
    assert rows_of(journal)[: len(finished)] == finished
    assert sorted(rows_of(journal)) == names
    marks = table(tmp_path / "out.csv")
    assert {name: float(row["points"]) for name, row in marks.items()} == dict.fromkeys(
        names, 2.0
    )


def processes(text: str) -> list[str]:
    """Command lines of processes that hold this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_text(errors="replace"))
        except OSError:
            continue
    return [command for command in found if text in command]


@linux
@pytest.mark.parametrize("engine", ["dask", "ray"])
def test_engines_elsewhere(engine, folder):
    pytest.importorskip({"dask": "distributed"}.get(engine, engine))
    counts = new_run(folder, engine=engine, workers=1)()
    assert counts["submissions"] == 7 and counts["full_marks"] == 2


def test_an_engine_does_everything_once_and_does_not_run_ahead():
    taken = []
    items = (taken.append(n) or n for n in range(100))
    with ThreadPoolExecutor(2) as executor:
        results = engines.ahead(executor, abs, items, 2)
        done = [next(results)]
        assert len(taken) <= engines.AHEAD * 2
        assert sorted([*done, *results]) == list(range(100))


# --- the journal --------------------------------------------------------------------


def test_journal_of_another_assignment_is_refused(tmp_path):
    Journal(tmp_path / "j", {"assignment": "a"}).close()
    Journal(tmp_path / "j", {"assignment": "a"}).close()
    with pytest.raises(ValueError, match="another assignment, or to another version"):
        Journal(tmp_path / "j", {"assignment": "b"})


def test_two_runs_cannot_write_one_journal(tmp_path):
    pytest.importorskip("fcntl")
    journal = Journal(tmp_path / "j", {"assignment": "a"})
    journal.add({"submission": "ada", "digest": "1"})
    with pytest.raises(BlockingIOError):
        Journal(tmp_path / "j", {"assignment": "a"}, new=True)
    assert [row["submission"] for row in journal.rows()] == ["ada"]
    journal.close()


def test_the_last_row_of_a_name_counts(tmp_path):
    journal = Journal(tmp_path / "j", {"assignment": "a"})
    for name, digest in (("b", "1"), ("a", "2"), ("b", "3")):
        journal.add({"submission": name, "digest": digest})
    journal.close()
    journal = Journal(tmp_path / "j", {"assignment": "a"})
    assert [row["digest"] for row in journal.rows()] == ["2", "3"]
    assert [journal.digest(name) for name in "abc"] == ["2", "3", None]
    journal.close()


def test_write_replaces_a_file_as_a_whole(tmp_path):
    path = tmp_path / "new" / "page.html"
    write(path, "first")
    with pytest.raises(TypeError):
        write(path, None)
    assert path.read_text() == "first"
    assert os.listdir(path.parent) == ["page.html"]


# --- assignments --------------------------------------------------------------------


def test_assignment_is_read_from_its_notebook(tmp_path):
    notebook = {"metadata": {"mha_assignment": ASSIGNMENT}, "cells": []}
    (tmp_path / "a9_heads.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "a1_other.ipynb").write_text(json.dumps({"metadata": {}}))
    assert load("a9", tmp_path) == parse(ASSIGNMENT)
    assert load(str(tmp_path / "a9_heads.ipynb")).points == 5
    with pytest.raises(ValueError, match="must be one of a1, a9, a notebook or"):
        load("a2", tmp_path)
    with pytest.raises(ValueError, match="must have mha_assignment"):
        load("a1", tmp_path)


def test_points_of_properties_add_up():
    question = {"name": "f", "task": "merge_heads"}
    question["properties"] = {"output_shape": 1, "right": 2}
    data = {"id": "a", "title": "b", "questions": [question]}
    assert parse(data).points == 3
    assert parse(parse(data).to_dict()) == parse(data)
    for change, message in (
        ({"points": 4}, "must be the sum of its properties, 3; got 4"),
        ({"task": "meditate"}, "a task must be one of attention"),
        ({"properties": {"rihgt": 3}}, "must be of .*output_shape.*; got rihgt"),
        ({"properties": {}}, "must be worth points; got 0"),
        ({"weight": 3}, "must have id, title and questions"),
    ):
        with pytest.raises(ValueError, match=message):
            parse({**data, "questions": [question | change]})
    with pytest.raises(ValueError, match="names must differ"):
        parse({**data, "questions": [question, question]})


@linux
def test_properties_count_only_where_something_is_right(place):
    properties = {"right_without_mask": 3, "inputs_unchanged": 1}
    question = {"name": "attention", "task": "attention", "properties": properties}
    assignment = parse({"id": "p", "title": "P", "questions": [question]})
    texts = {
        "right.py": RIGHT,
        "zeros.py": "def attention(q, k, v, mask=None): return 0 * q @ k.mT @ v\n",
    }
    texts["changes.py"] = RIGHT.replace(
        "    return scores", "    v0 = v.clone(); v.zero_()\n    return scores"
    ).replace("@ v\n", "@ v0\n")
    (place / "p").mkdir()
    for name, text in texts.items():
        (place / "p" / name).write_text(text)
    new_run(place / "p", assignment=assignment, output=place / "q" / "p.csv")()
    points = {name: row["points"] for name, row in table(place / "q" / "p.csv").items()}
    assert points == {"right.py": "4", "changes.py": "3", "zeros.py": "0"}


# --- elsewhere ----------------------------------------------------------------------


@linux
def test_gradescope(tmp_path):
    (tmp_path / "a9.json").write_text(json.dumps(ASSIGNMENT))
    output = tmp_path / "autograder.zip"
    main(["gradescope", "-a", str(tmp_path / "a9.json"), "-o", str(output)])
    with zipfile.ZipFile(output) as archive:
        names = archive.namelist()
        assert {"setup.sh", "run_autograder", "mha_lib/grade/inside/warm.py"} <= {
            *names
        }
        assert not any("__pycache__" in name for name in names)
        modes = [archive.getinfo(n).external_attr >> 16 for n in names if "." not in n]
        assert modes == [0o755]
        archive.extractall(tmp_path / "source")
    for script in ("setup.sh", "run_autograder"):
        subprocess.run(["bash", "-n", str(tmp_path / "source" / script)], check=True)

    (tmp_path / "submission").mkdir()
    (tmp_path / "submission" / "ada.py").write_text(MERGE + MARKUP)
    script = (tmp_path / "source" / "run_autograder").read_text()
    command = script.splitlines()[2:]
    words = " ".join(command).replace("\\", "").split()[3:]
    words = [str(tmp_path / Path(w).name) if w[0] == "/" else w for w in words]
    subprocess.run(
        [sys.executable, "-m", "mha_lib.grade", *words],
        cwd=tmp_path / "source",
        check=True,
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["score"] == 2.0
    first, second = results["tests"]
    assert (first["score"], first["max_score"], first["status"]) == (2, 2, "passed")
    assert (second["score"], second["max_score"], second["status"]) == (0, 3, "failed")
    assert "&lt;script&gt;" in second["output"] and second["output_format"] == "html"


def test_gradescope_wants_one_file(tmp_path):
    with pytest.raises(ValueError, match="must be handed in; got neither"):
        platforms.only(tmp_path)
    for name in ("a.py", "b.ipynb"):
        (tmp_path / name).touch()
    assert platforms.only(tmp_path).name == "b.ipynb"
    (tmp_path / "c.ipynb").touch()
    with pytest.raises(ValueError, match="exactly one .* got b.ipynb, c.ipynb"):
        platforms.only(tmp_path)


def test_workflow(tmp_path, capsys):
    yaml = pytest.importorskip("yaml")
    (tmp_path / "a9.json").write_text(json.dumps(ASSIGNMENT))
    main(["actions", "-a", str(tmp_path / "a9.json"), "-o", str(tmp_path)])
    text = (tmp_path / ".github" / "workflows" / "grade.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert "git+https://" in commands[0]
    words = commands[1].split()
    assert words[:3] == ["python", "-m", "mha_lib.grade"]
    assert load(str(tmp_path / words[words.index("-a") + 1])) == parse(ASSIGNMENT)


# --- where this runs ----------------------------------------------------------------


def test_names_of_submissions(folder, tmp_path):
    assert list(submissions([folder])) == sorted(SUBMISSIONS)
    one = submissions([folder / "ada.py", folder / "group 1"])
    assert list(one) == ["ada.py", "ben é.py"]
    with pytest.raises(ValueError, match="names must differ; got .* and "):
        submissions([folder / "ada.py", folder / "ada.py"])
    with pytest.raises(ValueError, match="required; got .*nowhere"):
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


def test_mistakes_on_the_command_line_are_explained(tmp_path):
    with pytest.raises(SystemExit, match="an assignment must be one of"):
        main([str(tmp_path), "-a", "a0", "-o", str(tmp_path / "x.csv")])


def test_without_fork_it_says_what_to_do(monkeypatch):
    monkeypatch.delattr(os, "fork", raising=False)
    with pytest.raises(Unsafe, match="Linux, or Windows' Subsystem for Linux"):
        Sandbox().start()


def test_modules_import_on_every_system():
    script = """
import sys, os, socket, torch, multiprocessing, concurrent.futures.process, html
sys.modules["resource"] = sys.modules["fcntl"] = None
sys.platform = "win32"
for name in ("fork", "geteuid", "setsid"): delattr(os, name)
import mha_lib.grade.__main__, mha_lib.grade.run, mha_lib.grade.platforms
import mha_lib.grade.inside.warm
print("imported")
"""
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "imported\n", done.stderr
