"""What the pages say of marks and of a class, as text and never as markup."""

import re
import zipfile
from urllib.parse import unquote

import pytest

from mha_lib.grade.alike import Pair
from mha_lib.grade.assignments import parse
from mha_lib.grade.by_hand import Given
from mha_lib.grade.course import Course
from mha_lib.grade.exports import Handed
from mha_lib.grade.feedback import archive, class_html, mark_html, other_html
from mha_lib.grade.marks import Mark
from mha_lib.grade.plan import Plan
from mha_lib.grade.roster import Roster, Student
from mha_lib.grade.tables import Row
from tests.grade.course import ASSIGNMENT

GRADED = {"merge_heads": 1.0, "split_heads": 2.5}
MOST = {"merge_heads": 2.0, "split_heads": 3.0, "essay": 4.0}
A9 = parse(ASSIGNMENT)


def student(id: str, name: str = "") -> Student:
    return Student(id, name, Row({}, ""), {}, frozenset())


def mark(id="S1", status="in time", days=0, points=None, **more) -> Mark:
    fields = {"submission": "a.py", "taken": 0.0, "open": (), "given": {}, **more}
    points = None if points is None else points
    return Mark(student(id), status, days, by_question={}, points=points, **fields)


def lines(text: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", text)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]


def test_a_mark_says_what_was_given_by_whom_and_what_being_late_took():
    given = {"essay": Given(3.25, "<b>clear</b>"), "split_heads": Given(3.0, "sorry")}
    text = mark_html(mark(points=5.8, days=2, taken=1.45, given=given), GRADED, MOST)
    assert '<h2>Mark <span class="points">5.8 of 9</span></h2>' in text
    assert lines(text) == [
        ["marked by the grader", "1 of 2", ""],
        ["essay, by hand", "3.25 of 4", "&lt;b&gt;clear&lt;/b&gt;"],
        ["split_heads, instead of 2.5, by hand", "3 of 3", "sorry"],
        ["2 days late", "−1.45", ""],
    ]


def test_what_is_open_is_said_to_be_and_a_comment_does_not_close_it():
    open = mark(points=3.5, open=("essay",), days=1)
    text = mark_html(open, GRADED, MOST, "Ada <S1>")
    assert "<h2>Mark of Ada &lt;S1&gt; " in text and "3.5 of 9 so far" in text
    assert lines(text) == [
        ["marked by the grader", "3.5 of 5", ""],
        ["essay, by hand", "open", ""],
        ["1 day late", "costs nothing", ""],
    ]
    said = mark(points=3.5, open=("essay",), given={"essay": Given(None, "see me")})
    text = mark_html(said, GRADED, MOST)
    assert lines(text)[1:] == [["essay, by hand", "open", "see me"]]
    assert "<i>" not in other_html("<i>.py")


def test_where_all_is_given_by_hand_the_grader_is_not_named():
    given = {name: Given(1.0) for name in GRADED}
    text = mark_html(mark(points=2.0, given=given), GRADED, MOST)
    assert "marked by the grader" not in text
    assert [x[0] for x in lines(text)] == [
        "merge_heads, instead of 1, by hand", "split_heads, instead of 2.5, by hand",
    ]  # fmt: skip


def test_pages_of_marks_that_are_open_again_are_taken_back(course, tmp_path):
    (tmp_path / "pages.zip").write_bytes(b"of an earlier run")
    found = [mark("S1", points=1.0, open=("essay",)), mark("S2", "missing")]
    said = course.write(tmp_path, found, A9, {"a.py": tmp_path / "a.html"})
    assert not (tmp_path / "pages.zip").exists()
    assert "still open: 1; " in said, "no platform is named, as the roster is of none"


@pytest.fixture
def course():
    students = {x.id: x for x in (student("S1", "Ada"), student("S2", "Ben"))}
    roster = Roster(None, "plain", [], [], students)
    return Course(roster, Plan(groups=(frozenset(students),), by_hand={"essay": 4.0}))


def told(course: Course, *points: float) -> dict[str, str]:
    """Of a file that counts for both, with these points, and of one that does not."""
    ada, ben = course.roster.students.values()
    each = zip(["S1", "S2"], points)
    found = [mark(id, points=x, given={"essay": Given(x - 3)}) for id, x in each]
    rows = [
        {"submission": name, "by_question": {"merge_heads": 1.0, "split_heads": 2.0}}
        for name in ("a.py", "b.py", "c.py")
    ]
    handed = [Handed("a.py", (ada,)), Handed("b.py", (ben,)), Handed("c.py")]
    return course.tell(found, handed, rows, A9)


def test_a_group_reads_one_mark_and_names_only_where_marks_differ(course):
    same = told(course, 4.0, 4.0)
    assert same["a.py"].count("<h2>Mark <") == 1 and "Ben" not in same["a.py"]
    differ = told(course, 4.0, 5.5)["a.py"]
    assert re.findall(r"<h2>Mark of (\S+) \((\S+)\) ", differ) == [
        ("Ada", "S1"), ("Ben", "S2"),
    ]  # fmt: skip
    assert "4 of 9<" in differ and "5.5 of 9<" in differ
    assert "Another file counts: <code>a.py</code>" in same["b.py"]
    assert same["c.py"] == "", "of nobody in the roster"


# --- the class ----------------------------------------------------------------------

CALLED = {"S1": "Ada & co", "S2": "Ben", "S3": "Cleo", "S4": "Dan"}
PLACES = {"a b.py": "students/a b.py", "é#.py": "students/é#.py"}


def test_who_is_late_or_missing_and_what_is_alike_is_folded():
    found = [
        mark("S1", "late", 2, 1.0),
        mark("S2", points=3.0),
        mark("S3", "missing"),
        mark("S4", "late", 1, 4.0),
    ]
    pairs = [Pair("a b.py", "é#.py", 1.0, "the same code")]
    text = class_html(found, CALLED, pairs, PLACES)
    assert "4 students: 1 in time, 2 late, 1 missing." in text
    plain, *folded = re.split(r"<details>", text)
    assert not any(name in plain for name in CALLED.values())
    late, missing, alike = folded
    assert "<li>Ada &amp; co: 2 days</li><li>Dan: 1 day</li>" in late
    assert "<li>Cleo</li>" in missing and "Ben" not in text
    assert "a hint to read both, and never a verdict" in missing + alike
    found = [unquote(x) for x in re.findall('href="([^"]*)"', alike)]
    assert found == ["students/a b.py.html", "students/é#.py.html"]
    assert "#" not in alike.partition('href="')[2].partition('href="')[2].split('"')[0]
    assert "the same code</li>" in alike


def test_where_there_is_nothing_to_say_nothing_is_said():
    assert class_html([], {}, [], {}) == ""
    text = class_html([mark(points=1.0)], CALLED, [], {})
    assert "<details>" not in text and "Alike" not in text


def test_pages_are_packed_under_the_names_of_what_was_handed_in(tmp_path):
    (tmp_path / "one.html").write_text("<p>é</p>", encoding="utf-8")
    pages = {"Ada_7_assignsubmission_file_/a2.ipynb": tmp_path / "one.html"}
    archive(tmp_path / "pages.zip", pages)
    before = (tmp_path / "pages.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "pages.zip") as packed:
        (name,) = packed.namelist()
        assert name == "Ada_7_assignsubmission_file_/a2.ipynb.html"
        assert packed.read(name).decode() == "<p>é</p>"
    archive(tmp_path / "pages.zip", pages)
    assert (tmp_path / "pages.zip").read_bytes() == before
    odd = ["caf\udce9.py", "a\\..\\b.py", "x" * 70_000, '=1+1,"é".py']
    archive(tmp_path / "pages.zip", dict.fromkeys(odd, tmp_path / "one.html"))
    with zipfile.ZipFile(tmp_path / "pages.zip") as packed:
        assert packed.namelist() == [
            '=1+1,"é".py.html', "a_.._b.py.html", "caf\ufffd.py.html",
            "x" * 4000 + ".html",
        ]  # fmt: skip
    assert {x.name for x in tmp_path.iterdir()} == {"one.html", "pages.zip"}
