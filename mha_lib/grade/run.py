"""From folders of submissions to marks: every file once, whatever happens."""

import json
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path

from mha_lib.grade import feedback, report
from mha_lib.grade.alike import Alike
from mha_lib.grade.assignments import Assignment, parse
from mha_lib.grade.course import Course
from mha_lib.grade.engines import ENGINES
from mha_lib.grade.exports import Handed
from mha_lib.grade.handed_in import Member, read, submissions
from mha_lib.grade.journal import Journal, write
from mha_lib.grade.judge import Judge
from mha_lib.grade.sandbox import Sandbox, unprotected
from mha_lib.grade.submission import Submission

__all__ = ["Run"]

REPORTS, JOURNAL = (".json", ".html"), "journal.jsonl"
LONGEST = 400  # bytes of a report's path below its folder, which may lie deep itself
_LOCAL = threading.local()  # a judge for each thread that grades, kept warm


@dataclass
class Run:
    """One run over files and folders.

    Attributes:
        assignment: what is asked.
        places: files, or folders of them.
        output: the CSV file; what else is written lies in a folder of the same name.
        limits: as `Sandbox` takes them.
        seed: of the probes; drawn from the system, and kept by a run that goes on,
            which refuses another one.
        engine: of `ENGINES`.
        workers: processes that grade.
        address: of an engine that runs already.
        again: grade everything anew.
        course: who is in it and by which rules; without, files have no owners.
        template: what everybody was given, which makes nobody alike.
        lines: after a run, what the outputs say in short.
    """

    assignment: Assignment
    places: list[Path]
    output: Path
    limits: dict
    seed: int | None = None
    engine: str = "local"
    workers: int = 1
    address: str = ""
    again: bool = False
    course: Course | None = None
    template: Path | None = None
    lines: list[str] = field(default_factory=list)
    _told: set[str] = field(default_factory=set)

    @property
    def place(self) -> Path:
        """Where the reports go."""
        return self.output.with_suffix("")

    def __call__(self, progress: Callable = lambda items, total: items) -> dict:
        """Grade what is not graded yet; returns the summary of all."""
        files, handed = self._files()
        if self.place == self.output or self.output.is_dir():
            raise ValueError(
                f"the table needs a name with an ending, such as {self.place}.csv: "
                f"{self.place} is the folder for all else"
            )
        if self.course is not None:
            self.course.check_kept(self.place)
        text = json.dumps(self.assignment.to_dict(), sort_keys=True)
        version = sha256(text.encode()).hexdigest()
        seed = secrets.randbits(60) if self.seed is None else self.seed
        header = {"assignment": version, "seed": seed}
        journal = Journal(self.place / JOURNAL, header, self.again)
        try:
            if self.seed not in (None, journal.header["seed"]):
                raise ValueError(
                    f"{self.output} began with another seed: leave out --seed, give "
                    "another output, or start again with --again"
                )
            self._told.clear()
            if self.engine == "local":  # others say it of their machines, with results
                self._tell(unprotected())
            places = (*self.places, self.place)
            folders = [place if place.is_dir() else place.parent for place in places]
            hidden = [str(folder.resolve()) for folder in folders]
            settings = json.dumps(
                {
                    "assignment": self.assignment.to_dict(),
                    "seed": journal.header["seed"],
                    "limits": {"hidden": hidden, **self.limits},
                }
            )
            alike = Alike(read(self.template) if self.template else None)

            def opened(name: str) -> Submission:
                submission = read(files[name])
                alike.add(name, submission)
                return submission

            left = _left(journal, files, opened, self.place)
            if kept := len(files) - len(left):
                say = f"Kept from before: {kept} of {len(files)}; to grade: {len(left)}"
                print(say, file=sys.stderr, flush=True)
            items = ((name, known or opened(name)) for name, known in left.items())
            work = ENGINES[self.engine]
            results = work(partial(_grade, settings), items, self.workers, self.address)
            for name, result in progress(results, total=len(left)):
                self._keep(journal, name, result)
            rows = [row for row in journal.rows() if row["submission"] in files]
        finally:
            journal.close()
        summary = report.summary(rows, self.assignment)
        self.lines, more = self._write(rows, handed, alike, summary)
        write(self.place / "summary.html", report.summary_page(summary, more))
        unmatched = json.dumps(summary.pop("unmatched"), indent=1)
        write(self.place / "unmatched.json", unmatched)
        write(self.place / "summary.json", json.dumps(summary, indent=1))
        return summary

    def _files(self) -> tuple[dict[str, Path | Member], list[Handed]]:
        """What is to be graded, and whose it is, where that is known."""
        own = [self.output, self.place, *(self.course.paths if self.course else ())]
        own = [path.absolute() for path in own]
        given = [path.absolute() for path in self.places]
        files, left_out = {}, []
        for name, file in submissions(self.places).items():
            path = (file.root if isinstance(file, Member) else file).absolute()
            mine = any(path.is_relative_to(x) for x in own)
            if not mine or (isinstance(file, Member) and path in given):
                files[name] = file
            else:
                left_out.append(path)
        theirs = not (self.place / JOURNAL).exists()  # the folder is none of ours yet
        inside = (x for x in left_out if x.is_relative_to(own[1]) and x not in own)
        if theirs and any(inside):
            raise ValueError(
                f"{self.output} would put its pages into the folder {self.place}, "
                "where submissions lie: give the table another name, such as "
                f"{self.place}-grades{self.output.suffix}"
            )
        if not files:
            places = " and ".join(map(str, self.places))
            raise ValueError(
                f"nothing was handed in: {places} holds no file, or only your own, "
                "such as the roster; give what your platform exported"
            )
        return (files, []) if self.course is None else self.course.sort(files)

    def _write(
        self, rows: list[dict], handed: list[Handed], alike: Alike, summary: dict
    ) -> tuple[list[str], str]:
        """The tables, and what pages say of marks.

        Returns a line about each table that needs a look, and what to tell of the class
        beside the summary, to which the numbers are added.
        """
        course, lines, found, called = self.course, [], [], {}
        owners = None if course is None else course.owners(handed)
        write(self.output, report.table(rows, self.assignment, owners))
        if course is not None:
            found, called = course.marks(handed, rows), course.called()
            told = course.tell(found, handed, rows, self.assignment)
            pages = {name: self._page(name, text) for name, text in told.items()}
            lines.append(course.write(self.place, found, self.assignment, pages))
            summary["handed_in"] = feedback.counts(found)
        pairs = alike.pairs({} if course is None else course.groups(handed))
        where = self.place / "alike.csv"
        write(where, report.alike_table(pairs, owners or {}))
        if pairs:
            said = f"pairs that are alike, a hint and no verdict: {len(pairs)}"
            lines.append(f"{said}, in {where}")
        summary["alike"] = len(pairs)
        places = {row["submission"]: _report(row["submission"]) for row in rows}
        return lines, feedback.class_html(found, called, pairs, places)

    def _page(self, name: str, mark: str) -> Path:
        """The page of a finished submission, with what its student gets."""
        path = self.place / _report(name)
        path = path.with_name(path.name + ".html")
        result = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        page = report.page(result, mark)
        if path.read_text(encoding="utf-8") != page:
            write(path, page)
        return path

    def _keep(self, journal: Journal, name: str, result: dict) -> None:
        """First the reports, then the line that says that they are there."""
        place = _report(name)
        path = self.place / place
        self._tell(result.pop("unprotected"))
        result = {"submission": name, **result}
        if place != Path("students", name):
            result["mentions"] += [f"its report is {place.as_posix()}.html"]
        write(path.with_name(path.name + ".json"), json.dumps(result, indent=1))
        write(path.with_name(path.name + ".html"), report.page(result))
        journal.add(report.row(result))

    def _tell(self, texts: Iterable[str]) -> None:
        """Say once a run what is not protected."""
        for text in dict.fromkeys(texts):
            if text not in self._told:
                print(f"Not protected here: {text}.", file=sys.stderr, flush=True)
        self._told.update(texts)


