"""What cannot be read, cut, written on or trained is refused in words."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from mha_lib.model import LanguageModel, Sizes, __main__, generate
from mha_lib.model.attentions import attend
from mha_lib.model.files import put, read_tensors, write_tensors
from mha_lib.model.kept import KEPT, load_model, save_model
from mha_lib.model.run import Run, Team, evaluate
from mha_lib.model.text import UNKNOWN, Characters, load_tokenizer, read_text, windows
from tests.model.small import SETTINGS, TEXT

LETTERS = Characters.of("abcd")
SMALL = Sizes(LETTERS.size, context=7, embed_dim=6, num_heads=2, num_layers=1)


@pytest.mark.parametrize(
    "content, said",
    [
        (b"\xff" * 1001, "must be UTF-8; .* is not, at byte 0"),
        (b"a" * 999, "at least 1,000 characters to learn from; .* has 999"),
    ],
    ids=["not UTF-8", "short"],
)
def test_a_text_to_learn_from(tmp_path, content, said):
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_text(tmp_path / "text")


def test_a_text_shorter_than_a_window():
    assert windows(torch.arange(6), batch=1, context=5)(0).shape == (1, 6)
    with pytest.raises(ValueError, match="at least 6 tokens, .*; got 5"):
        windows(torch.arange(5), batch=1, context=5)


def test_a_tokenizer_that_leaves_out_what_it_does_not_know(tmp_path):
    from tokenizers import Tokenizer, models

    path = tmp_path / "tokenizer.json"
    made = Tokenizer(models.BPE({UNKNOWN: 0, "a": 1}, [], unk_token=UNKNOWN))
    path.write_text(made.to_str(), "utf-8")
    assert load_tokenizer(path).decode([1, 0]) == "a" + UNKNOWN
    path.write_text(
        made.to_str().replace(f'"unk_token":"{UNKNOWN}"', '"unk_token":null')
    )
    with pytest.raises(ValueError, match="what it does not know must be"):
        load_tokenizer(path)


@pytest.fixture
def folder(tmp_path) -> Path:
    save_model(LanguageModel(SMALL), LETTERS, tmp_path)
    assert load_model(tmp_path)[1].size == SMALL.vocabulary
    return tmp_path


@pytest.mark.parametrize(
    "change, said",
    [
        ({"vocabulary": 6}, "the model has 6 tokens, the tokenizer 5"),
        ({"num_layers": 10**6}, "is of no model with 1000000 layers"),
        ({"colour": 1}, "must have vocabulary, .*, and nothing else"),
        ({"context": -1}, "context cannot be -1"),
        ({"context": True}, "context cannot be True"),
        ({"tied": 1}, "tied cannot be 1"),
    ],
)
def test_sizes_that_are_no_models(folder, change, said):
    path = folder / "sizes.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(ValueError, match=said):
        load_model(folder)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"weight": None}, "lacks weight"),
        ({"more": torch.ones(1)}, "has more"),
        ({"weight": torch.ones(3, 2)}, r"weight must be \(2, 3\); got \(3, 2\)"),
        ({"bias": torch.ones(2).long()}, "bias must hold floating-point numbers"),
        ({"bias": torch.tensor([0.0, torch.inf])}, "bias has numbers that are not"),
    ],
)
def test_tensors_that_are_another_models(change, said):
    given = {**nn.Linear(3, 2).state_dict(), **change}
    given = {name: x for name, x in given.items() if x is not None}
    with pytest.raises(ValueError, match=f"file.*{said}"):
        put(nn.Linear(3, 2), given, Path("file"))


def test_tensors_beside_words_that_are_none(tmp_path):
    write_tensors(tmp_path / "x", {}, ["no", "dict"])
    with pytest.raises(ValueError, match="x was not written by this program"):
        read_tensors(tmp_path / "x")


@pytest.mark.parametrize(
    "tokens, options, said",
    [
        (torch.zeros(3).long(), {}, r"\(B, T\) with T at least 1; got \(3,\)"),
        (torch.zeros(3, 0).long(), {}, r"\(B, T\) with T at least 1; got \(3, 0\)"),
        (torch.zeros(1, 1).long(), {"temperature": -0.1}, "from 0 on; got -0.1"),
        (torch.zeros(1, 1).long(), {"temperature": torch.inf}, "from 0 on; got inf"),
    ],
)
def test_what_nothing_can_be_written_after(tokens, options, said):
    with pytest.raises(ValueError, match=said):
        generate(LanguageModel(SMALL), tokens, 1, **options)


def test_a_layer_of_no_known_kind():
    with pytest.raises(TypeError, match="one of per_head, .*; got Identity"):
        attend(nn.Identity(), torch.ones(1, 2, 3), None)


def test_a_validation_without_a_next_token():
    with pytest.raises(ValueError, match="at least 2 tokens; got 1"):
        evaluate(LanguageModel(SMALL), torch.zeros(1).long())


def test_a_precision_that_is_none():
    with pytest.raises(ValueError, match="precision must be one of .*; got 'half'"):
        replace(SETTINGS, precision="half")


def test_a_loss_that_is_no_number(tmp_path):
    made = Run(SETTINGS, TEXT, tmp_path)
    with torch.no_grad():
        made.model.norm.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match="the loss is nan at step 0: begin again"):
        made.go(print)


def test_a_checkpoint_that_lacks_a_setting(tmp_path):
    made = Run(SETTINGS, TEXT, tmp_path / "run")
    made.folder.mkdir()
    made.go(lambda line: None)
    tensors, words = read_tensors(made.path)
    del words["settings"]["batch"]
    shutil.copytree(made.folder, tmp_path / "other")
    write_tensors(tmp_path / "other" / made.path.name, tensors, words)
    with pytest.raises(ValueError, match="was not written by this program"):
        Run(SETTINGS, TEXT, tmp_path / "other")


@pytest.mark.parametrize(
    "words, said",
    [
        (["sample", "--prompt", ""], "sample: a prompt of one token at least"),
        (["sample", "--new", "0"], "sample: a prompt of one token at least, and --new"),
        (["look", "--text", "a"], "look: --text must be of two tokens at least"),
    ],
)
def test_what_the_command_cannot_write_on_or_show(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        __main__.main([words[0], str(KEPT), *words[1:]])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_a_model_whose_tokenizer_needs_a_library_says_which(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tokenizers", None)  # it cannot be imported
    with pytest.raises(SystemExit) as ended:
        __main__.main(["sample", str(KEPT)])
    said = "sample: this needs tokenizers: pip install tokenizers\n"
    assert (ended.value.code, capsys.readouterr().err) == (2, said)


def test_a_graphics_card_that_is_not_here_is_refused_to_one_of_many(
    monkeypatch, tmp_path, capsys
):
    """torchrun gives each process a number, and each takes the card of its own."""
    (tmp_path / "text").write_text(TEXT, "utf-8")
    monkeypatch.setenv("LOCAL_RANK", "99")
    files = ["--text", str(tmp_path / "text"), "--out", str(tmp_path / "run")]
    with pytest.raises(SystemExit) as ended:
        __main__.main(["train", *files, "--device", "cuda"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith("train: the device 'cuda:99' cannot be used: ")


@pytest.mark.parametrize(
    "error", [RuntimeError("odd"), ModuleNotFoundError("no", name="odd")]
)
def test_a_fault_of_our_own_keeps_its_traceback(error, monkeypatch):
    def fault(_):
        raise error

    monkeypatch.setattr(__main__, "load_model", fault)
    with pytest.raises(type(error), match=str(error)):
        __main__.main(["sample", str(KEPT)])


def test_a_batch_that_cannot_be_shared(tmp_path):
    odd = replace(SETTINGS, plan=replace(SETTINGS.plan, batch=5))
    with pytest.raises(ValueError, match="multiple of the 2 processes; got 5"):
        Run(odd, TEXT, tmp_path, Team(size=2))
