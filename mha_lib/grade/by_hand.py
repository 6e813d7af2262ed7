"""Points that a person gives: a sheet with a line for each student and question.

It is written empty, filled in a spreadsheet, and merged into the marks. A question that
the grader marks may be among them: then the sheet counts.
"""

from dataclasses import dataclass
from math import isfinite
from pathlib import Path

from mha_lib.grade import tables
from mha_lib.grade.assignments import Assignment
from mha_lib.grade.plan import Plan
from mha_lib.grade.roster import Roster
from mha_lib.grade.tables import Row

__all__ = ["HEADERS", "Given", "empty", "read", "worth"]

HEADERS = ["student", "name", "submission", "question", "points", "out_of", "comment"]
REQUIRED = ("student", "question", "points")


@dataclass(frozen=True)
class Given:
    """What a person gave one student for one question, and said of it."""

    points: float | None  # none: it is still open
    comment: str = ""


def worth(assignment: Assignment, plan: Plan) -> dict[str, float]:
    """What each question can bring, those that the grader marks first."""
    return {x.name: x.points for x in assignment.questions} | plan.by_hand


def empty(plan: Plan, students: dict[str, str], files: dict[str, str]) -> str:
    """A sheet to be filled, as CSV.

    Args:
        plan: says what is marked by hand.
        students: the names of all, by what the marks will call them.
        files: what they handed in, where that is known.

    Raises:
        ValueError: the plan has nothing that is marked by hand.
    """
    if not plan.by_hand:
        raise ValueError(
            "nothing is marked by hand: say in the plan what is, such as "
            "by_hand: {essay: 4}"
        )
    rows = [
        [student, name, files.get(student, ""), question, "", f"{most:g}", ""]
        for student, name in students.items()
        for question, most in plan.by_hand.items()
    ]
    return tables.text(HEADERS, rows)


def read(
    path: Path, most: dict[str, float], roster: Roster, codes: dict[str, str]
) -> dict[str, dict[str, Given]]:
    """What was given, by the id of the student and the question.

    Args:
        path: the sheet; a line without points is still open, its comment counts.
        most: as `worth` says.
        roster: who is in the course.
        codes: ids of students by what else the sheet may call them.

    Raises:
        ValueError: a student or question is unknown or there twice, or the points are
            no number from 0 to the most; the message names file and line.
    """
    headers, rows = tables.read(path)
    if not {*REQUIRED} <= {*headers}:
        due, came = ", ".join(REQUIRED), ", ".join(headers)
        raise ValueError(f"{path}, line 1: {due} are required; got {came}")
    given: dict[str, dict[str, Given]] = {}
    for row in rows:
        student = _student(row, roster, codes)
        question = row.cells["question"].strip()
        if question not in most:
            known = ", ".join(most)
            raise row.fail(f"a question must be one of {known}; got {question!r}")
        of_student = given.setdefault(student, {})
        if question in of_student:
            raise row.fail(f"{student!r} has points for {question} already")
        comment = row.cells.get("comment", "").strip()
        if row.cells["points"].strip():
            of_student[question] = Given(_points(row, most[question]), comment)
        elif comment:
            of_student[question] = Given(None, comment)
    return given


def _student(row: Row, roster: Roster, codes: dict[str, str]) -> str:
    name = tables.original(row.cells["student"].strip())
    if name in codes:
        return codes[name]
    try:
        return roster.one(name).id
    except ValueError as error:
        raise row.fail(str(error)) from None


def _points(row: Row, most: float) -> float:
    text = row.cells["points"].strip()
    try:
        # A comma, as half the world writes it; an underscore is Python's alone.
        points = float(text.replace(",", ".").replace("_", "?"))
    except ValueError:
        points = float("nan")
    if not isfinite(points) or not 0 <= points <= most:
        question = row.cells["question"].strip()
        raise row.fail(f"the points of {question} go from 0 to {most:g}; got {text!r}")
    return points
