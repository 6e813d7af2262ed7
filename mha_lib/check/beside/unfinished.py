"""Whether a submission is not written to its end, and what stands there instead."""

import ast
import functools
import inspect
import linecache
import re
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType

from torch import nn

from .words import NOT_THEIRS, UNFINISHED, Advice

TO_DO = re.compile(r"#.*\b(TODO|FIXME|your code|to be done)\b", re.I)
DOTS = re.compile(r"(^|[=:\s])\.\.\.\s*(#.*)?$")  # at the end of a line
OF_NOTHING = re.compile(r"NoneType|has no attribute")  # what a `pass` brings about
MOST = 50  # functions of theirs that are looked at


def unfinished(submission: object, outcomes: list[dict]) -> Advice | None:
    """What to say of a submission that answered nothing; None if it is written.

    Where one of its functions holds `...`, that is why. A `pass`, a TODO and a
    NotImplementedError may stand in code that is finished: they count if the error is
    of their kind.
    """
    failed = [x for x in outcomes if "error" in x]
    if not failed or any({"error", "skipped"}.isdisjoint(x) for x in outcomes):
        return None
    try:
        return _why(submission, failed[0])
    except Exception:  # theirs may be of any kind
        return None


def _why(submission: object, first: dict) -> Advice | None:
    error, nothing = first["error"], first.get("code") == "nothing-returned"
    for function in _functions(submission):
        if function is nn.Module.forward:
            name = _class_of(submission).__name__
            lost = first.get("code") == "layers-not-found"
            if lost or error.startswith("NotImplementedError"):
                return Advice(UNFINISHED, name=name, what="it has no forward")
            continue
        kind, line = gap(function)
        fits = {
            "dots": True,
            "empty": nothing or bool(OF_NOTHING.search(error)),
            "to-do": nothing,
            "refused": error.startswith("NotImplementedError"),
        }
        if fits.get(kind):
            return Advice(UNFINISHED, name=function.__name__, what=_still(*line))
    return None


def _still(number: int, text: str) -> str:
    return f"its line {number} still is `{text}`"


def dots(submission: object) -> str:
    """Where a function holds `...` as a statement, in words; "" where none does."""
    files: dict[str, bool] = {}  # whether one may hold it: most do not
    try:
        for function in _functions(submission):
            name = function.__code__.co_filename
            if name not in files:
                files[name] = any(map(DOTS.search, linecache.getlines(name)))
            kind, line = gap(function) if files[name] else ("", ())
            if kind == "dots":
                return f"{line[0]} of {function.__name__}"
    except Exception:  # theirs may be of any kind
        return ""
    return ""


def gap(function: Callable) -> tuple[str, tuple[int, str]]:
    """What is missing in a function and the line: "dots", "empty", "refused", "to-do".

    "" where nothing is.
    """
    try:
        source = textwrap.dedent(inspect.getsource(function))
        (tree,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError, ValueError, RecursionError):
        return "", (0, "")
    if not isinstance(tree, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return "", (0, "")
    lines = source.splitlines()

    def place(number: int) -> tuple[int, str]:
        # A decorator stands above the first line that is counted from.
        first = function.__code__.co_firstlineno
        return first + number - 1, lines[number - 1].strip()

    nodes = [*ast.walk(tree)]
    if found := next(filter(_is_dots, nodes), None):
        return "dots", place(found.lineno)
    written = [x for x in tree.body if not _says_nothing(x)]
    if not written:
        return "empty", place(tree.body[-1].lineno)
    if found := next(filter(_refuses, nodes), None):
        return "refused", place(found.lineno)
    for number, text in enumerate(lines, 1):
        if TO_DO.search(text):
            return "to-do", place(number)
    return "", (0, "")


def _is_dots(node: ast.AST) -> bool:
    """A statement `...`, `x = ...` or `return ...`."""
    statement = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)
    value = getattr(node, "value", None) if isinstance(node, statement) else None
    return isinstance(value, ast.Constant) and value.value is ...


def _says_nothing(node: ast.stmt) -> bool:
    """A docstring or a `pass`."""
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or isinstance(node, ast.Pass)


def _refuses(node: ast.AST) -> bool:
    error = node.exc if isinstance(node, ast.Raise) else None
    error = error.func if isinstance(error, ast.Call) else error
    return isinstance(error, ast.Name) and error.id == "NotImplementedError"


def _class_of(submission: object) -> type:
    if isinstance(submission, functools.partial):
        submission = submission.func
    return submission if inspect.isclass(submission) else type(submission)


def _functions(submission: object) -> Iterator[FunctionType]:
    """A function, or the methods of a class, then those of theirs that these name."""
    if isinstance(submission, functools.partial) and not inspect.isclass(
        submission.func
    ):
        submission = submission.func
    if isinstance(submission, (FunctionType, MethodType)):
        queue = [inspect.unwrap(submission)]
    else:
        cls = _class_of(submission)
        queue = [x for x in vars_of(cls) if isinstance(x, FunctionType)]
        if issubclass(cls, nn.Module) and cls.forward is nn.Module.forward:
            yield nn.Module.forward
    seen: list[object] = []
    while queue and len(seen) < MOST:
        function = queue.pop(0)
        function = getattr(function, "__func__", function)
        code = getattr(function, "__code__", None)
        theirs = isinstance(code, CodeType) and not code.co_filename.startswith(
            NOT_THEIRS
        )
        if not theirs or function in seen:
            continue
        seen.append(function)
        yield function
        for name in code.co_names:
            other = function.__globals__.get(name)
            if isinstance(other, FunctionType):
                queue.append(other)
            elif inspect.isclass(other) and issubclass(other, nn.Module):
                queue += [x for x in vars_of(other) if isinstance(x, FunctionType)]


def vars_of(cls: type) -> Iterator[object]:
    """What an instance finds under each name, without what is torch's or Python's."""
    names: set[str] = set()
    for base in cls.__mro__:
        for name, value in vars(base).items():
            if name not in names:
                names.add(name)
                yield value
