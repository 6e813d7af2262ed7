"""The example of Assignment 6 below each task says in a sentence what is wrong."""

import pytest
import torch

from mha_lib.grade.inside.cells import parse
from tests.tools.wrong_answers import SEEN, UNSEEN, WRONG, source
from tools import notebook


def cells_of_a_student(id):
    """Their code, without the pictures."""
    hidden = {"instructor", "hide-input"}
    return [
        cell.source
        for cell in source(id).cells
        if cell.cell_type == "code"
        and ("setup" in notebook.tags(cell) or not hidden & {*notebook.tags(cell)})
    ]


def run(cell, names):
    exec(compile(parse(cell), "<a cell>", "exec"), names)


@pytest.fixture(scope="module")
def solved():
    """What all cells of the solved notebook define; a shorter training is enough."""
    names, threads = {}, torch.get_num_threads()
    for cell in cells_of_a_student("a6"):
        run(cell.replace("steps=300", "steps=200"), names)
    yield names
    torch.set_num_threads(threads)


def example_says(names, name, old, new):
    """What the cells below a task say of a changed answer, until one fails."""
    cells = cells_of_a_student("a6")
    place = next(n for n, x in enumerate(cells) if f"def {name}(" in x)
    assert old in cells[place]
    try:
        run(cells[place].replace(old, new, 1), names)
        for cell in cells[place + 1 :]:
            if "SOLUTION" in cell:
                return None
            if "assert" in cell:
                run(cell, names)
    except AssertionError as error:
        return str(error)
    finally:
        run(cells[place], names)


BY_EXAMPLE = {k: v for k, v in (WRONG | SEEN).items() if k.startswith("a6")}
NAMES = {case.partition(",")[0].split()[1] for case in BY_EXAMPLE}


@pytest.mark.sweep(7)
@pytest.mark.parametrize("case", sorted(BY_EXAMPLE.keys() - UNSEEN))
def test_the_example_of_a_task_fails_with_a_sentence(solved, case):
    name = case.partition(",")[0].split()[1]
    said = example_says(solved, name, *BY_EXAMPLE[case])
    assert said


# What a sentence of an example has to name, as it meets more than one mistake.
TOLD = {
    "induction_map, whole numbers": (
        "torch.zeros(len(tokens), len(tokens))",
        "torch.zeros(len(tokens), len(tokens), dtype=tokens.dtype)",
        "whole numbers",
    ),
    "induction_map, a list": ("return weights", "return weights.tolist()", "a list"),
    "induction_score, by pairs": ("equal.any(dim=-1).sum()", "equal.sum()", "pairs"),
    "induction_score, a sum": (
        " / equal.any(dim=-1).sum()",
        "",
        "divided by three",
    ),
    "induction_score, the last one alone": (
        ".roll(1, dims=-1)[:, None]",
        ".roll(1, -1)[:, None].flip(-1).cumsum(-1).eq(1).flip(-1) "
        "& equal.roll(1, -1)[:, None]",
        "add up",
    ),
    "silenced, the output bias": (
        "return new",
        "new.out_proj.bias.data.zero_(); return new",
        "belongs to no head",
    ),
    "prices, head first": ("[(layer, head)]", "[(head, layer)]", "no list of pairs"),
    "prices, a bare pair": ("[(layer, head)]", "(layer, head)", "no list of pairs"),
    "find_induction_head, a number": (
        "return divmod(score.argmax().item(), H)",
        "return score.argmax().item()",
        "not the pair",
    ),
    "find_induction_head, nobody silent": ("run(x, heads)", "run(x)", "silent"),
    "find_induction_head, not None": ("return None", "return False", "is None"),
}


@pytest.mark.parametrize("case", TOLD)
def test_the_sentence_fits_the_mistake(solved, case):
    *change, word = TOLD[case]
    assert word in example_says(solved, case.partition(",")[0], *change)


def test_the_example_has_more_heads_than_texts(solved):
    old = "[:, None]  # (B, 1, t, s + 1)"  # forgotten, it meets the axis of the texts
    with pytest.raises(RuntimeError, match="must match"):
        example_says(solved, "induction_score", old, "")


@pytest.mark.parametrize("name", sorted(NAMES))
def test_the_example_says_that_a_function_is_not_written(solved, name):
    said = example_says(solved, name, "# BEGIN SOLUTION", "return None")
    assert said and "write it" in said
