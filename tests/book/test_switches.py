"""The one table of chapter 7 names every switch that torch has, and no other."""

import inspect
import re

import pytest
from torch import nn
from torch.nn import functional as F

from tools import book, notebook

PAGE = book.ROOT / "book" / "deeper" / "07_what_the_constructor_makes.ipynb"
HEAD = "| switch | effect | shape | trap | shown |"
OF_THE_FUNCTION = {  # its signature is no text that Python could read
    *("query", "key", "value", "attn_mask", "dropout_p"),
    *("is_causal", "scale", "enable_gqa"),
}


def switches() -> list[list[str]]:
    """The names of each part: the constructor's, the call's, the function's."""
    cells = notebook.read(PAGE).cells
    (cell,) = (c for c in cells if c.cell_type == "markdown" and HEAD in c.source)
    table, parts = cell.source.split(HEAD)[1].partition("\n\n")[0], []
    for row in table.strip().splitlines()[1:]:
        first, *others = row.strip("| ").split(" | ")
        if first.startswith("**"):
            parts.append([])
        else:
            assert len(others) == 4 and all(others), row
            parts[-1] += re.findall(r"`(\w+)`", first)
    return parts


def parameters(function) -> set[str]:
    return set(inspect.signature(function).parameters) - {"self"}


def test_every_switch_of_the_layer_stands_in_it_once():
    made, called, _ = switches()
    layer = nn.MultiheadAttention
    assert sorted(made) == sorted(parameters(layer.__init__))
    assert sorted(called) == sorted(parameters(layer.forward))


def test_every_argument_of_the_function_stands_in_it_once():
    _, _, arguments = switches()
    assert sorted(arguments) == sorted(OF_THE_FUNCTION)


@pytest.mark.parametrize("name", sorted(OF_THE_FUNCTION))
def test_the_function_says_the_same_of_itself(name):
    assert re.search(rf"\b{name}\b", F.scaled_dot_product_attention.__doc__)
