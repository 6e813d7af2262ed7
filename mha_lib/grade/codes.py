"""Names kept apart: what students and their files are called where no name may stand.

The key lies in a folder of its own. It grows when somebody joins the course or hands in
another file, and nobody is ever called anew.
"""

import secrets
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from mha_lib.grade import tables
from mha_lib.grade.exports import Handed
from mha_lib.grade.journal import write
from mha_lib.grade.roster import Roster

__all__ = ["HEADERS", "Codes"]

HEADERS = ["code", "student", "file"]
OTHERS = "others"  # the folder of files that belong to nobody in the roster


class Codes:
    """What students and files are called; new ones are drawn as they are needed.

    Args:
        path: the key; it is made where there is none.
        roster: who is in the course.

    Raises:
        ValueError: it is no key, or one of another course.
    """

    def __init__(self, path: Path, roster: Roster):
        self.path = path
        self.students: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._read()
        for student in roster.students:
            if student not in self.students:
                self.students[student] = self._drawn()

    def _read(self) -> None:
        if not self.path.exists():
            return
        headers, rows = tables.read(self.path)
        if headers != HEADERS:
            due, came = ", ".join(HEADERS), ", ".join(headers)
            raise ValueError(f"{self.path}, line 1: {due} are required; got {came}")
        for row in rows:
            code, student, file = (tables.original(row.cells[x]) for x in HEADERS)
            known, name = (self.files, file) if file else (self.students, student)
            if code in known.values() or name in known:
                raise row.fail(f"{code!r} or {name!r} was there before")
            known[name] = code
            if file:
                self._owners[file] = student

    def _drawn(self) -> str:
        while (code := f"s{secrets.token_hex(3)}") in self.students.values():
            pass
        return code

    def rename(self, handed: Iterable[Handed]) -> dict[str, str]:
        """What each file is called instead; `save` keeps it."""
        taken = set(self.files.values())
        for one in handed:
            ids = [student.id for student in one.students]
            self._owners[one.name] = "; ".join(ids)
            if one.name in self.files:
                continue
            folder = self.students[ids[0]] if ids else OTHERS
            suffix = PurePosixPath(one.name).suffix
            numbers = (f"{folder}/{n}{suffix}" for n in range(1, len(taken) + 2))
            self.files[one.name] = next(x for x in numbers if x not in taken)
            taken.add(self.files[one.name])
        return self.files

    def save(self) -> None:
        """Write the key: a line for each student, and for each file and whose it is."""
        rows = [[code, student, ""] for student, code in self.students.items()]
        rows += [[code, self._owners[x], x] for x, code in self.files.items()]
        write(self.path, tables.text(HEADERS, rows))
