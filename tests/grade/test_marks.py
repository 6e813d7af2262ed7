"""From points to marks, and to the columns that a platform imports."""

import csv
import io
from datetime import timedelta

import pytest

from mha_lib.grade import roster
from mha_lib.grade.assignments import parse
from mha_lib.grade.by_hand import Given
from mha_lib.grade.exports import Handed
from mha_lib.grade.marks import canvas, marks, moodle, plain
from mha_lib.grade.plan import COLUMNS, Plan
from mha_lib.grade.roster import moment
from tests.grade.course import ASSIGNMENT
from tests.grade.platforms_files import CANVAS, MOODLE, PLAIN

DUE = moment("2026-10-01T23:59Z")
A9 = parse({**ASSIGNMENT, "title": "Heads"})


@pytest.fixture
def known(tmp_path):
    def reading(text: str = PLAIN):
        (tmp_path / "roster.csv").write_text(text)
        return roster.read(tmp_path / "roster.csv")

    return reading


def marked(people, attempts: list, plan=None, given=()):
    """Attempts are (places in the roster, points for the two questions, hours late)."""
    students = list(people.students.values())
    handed, rows = [], []
    for number, (whose, points, hours) in enumerate(attempts):
        owners = tuple(students[place] for place in whose)
        submitted = None if hours is None else DUE + timedelta(hours=hours)
        handed.append(Handed(f"{number}.py", owners, submitted=submitted))
        by_question = dict(zip(("merge_heads", "split_heads"), points))
        rows.append({"submission": f"{number}.py", "by_question": by_question})
    return marks(handed, rows, people, plan or Plan(), dict(given))


def test_everybody_has_a_mark_and_who_is_missing_is_seen(known):
    ada, sean, eve = marked(known(), [([0], (2, 1), -1), ([2], (0, 0), 30)], Plan(DUE))
    assert (ada.points, ada.status, ada.submission, ada.days) == (
        3,
        "in time",
        "0.py",
        0,
    )
    assert (sean.points, sean.status, sean.submission) == (None, "missing", "")
    assert (eve.points, eve.status, eve.days) == (0, "late", 2)


def test_the_best_attempt_counts_after_what_being_late_costs(known):
    attempts = [([0], (2, 1), -1), ([0], (2, 3), 30), ([0], (1, 1), 31)]
    mark = marked(known(), attempts, Plan(DUE, per_day=10))[0]
    assert (mark.points, mark.submission, mark.days) == (4.0, "1.py", 2)
    mark = marked(known(), attempts, Plan(DUE, per_day=30))[0]
    assert (mark.points, mark.submission, mark.status) == (3, "0.py", "in time")
    mark = marked(known(), attempts[1:], Plan(DUE, per_day=10, most=1))[0]
    assert mark.points == 0.0


def test_the_last_attempt_counts_if_the_plan_says_so(known):
    attempts = [([0], (1, 1), 2), ([0], (2, 3), -1), ([0], (2, 1), 1)]
    mark = marked(known(), attempts, Plan(attempts="last"))[0]
    assert (mark.points, mark.submission) == (2, "0.py")


def test_what_one_of_a_group_hands_in_counts_for_all(known):
    group = (frozenset({"S1", "S2"}),)
    ada, sean, eve = marked(known(), [([1], (2, 3), None)], Plan(groups=group))
    assert ada.points == sean.points == 5 and ada.submission == "0.py"
    assert eve.status == "missing"
    ada, sean, eve = marked(known(), [([1, 2], (2, 1), None)])
    assert sean.points == eve.points == 3 and ada.status == "missing"


def test_points_by_hand_are_added_or_replace_what_the_grader_gave(known):
    plan = Plan(DUE, per_day=50, by_hand={"essay": 4.0, "talk": 1.0})
    given = {
        "S1": {"essay": Given(3.5, "clear"), "split_heads": Given(2.0, "see below")},
        "S2": {"talk": Given(1.0)},
    }
    attempts = [([0], (2, 0), 1), ([2], (2, 3), -1)]
    ada, sean, eve = marked(known(), attempts, plan, given)
    assert ada.points == (2 + 2 + 3.5) * 0.5 and ada.open == ("talk",)
    assert ada.comment == "clear; see below"
    assert (sean.points, sean.status, sean.open) == (1.0, "missing", ())
    assert eve.open == ("essay", "talk") and eve.points == 5


