"""A submission as cells of Python, and how they run: whatever fails, the rest goes on.

Cells of a notebook are those of Jupyter; a .py file is cut where ``# %%`` or
``# In[3]:`` begins a line. Statements run one by one: a failing one is noted and the
next one runs, so that what is defined gets graded.
"""

import __future__

import ast
import json
import linecache
import re
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, ModuleType

MOST_NOTES, LONGEST_NOTE = 20, 500
RUN = {"time", "timeit", "capture", "prun"}  # magics that run what follows them
NO_CODE = "it holds no code cell"

# Compiled in the warm process, once for all its children.
BEGINS = re.compile(r"(?m)^(?=# %%|# In\[)")
DEFINES = re.compile(r"(?m)^[ \t]*(?:async +def|def|class) +(\w+)|^(\w+) *[:=]")


class OutOfTime(BaseException):
    """Raised in the submission; no ``except Exception`` swallows it."""


class NotASubmission(ValueError):
    """The file cannot be read as what its name says."""


def read(content: bytes, kind: str) -> list[str]:
    """The source of every code cell of a notebook or a .py file.

    Raises:
        NotASubmission: with a sentence for the student.
    """
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotASubmission(f"it is not UTF-8: byte {error.start}") from None
    if kind != "ipynb":
        return [c for c in BEGINS.split(text) if c.strip()]
    try:
        cells = [
            cell["source"] for cell in json.loads(text)["cells"]
            if cell["cell_type"] == "code"
        ]  # fmt: skip
        cells = ["".join(source) for source in cells]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NotASubmission(
            "it is not a notebook: Jupyter's format is JSON with a list of cells; "
            "save the notebook again and hand in that file"
        ) from None
    if not any(cells):
        raise NotASubmission(NO_CODE)
    return cells


def parse(source: str) -> ast.Module:
    """The syntax tree of a cell; lines that only IPython knows count as empty."""
    try:
        return ast.parse(source)
    except SyntaxError:
        return ast.parse(_without_magics(source))


def _without_magics(source: str) -> str:
    cell = re.match(r"\s*%%(\w+).*\n?", source)
    if cell:  # of %%bash and %%html the rest is no Python either
        source = "\n" + source[cell.end() :] if cell[1] in RUN else ""
    goes_on = r"(?m)^[ \t]*[%!](?:.*\\\n)+.*$"  # a backslash ends its lines
    source = re.sub(goes_on, lambda x: "pass" + "\n" * x[0].count("\n"), source)
    run = rf"(?m)^([ \t]*)%({'|'.join(RUN)}) +(-\S+ +(\d+ +)?)*"
    source = re.sub(run, r"\1", source)  # the statement behind %time is Python
    source = re.sub(r"(?m)^([ \t]*)([%!?].*|[\w.]+\?{1,2})$", r"\1pass", source)
    return re.sub(r"(?m)^([ \t]*\w[\w, ]*=)[ \t]*[%!].*$", r"\1 None", source)


def run(module: ModuleType, cells: list[str], seconds: float) -> dict[int, str]:
    """Execute cells in a module; what failed first in a cell, by its number."""
    notes: dict[int, str] = {}
    futures: set[int] = set()  # they hold in all later cells, as in IPython
    for number, source in enumerate(cells, 1):
        name = f"cell {number}"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        try:
            with time_limit(seconds):
                failures = [
                    _execute(code, module) for code in _codes(source, name, futures)
                ]
        except (OutOfTime, SyntaxError, ValueError, RecursionError, MemoryError) as x:
            failures = [describe(x, name)]
        if failures := [failure for failure in failures if failure]:
            notes[number] = failures[0]
    return notes


def _codes(source: str, name: str, futures: set[int]) -> Iterator[CodeType]:
    for statement in parse(source).body:
        code = compile(ast.Module([statement], []), name, "exec", sum(futures))
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            features = (getattr(__future__, x.name) for x in statement.names)
            futures |= {feature.compiler_flag for feature in features}
        yield code


def _execute(code: CodeType, module: ModuleType) -> str | None:
    try:
        exec(code, module.__dict__)
    except OutOfTime:
        raise
    except BaseException as error:  # SystemExit and KeyboardInterrupt are theirs too
        return describe(error, code.co_filename)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise OutOfTime inside; code that holds on to it is stopped from outside.

    CPU seconds count, so that a busy machine takes no marks away; waiting may take
    three times as long.
    """

    def stop(*_: object) -> None:
        raise OutOfTime(f"stopped after {seconds:g} seconds: a loop without end?")

    timers = {signal.ITIMER_PROF: seconds, signal.ITIMER_REAL: 3 * seconds}
    signal.signal(signal.SIGPROF, stop)
    signal.signal(signal.SIGALRM, stop)
    for timer, time in timers.items():
        signal.setitimer(timer, time, 1)  # again: what a callback raises is lost
    try:
        yield
    finally:
        for timer in timers:
            signal.setitimer(timer, 0)


def describe(error: BaseException, name: str = "") -> str:
    """'cell 3, line 2: NameError: …', with the last line that is the submission's."""
    try:
        lines = [x.lineno for x in traceback.extract_tb(error.__traceback__)
                 if x.filename == name]  # fmt: skip
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [0])[-1]
        kind = type(error).__name__
        text = "" if isinstance(error, OutOfTime) else f"{kind}: "
        text += error.msg if isinstance(error, SyntaxError) else str(error)
        if isinstance(error, SystemExit):
            text = "it called sys.exit()"
        where = ", ".join([name] * bool(name) + [f"line {line}"] * bool(line))
        return (f"{where}: " * bool(where) + text.rstrip(": "))[:LONGEST_NOTE]
    except BaseException:  # an exception may define its own __str__
        return f"{name}: an exception that cannot be printed".lstrip(": ")


def meant_for(name: str, cells: list[str], notes: dict[int, str]) -> str:
    """What failed in the last cell that was to define a name; "" where nothing did.

    A cell with a syntax error has no tree, so its text is looked at.
    """
    numbers = [
        n
        for n, source in enumerate(cells, 1)
        if any(name in found.groups() for found in DEFINES.finditer(source))
    ]
    return notes.get(numbers[-1], "") if numbers else ""


def mentions(cells: list[str], names: set[str]) -> list[str]:
    """Which of the names the code mentions and where: for a person to look at."""
    found = {}
    for number, source in enumerate(cells, 1):
        try:
            tree = parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id=owner), attr="eval") if (
                    "builtins" not in owner
                ):
                    continue  # a model's
                case ast.Attribute(attr=word) | ast.Name(id=word):
                    words = [word]
                case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
                    words = [w for a in aliases for w in a.name.split(".")]
                    words += (getattr(node, "module", None) or "").split(".")
                case ast.Constant(value=str(word)) if len(word) < 80:
                    words = re.findall(r"\w+", word)
                case _:
                    continue
            for word in names.intersection(words):
                place = f"cell {number}, line {node.lineno}: {word}"
                found.setdefault(word, place)
    return sorted(found.values())[:MOST_NOTES]
