"""Files that are there as a whole or not at all; tensors that fit or are refused."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from torch import Tensor, nn

__all__ = [
    "alone_in",
    "check_shapes",
    "put",
    "read_tensors",
    "write_tensors",
    "write_whole",
]


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Keep a folder for this process; most systems free it when the process ends.

    Raises:
        ValueError: another process has it.
    """
    from filelock import FileLock, Timeout

    path = folder / "in_use.lock"
    try:
        held = FileLock(path, timeout=0).acquire()
    except Timeout:
        raise ValueError(
            f"another process trains in {folder}: wait for it, or give another folder"
        ) from None
    with held:
        try:
            yield
        finally:
            with suppress(OSError):  # Windows keeps an open file
                path.unlink()


def write_whole(path: Path, content: bytes) -> None:
    """Write a file; whoever is killed meanwhile leaves the one that was there."""
    partial = path.with_name(path.name + ".partial")
    with open(partial, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def write_tensors(path: Path, tensors: dict[str, Tensor], words: dict) -> None:
    """A safetensors file with the words, as JSON, in its head."""
    from safetensors.torch import save

    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    write_whole(path, save(tensors, {"words": json.dumps(words)}))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """What `write_tensors` wrote.

    Raises:
        ValueError: the file is missing, cut off or something else.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            words = json.loads((file.metadata() or {}).get("words", "{}"))
    except FileNotFoundError:
        raise ValueError(f"there is no {path}") from None
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged, or was not written by this program: {error}"
        ) from None
    if not isinstance(words, dict):
        raise ValueError(f"{path} was not written by this program")
    return tensors, words


def put(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy tensors into the parameters of their names.

    Raises:
        ValueError: they are of a model of other names or shapes, or are no numbers.
    """
    check_shapes(model, tensors, path)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(tensors[name])
            if not parameter.isfinite().all():
                raise ValueError(f"{path}: {name} has numbers that are not finite")


def check_shapes(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Each parameter has a tensor of its name and shape, and no tensor is left over.

    Raises:
        ValueError: the first thing that does not fit.
    """
    wanted = {name: tuple(p.shape) for name, p in model.named_parameters()}
    if missing := sorted(wanted.keys() - tensors.keys()):
        raise ValueError(f"{path} lacks {missing[0]}: it is of another model")
    if foreign := sorted(tensors.keys() - wanted.keys()):
        raise ValueError(f"{path} has {foreign[0]}: it is of another model")
    for name, shape in wanted.items():
        if tuple(tensors[name].shape) != shape:
            raise ValueError(
                f"{path}: {name} must be {shape}; got {tuple(tensors[name].shape)}"
            )
        if not tensors[name].is_floating_point():
            raise ValueError(f"{path}: {name} must hold floating-point numbers")
