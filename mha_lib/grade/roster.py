"""Who is in the course, from a CSV file as Canvas, Moodle, GitHub or anybody writes it.

Canvas, its exported gradebook: `Student`, or `LastName` and `FirstName`; `ID`, `SIS
User ID`, `SIS Login ID`, `Integration ID`, `Root Account`, `Section`, then the
assignments. Some lines are no student: posting policies, `Points Possible`.
(instructure/canvas-lms, `lib/gradebook_exporter.rb`, `lib/gradebook_importer.rb`)

Moodle, its grading worksheet: `Identifier` (`Participant 123`), `Full name` and `Email
address` unless marking is blind, `Status`, `Grade`, `Maximum Grade`, `Grade can be
changed`, `Last modified (submission)`, `Last modified (grade)`, `Feedback comments`. On
the way back it requires `Identifier`, `Grade` and `Last modified (grade)`.
(moodle/moodle, `mod/assign/feedback/offline/importgradeslib.php`)

GitHub Classroom, its roster: `identifier`, `github_username`, `github_id`, `name`; its
grades: `github_username`, `roster_identifier`, which may be empty,
`student_repository_name`, `submission_timestamp`, `group_name` and more.
(abc-classroom.readthedocs.io, *Managing the classroom roster*; docs.github.com,
*REST API endpoints for GitHub Classroom*)

Gradescope, its roster: `First Name` and `Last Name`, or one name, `SID`, `Email`,
`Role`, sections; its grades: the same without `Role`, and `Submission Time`.
(guides.gradescope.com, article 21926598776333, *Adding Students and Staff*; the exports
themselves as public scripts read them)

Any other table with a column `id` or `email` will do.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from mha_lib.grade import tables
from mha_lib.grade.tables import Row

__all__ = ["Roster", "Student", "key", "moment", "read"]

MEANINGS = {  # and the headers that have it, in small letters
    "id": ("id", "student id", "student_id", "sid", "identifier", "id number")
    + ("roster_identifier",),
    "name": ("name", "full name", "student", "student name"),
    "first": ("first name", "first_name", "firstname", "given name"),
    "last": ("last name", "last_name", "lastname", "surname", "family name"),
    "email": ("email", "email address", "e-mail", "mail"),
    "login": ("login", "username", "sis login id", "sis user id", "student number"),
    "github": ("github_username", "github"),
    "repository": ("student_repository_name",),
    "submitted": ("submitted", "submission_timestamp", "submission time"),
}
UNIQUE = ("email", "login", "github")
SHOWN = ("name", "first", "last", "email", "login", "github")  # in the table of marks
POSTING = re.compile(r"\s*(Muted|Manual Posting.*)?\s*", re.I)  # of Canvas, no student
# Moodle adds it to the status, in the language of the course; this is the English one.
LATE = re.compile(r"((?:\d+ (?:year|day|hour|min|sec)s?\s*)+)late")
UNITS = {"year": 8760, "day": 24, "hour": 1, "min": 1 / 60, "sec": 1 / 3600}


@dataclass(frozen=True)
class Student:
    """Somebody in the course.

    Attributes:
        id: as in the roster; of Moodle's `Participant 123`, and in its folders, 123.
        name: as a person reads it.
        row: of the roster.
        known: what tells the student, by its header.
        keys: by which a file or a table may name the student, see `key`.
        github: the name there, in small letters.
        repository: the name of theirs, or of their group, in small letters.
        submitted: when, if the roster says so.
        late: how late, if the roster says so.
    """

    id: str
    name: str = field(compare=False)
    row: Row = field(compare=False, repr=False)
    known: dict[str, str] = field(compare=False)
    keys: frozenset[str] = field(compare=False, repr=False)
    github: str = field(default="", compare=False)
    repository: str = field(default="", compare=False)
    submitted: datetime | None = field(default=None, compare=False)
    late: timedelta | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Roster:
    """All students, in the order of the file.

    Attributes:
        path: the file.
        form: "canvas", "moodle" or "plain".
        headers: of the file.
        rows: all of it, students or not.
        students: by their ids.
    """

    path: Path
    form: str
    headers: list[str]
    rows: list[Row]
    students: dict[str, Student]

    @cached_property
    def _by_key(self) -> dict[str, list[Student]]:
        found = defaultdict(list)
        for student in self.students.values():
            for name in student.keys:
                found[name].append(student)
        return found

    def called(self, text: str) -> list[Student]:
        """Who has this id, or else this name, email address or login."""
        if text.strip() in self.students:
            return [self.students[text.strip()]]
        return self._by_key.get(key(text), [])

    def one(self, text: str) -> Student:
        """The student of this id, name, email address or login; an error if not one."""
        found = self.called(text)
        if len(found) != 1:
            raise ValueError(f"{text!r} {self._not_one(found)}")
        return found[0]

    def _not_one(self, found: list[Student]) -> str:
        if not found:
            return f"is nobody in {self.path}"
        ids = " and ".join(student.id for student in found)
        return f"is more than one student of {self.path}: {ids}; write the id"


def key(text: str) -> str:
    """What is the same however it is written: letters and digits, in small letters.

    Example:
        >>> from mha_lib.grade.roster import key
        >>> key("O'Brien, Seán"), key("obrienseán")
        ('obrienseán', 'obrienseán')
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    return "".join(x for x in text if x.isalnum())


