"""What the cells of an assignment's author say: tasks of their own, and stand-ins.

A question may be judged by a task that a cell registers (`mha_lib.check.own_task`), or
a file beside the notebook that a cell imports; and a right part may stand in for a
student's wrong one. All are kept as text that runs by itself: the statements that bind
what is needed, and what those need in turn.
"""

import ast
import hashlib
import linecache
import symtable
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mha_lib.grade.inside.cells import parse
from mha_lib.grade.inside.packages import ALLOWED

__all__ = ["bound", "closure", "execute", "files", "tasks"]

REGISTER = "register"
# Never the name of an author's file: a student's torch.py may lie there, too.
PACKAGES = {"mha_lib", *ALLOWED, *sys.stdlib_module_names}


@dataclass(frozen=True)
class Statement:
    """A statement of a cell, with the names of the notebook that it binds and needs."""

    source: str
    binds: frozenset[str]
    needs: frozenset[str]
    defines: bool  # a function or a class


def closure(cells: Iterable[str], names: Iterable[str]) -> str:
    """The statements that bind the names, and all that these need, in their order.

    Args:
        cells: the source of each code cell.
        names: of functions, classes and simple values.

    Raises:
        ValueError: no cell binds one of the names.

    Example:
        >>> from mha_lib.grade.author import closure
        >>> cells = ["import torch, math", "K = 2; L = 3", "def f(x): return x + K"]
        >>> print(closure(cells, ["f"]))
        K = 2
        <BLANKLINE>
        def f(x):
            return x + K
    """
    statements = list(_statements(cells))
    defined = {name for statement in statements for name in statement.binds}
    if missing := sorted(set(names) - defined):
        raise ValueError(f"the notebook must define {', '.join(missing)}")
    return "\n\n".join(x.source for x in _needed(statements, set(names)))


def tasks(cells: Iterable[str]) -> str:
    """Every statement that registers a task, with all that it needs; or nothing."""
    statements = list(_statements(cells))
    registering = [
        x for x in statements if REGISTER in x.needs and REGISTER not in x.binds
    ]
    names = {name for statement in registering for name in statement.needs}
    kept = [*_needed(statements, names), *registering]
    return "\n\n".join(x.source for x in kept) if registering else ""


def files(cells: Iterable[str], folder: Path) -> list[str]:
    """The text of each file in a folder that the cells import; in order, once."""
    nodes = [node for cell in cells for node in parse(cell).body]
    names = dict.fromkeys(name for node in nodes for name in _imported(node))
    paths = [folder / f"{name}.py" for name in names if name not in PACKAGES]
    return [path.read_text(encoding="utf-8") for path in paths if path.is_file()]


def _imported(node: ast.stmt) -> list[str]:
    match node:
        case ast.Import(names=aliases):
            return [alias.name for alias in aliases]
        case ast.ImportFrom(module=str(name), level=0):
            return [name]
    return []


def bound(text: str) -> set[str]:
    """The names that a text defines."""
    return {name for statement in _statements([text]) for name in statement.binds}


def execute(text: str, what: str) -> dict[str, object]:
    """Run an author's text; returns what it defines.

    Raises:
        ValueError: it fails.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    file = f"<{what} {digest}>"  # from which `inspect` reads functions again
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    names: dict[str, object] = {"__name__": what}
    try:
        exec(compile(text, file, "exec"), names)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise ValueError(f"{what} must run; got {said}") from error
    return names


def _needed(statements: list[Statement], names: set[str]) -> list[Statement]:
    """Those that bind the names or what they need; each once, in order.

    Where a name is defined, other statements that bind it do not count: they put
    something else in its place for an experiment.
    """
    defined = {name for x in statements if x.defines for name in x.binds}
    values = [x.binds if x.defines else x.binds - defined for x in statements]
    found: set[int] = set()
    while True:
        more = {n for n, binds in enumerate(values) if binds & names} - found
        if not more:
            return [x for n, x in enumerate(statements) if n in found]
        found |= more
        names = names.union(*(statements[n].needs for n in more))


def _statements(cells: Iterable[str]) -> Iterator[Statement]:
    for cell in cells:
        for node in parse(cell).body:
            source = ast.unparse(node)
            table = symtable.symtable(source, "cell", "exec")
            own = [x for x in table.get_symbols() if x.is_assigned() or x.is_imported()]
            binds = frozenset(x.get_name() for x in own)
            needs = frozenset(_globals(table))
            if isinstance(node, ast.For):
                needs -= binds  # its own variable comes from nowhere else
            defines = isinstance(node, (ast.FunctionDef, ast.ClassDef))
            yield Statement(source, binds, needs, defines)


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """The names of the notebook that a statement reads, also in functions inside."""
    for symbol in table.get_symbols():
        whole = table.get_type() == "module"
        if symbol.is_referenced() and (whole or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)
