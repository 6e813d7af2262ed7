"""Faults by other rules than those the tests were written against: a held-out sample.

Tests were added until no fault of `operators.py` survived, so their score there says
nothing about faults of another kind. What survives a sample is counted, and the score
stays what it is. Where a survivor shows a hole, a test is written after that, and the
next sample is drawn with another `SEED`, in which that survivor does not come again.
"""

import ast
import random
from collections.abc import Iterator

from mutants.modules import MODULES, source
from mutants.operators import (
    Mutant,
    _children,
    _each_once,
    _is_silent,
    _names,
    mutants,
)

SEED = 1
SLOW = ("dropin", "tiled", "_tiles")  # their tests take long
SAMPLED = tuple(x for x in MODULES if x not in SLOW)
TENSORS = "query key value q k v x a b scores weights context output mask bias"
SIZES = "embed_dim num_heads dim T S B H D E shape"
KINDS = [frozenset(kind.split()) for kind in (TENSORS, SIZES)]


def sample(modules: list[str], count: int) -> list[Mutant]:
    """So many faults, drawn at random from all that these rules make."""
    every = [fault for module in modules for fault in others(module, source(module))]
    return random.Random(SEED).sample(every, count)


def others(module: str, text: str) -> Iterator[Mutant]:
    """All faults of these rules in a module, but those that `operators` makes, too."""
    seen = {ast.dump(ast.parse(fault.text)) for fault in mutants(module, text)}
    seen.add(ast.dump(ast.parse(text)))
    return _each_once(module, text, _replacements(ast.parse(text)), seen)


def _replacements(tree: ast.Module) -> Iterator[tuple]:
    """(node, where, new text, True, lines): all of them lie inside functions."""

    def visit(node, where: str, names: tuple[str, ...], lines: range):
        if _is_silent(node) or isinstance(node, ast.arguments):
            return
        if isinstance(node, ast.stmt):
            lines = range(node.lineno, node.end_lineno + 1)
        if names and isinstance(node, ast.expr):
            for new in _expression(node, names):
                yield node, where, new, True, lines
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef):
            names = tuple(sorted(_names(node)))
        for child in _children(node):
            yield from visit(child, where, names, lines)

    yield from visit(tree, "", (), range(0))


def _expression(node: ast.expr, names: tuple[str, ...]) -> Iterator[str]:
    """The expression made wrong in a way that `operators` does not."""
    match node:
        case ast.Name(name, ast.Load()):
            kinds = [kind for kind in KINDS if name in kind]
            yield from (x for kind in kinds for x in names if x in kind - {name})
        case ast.BinOp(left, _, right):
            yield from map(ast.unparse, (left, right))
        case ast.Constant(bool()):
            pass
        case ast.Constant(int(value)) if value > 1:
            yield str(value - 1)
        case ast.Compare() | ast.BoolOp():
            yield from ("True", "False")