def moment(text: str) -> datetime:
    """A time with its zone, such as 2026-10-01T23:59+02:00 or 2026-10-01 21:59 UTC."""
    plain = re.sub(r"\s*(Z|UTC)$", "+00:00", text.strip())
    plain = re.sub(r"\s+([+-]\d\d):?(\d\d)$", r"\1:\2", plain)
    plain = re.sub(r"\.\d+", "", plain)  # parts of a second, as many as they are
    try:
        found = datetime.fromisoformat(plain)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ValueError(
            "a time must have a zone, such as 2026-10-01T23:59+02:00; "
            f"got {text.strip()!r}"
        )
    return found


def read(path: Path) -> Roster:
    r"""The roster in a CSV file.

    Raises:
        ValueError: a column is missing, somebody is there twice or without an id, or
            two ids have one login, or one name and nothing else that tells them
            apart; the message names file and lines.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from mha_lib.grade.roster import read
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder, "roster.csv")
        ...     _ = path.write_text("id,name\n7,Ada Lovelace\n")
        ...     roster = read(path)
        >>> roster.form, roster.one("lovelace, ada").id
        ('plain', '7')
    """
    headers, rows = tables.read(path)
    lower = {header.lower() for header in headers}
    form = "plain"
    if {"student", "id"} <= lower or {"lastname", "firstname", "id"} <= lower:
        form = "canvas"
    elif "identifier" in lower and {"full name", "grade can be changed"} & lower:
        form = "moodle"
    meaning = _meanings(headers, form)
    if not {"id", "email"} & set(meaning.values()):
        came = ", ".join(headers)
        raise ValueError(
            f"{path}, line 1: a column id or email is required; got {came}"
        )
    students: dict[str, Student] = {}
    written: dict[str, Student] = {}  # small letters, and one Unicode form for all
    for row in rows:
        if form == "canvas" and _of_canvas_itself(row):
            continue
        if row.cells.get("Role", "").strip() not in ("", "Student"):
            continue  # Gradescope lists who teaches, too
        student = _student(row, meaning, form)
        if not student.id:
            raise row.fail("the id is missing")
        spelt = unicodedata.normalize("NFKC", student.id).casefold()
        other = written.setdefault(spelt, student)
        if other is not student:
            how = "" if other.id == student.id else f" as {other.id!r}"
            raise row.fail(
                f"{student.id!r} was there before{how}, in {other.row.where}"
            )
        students[student.id] = student
    if not students:
        raise ValueError(f"{path}: there is nobody in it")
    _check_apart(students.values(), meaning)
    return Roster(path, form, headers, rows, students)


