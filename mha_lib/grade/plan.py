"""The rules of a course for one assignment: a small YAML file, every key optional.

```yaml
due: 2026-10-01T23:59+02:00   # with the zone, or its name: 23:59 Europe/Berlin
late:
  per_day: 10                 # percent of the points reached, for each day begun
  most: 5                     # days; after that there are no points
  grace: 0.25                 # hours that are not late yet
attempts: best                # or last: which of several files of one student counts
extensions:                   # hours
  ada: 48
groups:                       # what one hands in counts for all
  - [ben, cleo]
by_hand:                      # questions that a person marks, and what they are worth
  essay: 4
column: Assignment 2 (1234)   # of Canvas' gradebook, if it is not the title
```
"""

import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil, isfinite
from pathlib import Path

from mha_lib.grade import lines
from mha_lib.grade.assignments import Assignment
from mha_lib.grade.exports import Handed
from mha_lib.grade.lines import Node
from mha_lib.grade.roster import Roster, Student, moment

__all__ = ["ATTEMPTS", "COLUMNS", "Plan", "read"]

ZONE = re.compile(r"\s+([A-Za-z_]+/[\w/+-]+)$")  # the name of one
MINUTE = re.compile(r"[T ]\d\d:?\d\d(?![:\d])")  # a time without its seconds
ATTEMPTS = ("best", "last")
COLUMNS = (  # of the marks, beside those of the roster and one for each question
    *("student", "status", "days late", "submission", "points", "out_of", "by hand"),
    *("still open", "comment"),
)


@dataclass(frozen=True)
class Plan:
    """The rules; without a file, nothing is late and the best attempt counts.

    Attributes:
        due: when work is due; in a zone with a name, days are those of its clocks.
        per_day: percent of the points reached that a day begun costs.
        most: days after which there are no points; none: as many as there are.
        grace: what is not late yet.
        attempts: "best" or "last".
        extensions: by the id of a student.
        groups: who works together, by ids.
        by_hand: what questions that a person marks are worth.
        column: of Canvas' gradebook, where it is not the title of the assignment.
    """

    due: datetime | None = None
    per_day: float = 0.0
    most: float | None = None
    grace: timedelta = timedelta()
    attempts: str = "best"
    extensions: dict[str, timedelta] = field(default_factory=dict)
    groups: tuple[frozenset[str], ...] = ()
    by_hand: dict[str, float] = field(default_factory=dict)
    column: str = ""

    def together(self, student: Student) -> frozenset[str]:
        """The ids of those whose work counts for this student."""
        alone = frozenset({student.id})
        return next((group for group in self.groups if student.id in group), alone)

    def days_late(self, student: Student, handed: Handed) -> int:
        """How many days have begun since the work was due; 0 if it was in time.

        Where the platform says no more than that it was late, it is one day, and none
        for students with an extension.
        """
        extension = self.extensions.get(student.id, timedelta())
        # In a group, the roster tells of whoever handed it in.
        owner = student if student in handed.students else handed.students[0]
        submitted = handed.submitted or owner.submitted
        if self.due is not None and submitted is not None:
            # Of one zone Python takes the difference as the clocks there show it.
            late = submitted.astimezone(self.due.tzinfo) - self.due
        elif owner.late is not None:
            late = owner.late
        else:
            return int(handed.flagged and not extension)
        return max(0, ceil((late - extension - self.grace) / timedelta(days=1)))

    def kept(self, days: int) -> float:
        """The share of the points that is left after so many days.

        Example:
            >>> from mha_lib.grade.plan import Plan
            >>> [Plan(per_day=10, most=2).kept(days) for days in range(4)]
            [1.0, 0.9, 0.8, 0.0]
        """
        if self.most is not None and days > self.most:
            return 0.0
        return max(0.0, 1.0 - self.per_day * days / 100)


def read(path: Path, assignment: Assignment, roster: Roster | None) -> Plan:
    """The plan in a file.

    Raises:
        ValueError: a key or a value is wrong, or somebody is not in the roster; the
            message names file and line.
    """
    fields = dict(lines.parse(lines.decoded(path.read_bytes(), path), path).fields())
    _known(fields, READERS)
    plan: dict[str, object] = {}
    for name, node in fields.items():
        plan |= READERS[name](node, assignment, roster)
    return Plan(**plan)


