"""Folds are named by what they hold, and stand below what it shows."""

import ast
import re
from itertools import chain

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from mha_lib.widgets.base import VIEW

USED = "Code that is used below"
ANSWER = "The answer"
NAMED = 4  # of the names that are used; a title is read in one look


ASSERTED = re.compile(r"\bassert(_\w+)?\b")
QUIET = re.compile("✓|How this (picture|is)")  # read on without it


def what_is_folded(cell: nodes.container, used: list[str]) -> str:
    """Name a fold by what it holds; all would read "code cell source"."""
    code, shown = cell.children[0].astext(), cell.children[1:]
    if "tag_setup" in cell["classes"]:
        return "Set-up"
    if any(VIEW in x.astext() for x in cell.findall(nodes.raw)):
        return "How this widget is made"
    if any(part.next_node(nodes.image) for part in shown):
        return "How this picture is drawn"
    if shown:
        stored = code.startswith("# Stored results")
        return "Stored results" if stored else "How this is computed"
    if code.startswith("# The data"):
        return "The data"
    checks = ASSERTED.search(code)
    if checks and not used:
        number = len(ASSERTED.findall(code))
        return f"✓ {number} check{'s' * (number > 1)}"
    names = ", ".join([*used[:NAMED], "…"][: len(used)])
    title = f"{USED}: {names}" if names else USED
    return f"{title}; and assertions" if checks else title


def blanks(tree: ast.Module) -> set[str]:
    """Functions and classes in which `...` stands for what is to be written."""
    kinds = ast.FunctionDef, ast.ClassDef
    return {
        made.name
        for made in tree.body
        if isinstance(made, kinds)
        and any(
            isinstance(x, ast.Expr)
            and getattr(x.value, "value", None) is Ellipsis
            for x in ast.walk(made)
        )
    }


def answers(trees: list[ast.Module]) -> list[str]:
    """Of each cell, which blank of an earlier one it fills, or ""."""
    asked, found = set(), []
    for tree in trees:
        filled = asked & binds(tree) - blanks(tree)
        found.append(", ".join(filled))
        asked = (asked | blanks(tree)) - filled
    return found


def binds(tree: ast.Module) -> set[str]:
    """What a cell gives a name to, at its top or in a loop."""
    found, left = set(), [*tree.body]
    while left:
        match left.pop():
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.ListComp() | ast.SetComp() | ast.DictComp():
                pass  # what they name is their own
            case ast.GeneratorExp() | ast.Lambda():
                pass
            case node:
                left += ast.iter_child_nodes(node)
    return found


def reads(tree: ast.Module) -> set[str]:
    names = [x for x in ast.walk(tree) if isinstance(x, ast.Name)]
    return {x.id for x in names if isinstance(x.ctx, ast.Load)}


OF_IPYTHON = re.compile(r"^( *)[%!].*$", re.MULTILINE)


def is_check(cell: nodes.container) -> bool:
    """Whether a cell is folded and shows nothing."""
    return cell.get("hide_mode") == "input" and len(cell.children) == 1


def used_below(
    cells: list[nodes.container], sources: list[str], trees: list[ast.Module]
) -> list[list[str]]:
    """Of each cell, the names that a later one that is no mere check reads.

    Names that an earlier cell gave, or the later one gives itself, count not.
    """
    given, found = set(), []
    gives = [binds(tree) for tree in trees]
    takes = [
        set() if is_check(cell) else reads(tree) - own
        for cell, tree, own in zip(cells, trees, gives)
    ]
    for i, names in enumerate(gives):
        own = names - given
        later = own.intersection(chain(*takes[i + 1 :]))
        given |= own
        written = re.findall(r"\w+", sources[i])
        found.append(sorted(later, key=written.index))
    return found


class FoldBelow(SphinxPostTransform):
    """What a folded cell shows comes first, and its code in a fold below it."""

    default_priority = 200  # myst-nb makes the folds at 199
    formats = ("html",)

    def run(self, **kwargs) -> None:
        containers = self.document.findall(nodes.container)
        cells = [x for x in containers if x.get("nb_element") == "cell_code"]
        sources = [x.next_node(nodes.literal_block).astext() for x in cells]
        trees = [ast.parse(OF_IPYTHON.sub(r"\1pass", x)) for x in sources]
        below = used_below(cells, sources, trees)
        for cell, used, name in zip(cells, below, answers(trees)):
            if cell.get("hide_mode") == "input" and cell.children:
                fold, *shown = cell.children
                title = what_is_folded(cell, used)
                fold["prompt_show"] = f"{ANSWER}: {name}" if name else title
                if not shown:
                    fold["prompt_show"] += number_among_its_like(cell, fold)
                if QUIET.match(fold["prompt_show"]):
                    cell["classes"] += ["quiet"] + ["aside"] * (not used)
                cell.children = [*shown, fold]


COUNTED = re.compile(r"(.*?)(?: \((\d+)\))?")


def number_among_its_like(cell: nodes.container, fold: nodes.Element) -> str:
    """The number of a fold that stands right below another of its name."""
    at = cell.parent.index(cell)
    above = cell.parent[at - 1] if at else None
    if not isinstance(above, nodes.container) or len(above.children) != 1:
        return ""
    found = COUNTED.fullmatch(above.children[0].get("prompt_show", ""))
    like = found[1] == fold["prompt_show"]
    return f" ({int(found[2] or 1) + 1})" if like else ""


def setup(app: Sphinx) -> dict:
    app.add_post_transform(FoldBelow)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
