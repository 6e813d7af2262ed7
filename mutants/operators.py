"""Every small fault that these rules can put into a module, one text for each.

A fault replaces one expression or one statement. Annotations, docstrings, messages and
what is raised are left alone: they change no result.
"""

import ast
import os.path
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

BINARY = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.Mod: ast.FloorDiv, ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
COMMUTATIVE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)
COMPARE = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
# One name in the place of another of the same kind: the classic slips.
NAMES = {
    "q": "k", "k": "v", "v": "k", "query": "key", "key": "value", "value": "key",
    "B": "H", "H": "B", "T": "S", "S": "T", "D": "E",
    "q_proj": "k_proj", "k_proj": "v_proj", "v_proj": "q_proj",
    "weights": "context", "any": "all", "all": "any", "min": "max", "max": "min",
    "zeros": "ones", "ones": "zeros", "new_zeros": "new_ones",
}  # fmt: skip
# Taking these away, or their arguments, is no arithmetic.
PLAIN_CALLS = {
    "isinstance", "len", "tuple", "list", "set", "dict", "zip", "range", "getattr",
    "setattr", "super", "type", "map", "next", "iter", "enumerate", "sorted", "field",
    "dataclass", "property", "str", "join", "items", "values", "keys", "format",
}  # fmt: skip
PACKAGES = ("torch", "F", "nn", "nn.init", "math", "np", "re", "torch.autograd")
BUILT_IN = frozenset({"any", "all", "min", "max"})
NUMBER = ast.Constant | ast.UnaryOp
# Names that hold words for a message, and functions that only make such words.
SPEED = {"TILE", "MASKED_ROWS"}  # how work is cut in pieces; the results are the same
WORDS = {
    "came",
    "axes",
    "required",
    "expected",
    "message",
    "said",
    "able",
    "hint",
    "twins",
    "extras",
}
SPEAKERS = {
    "_say_names",
    "_say_square",
    "axes_in_words",
    "_listed",
    "_grouped",
    "_titles",
}

EINSUM = re.compile(r"[a-z]+(,[a-z]+)*->[a-z]+")
FORMAT_LINE = re.compile(r"[\w ]+: .+ -> .+")


@dataclass(frozen=True)
class Mutant:
    """One fault: the text of the module with it, and what tells it from others."""

    module: str
    where: str  # the function or class, "" for the module itself
    change: str  # "old → new", and "#2" if the same change occurs twice there
    function: bool  # whether it lies in the body of one, or in its defaults
    lines: range  # those of the statement
    text: str

    @property
    def key(self) -> str:
        """The same as long as the function does the same, wherever its lines lie."""
        return f"{self.module}.{self.where}: {self.change}"


def mutants(module: str, text: str) -> Iterator[Mutant]:
    """All faults in a module, each once."""
    return _each_once(module, text, _replacements(text), {ast.dump(ast.parse(text))})


def _each_once(
    module: str, text: str, replacements: Iterable[tuple], seen: set[str]
) -> Iterator[Mutant]:
    """Faults made of (node, where, new text, in a function, lines).

    Args:
        module: its name.
        text: what it holds.
        replacements: those to make, of which some may give the same program.
        seen: programs, as ast dumps them, that are no faults, or are known.
    """
    changes = Counter()
    for node, where, replacement, function, lines in replacements:
        start, end = _span(text, node)
        new = f"({replacement})" if isinstance(node, ast.expr) else replacement
        changed = (text.encode()[:start] + new.encode() + text.encode()[end:]).decode()
        try:
            tree = ast.dump(ast.parse(changed))
        except SyntaxError:
            continue
        if tree in seen:
            continue
        seen.add(tree)
        change = _short(ast.unparse(node), replacement)
        changes[where, change] += 1
        if changes[where, change] > 1:
            change += f" #{changes[where, change]}"
        yield Mutant(module, where, change, function, lines, changed)


def _span(text: str, node: ast.AST) -> tuple[int, int]:
    """Where the node stands, in bytes; that is how ast counts columns."""
    lines = [0]
    for line in text.encode().splitlines(keepends=True):
        lines.append(lines[-1] + len(line))
    start = lines[node.lineno - 1] + node.col_offset
    return start, lines[node.end_lineno - 1] + node.end_col_offset


