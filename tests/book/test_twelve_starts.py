"""The results that a page below chapter 2 stores are those of its own code."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_lib import PerHeadMHA
from tools import book, notebook

NEEDED = ("nouns = ", "held_out = ", "class Reader", "def train", "# Stored results")
PAGE = book.DEEPER / "02_who_chased_whom.ipynb"


@pytest.fixture(scope="module")
def page():
    """What the page's cells define, without its set-up."""
    names = {"torch": torch, "nn": nn, "F": F, "PerHeadMHA": PerHeadMHA}
    torch.set_default_dtype(torch.float64)
    for cell in notebook.read(PAGE).cells:
        if cell.source.startswith(NEEDED):
            exec(cell.source, names)
    return names


@pytest.mark.sweep(12)
@pytest.mark.parametrize("seed", range(12))
def test_a_stored_start_comes_out_again(page, seed):
    new, answers = page["new"], page["answers"]
    found, own = {}, {}
    for who in page["NEW_RIGHT"]:
        votes, _ = page["train"](*who, seed)(page["tokens"])
        right = (votes.argmax(dim=-1) == answers).all(dim=-1)
        found[who], own[who] = int(right[new].sum()), int(right[~new].sum())
    assert found == {who: right[seed] for who, right in page["NEW_RIGHT"].items()}
    assert own[1, True] == page["OWN_RIGHT"][seed]
