"""The sheet for points given by hand: written empty, filled, read back."""

import csv
import io

import pytest

from mha_lib.grade import by_hand, roster
from mha_lib.grade.assignments import parse
from mha_lib.grade.by_hand import Given, empty, worth
from mha_lib.grade.plan import Plan
from tests.grade.course import ASSIGNMENT
from tests.grade.platforms_files import PLAIN

PLAN = Plan(by_hand={"essay": 4.0, "talk": 1.5})
MOST = worth(parse(ASSIGNMENT), PLAN)


@pytest.fixture
def read(tmp_path):
    def reading(text: str, codes=()):
        (tmp_path / "sheet.csv").write_text(text)
        (tmp_path / "roster.csv").write_text(PLAIN)
        known = roster.read(tmp_path / "roster.csv")
        return by_hand.read(tmp_path / "sheet.csv", MOST, known, dict(codes))

    return reading


def test_what_questions_are_worth():
    assert MOST == {"merge_heads": 2, "split_heads": 3, "essay": 4.0, "talk": 1.5}


def test_an_empty_sheet_is_read_back_as_nothing(read):
    text = empty(PLAN, {"S1": "Ada Lovelace", "S2": "=Seán"}, {"S2": "=1+1.py"})
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [(x["student"], x["question"], x["out_of"]) for x in rows] == [
        ("S1", "essay", "4"), ("S1", "talk", "1.5"),
        ("S2", "essay", "4"), ("S2", "talk", "1.5"),
    ]  # fmt: skip
    assert rows[0]["name"] == "Ada Lovelace" and rows[2]["name"] == "'=Seán"
    assert [x["submission"] for x in rows] == ["", "", "'=1+1.py", "'=1+1.py"]
    assert read(text) == {"S1": {}, "S2": {}}


def test_points_are_read_as_any_spreadsheet_writes_them(read):
    text = 'student;question;points;comment\nAda Lovelace;essay;"3,5"; clear \n'
    text += "S2;split_heads;0;\n'S2;essay; 4.0 ;\n"
    assert read(text) == {
        "S1": {"essay": Given(3.5, "clear")},
        "S2": {"split_heads": Given(0.0), "essay": Given(4.0)},
    }
    assert read("student,question,points\ns7,talk,1\n", {"s7": "S3"}) == {
        "S3": {"talk": Given(1.0)}
    }


def test_a_comment_without_points_is_kept_and_the_question_open(read):
    text = "student,question,points,comment\nS1,essay,,see me\nS2,talk,, \n"
    assert read(text) == {"S1": {"essay": Given(None, "see me")}, "S2": {}}


HEAD = "student,question,points\nS1,essay,1\n"


@pytest.mark.parametrize(
    "text, said",
    [
        (
            HEAD + "S2,essay,4.5\n",
            "line 3: the points of essay go from 0 to 4; got '4.5'",
        ),
        (
            HEAD + "S2,essay,-1\n",
            "line 3: the points of essay go from 0 to 4; got '-1'",
        ),
        (HEAD + "S2,essay,0_3\n", "line 3: the points .* got '0_3'"),
        (HEAD + "S2,essay,=1+1\n", "line 3: the points .* got '=1.1'"),
        (HEAD + "S2,essay,nan\n", "line 3: the points .* got 'nan'"),
        (HEAD + "S2,essay,many\n", "line 3: the points .* got 'many'"),
        (
            HEAD + "S2,split_heads,3.1\n",
            "line 3: the points of split_heads go from 0 to",
        ),
        (
            HEAD + "S2,esay,1\n",
            "line 3: a question must be one of merge_heads, .* 'esay'",
        ),
        (HEAD + "S9,essay,1\n", "line 3: 'S9' is nobody in"),
        (HEAD + "ada,essay,\n", "line 3: 'S1' has points for essay already"),
        ("student,points\nS1,1\n", "line 1: student, question, points are required"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text, said, read):
    with pytest.raises(ValueError, match=said):
        read(text)


def test_without_anything_to_mark_there_is_no_sheet():
    with pytest.raises(ValueError, match=r"say in the plan what is, .* \{essay: 4\}"):
        empty(Plan(), {"S1": ""}, {})
