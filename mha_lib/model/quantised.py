"""A model in one byte a number, as text that a page loads with a script element.

``python -m mha_lib.model.quantised`` writes it anew from the kept model.
"""

import base64
import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from mha_lib.model.files import put, write_whole
from mha_lib.model.kept import KEPT, STYLE, in_style, load_kept
from mha_lib.model.text import PIECES, BytePairs
from mha_lib.model.transformer import LanguageModel, Sizes

__all__ = ["dequantise", "pack", "quantise", "read_packed", "unpack"]

FILE = KEPT / "quantised.js"
LARGEST = 127  # of a signed byte, the same on both sides of zero
SCALE = ".scale"
SCRIPT = re.compile(r'\(window\.mhaPacked \?\?= \{\}\)\["(\w+)"\] = "([\w+/=]+)";\n')


def quantise(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """W ≈ scale · n, n a whole number from −127 to 127, with one scale a row.

    Args:
        tensors: name → (n, m), a matrix that is stored in bytes, or (n,), which stays
            as it is.

    Returns:
        For a matrix the int8 numbers (n, m) under its name, and its float32 scales
        (n,), max|w| / 127 of each row, under ``name.scale``; of the rest float32.

    Note:
        Rounding moves no number by more than half a scale, max|w| / 254 of its row.

    Example:
        >>> small = quantise({"w": torch.tensor([[1.0, -2.54], [0.0, 0.0]])})
        >>> small["w"].tolist(), [round(x, 4) for x in small["w.scale"].tolist()]
        ([[50, -127], [0, 0]], [0.02, 0.0])
    """
    found = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().float()
        if tensor.dim() == 2:
            scale = tensor.abs().amax(dim=1) / LARGEST
            steps = tensor / scale.where(scale > 0, torch.ones(()))[:, None]
            found[name], found[name + SCALE] = steps.round().to(torch.int8), scale
        else:
            found[name] = tensor
    return found


def dequantise(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Scale · n, float32: what `quantise` left of each tensor.

    Example:
        >>> w = torch.tensor([[1.0, -2.54], [0.0, 3.0]])
        >>> [[round(x, 3) for x in row] for row in dequantise(quantise({"w": w}))["w"]
        ...     .tolist()]
        [[1.0, -2.54], [0.0, 3.0]]
    """
    scales = {name: tensors.get(name + SCALE) for name in tensors}
    return {
        name: tensor if scales[name] is None else tensor * scales[name][:, None]
        for name, tensor in tensors.items()
        if not name.endswith(SCALE)
    }


def pack(model: LanguageModel, tokenizer: BytePairs) -> str:
    """JavaScript that leaves a model and its tokenizer in ``window.mhaPacked``.

    Args:
        model: of any style, with a feed-forward and a tied output.
        tokenizer: byte pairs, whose size is the model's vocabulary.

    Returns:
        One statement. Its text in base64 is a safetensors file: numbers as `quantise`
        makes them; sizes, tokens, merges and the pattern of pieces in its head.

    Raises:
        ValueError: a model that the page's program does not compute.
    """
    from safetensors.torch import save

    sizes = asdict(model.sizes)
    if not model.sizes.tied or model.sizes.feed_forward == 0:
        raise ValueError(
            "the page computes models with a feed-forward and a tied output; "
            f"got tied = {model.sizes.tied}, feed_forward = {model.sizes.feed_forward}"
        )
    inside = json.loads(tokenizer._tokenizer.to_str())["model"]
    merges = [x.split(" ") if isinstance(x, str) else x for x in inside["merges"]]
    numbers = inside["vocab"]
    words = {
        "sizes": sizes,
        "tokens": tokenizer.tokens,
        "merges": [[numbers[a], numbers[b]] for a, b in merges],
        "pieces": PIECES,
    }
    head = json.dumps(words, ensure_ascii=False, separators=(",", ":"))
    tensors = quantise(dict(in_style(model, STYLE).named_parameters()))
    content = save(tensors, {"words": head})
    name = "model" + hashlib.sha256(content).hexdigest()[:8]
    text = base64.b64encode(content).decode()
    return f'(window.mhaPacked ??= {{}})["{name}"] = "{text}";\n'


def read_packed(path: str | Path = FILE) -> tuple[str, str]:
    """The name and the base64 text in a file that `pack` wrote.

    Raises:
        ValueError: the file is missing or something else.
    """
    try:
        found = SCRIPT.fullmatch(Path(path).read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} must be a packed model: {error}") from None
    if not found:
        raise ValueError(f"{path} must be a packed model; it is something else")
    return found[1], found[2]


def unpack(path: str | Path = FILE) -> LanguageModel:
    """The model whose numbers the page computes with, float32, evaluation mode.

    Raises:
        ValueError: the file is missing, damaged or something else.

    Example:
        >>> model = unpack()
        >>> model(torch.tensor([[3, 1, 4]])).shape
        torch.Size([1, 3, 512])
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        content = base64.b64decode(read_packed(path)[1], validate=True)
        tensors = dequantise(load(content))
        length = int.from_bytes(content[:8], "little")
        head = json.loads(content[8 : 8 + length])
        sizes = json.loads(head["__metadata__"]["words"])["sizes"]
    except (SafetensorError, ValueError, KeyError) as error:
        raise ValueError(f"{path} must be a packed model: {error}") from None
    model = LanguageModel(Sizes(**sizes))
    put(model, tensors, Path(path))
    return model.eval()


if __name__ == "__main__":
    write_whole(FILE, pack(*load_kept()).encode())
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes")