def _known(fields: dict[str, Node], names: object) -> None:
    for name, node in fields.items():
        if name not in names:
            raise node.fail(f"the key must be one of {', '.join(names)}; got {name!r}")


def _number(node: Node) -> float:
    try:
        number = float(node.text())
    except ValueError:
        number = -1.0
    if not (isfinite(number) and number >= 0):
        raise node.fail(f"a number from 0 up is required; got {node.text()!r}")
    return number


def _hours(node: Node) -> timedelta:
    return timedelta(hours=min(_number(node), 1e6))


def _student(node: Node, name: str, roster: Roster | None) -> str:
    if roster is None:
        raise node.fail("students can only be named with --roster")
    try:
        return roster.one(name).id
    except ValueError as error:
        raise node.fail(str(error)) from None


def _due(node: Node, *_: object) -> dict:
    """When work is due: a minute lasts to its end, unless the seconds are given."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # asks the system when loaded

    text = node.text()
    named = ZONE.search(text)
    try:
        found = moment(f"{text[: named.start()]}+00:00" if named else text)
        if named:
            found = found.replace(tzinfo=ZoneInfo(named[1]))
    except (ZoneInfoNotFoundError, OSError):
        known = "it must be one such as Europe/Berlin (on Windows: pip install tzdata)"
        raise node.fail(f"there is no zone {named[1]!r} here; {known}") from None
    except ValueError as error:
        raise node.fail(str(error)) from None
    whole = MINUTE.search(text)
    return {"due": found + timedelta(seconds=59) if whole else found}


def _late(node: Node, *_: object) -> dict:
    fields = node.fields()
    _known(fields, ("per_day", "most", "grace"))
    kinds = {"grace": _hours}
    return {name: kinds.get(name, _number)(value) for name, value in fields.items()}


def _attempts(node: Node, *_: object) -> dict:
    if node.text() not in ATTEMPTS:
        known = " or ".join(ATTEMPTS)
        raise node.fail(f"attempts must be {known}; got {node.text()!r}")
    return {"attempts": node.text()}


def _extensions(node: Node, assignment: Assignment, roster: Roster | None) -> dict:
    extensions: dict[str, timedelta] = {}
    for name, hours in node.fields().items():
        student = _student(hours, name, roster)
        if student in extensions:
            raise hours.fail(f"{student!r} has an extension already")
        extensions[student] = _hours(hours)
    return {"extensions": extensions}


def _groups(node: Node, assignment: Assignment, roster: Roster | None) -> dict:
    groups: list[frozenset[str]] = []
    for group in node.items():
        ids = [_student(x, x.text(), roster) for x in group.items()]
        before = {id for known in groups for id in known}
        twice = [id for id in ids if ids.count(id) > 1 or id in before]
        if twice:
            raise group.fail(f"{twice[0]!r} is in two groups, or twice in one")
        groups.append(frozenset(ids))
    return {"groups": tuple(groups)}


def _by_hand(node: Node, assignment: Assignment, roster: Roster | None) -> dict:
    taken = {question.name for question in assignment.questions}
    columns = {*COLUMNS, *(roster.headers if roster else ())}
    for name, value in node.fields().items():
        if name in taken:
            raise value.fail(f"{name} is a question that the grader marks")
        if not name or name in columns:
            raise value.fail(f"the marks have a column {name!r}: call it otherwise")
    return {"by_hand": {name: _number(x) for name, x in node.fields().items()}}


def _column(node: Node, assignment: Assignment, roster: Roster | None) -> dict:
    if roster is not None and node.text() not in roster.headers:
        came = ", ".join(roster.headers)
        raise node.fail(f"{roster.path} has no column {node.text()!r}, but {came}")
    return {"column": node.text()}


READERS = {
    "due": _due,
    "late": _late,
    "attempts": _attempts,
    "extensions": _extensions,
    "groups": _groups,
    "by_hand": _by_hand,
    "column": _column,
}
