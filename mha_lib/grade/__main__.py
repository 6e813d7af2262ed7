"""Grade submissions, or pack the grader for somewhere else.

    mha-grade submissions.zip -a a2 -o grades.csv --roster roster.csv
    mha-grade sheet submissions.zip -a a2 -o by_hand.csv --roster roster.csv --plan …
    mha-grade gradescope -a a2 -o autograder.zip
    mha-grade actions -a a2 -o course-repository/

The first takes notebooks and .py files, or folders and zips of them, and writes the
table, and beside it a folder of the same name: a page and a JSON file for each student,
summary.html, and the marks. Run it again after a break: what was finished is not graded
again. The second writes a sheet for points that are given by hand, with the names of
the files if they are given, too.
"""

import argparse
import glob
import json
import os
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

from mha_lib.grade.assignments import load
from mha_lib.grade.engines import ENGINES
from mha_lib.grade.sandbox import Unsafe

MIB = 1 << 20
# Of the clone that this package was installed from; elsewhere it does not exist.
FOLDER = Path(__file__).resolve().parents[2] / "book" / "assignments"


def parser(command: str) -> argparse.ArgumentParser:
    """The options of a command; grading has no name."""
    new = argparse.ArgumentParser(
        prog=f"mha-grade {command}".rstrip(),
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = new.add_argument
    what = "an id such as a1, a notebook or a JSON file"
    add("-a", "--assignment", required=True, help=what)
    where = "where an id is looked for; the clone's book/assignments unless given"
    add("--folder", type=_absolute, default=FOLDER, help=where)
    add("-o", "--output", type=_plain, required=True, help="what to write")
    if command == "gradescope":
        add("--pip", default="", help="options for pip, in quotes")
    if command in ("", "results", "sheet"):
        count = {"": {"nargs": "+"}, "sheet": {"nargs": "*"}}.get(command, {})
        add("submissions", type=_absolute, **count, help="files, folders or zips")
    if command in ("", "results"):
        add("--seconds", type=float, default=20, help="of CPU for one cell or question")
        add("--wall", type=float, default=90, help="seconds for one submission")
        add("--cpu", type=int, default=60, help="seconds of CPU time for one")
        add("--memory", type=int, default=1024, help="MB for one, beside torch")
        add("--seed", type=int, help="of the probes; drawn anew unless given")
        add("--unsafe", action="store_true", help="run where nothing protects you")
    if command in ("", "sheet"):
        who = "who is in the course: Canvas' gradebook, Moodle's worksheet, any CSV"
        add("--roster", type=_absolute, required=command == "sheet", help=who)
        add("--plan", type=_absolute, help="YAML: due, late, groups, extensions, …")
        add("--anonymous", type=_plain, metavar="FOLDER", help="names stay there")
        add("--others", action="store_true", help="also who is not in the roster")
    if command == "":
        add("--by-hand", type=_absolute, help="the sheet with points given by hand")
        add("--template", type=_absolute, help="what students were given")
        add("--workers", type=int, default=os.cpu_count(), help="at the same time")
        add("--engine", choices=ENGINES, default="local", help="where the work is done")
        add("--address", default="", help="of a Dask scheduler that runs already")
        add("--again", action="store_true", help="grade also what was finished")
    return new


def _absolute(text: str) -> Path:
    return Path(text).absolute()


def _plain(text: str) -> Path:
    """Without the two dots that nobody wants to read on the screen."""
    return Path(os.path.abspath(text))


def cli() -> None:
    """What `mha-grade` and `python -m mha_lib.grade` do."""
    main(sys.argv[1:])


def main(arguments: list[str]) -> None:
    """Run a command, where no file of a student lies: Python's children look there."""
    commands = {"gradescope": pack, "actions": pack, "results": one, "sheet": sheet}
    command = _command(arguments, commands)
    options = parser(command).parse_intermixed_args(arguments[bool(command) :])
    options.command = command
    started = os.getcwd()
    try:
        options.assignment = load(options.assignment, options.folder)
        os.chdir(os.sep)
        commands.get(command, grade)(options)
    except OSError as error:
        sys.exit(f"mha-grade: {_told(error)}")
    except (ValueError, Unsafe) as error:
        sys.exit(f"mha-grade: {error}")
    except KeyboardInterrupt:
        sys.exit("mha-grade: stopped; the same command goes on with what is left")
    finally:
        os.chdir(started)


def _told(error: OSError) -> str:
    """What the system says, without its numbers."""
    if error.filename is None:
        return error.strerror or str(error)
    if isinstance(error, FileNotFoundError):
        return f"there is no file or folder {error.filename}"
    return f"{error.filename}: {error.strerror}"


def _command(arguments: list[str], known: Iterable[str]) -> str:
    """The one that comes first; an error where it stands for a folder, or comes later.

    A table is CSV, and of what the commands write a sheet alone is; so that tells them
    apart, and where it does not, nothing is done.
    """
    name = arguments[0] if arguments and arguments[0] in known else ""
    if name and Path(name).is_dir() and any(x.endswith(".csv") for x in arguments):
        parser("").error(
            f"{name} is a folder here and a command, too: start the command elsewhere, "
            f"or write ./{name} for the folder"
        )
    for place, (before, late) in enumerate(pairwise(arguments), 1):
        given = late in known and not before.startswith("-")
        if not name and given and not Path(late).exists():
            rest = " ".join([*arguments[:place], *arguments[place + 1 :]])
            parser("").error(f"the command comes first: {late} {rest}")
    return name


def limits(options: argparse.Namespace) -> dict:
    """The options that `Sandbox` takes."""
    names = ("seconds", "wall", "cpu", "unsafe")
    return {k: getattr(options, k) for k in names} | {"memory": options.memory * MIB}


def grade(options: argparse.Namespace) -> None:
    """Grade everything that is not graded yet."""
    from mha_lib.grade.run import Run

    _refuse_clones(options.output, options.anonymous)
    try:
        from tqdm import tqdm
    except ImportError:
        raise ValueError("a progress bar needs tqdm: pip install tqdm") from None

    run = Run(
        options.assignment,
        options.submissions,
        options.output,
        limits(options),
        **{k: getattr(options, k) for k in ("seed", "engine", "workers", "address")},
        again=options.again,
        course=_course(options),
        template=_given(options.template) or _template(options),
    )

    def shown(items: Iterable, total: int) -> Iterable:
        form = {"total": total, "unit": " submissions", "disable": total == 0}
        bar = tqdm(items, desc="starting, torch is loaded", **form)
        for item in bar:
            bar.set_description_str("", refresh=False)
            yield item

    counts = run(shown)
    outputs = f"{run.output} and {run.place / 'summary.html'}"
    print(f"{counts['submissions']} submissions: {outputs}", *run.lines, sep="\n")


def sheet(options: argparse.Namespace) -> None:
    """Write an empty sheet for points by hand."""
    from mha_lib.grade import course
    from mha_lib.grade.handed_in import submissions
    from mha_lib.grade.journal import write

    _refuse_clones(options.output, options.anonymous)
    if options.output.exists():
        raise ValueError(f"{options.output} is there already; give another output")
    given = _course(options)
    found = submissions(options.submissions).items()
    files = {name: file for name, file in found if file not in given.paths}
    write(options.output, course.sheet(given, files))
    print(f"{options.assignment.title}, to be filled: {options.output}")


def _course(options: argparse.Namespace):
    """The course, if there is a roster; what needs one is refused without."""
    from mha_lib.grade import course

    given = vars(options)
    names = ("plan", "by_hand", "anonymous", "others")
    if options.roster is None:
        for name in names:
            if given.get(name):
                raise ValueError(f"--{name.replace('_', '-')} needs --roster")
        return None
    folder = options.anonymous
    if folder and folder.is_relative_to(options.output.with_suffix("")):
        raise ValueError(f"{folder} must lie apart from what has no names")
    plan, by_hand = options.plan, given.get("by_hand")
    others = given.get("others", False)
    return course.load(
        options.assignment, options.roster, plan, by_hand, folder, others
    )


def _given(template: Path | None) -> Path | None:
    """The template that was named, if one can be compared with it."""
    from mha_lib.grade.submission import read

    if template and (problem := read(template).problem):
        raise ValueError(f"the template {template}: {problem}")
    return template


def _template(options: argparse.Namespace) -> Path | None:
    """The student version of an assignment of the book."""
    student = options.folder / "student"
    found = sorted(student.glob(f"{glob.escape(options.assignment.id)}_*.ipynb"))
    return found[0] if len(found) == 1 else None


def _refuse_clones(*outputs: Path | None) -> None:
    """Marks do not belong into a clone of the book: what is public might take them in.

    A folder is one if it has a repository and this package in it.
    """
    for output in filter(None, outputs):
        for folder in output.resolve().parents:
            if (folder / ".git").exists() and (folder / "mha_lib" / "grade").is_dir():
                beside = folder.parent / "course" / output.name
                raise ValueError(
                    f"{output} lies in the repository {folder}, from where marks and "
                    f"names get public with one push; write them beside it: {beside}"
                )


def one(options: argparse.Namespace) -> None:
    """Grade the one file of a folder, as Gradescope wants it."""
    import secrets

    from mha_lib.grade import platforms
    from mha_lib.grade.handed_in import read
    from mha_lib.grade.journal import write
    from mha_lib.grade.judge import Judge
    from mha_lib.grade.sandbox import unprotected

    for text in unprotected():
        print(f"Not protected here: {text}.", file=sys.stderr)
    seed = secrets.randbits(60) if options.seed is None else options.seed
    try:
        path = platforms.only(options.submissions)
    except ValueError as error:
        result = {"score": 0.0, "output": str(error)}
    else:
        hidden = [options.submissions.parent]
        given = limits(options) | {"hidden": hidden}
        with Judge(options.assignment, seed, **given) as judge:
            result = platforms.results(judge.grade(read(path)))
    write(options.output, json.dumps(result, indent=1))


def pack(options: argparse.Namespace) -> None:
    """Write what grades elsewhere."""
    from mha_lib.grade import platforms

    assignment = options.assignment
    if options.command == "gradescope":
        platforms.gradescope(assignment, options.output, options.pip)
    else:
        platforms.workflow(assignment, options.output)
    print(f"{assignment.title}: {options.output}")


if __name__ == "__main__":
    cli()