def _meanings(headers: list[str], form: str) -> dict[str, str]:
    """What a column means, by its header; of two ids the second is a login."""
    found: dict[str, str] = {}
    for header in headers:
        for meaning, names in MEANINGS.items():
            if header.lower() not in names:
                continue
            # Canvas' `Student` is a name; elsewhere it may be what tells students.
            if header.lower() == "student" and form == "plain":
                meaning = "id"
            if meaning == "id" and "id" in found.values():
                meaning = "login"
            found[header] = meaning
    return found


def _check_apart(students: Iterable[Student], meaning: dict[str, str]) -> None:
    """Refuse what two ids share and one person alone can have.

    People may have the same name, but then a login or an address that differs.
    """
    unique = [header for header, name in meaning.items() if name in UNIQUE]
    owners: dict[tuple[str, str], Student] = {}
    called: dict[str, list[Student]] = defaultdict(list)
    for student in students:
        cells = student.row.cells
        for header in unique:
            text = cells[header].strip()
            other = owners.setdefault((meaning[header], text.casefold()), student)
            if key(text) and other is not student:
                raise student.row.fail(
                    f"{text!r}, the {header} of {student.id!r}, is that of "
                    f"{other.id!r}, too, in {other.row.where}; it can belong to one"
                )
        turned = " ".join(reversed(_parts(student.name)))
        names = {key(student.name), key(turned)}  # "Lovelace, Ada" is "Ada Lovelace"
        for other in (x for name in sorted(names) for x in called[name]):
            before = other.row.cells
            if not any(cells[x].strip() and before[x].strip() for x in unique):
                raise student.row.fail(
                    f"{student.name!r} is {student.id!r} here and {other.id!r}, "
                    f"{other.name!r}, in {other.row.where}: of one person, delete a "
                    "line; of two, write the names so that they differ, or add their "
                    "email addresses"
                )
        for name in filter(None, names):
            called[name].append(student)


def _of_canvas_itself(row: Row) -> bool:
    """Lines of the gradebook that are no student, as its importer tells them.

    The student of the *Student View* is exported too, as the last line.
    """
    cells = [*row.cells.values()]
    nobody = cells[0] == "Student, Test" or cells[:2] == ["Student", "Test"]
    points = "Points Possible" in cells[0]
    policies = all(POSTING.fullmatch(cell) for cell in cells)
    return points or nobody or policies


def _student(row: Row, meaning: dict[str, str], form: str) -> Student:
    cells = {header: row.cells[header].strip() for header in meaning}
    by: dict[str, list[str]] = defaultdict(list)
    for header, name in meaning.items():
        by[name].append(cells[header])
    id = next(filter(None, (*by["id"], *by["email"], *by["github"])), "")
    if form == "moodle":
        id = re.sub(r"^\D+", "", id)
    names = by["name"] + [f"{a} {b}".strip() for a, b in zip(by["first"], by["last"])]
    turned = [" ".join(reversed(_parts(name))) for name in names]
    whole = [id, *by["email"], *by["login"]]
    short = [email.partition("@")[0] for email in whole]
    calls = [*whole, *short, *names, *turned, *by["github"]]
    given = next(filter(None, by["submitted"]), "")
    try:
        submitted = moment(given) if given else None
    except ValueError as error:
        raise row.fail(str(error)) from None
    return Student(
        id,
        next(filter(None, names), ""),
        row,
        {header: cells[header] for header in meaning if meaning[header] in SHOWN},
        frozenset(filter(None, map(key, calls))),
        next(iter(by["github"]), "").lower(),
        next(iter(by["repository"]), "").lower().rpartition("/")[2],
        submitted,
        _late(row.cells.get("Status", "")) if form == "moodle" else None,
    )


def _parts(name: str) -> list[str]:
    """Of "Lovelace, Ada" and of "Ada Lovelace", so that they can be turned round."""
    separator = "," if "," in name else None
    return [part.strip() for part in name.split(separator, 1)]


def _late(status: str) -> timedelta | None:
    found = LATE.search(status)
    if not found:
        return None
    parts = re.findall(r"(\d+) (year|day|hour|min|sec)", found[1])
    return timedelta(hours=sum(int(n) * UNITS[unit] for n, unit in parts))
