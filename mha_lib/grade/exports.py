"""Whose file is it, and was it late? Read from names as the platforms write them.

| Platform | A file is called |
|---|---|
| Canvas, *Download Submissions* | `lovelaceada_LATE_1234_98765_a2_heads.ipynb` |
| Moodle, *Download all …* | `Ada Lovelace_1234_assignsubmission_file_/a2.ipynb` |
| Gradescope, *Export …* | `submission_1234/a2.ipynb`, and a file of metadata |
| GitHub Classroom, a clone of all | `a2-adalovelace/a2_heads.ipynb` |
| anything else | the id, name, email or login of a student is one part of the path |

The repository of a group is tied to its members by the table of grades that GitHub
Classroom exports, taken as the roster. Gradescope's metadata hold for each submission
`:submitters` with `:name`, `:sid` and `:email`, and `:created_at`, as public scripts
that read `submission_metadata.yml` show.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath

from mha_lib.grade import handed_in, lines, tables
from mha_lib.grade.lines import Node
from mha_lib.grade.roster import Roster, Student, moment
from mha_lib.grade.submission import SUFFIXES

__all__ = ["METADATA", "Handed", "counting", "sort"]

METADATA = "submission_metadata.yml"  # Gradescope's
CANVAS = re.compile(
    r"(?P<name>\w+?)(?P<late>_LATE)?_(?P<id>\d+)_(?P<file>\d+)_(?P<title>.+)"
)
MOODLE = re.compile(
    r"(?P<name>.+?)_(?P<id>\d+)_assignsubmission_(file|onlinetext)(_.*)?"
)
SHOWN = 10  # names in an error


@dataclass(frozen=True)
class Handed:
    """What a name says of a file.

    Attributes:
        name: of the submission.
        students: whose it is; several, where Gradescope says so; or nobody known.
        flagged: the platform says that it was late, and not by how much.
        submitted: when, if the platform says so.
        number: grows from one upload to the next, where the platform counts.
    """

    name: str
    students: tuple[Student, ...] = ()
    flagged: bool = False
    submitted: datetime | None = None
    number: int = 0

    @property
    def order(self) -> tuple:
        """What sorts the attempts of one student, the first one first."""
        parts = re.split(r"(\d+)", self.name)
        natural = [int(x) if x.isdigit() else x for x in parts]
        return (self.submitted or _NEVER, self.number, natural)


_NEVER = moment("0001-01-02T00:00+00:00")


def sort(files: Mapping[str, object], roster: Roster, others: bool = False) -> list:
    """What was handed in, tied to students.

    Args:
        files: by name, as `handed_in.submissions` finds them.
        roster: who is in the course.
        others: keep what belongs to nobody in it.

    Raises:
        ValueError: a file belongs to nobody in the roster, or to somebody whom the
            roster does not tell from another one.
    """
    metadata = _metadata(files, roster)
    found, nobody = [], []
    for name in files:
        if metadata and PurePosixPath(name).name == METADATA:
            continue
        handed = _tied(name, roster, metadata)
        if not handed.students and not others:
            nobody.append(name)
        found.append(handed)
    if nobody:
        shown = ", ".join(map(tables.cell, nobody[:SHOWN]))
        more = f" and {len(nobody) - SHOWN} more" if len(nobody) > SHOWN else ""
        raise ValueError(
            f"nobody in {roster.path} handed in {shown}{more}: add "
            "a line to the roster, move the file away, or grade it with --others"
        )
    return found


def counting(handed: Iterable[Handed]) -> list[Handed]:
    """Without the files that somebody put beside a notebook, or beside a .py file.

    Example:
        >>> from mha_lib.grade.exports import Handed, counting
        >>> [x.name for x in counting([Handed("ada/data.csv"), Handed("ada/a2.py")])]
        ['ada/data.csv', 'ada/a2.py']

        Both count, as nobody knows whose they are.
    """
    handed = list(handed)
    best: dict[tuple, int] = {}
    for one in handed:
        best[one.students] = min(_rank(one.name), best.get(one.students, len(SUFFIXES)))
    return [x for x in handed if not x.students or _rank(x.name) == best[x.students]]


def _rank(name: str) -> int:
    """Notebooks first, then .py files, then what cannot be graded."""
    suffix = PurePosixPath(name).suffix.lower()
    return SUFFIXES.index(suffix) if suffix in SUFFIXES else len(SUFFIXES)


# --- whose ---------------------------------------------------------------------------


def _tied(name: str, roster: Roster, metadata: Mapping[str, "_Said"]) -> Handed:
    """By what the platform itself wrote: the outermost part of the path that says it.

    What lies in a folder, a student may have called as another student's is called.
    """
    path = PurePosixPath(name)
    for place in (path, *path.parents):
        if said := metadata.get(place.as_posix()):
            return Handed(name, said.students, submitted=said.submitted)
    handed = Handed(name)
    for part in path.parts:
        if not handed.students:
            handed = _by_platform(name, part, roster)
        if not handed.students:
            students = _by_part(part, part == path.name, name, roster)
            handed = replace(handed, students=students)
    return handed


def _by_platform(name: str, part: str, roster: Roster) -> Handed:
    if found := MOODLE.fullmatch(part):
        return Handed(name, _numbered(found, roster, "moodle"))
    if found := CANVAS.fullmatch(part):
        students = _numbered(found, roster, "canvas")
        return Handed(name, students, bool(found["late"]), number=int(found["file"]))
    owners = [x for x in roster.students.values() if x.repository == part.lower()]
    if owners:  # several, if it is a group's
        return Handed(name, tuple(owners))
    users = [x for x in roster.students.values() if x.github]
    ends = [x for x in users if f"-{part.lower()}".endswith(f"-{x.github}")]
    return Handed(name, tuple(sorted(ends, key=lambda x: len(x.github))[-1:]))


def _numbered(found: re.Match, roster: Roster, form: str) -> tuple[Student, ...]:
    """By the platform's own number, if the roster has it; else by the name."""
    if roster.form == form and found["id"] in roster.students:
        return (roster.students[found["id"]],)
    return _only(roster.called(found["name"]), found[0], roster)


