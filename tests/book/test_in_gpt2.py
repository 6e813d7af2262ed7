"""A page shows chapter 4's class in GPT-2, which no test can fetch: here it runs."""

import math
import re

import nbformat
import pytest
import torch
import transformers  # its parts come when they are asked for
from torch import nn

from mha_lib.layouts import merge_heads, split_heads
from tools import book


def cells(page):
    return nbformat.read(book.ROOT / "book" / page, as_version=4).cells


CELLS = cells("04_masks.ipynb")
DEEPER = cells("deeper/09_weights_from_elsewhere.ipynb")
CELL = re.compile(r"```python\n(from mha_lib import causal.*?)```", re.DOTALL)
(SHOWN,) = (found[1] for cell in DEEPER if (found := CELL.search(cell.source)))
_, LAYER = (  # first the ones that the reader fills in
    cell.source for cell in CELLS if cell.source.startswith("class MHA(")
)
_, FUNCTION = (
    cell.source.partition("\n\n")[0]
    for cell in CELLS
    if cell.source.startswith("def masked_attention(")
)


@pytest.fixture
def gpt2(monkeypatch):
    """A small one, with biases that are not zero."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "n_embd": 24, "n_head": 4, "n_layer": 2}
    kind = transformers.GPT2LMHeadModel
    model = kind(transformers.GPT2Config(**sizes)).eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter += 0.2 * torch.randn_like(parameter)
    fetched = {"gpt2": model}.__getitem__
    monkeypatch.setattr(kind, "from_pretrained", fetched)
    return model


@pytest.mark.parametrize("change", [("", ""), ("T.chunk(3)", "T.chunk(3)[::-1]")])
def test_the_class_of_the_chapter_does_in_gpt2_what_its_own_layer_did(gpt2, change):
    tokens = torch.randint(50, (2, 7))
    before = gpt2(tokens).logits
    written = gpt2.generate(tokens[:1], max_new_tokens=6, do_sample=False)

    given = {"math": math, "torch": torch, "nn": nn}
    given |= {"split_heads": split_heads, "merge_heads": merge_heads}
    exec(FUNCTION, given)
    exec(LAYER, given)
    exec(SHOWN.replace(*change), given)
    after = gpt2(tokens).logits
    # logits of float32 are about 9; a product of 24 terms rounds at the sixth digit
    right = change == ("", "")
    assert torch.allclose(after, before, atol=1e-4) is right
    assert (after != before).any()  # rounded otherwise: it was the chapter's
    if right:
        again = gpt2.generate(tokens[:1], max_new_tokens=6, do_sample=False)
        assert torch.equal(again, written)