def _short(old: str, new: str) -> str:
    """'old → new', without what is the same at both ends of a long text."""
    one, two = old.split(), new.split()
    start = max(0, len(os.path.commonprefix([one, two])) - 2)
    end = max(0, len(os.path.commonprefix([one[start:][::-1], two[start:][::-1]])) - 2)
    if len(old) > 50 and start + end > 2:
        one, two = (x[start : len(x) - end] for x in (one, two))
    sides = (textwrap.shorten(" ".join(x), 90, placeholder=" …") for x in (one, two))
    return " → ".join(sides)


def _replacements(text: str) -> Iterator[tuple]:
    """(node, where, new text, in a function, lines) for every rule that applies."""

    def visit(node, where: str, known: frozenset[str], lines: range):
        if _is_silent(node):
            return
        if isinstance(node, ast.stmt):
            end = node.end_lineno + 1
            if hasattr(node, "body") and not isinstance(node, ast.FunctionDef):
                end = node.body[0].lineno  # of what it contains, each has its own
            lines = range(node.lineno, end)
        function = known is not BUILT_IN
        for new in _statement(node):
            yield node, where, new, function, lines
        for new in _expression(node):
            if isinstance(node, ast.Name) and new not in {*known, "None"}:
                continue  # a name that means nothing here fails at once
            new = new if isinstance(new, str) else ast.unparse(new)
            yield node, where, new, function, lines
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            where = f"{where}.{node.name}".lstrip(".")
        if isinstance(node, ast.FunctionDef):
            known = known | _names(node)
        for child in _children(node):
            yield from visit(child, where, known, lines)

    tree = ast.parse(text)
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child.up = node
    tree.up = None
    yield from visit(tree, "", BUILT_IN, range(0))


def _names(function: ast.FunctionDef) -> set[str]:
    """What a function calls something, its arguments included."""
    nodes = list(ast.walk(function))
    stored = {x.id for x in nodes if isinstance(x, ast.Name)}
    return stored | {x.arg for x in nodes if isinstance(x, ast.arg)}


