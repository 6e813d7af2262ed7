"""The model in bytes: made anew it is the same file, and close to the kept one."""

import base64
import json

import pytest
import torch

from mha_lib.model import LanguageModel, Sizes, read_text, split_text
from mha_lib.model.kept import load_kept
from mha_lib.model.quantised import (
    FILE,
    dequantise,
    pack,
    quantise,
    read_packed,
    unpack,
)

MOST_BYTES = 400_000


@pytest.fixture(scope="module")
def kept():
    return load_kept()


def test_the_file_is_what_the_command_makes_of_the_kept_model(kept):
    assert FILE.read_text("utf-8") == pack(*kept)
    assert FILE.stat().st_size <= MOST_BYTES


def test_the_style_of_the_model_makes_no_difference(kept):
    assert pack(*load_kept("einsum")) == pack(*kept)


def test_no_number_moves_by_more_than_half_a_step():
    w = torch.randn(7, 11, generator=torch.Generator().manual_seed(0))
    b = torch.randn(5, generator=torch.Generator().manual_seed(1))
    small = quantise({"w": w, "b": b})
    assert small["w"].dtype == torch.int8 and small["w"].abs().amax(1).tolist() == (
        [127] * 7
    )
    again = dequantise(small)
    half = w.abs().amax(1, keepdim=True) / 254
    assert ((again["w"] - w).abs() <= half * (1 + 1e-5)).all()  # float32 rounds, too
    assert torch.equal(again["b"], b) and list(again) == ["w", "b"]


def test_rows_of_zeros_stay_zeros():
    w = torch.tensor([[0.0, 0.0], [3.0, -1.0]])
    assert dequantise(quantise({"w": w}))["w"][0].tolist() == [0, 0]


def test_it_predicts_what_the_kept_model_predicts(kept):
    """Bounds as kept/README.md states them, with room for other versions' texts."""
    model, tokenizer = kept
    small = unpack()
    tokens = torch.tensor(tokenizer.encode(split_text(read_text())[1])[: 40 * 129])
    tokens = tokens.view(-1, 129)
    with torch.no_grad():
        ours, theirs = (x(tokens[:, :-1]).log_softmax(dim=-1) for x in (model, small))
    apart = (ours - theirs).abs()
    assert apart.max() < 1 and apart.mean() < 0.06
    losses = [-x.gather(-1, tokens[:, 1:, None]).mean().item() for x in (ours, theirs)]
    assert abs(losses[0] - losses[1]) < 0.01 and max(losses) < 3.6


def test_the_head_holds_all_that_cuts_a_text(kept):
    content = base64.b64decode(read_packed()[1])
    length = int.from_bytes(content[:8], "little")
    words = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["words"])
    assert words["tokens"] == kept[1].tokens
    made = {
        a + b
        for a, b in (
            (words["tokens"][x], words["tokens"][y]) for x, y in words["merges"]
        )
    }
    single = [token for token in words["tokens"] if len(token) == 1]
    assert sorted([*made, *single]) == sorted(words["tokens"])


def test_a_model_that_the_page_cannot_compute_is_refused(kept):
    tokenizer = kept[1]
    for options in ({"tied": False}, {"feed_forward": 0}):
        model = LanguageModel(Sizes(tokenizer.size, context=8, **options))
        with pytest.raises(ValueError, match="tied output; got tied"):
            pack(model, tokenizer)


def test_what_is_no_packed_model_is_refused(tmp_path):
    path = tmp_path / "model.js"
    with pytest.raises(ValueError, match="must be a packed model"):
        read_packed(path)
    for text in ("", 'alert("x");\n', FILE.read_text("utf-8")[:-9]):
        path.write_text(text, "utf-8")
        with pytest.raises(ValueError, match="something else"):
            read_packed(path)
    path.write_text('(window.mhaPacked ??= {})["m"] = "AAAA";\n', "utf-8")
    with pytest.raises(ValueError, match="must be a packed model"):
        unpack(path)
