"""A run over a course: who is in it, by which rules, and what the platform gets back.

All that can be wrong with these files is said before anything is graded.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from mha_lib.grade import by_hand, exports, feedback, marks, plan, roster, tables
from mha_lib.grade.assignments import Assignment
from mha_lib.grade.by_hand import Given, worth
from mha_lib.grade.codes import Codes
from mha_lib.grade.exports import Handed
from mha_lib.grade.journal import write
from mha_lib.grade.marks import Mark
from mha_lib.grade.plan import Plan
from mha_lib.grade.roster import Roster

__all__ = ["Course", "load", "sheet"]

KEY = "key.csv"
PAGES = "pages.zip"
BY_HAND = ("by hand", "comment")  # columns that only a sheet fills


@dataclass(frozen=True)
class Course:
    """What a run has to know of a course.

    Attributes:
        roster: who is in it.
        plan: the rules.
        given: points by hand, by the id of the student and the question.
        codes: what students and files are called instead; None: as they are.
        others: grade also what belongs to nobody in the roster.
        paths: where all this stands, which nobody handed in.
    """

    roster: Roster
    plan: Plan = Plan()
    given: Mapping[str, Mapping[str, Given]] = field(default_factory=dict)
    codes: Codes | None = None
    others: bool = False
    paths: tuple[Path, ...] = ()

    def sort(self, files: Mapping[str, object]) -> tuple[dict, list[Handed]]:
        """What is to be graded, by the names that the outputs have, and whose it is."""
        handed = exports.counting(exports.sort(files, self.roster, self.others))
        names = {one.name: one.name for one in handed}
        if self.codes is not None:
            names = self.codes.rename(handed)
            self.codes.save()
        graded = {names[one.name]: files[one.name] for one in handed}
        return dict(sorted(graded.items())), [
            replace(x, name=names[x.name]) for x in handed
        ]

    def owners(self, handed: list[Handed]) -> dict[str, str]:
        """The students of each submission, as the outputs call them."""
        codes = self.codes.students if self.codes else {}
        return {
            one.name: "; ".join(codes.get(x.id, x.id) for x in one.students)
            for one in handed
        }

    def groups(self, handed: list[Handed]) -> dict[str, set[str]]:
        """The ids of those for whom each submission counts."""
        return {
            one.name: {id for x in one.students for id in self.plan.together(x)}
            for one in handed
        }

    def check_kept(self, place: Path) -> None:
        """Refuse to write over points by hand that no sheet gives again.

        Raises:
            ValueError: the marks of an earlier run have some.
        """
        path = place / "marks.csv"
        if any(self.given.values()) or not path.exists():
            return
        headers, rows = tables.read(path)
        columns = [x for x in BY_HAND if x in headers]
        if any(row.cells[x].strip() for row in rows for x in columns):
            raise ValueError(
                f"{path} holds points by hand: give their sheet again with --by-hand, "
                "or move that file away to begin without them"
            )

    def marks(self, handed: list[Handed], rows: list[dict]) -> list[Mark]:
        """What each student gets."""
        return marks.marks(handed, rows, self.roster, self.plan, self.given)

    def called(self) -> dict[str, str]:
        """What the pages call students, by their ids."""
        codes = self.codes.students if self.codes else {}
        students = self.roster.students.values()
        return {x.id: codes.get(x.id) or f"{x.name} ({x.id})".strip() for x in students}

    def tell(
        self,
        found: list[Mark],
        handed: list[Handed],
        rows: list[dict],
        assignment: Assignment,
    ) -> dict[str, str]:
        """What the page of each submission says of the marks of its students."""
        graded = {row["submission"]: row["by_question"] for row in rows}
        most, called, told = worth(assignment, self.plan), self.called(), {}
        counting = {name: [] for name in graded}
        chosen = {mark.student.id: mark.submission for mark in found}
        for mark in filter(lambda x: x.submission, found):
            counting[mark.submission].append(mark)
        for one in handed:
            theirs, points = counting[one.name], graded[one.name]
            parts = [feedback.mark_html(x, points, most) for x in theirs]
            if len(set(parts)) > 1:  # in a group, and not all get the same
                names = [called[x.student.id] for x in theirs]
                each = zip(theirs, names)
                parts = [feedback.mark_html(x, points, most, who) for x, who in each]
            if not parts:
                others = dict.fromkeys(chosen[x.id] for x in one.students)
                parts = [feedback.other_html(name) for name in others]
            told[one.name] = "".join(dict.fromkeys(parts))
        return told

    def write(
        self,
        place: Path,
        found: list[Mark],
        assignment: Assignment,
        pages: Mapping[str, Path],
    ) -> str:
        """Write the marks, and what the platform imports; returns a line about them.

        Where names are kept apart, what has names lies beside the key.

        Args:
            place: the folder.
            found: the marks.
            assignment: what was asked.
            pages: what students get, by the names of the submissions.
        """
        codes = self.codes.students if self.codes else {}
        write(place / "marks.csv", marks.plain(found, assignment, self.plan, codes))
        named = place
        if self.codes is not None:
            named = self.codes.path.parent
            text = marks.plain(found, assignment, self.plan, {})
            write(named / "marks.csv", text)
        files = [named / "marks.csv"]
        if self.roster.form == "canvas":
            files.append(named / "canvas.csv")
            write(files[-1], marks.canvas(found, assignment, self.plan, self.roster))
        elif self.roster.form == "moodle":
            files.append(named / "moodle.csv")
            write(files[-1], marks.moodle(found, self.roster))
        self._pack(named / PAGES, found, pages)
        counts = feedback.counts(found)
        said = [f"{len(found)} students"]
        said += [f"{counts[status]} {status}" for status in ("missing", "late")]
        if count := sum(len(mark.open) for mark in found):
            said.append(f"points by hand still open: {count}")
            if len(files) > 1:
                said[-1] += (
                    f" (only their cells in {files[1].name} stay empty till then)"
                )
        if given := [x.student.id for x in found if not x.submission and x.by_question]:
            called = ", ".join(codes.get(id, id) for id in given)
            said.append(f"points by hand without a submission: {called}")
        return f"{', '.join(said)}; {' and '.join(map(str, files))}"

    def _pack(self, path: Path, found: list[Mark], pages: Mapping[str, Path]) -> None:
        """The pages of those whose mark is final, under the names of what came in."""
        codes = self.codes.files if self.codes else {}
        original = {code: name for name, code in codes.items()}
        names = {mark.submission for mark in found if mark.final is not None}
        final = {original.get(x, x): pages[x] for x in names & {*pages}}
        if final:
            feedback.archive(path, final)
        else:
            path.unlink(missing_ok=True)


def load(
    assignment: Assignment,
    roster_path: Path,
    plan_path: Path | None = None,
    sheet_path: Path | None = None,
    anonymous: Path | None = None,
    others: bool = False,
) -> Course:
    """The course in these files.

    Args:
        assignment: what is asked.
        roster_path: see `roster.read`.
        plan_path: see `plan.read`.
        sheet_path: see `by_hand.read`.
        anonymous: a folder for the names, which stand nowhere else then.
        others: grade also what belongs to nobody in the roster.

    Raises:
        ValueError: something is wrong in a file; the message names file and line.
    """
    who = roster.read(roster_path)
    rules = plan.read(plan_path, assignment, who) if plan_path else Plan()
    codes = Codes(anonymous / KEY, who) if anonymous else None
    given = {}
    if sheet_path:
        called = {} if codes is None else {x: id for id, x in codes.students.items()}
        most = by_hand.worth(assignment, rules)
        given = by_hand.read(sheet_path, most, who, called)
    paths = roster_path, plan_path, sheet_path, anonymous
    return Course(who, rules, given, codes, others, tuple(filter(None, paths)))


def sheet(course: Course, files: Mapping[str, object] = MappingProxyType({})) -> str:
    """An empty sheet for points by hand; with codes, a column without names.

    Args:
        course: who is in it.
        files: what was handed in, by name; the sheet says whose it is.
    """
    _, handed = course.sort(files)
    theirs: dict[str, list[str]] = {}
    for one in sorted(handed, key=lambda one: one.order):
        together = {id for x in one.students for id in course.plan.together(x)}
        for id in sorted(together):
            theirs.setdefault(id, []).append(one.name)
    codes = course.codes.students if course.codes else {}
    students = course.roster.students.values()
    return by_hand.empty(
        course.plan,
        {codes.get(x.id, x.id): "" if codes else x.name for x in students},
        {codes.get(id, id): "; ".join(names) for id, names in theirs.items()},
    )