def _left(
    journal: Journal,
    files: Iterable[str],
    opened: Callable[[str], Submission],
    place: Path,
) -> dict[str, Submission | None]:
    """What is to be graded: what is new, not read yet, and what changed, as it is now.

    So is what has lost its report.

    Each file is read once, so that what is noted is the digest of what was graded.
    """
    left: dict[str, Submission | None] = {}
    for name in files:
        noted = journal.digest(name)
        submission = opened(name) if noted is not None else None
        reports = [place / f"{_report(name)}{suffix}" for suffix in REPORTS]
        kept = submission is not None and submission.digest == noted
        if not kept or not all(report.exists() for report in reports):
            left[name] = submission
    return left


def _grade(settings: str, item: tuple[str, Submission]) -> tuple[str, dict]:
    """What a worker does; it keeps its judge as long as the settings are the same.

    The warm process depends on nothing but the limits, so that it outlives the judge.
    """
    name, submission = item
    if getattr(_LOCAL, "settings", None) != settings:
        given = json.loads(settings)
        if getattr(_LOCAL, "limits", None) != given["limits"]:
            close()
            _LOCAL.sandbox = Sandbox(**given["limits"])
            _LOCAL.limits = given["limits"]
        assignment = parse(given["assignment"])
        _LOCAL.judge = Judge(assignment, given["seed"], _LOCAL.sandbox)
        _LOCAL.settings = settings
    return name, _LOCAL.judge.grade(submission)


def close() -> None:
    """End the warm process of this thread, if it has one."""
    sandbox = getattr(_LOCAL, "sandbox", None)
    if sandbox is not None:
        sandbox.close()
        _LOCAL.sandbox = _LOCAL.limits = _LOCAL.judge = _LOCAL.settings = None


def _report(name: str) -> Path:
    """Where the report of a submission is, without a suffix."""
    return Path("students", _short(name))


def _short(name: str) -> Path:
    """A name that every file system takes; its folders are kept, unless too many."""
    *folders, last = Path(name).parts
    # No folder may have the name of a report.
    folders = [re.sub(r"(\.(json|html)_*)$", r"\1_", x, flags=re.I) for x in folders]
    short = Path(*map(_cut, (*folders, last)))
    if len(os.fsencode(short)) > LONGEST:
        short = Path(_cut(folders[0]), sha256(os.fsencode(name)).hexdigest())
    return short


def _cut(part: str) -> str:
    """The name of one file or folder, at a length that leaves room for a suffix."""
    known = os.fsencode(part)
    return part if len(known) <= 200 else f"{part[:40]}-{sha256(known).hexdigest()}"