def _by_part(part: str, last: bool, name: str, roster: Roster) -> tuple[Student, ...]:
    """By a folder, or by the name of the file or a piece of that."""
    stem = PurePosixPath(part).stem
    for texts in ([part], [stem] * last, re.split(r"[_\s]+", stem) * last):
        found = {x.id: x for text in texts for x in roster.called(text)}
        if found:
            return _only(list(found.values()), name, roster)
    return ()


def _only(found: list[Student], name: str, roster: Roster) -> tuple[Student, ...]:
    if len(found) > 1:
        who = " or of ".join(f"{x.id} ({x.row.where})" for x in found)
        raise ValueError(
            f"{name} may be of {who}: rename its folder after the id of one of them"
        )
    return tuple(found)


# --- Gradescope ----------------------------------------------------------------------


@dataclass(frozen=True)
class _Said:
    """What the metadata say of a submission."""

    students: tuple[Student, ...]
    submitted: datetime | None


def _metadata(files: Mapping[str, object], roster: Roster) -> dict[str, _Said]:
    """When each submission came and whose it is, by the path of its folder or file.

    They hold for all files or not at all: else a student may have written them.
    """
    found = {}
    for name in (x for x in files if PurePosixPath(x).name == METADATA):
        root = PurePosixPath(name).parent
        if all(root in PurePosixPath(x).parents for x in files):
            text = handed_in.text(files[name])
            for key, node in lines.parse(text, name).fields().items():
                found[(root / key).as_posix()] = _said(node, roster)
    return found


def _said(node: Node, roster: Roster) -> _Said:
    fields = node.fields()
    people = fields[":submitters"].items() if ":submitters" in fields else []
    students: list[Student] = []
    for person in people:
        texts = person.fields()
        tried = (texts[x].text() for x in (":sid", ":email", ":name") if x in texts)
        known = next(filter(None, map(roster.called, filter(None, tried))), [])
        students += _only(known, person.where, roster)
    if len(students) < len(people):
        students = []  # somebody of them is nobody: it is told so
    created = fields.get(":created_at")
    try:
        submitted = moment(created.text()) if created else None
    except ValueError as error:
        raise created.fail(str(error)) from None
    return _Said(tuple(students), submitted)
