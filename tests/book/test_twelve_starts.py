"""The results that chapter 2 stores are those of its own code."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_lib import attention
from tools import book, notebook

NEEDED = ("class Head", "class PerHeadMHA", "# The data", "class Reader", "def train")
STORED = "# Stored results"


@pytest.fixture(scope="module")
def chapter():
    """What the chapter's cells define, without its set-up."""
    (path,) = (path for path in book.chapters() if path.stem.startswith("02_"))
    names = {"torch": torch, "nn": nn, "F": F, "attention": attention}
    torch.set_default_dtype(torch.float64)
    for cell in notebook.read(path).cells:
        if cell.source.startswith((*NEEDED, STORED)) and "check(" not in cell.source:
            exec(cell.source, names)
    return names


@pytest.mark.sweep(12)
@pytest.mark.parametrize("seed", range(12))
def test_a_stored_start_comes_out_again(chapter, seed):
    new, answers = chapter["new"], chapter["answers"]
    found, own = {}, {}
    for who in chapter["NEW_RIGHT"]:
        votes, _ = chapter["train"](*who, seed)(chapter["tokens"])
        right = (votes.argmax(dim=-1) == answers).all(dim=-1)
        found[who], own[who] = int(right[new].sum()), int(right[~new].sum())
    assert found == {who: right[seed] for who, right in chapter["NEW_RIGHT"].items()}
    assert own[1, True] == chapter["OWN_RIGHT"][seed]
