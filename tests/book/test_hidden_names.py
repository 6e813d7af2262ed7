"""What a visible cell uses was made in view, or the text says what it is."""

import ast
import builtins
import re

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from tools import book, notebook, road

SPANS = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")  # and no fence


def parsed(cell) -> ast.Module:
    return ast.parse(TransformerManager().transform_cell(cell.source))


def made(tree: ast.Module) -> set[str]:
    """Names that it binds, at whatever depth."""
    found = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.arg(arg=name):
                found.add(name)
            case ast.alias(name=name, asname=other):
                found.add(other or name.split(".")[0])
    return found


def used(tree: ast.Module) -> set[str]:
    return {
        node.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def unseen(page) -> list[tuple[int, str]]:
    """Names that a visible cell uses, made in folded cells alone and not explained."""
    seen, found = set(vars(builtins)), []
    for i, cell in enumerate(page.cells):
        tags = set(notebook.tags(cell))
        if cell.cell_type == "markdown":
            for span in SPANS.findall(cell.source):
                seen.update(re.findall(r"[A-Za-z_]\w*", span))
        elif "setup" in tags:
            seen |= made(parsed(cell))
        elif not tags & road.FOLDED:
            tree = parsed(cell)
            found += [(i, name) for name in sorted(used(tree) - made(tree) - seen)]
            seen |= made(tree)
    return found


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_a_visible_cell_uses_what_was_seen(path):
    assert unseen(notebook.read(path)) == []


def test_a_name_from_a_fold_is_found():
    def page(text):
        cells = [
            notebook.nbformat.v4.new_code_cell("secret = 1"),
            notebook.nbformat.v4.new_markdown_cell(text),
            notebook.nbformat.v4.new_code_cell("total = sum([secret])\ntotal"),
        ]
        cells[0].metadata["tags"] = ["hide-input"]
        return notebook.nbformat.v4.new_notebook(cells=cells)

    assert unseen(page("Nothing is said.")) == [(2, "secret")]
    assert unseen(page("Folded away, `secret` is one.")) == []
    fenced = "```{note}\nNo word of the secret.\n```\n"
    assert unseen(page(fenced)) == [(2, "secret")]
    assert unseen(page(fenced + "It is `secret`, one.")) == []
