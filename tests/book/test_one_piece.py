"""Chapter 4 ends its layer with a program to copy: it runs alone, and is the layer."""

import ast
import re

import torch
from torch.testing import assert_close

from mha_lib import BatchedMHA
from tools import book, notebook

PIECE = re.compile(r"### The layer in one piece.*?```python\n(.*?)```", re.DOTALL)


def piece():
    page = notebook.read(book.chapters()[3])
    (found,) = re.findall(PIECE, "\n\n".join(cell.source for cell in page.cells))
    return found


def test_it_needs_torch_alone_and_equals_the_library(capsys):
    names = {}
    exec(piece(), names)
    assert "(2, 4, 7, 7)" in str(tuple(names["weights"].shape))
    assert capsys.readouterr().out.count("torch.Size") == 2
    ours, theirs = names["MHA"](15, 3), BatchedMHA(15, 3)
    ours.load_state_dict(theirs.state_dict())
    query, memory = torch.randn(2, 5, 15), torch.randn(2, 7, 15)
    mask = torch.rand(2, 5, 7) > 0.4
    mask[..., 0] = True
    assert_close(ours(query, memory, memory, mask), theirs(query, memory, memory, mask))
    assert {x.partition(" ")[2] for x in piece().splitlines() if "import" in x} == {
        "math", "torch", "torch import nn",
    }  # fmt: skip


def test_it_is_what_the_chapters_wrote():
    kinds = ast.FunctionDef, ast.ClassDef
    written = {}
    for path in book.chapters()[:4]:
        for cell in notebook.read(path).cells:
            if cell.cell_type == "code" and "%" not in cell.source:
                body = ast.parse(cell.source).body
                written |= {x.name: ast.dump(x) for x in body if isinstance(x, kinds)}
    own = [x for x in ast.parse(piece()).body if isinstance(x, kinds)]
    names = ["split_heads", "merge_heads", "masked_attention", "MHA"]
    assert [x.name for x in own] == names
    for part in own:
        assert ast.dump(part) == written[part.name], part.name
