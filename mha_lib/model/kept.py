"""A model in a folder: model.safetensors, sizes.json, tokenizer.json."""

import json
from dataclasses import asdict, fields
from os import PathLike
from pathlib import Path

import torch

from mha_lib.convert import convert
from mha_lib.model.attentions import ATTENTIONS
from mha_lib.model.files import (
    check_shapes,
    put,
    read_tensors,
    write_tensors,
    write_whole,
)
from mha_lib.model.text import BytePairs, Characters, load_tokenizer
from mha_lib.model.transformer import LanguageModel, Sizes

__all__ = [
    "in_style",
    "load_kept",
    "load_model",
    "save_model",
]

KEPT = Path(__file__).parent / "kept"
STYLE = "fused"  # of the files, whatever the style of the model


def load_kept(style: str = STYLE) -> tuple[LanguageModel, BytePairs]:
    """The model that comes with the book, trained on the Python manual's topics.

    Args:
        style: what its blocks shall be made of, a name of `ATTENTIONS`.

    Returns:
        The model, in evaluation mode, and its tokenizer.

    Note:
        How it was made, and how it learned, lie beside it: ``kept/README.md``,
        ``kept/log.jsonl``.

    Example:
        >>> model, tokenizer = load_kept()
        >>> tokens = torch.tensor([tokenizer.encode("The list is")])
        >>> model(tokens).shape[-1] == tokenizer.size
        True
    """
    return load_model(KEPT, style)


def load_model(
    folder: str | PathLike, style: str = STYLE
) -> tuple[LanguageModel, Characters | BytePairs]:
    """What `save_model` wrote: a model in evaluation mode, float32, and its tokenizer.

    Raises:
        ValueError: a file is missing, damaged, or fits no other.
    """
    folder = Path(folder)
    sizes = _sizes(folder / "sizes.json")
    tokenizer = load_tokenizer(folder / "tokenizer.json")
    if tokenizer.size != sizes.vocabulary:
        raise ValueError(
            f"{folder}: the model has {sizes.vocabulary} tokens, the tokenizer "
            f"{tokenizer.size}"
        )
    path = folder / "model.safetensors"
    tensors, _ = read_tensors(path)
    if not 0 <= sizes.num_layers <= len(tensors):  # before so many blocks are built
        raise ValueError(f"{path} is of no model with {sizes.num_layers} layers")
    try:
        with torch.device("meta"):  # no memory for sizes that are a lie
            model = LanguageModel(sizes, STYLE)
    except (ValueError, RuntimeError, TypeError, ArithmeticError) as error:
        reason = str(error).splitlines()[0]  # torch adds where in its code it was
        raise ValueError(f"{folder / 'sizes.json'}: {reason}") from None
    check_shapes(model, tensors, path)
    model = LanguageModel(sizes, STYLE)
    put(model, tensors, path)
    return in_style(model, style).eval(), tokenizer


def save_model(
    model: LanguageModel,
    tokenizer: Characters | BytePairs,
    folder: str | PathLike,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a model of any style and its tokenizer; `load_model` reads them.

    Args:
        model: to be kept.
        tokenizer: whose size is the model's vocabulary.
        folder: made if need be.
        dtype: of the numbers in the file; float16 halves it.

    Example:
        >>> import tempfile
        >>> letters = Characters.of("to be or not to be")
        >>> model = LanguageModel(Sizes(letters.size, context=8), style="einsum")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_model(model, letters, folder)
        ...     again, _ = load_model(folder, style="per_head")
        >>> tokens = torch.tensor([letters.encode("to be")])
        >>> torch.allclose(again(tokens), model(tokens), atol=1e-5)
        True
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    parameters = in_style(model, STYLE).named_parameters()  # a tied matrix once
    tensors = {name: p.detach().cpu().to(dtype) for name, p in parameters}
    write_tensors(folder / "model.safetensors", tensors, {})
    sizes = json.dumps(asdict(model.sizes), indent=1) + "\n"
    write_whole(folder / "sizes.json", sizes.encode())
    tokenizer.save(folder / "tokenizer.json")


def in_style(model: LanguageModel, style: str) -> LanguageModel:
    """The same function, its blocks made of another attention.

    Of the model itself if it has that style already, of a new one otherwise.
    """
    if style == model.style:
        return model
    like = next(model.parameters())
    made = LanguageModel(model.sizes, style).to(like)
    for theirs, block in zip(made.blocks, model.blocks):
        theirs.attention = convert(block.attention, ATTENTIONS[style][0])
    others = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if ".attention." not in name:
                parameter.copy_(others[name])
    return made.train(model.training)


def _sizes(path: Path) -> Sizes:
    try:
        content = json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(
            f"{path.parent} must be a folder with a model; "
            f"{path.name}: {error.strerror}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} must hold the sizes of a model: {error}") from None
    names = [field.name for field in fields(Sizes)]
    if not isinstance(content, dict) or sorted(content) != sorted(names):
        raise ValueError(f"{path} must have {', '.join(names)}, and nothing else")
    for name in names:
        kind = {"dropout": (int, float), "tied": bool}.get(name, int)
        value = content[name]
        if value is None and name == "feed_forward":
            continue
        wrong = isinstance(value, bool) != (name == "tied")
        if wrong or not isinstance(value, kind) or value < 0:
            raise ValueError(f"{path}: {name} cannot be {value!r}")
    return Sizes(**content)