def _children(node: ast.AST) -> Iterator[ast.AST]:
    """What may be changed in a node: no annotations, no decorators."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "bases"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield child


def _is_silent(node: ast.AST) -> bool:
    """What only says something."""
    if isinstance(node, ast.Raise | ast.Import | ast.ImportFrom | ast.JoinedStr):
        return True
    if isinstance(node, ast.Assign):
        names = {x.id for x in node.targets if isinstance(x, ast.Name)}
        return bool(names & (WORDS | SPEED | {"__all__"}))
    if isinstance(node, ast.FunctionDef):
        return node.name in SPEAKERS
    said = ast.JoinedStr if isinstance(node, ast.Return) else ast.Constant
    return isinstance(node, ast.Return | ast.Expr) and isinstance(node.value, said)


def _statement(node: ast.AST) -> Iterator[str]:
    """The statement left out."""
    if isinstance(node, ast.Expr | ast.AugAssign):
        yield "pass"
    if isinstance(node, ast.Assign) and not isinstance(node.value, ast.Call):
        names = {x.id for x in ast.walk(node.value) if isinstance(x, ast.Name)}
        stored = {
            x.id for t in node.targets for x in ast.walk(t) if isinstance(x, ast.Name)
        }
        if names & stored:
            yield "pass"


def _expression(node: ast.AST) -> Iterator[ast.expr | str]:
    """The expression made wrong."""
    parent = node.up
    tests = [getattr(parent, "test", None), *getattr(parent, "ifs", [])]
    if node in tests and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.BinOp(left, op, right) if type(op) in BINARY:
            yield ast.BinOp(left, BINARY[type(op)](), right)
            if not isinstance(op, COMMUTATIVE):
                yield ast.BinOp(right, op, left)
        case ast.AugAssign(target, op, value) if type(op) in BINARY:
            yield ast.unparse(ast.AugAssign(target, BINARY[type(op)](), value))
        case ast.Compare(left, [op], [right]):
            yield ast.Compare(left, [COMPARE[type(op)]()], [right])
            if isinstance(op, ast.Lt | ast.LtE | ast.Gt | ast.GtE):
                yield ast.Compare(right, [op], [left])
        case ast.BoolOp(op, values):
            yield ast.BoolOp(ast.And() if isinstance(op, ast.Or) else ast.Or(), values)
            for i in range(len(values)):
                rest = values[:i] + values[i + 1 :]
                yield rest[0] if len(rest) == 1 else ast.BoolOp(op, rest)
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            yield str(-2 if value == 1 else 1 - value)  # another axis
        case ast.UnaryOp(_, operand):
            yield operand
        case ast.Constant(value) if not isinstance(parent, ast.UnaryOp):
            yield from _constant(value)
        case ast.IfExp(test, body, orelse):
            yield ast.IfExp(test, orelse, body)
        case ast.Name("mask" | "bias" | "is_causal", ast.Load()) if isinstance(
            parent, ast.Call | ast.keyword
        ):
            yield "None"
        case ast.Name(name, ast.Load()) if name in NAMES and not _share(node):
            yield NAMES[name]
        case ast.Attribute(value, name, ast.Load()) if name in NAMES:
            yield ast.Attribute(value, NAMES[name], ast.Load())
        case ast.Tuple([ast.Constant(str()), *_]) if isinstance(parent, ast.Call):
            pass  # x.startswith(("a", "b")) takes them in any order
        case ast.Tuple(values, ast.Load()) if isinstance(
            parent, ast.Return | ast.Assign | ast.Call | ast.keyword | ast.Subscript
        ):
            for i in range(len(values) - 1):
                turned = [*values[:i], values[i + 1], values[i], *values[i + 2 :]]
                yield ast.Tuple(turned, ast.Load())
        case ast.Slice(lower, upper, step):
            if lower is not None:
                yield ast.Slice(None, upper, step)
            if upper is not None:
                yield ast.Slice(lower, None, step)
        case ast.Call():
            yield from _call(node)


def _share(node: ast.Name) -> bool:
    """Whether the name is asked only for what the other one has as well."""
    asked = node.up.attr if isinstance(node.up, ast.Attribute) else None
    if asked != "shape":
        return asked in ("dtype", "device")
    axis = ast.unparse(node.up.up.slice) if hasattr(node.up.up, "slice") else None
    values = node.id in ("k", "v", "key", "value")
    return axis in (("0", "1", "-2") if values else ("0", "-1"))


def _constant(value: object) -> Iterator[str]:
    match value:
        case bool():
            yield str(not value)
        case int():
            yield from (str(x) for x in ((0, 2) if value == 1 else (value + 1,)))
        case float():
            yield str(1.0 - value if value in (0.0, 1.0) else 2 * value)
        case str() if EINSUM.fullmatch(value):
            for i, (a, b) in enumerate(pairwise(value)):
                if a.isalpha() and b.isalpha():
                    yield repr(value[:i] + b + a + value[i + 2 :])
        case str() if FORMAT_LINE.fullmatch(value):
            yield from (repr(x) for x in _format_lines(value))


def _format_lines(line: str) -> Iterator[str]:
    """A line of a checkpoint format with two parts, or two stored axes, exchanged."""
    parts, ours, stored = re.fullmatch(r"(.+): (.+) -> (.+)", line).groups()
    for i, side in ((0, parts), (1, stored)):
        words = list(re.finditer(r"\w+", side))
        for a, b in pairwise(words):
            turned = side[: a.start()] + b[0] + side[a.end() : b.start()] + a[0]
            turned += side[b.end() :]
            yield f"{turned if i == 0 else parts}: {ours} -> {turned if i else stored}"


def _call(node: ast.Call) -> Iterator[ast.expr]:
    """The call left out, or one argument of it, or two of them exchanged."""
    function, args, keywords = node.func, node.args, node.keywords
    method = isinstance(function, ast.Attribute)
    name = function.attr if method else function.id
    if name in PLAIN_CALLS or name[0].isupper() and not keywords:
        return
    if not isinstance(node.up, ast.Expr) and name[0].islower():
        receiver = ast.unparse(function.value) if method else ""
        if method and receiver not in (*PACKAGES, "self"):
            yield function.value  # x.softmax(-1) → x
        elif args and not isinstance(args[0], ast.Starred | ast.Constant):
            yield args[0]  # F.dropout(x, p) → x
    for i, keyword in enumerate(keywords):
        if ast.unparse(keyword) == "dim=0":
            continue  # the first axis is what they take unasked
        yield ast.Call(function, args, keywords[:i] + keywords[i + 1 :])
    if len(args) > 1:
        yield ast.Call(function, args[:-1], keywords)
    for i, (a, b) in enumerate(pairwise(args)):
        # they take their axes, or what they check, in any order
        any_order = name == "transpose" or name.startswith("check_")
        if _are_alike(a, b) and not any_order:
            yield ast.Call(function, [*args[:i], b, a, *args[i + 2 :]], keywords)


def _are_alike(a: ast.expr, b: ast.expr) -> bool:
    """Two numbers, or two names of one kind."""
    names = [x.id for x in (a, b) if isinstance(x, ast.Name) and x.id in NAMES]
    return len(names) == 2 or isinstance(a, NUMBER) and isinstance(b, NUMBER)