def test_what_being_late_cost_is_known_and_a_comment_alone_gives_no_points(known):
    plan = Plan(DUE, per_day=10, by_hand={"essay": 4.0, "talk": 1.0})
    given = {"S1": {"essay": Given(None, "see me"), "talk": Given(0.5, "short")}}
    ada, *_ = marked(known(), [([0], (2, 1), 30)], plan, given)
    assert (ada.points, ada.taken) == (2.8, 0.7)  # 3.5 points, 20 percent
    assert ada.open == ("essay",) and ada.final is None
    assert ada.comment == "see me; short" and "essay" not in ada.by_question


# --- the columns -------------------------------------------------------------------


def table(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_plain_columns(known):
    plan = Plan(DUE, by_hand={"essay": 4.0})
    given = {"S1": {"essay": Given(1.25, "good")}}
    found = marked(known(), [([0], (2, 1), 1), ([2], (0, 1), -1)], plan, given)
    head, ada, sean, eve = table(plain(found, A9, plan, {}))
    assert head == [
        "student", "first name", "last name", "email", "status", "days late",
        "submission", "merge_heads", "split_heads", "essay", "points", "out_of",
        "by hand", "still open", "comment",
    ]  # fmt: skip
    own = {"first name", "last name", "email", "merge_heads", "split_heads", "essay"}
    assert {*head} - own == {*COLUMNS}, "no question may be called so"
    assert ada == ["S1", "Ada", "Lovelace", "ada@uni.edu", "late", "1", "0.py",
                   "2", "1", "1.25", "4.25", "9", "essay", "", "good"]  # fmt: skip
    assert sean[4:] == ["missing", "0", "", "", "", "", "", "9", "", "", ""]
    assert eve[-6:] == ["", "1", "9", "", "essay", ""]
    head, ada, *_ = table(plain(found, A9, plan, {"S1": "x1", "S2": "x2", "S3": "x3"}))
    assert head[:3] == ["student", "status", "days late"] and ada[0] == "x1"


def test_canvas_gets_its_own_columns_and_one_for_the_assignment(known):
    people = known(CANVAS)
    found = marked(people, [([0], (2, 1), None), ([1], (0, 0.5), None)])
    rows = table(canvas(found, A9, Plan(), people))
    names = [
        "Student",
        "ID",
        "SIS User ID",
        "SIS Login ID",
        "Integration ID",
        "Section",
    ]
    assert rows == [
        [*names, "Heads (77)"],
        ["    Points Possible", "", "", "", "", "", "10.00"],
        ["Lovelace, Ada", "101", "S1", "ada@uni.edu", "", "CS 1", "3"],
        ["O'Brien, Seán", "102", "S2", "sean@uni.edu", "", "CS 1", "0.5"],
        ["'=Evil, Eve", "103", "S3", "eve@uni.edu", "", "CS 2", ""],
    ]


@pytest.mark.parametrize(
    "title, plan, column, most",
    [
        ("Tails", Plan(), "Tails", "5"),
        ("Tails", Plan(column="Quiz (78)"), "Quiz (78)", "5.00"),
        ("Final", Plan(by_hand={"essay": 4.0}), "Final", "9"),
    ],
)
def test_the_column_of_canvas(title, plan, column, most, known):
    people = known(CANVAS)
    a9 = parse({**ASSIGNMENT, "title": title})
    rows = table(canvas(marked(people, []), a9, plan, people))
    assert [row[-1] for row in rows[:3]] == [column, most, ""]


def test_moodle_gets_who_it_is_the_grade_and_when_it_changed(known):
    people = known(MOODLE)
    found = marked(people, [([0], (2, 1), None)])
    rows = table(moodle(found, people))
    assert rows[0] == ["Identifier", "Full name", "ID number", "Email address",
                       "Maximum Grade", "Last modified (grade)", "Grade"]  # fmt: skip
    assert rows[1][0] == "Participant 901" and rows[1][-2:] == ["-", "3"]
    assert rows[2][-2:] == ["Monday, 5 October 2026, 9:00 AM", ""]
    given = {"901": {"split_heads": Given(2.0, "good")}}
    rows = table(moodle(marked(people, [([0], (2, 1), None)], Plan(), given), people))
    assert [row[-1] for row in rows] == ["Feedback comments", "good", "well done", ""]
    assert rows[1][-2] == "4"
