"""From folders of submissions to marks: every file once, whatever happens."""

import csv
import io
import json
import os
import re
import secrets
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from unicodedata import category

from mha_lib.grade import report
from mha_lib.grade.assignments import Assignment, parse
from mha_lib.grade.engines import ENGINES
from mha_lib.grade.journal import Journal, write
from mha_lib.grade.judge import Judge
from mha_lib.grade.sandbox import unprotected
from mha_lib.grade.submission import Submission, read

__all__ = ["Run", "submissions"]

BESIDE = ("__pycache__", "__MACOSX")  # folders that other programs leave
FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # begin one
JOINERS = "\u200c\u200d"  # invisible, and letters of Persian and Hindi need them
UNSEEN = {"Cc", "Cf", "Cs", "Zl", "Zp"}  # Unicode's categories: control, bidirectional
LONGEST = 400  # bytes of a report's path below its folder, which may lie deep itself
_LOCAL = threading.local()  # a judge for each thread that grades, kept warm


def submissions(places: Iterable[Path]) -> dict[str, Path]:
    """Files, and all files below folders but for hidden ones, by their names.

    Links, and folders that cannot be listed, are among them: they are told so.
    """
    found: dict[str, Path] = {}
    for start in places:
        if not start.exists():
            raise ValueError(f"files or folders are required; got {start}")
        for path in _below(start) if start.is_dir() else [start]:
            name = path.name if path == start else path.relative_to(start).as_posix()
            if name in found:
                raise ValueError(f"names must differ; got {found[name]} and {path}")
            found[name] = path
    return dict(sorted(found.items()))


def _below(start: Path) -> Iterator[Path]:
    """Without recursion, as folders may be deeper than that goes."""
    with os.scandir(start):
        folders = [start]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as inside:
                entries = list(inside)
        except OSError:
            yield folder
            continue
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if not entry.is_dir(follow_symlinks=False):
                yield folder / entry.name
            elif entry.name not in BESIDE:
                folders.append(folder / entry.name)


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
    _told: set[str] = field(default_factory=set)

    @property
    def place(self) -> Path:
        """Where the reports go."""
        return self.output.with_suffix("")

    def __call__(self, progress: Callable = lambda items, total: items) -> dict:
        """Grade what is not graded yet; returns the summary of all."""
        files = {
            name: path
            for name, path in submissions(self.places).items()
            if path.absolute() != self.output.absolute()
            and not path.absolute().is_relative_to(self.place.absolute())
        }
        text = json.dumps(self.assignment.to_dict(), sort_keys=True)
        version = sha256(text.encode()).hexdigest()
        seed = secrets.randbits(60) if self.seed is None else self.seed
        header = {"assignment": version, "seed": seed}
        journal = Journal(self.place / "journal.jsonl", header, self.again)
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
            left = _left(journal, files)
            items = ((name, known or read(files[name])) for name, known in left.items())
            work = ENGINES[self.engine]
            results = work(partial(_grade, settings), items, self.workers, self.address)
            for name, result in progress(results, total=len(left)):
                self._keep(journal, name, result)
            rows = [row for row in journal.rows() if row["submission"] in files]
        finally:
            journal.close()
        write(self.output, _csv(rows, self.assignment))
        summary = report.summary(rows, self.assignment)
        write(self.place / "summary.html", report.summary_page(summary))
        unmatched = json.dumps(summary.pop("unmatched"), indent=1)
        write(self.place / "unmatched.json", unmatched)
        write(self.place / "summary.json", json.dumps(summary, indent=1))
        return summary

    def _keep(self, journal: Journal, name: str, result: dict) -> None:
        """First the reports, then the line that says that they are there."""
        place = Path("students", _short(name))
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


def _left(journal: Journal, files: dict[str, Path]) -> dict[str, Submission | None]:
    """What is to be graded: what is new, not read yet, and what changed, as it is now.

    Each file is read once, so that what is noted is the digest of what was graded.
    """
    left: dict[str, Submission | None] = {}
    for name, path in files.items():
        noted = journal.digest(name)
        submission = read(path) if noted is not None else None
        if submission is None or submission.digest != noted:
            left[name] = submission
    return left


def _grade(settings: str, item: tuple[str, Submission]) -> tuple[str, dict]:
    """What a worker does; it keeps its judge as long as the settings are the same."""
    name, submission = item
    if getattr(_LOCAL, "settings", None) != settings:
        close()
        given = json.loads(settings)
        assignment = parse(given["assignment"])
        _LOCAL.judge = Judge(assignment, given["seed"], **given["limits"])
        _LOCAL.settings = settings
    return name, _LOCAL.judge.grade(submission)


def close() -> None:
    """End the warm process of this thread, if it has one."""
    judge = getattr(_LOCAL, "judge", None)
    if judge is not None:
        judge.sandbox.close()
        _LOCAL.judge = _LOCAL.settings = None


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


def _csv(rows: list[dict], assignment: Assignment) -> str:
    """One line a submission, every cell in quotes."""
    names = [question.name for question in assignment.questions]
    lines = io.StringIO()
    table = csv.writer(lines, lineterminator="\n", quoting=csv.QUOTE_ALL)
    ends = ["mistakes", "problem", "look at"]
    table.writerow(["submission", "points", "out_of", *names, *ends])
    for row in rows:
        marks = [f"{row['by_question'][name]:g}" for name in names]
        points = [f"{row['points']:g}", f"{row['out_of']:g}"]
        texts = row["mistakes"], [row["problem"]], row["mentions"]
        ends = map("; ".join, texts)
        line = [row["submission"], *points, *marks, *ends]
        table.writerow(map(_cell, line))
    return lines.getvalue()


def _cell(text: str) -> str:
    """A text of one line that shows what is in it, and is no formula.

    What would begin another line, turn the text round or not be seen at all is written
    as Python writes it; an apostrophe marks what a spreadsheet would compute.
    """
    shown = "".join(
        x.encode("unicode_escape").decode()
        if x == "\\" or (category(x) in UNSEEN and x not in JOINERS)
        else x
        for x in text
    )
    return "'" * shown.lstrip().startswith((*FORMULA, "'")) + shown
