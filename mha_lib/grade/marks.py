"""From graded submissions to a mark for each student, in the columns of a platform.

What was handed in late loses what the plan says; of several attempts the best counts,
or the last; points given by hand are added.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mha_lib.grade import tables
from mha_lib.grade.assignments import Assignment
from mha_lib.grade.by_hand import Given, worth
from mha_lib.grade.exports import Handed
from mha_lib.grade.plan import Plan
from mha_lib.grade.roster import Roster, Student

__all__ = ["Mark", "canvas", "marks", "moodle", "plain"]

CANVAS = ("student", "lastname", "firstname", "id", "sis user id", "sis login id")
CANVAS += ("integration id", "root account", "section")  # what it reads a student from
MOODLE = ("Maximum Grade", "Last modified (grade)")  # beside who it is, and the grade
FEEDBACK = "Feedback comments"


@dataclass(frozen=True)
class Mark:
    """What one student gets.

    Attributes:
        student: whose it is.
        status: "in time", "late" or "missing".
        days: begun since the work was due.
        submission: the one that counts; empty where there is none.
        by_question: points, without those that are still open.
        points: all of them, after what being late costs; None: nothing was marked.
        taken: what being late cost.
        open: questions that are marked by hand, and were not yet.
        given: what was given and said by hand, by the question.
    """

    student: Student
    status: str
    days: int
    submission: str
    by_question: dict[str, float]
    points: float | None
    taken: float
    open: tuple[str, ...]
    given: Mapping[str, Given]

    @property
    def comment(self) -> str:
        """All that was said by hand."""
        return "; ".join(x.comment for x in self.given.values() if x.comment)

    @property
    def final(self) -> float | None:
        """The points, if no question is open: what a platform may show a student."""
        return None if self.open else self.points


def marks(
    handed: Iterable[Handed],
    rows: Iterable[dict],
    roster: Roster,
    plan: Plan,
    given: Mapping[str, Mapping[str, Given]],
) -> list[Mark]:
    """A mark for each student, in the order of the roster.

    Args:
        handed: what was graded, and whose it is.
        rows: as `report.row` makes them.
        roster: who is in the course.
        plan: the rules.
        given: points by hand, by the id of the student and the question.
    """
    points = {row["submission"]: row["by_question"] for row in rows}
    attempts: dict[str, list[Handed]] = {}
    for one in handed:
        for student in one.students:
            attempts.setdefault(student.id, []).append(one)
    found = []
    for student in roster.students.values():
        theirs = {
            one.name: one
            for id in sorted(plan.together(student))
            for one in attempts.get(id, ())
        }
        tried = sorted(theirs.values(), key=lambda one: one.order)
        if plan.attempts == "last":
            tried = tried[-1:]
        by_hand = given.get(student.id, {})
        every = [_mark(student, x, points[x.name], plan, by_hand) for x in tried]
        nothing = _mark(student, None, {}, plan, by_hand)
        found.append(max(every, key=lambda mark: mark.points, default=nothing))
    return found


def _mark(
    student: Student,
    handed: Handed | None,
    points: dict[str, float],
    plan: Plan,
    given: Mapping[str, Given],
) -> Mark:
    by_hand = {name: x.points for name, x in given.items() if x.points is not None}
    all_points = {**points, **by_hand}
    days = plan.days_late(student, handed) if handed else 0
    reached = sum(all_points.values())
    total = round(reached * plan.kept(days), 2)
    return Mark(
        student,
        ("late" if days else "in time") if handed else "missing",
        days,
        handed.name if handed else "",
        all_points,
        total if all_points else None,
        round(reached - total, 2),
        tuple(x for x in plan.by_hand if handed and x not in by_hand),
        given,
    )


# --- as tables ----------------------------------------------------------------------


def plain(
    found: list[Mark], assignment: Assignment, plan: Plan, codes: Mapping[str, str]
) -> str:
    """A line for each student, with the columns that tell who it is.

    Args:
        found: the marks.
        assignment: what was asked.
        plan: the rules.
        codes: what students are called instead, by their ids; none: as they are.
    """
    most = worth(assignment, plan)
    known = [] if codes else list(found[0].student.known)
    headers = ["student", *known, "status", "days late", "submission", *most]
    headers += ["points", "out_of", "by hand", "still open", "comment"]
    rows = [
        [
            codes.get(mark.student.id, mark.student.id),
            *(mark.student.known[name] for name in known),
            mark.status,
            str(mark.days),
            mark.submission,
            *(_shown(mark.by_question.get(name)) for name in most),
            _shown(mark.points),
            f"{sum(most.values()):g}",
            "; ".join(name for name, x in mark.given.items() if x.points is not None),
            "; ".join(mark.open),
            mark.comment,
        ]
        for mark in found
    ]
    return tables.text(headers, rows)


def canvas(
    found: list[Mark], assignment: Assignment, plan: Plan, roster: Roster
) -> str:
    """What Canvas imports: its own columns, and one for the assignment.

    Who handed in nothing has an empty cell, which changes nothing there; so has who
    has a question that is still open.
    """
    title = re.escape(assignment.title)
    same = [x for x in roster.headers if re.fullmatch(rf"{title}( \(\d+\))?", x)]
    column = plan.column or (same[0] if len(same) == 1 else assignment.title)
    kept = [x for x in roster.headers if x.lower() in CANVAS]
    by_row = {mark.student.row.where: _shown(mark.final) for mark in found}
    most = f"{sum(worth(assignment, plan).values()):g}"
    rows = []
    for row in roster.rows:
        cells = [row.cells[header] for header in kept]
        if row.where in by_row:
            rows.append([*cells, by_row[row.where]])
        elif cells[0].strip() == "Points Possible":
            rows.append([*cells, row.cells.get(column, most)])
    return tables.text([*kept, column], rows)


def moodle(found: list[Mark], roster: Roster) -> str:
    """What Moodle imports: who it is, the grade, and when it was changed there.

    The grade is empty as in `canvas`. Comments are a column only where some were
    given, as an empty one would delete what stands there.
    """
    known = ["Identifier", *found[0].student.known]
    kept = [x for x in roster.headers if x in (*known, *MOODLE)]
    comments = [FEEDBACK] * any(mark.comment for mark in found)
    rows = []
    for mark in found:
        before = mark.student.row.cells
        said = [mark.comment or before.get(FEEDBACK, "")] * len(comments)
        cells = [before[header] for header in kept]
        rows.append([*cells, _shown(mark.final), *said])
    return tables.text([*kept, "Grade", *comments], rows)


def _shown(points: float | None) -> str:
    return "" if points is None else f"{points:g}"
