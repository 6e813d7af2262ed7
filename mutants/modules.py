"""The modules that faults are put into, where they lie, and what they say now."""

import hashlib
from pathlib import Path

from tools.book import ROOT

LIBRARY = ROOT / "mha_lib"
MODULES = (
    *("attention", "tiled", "_tiles"),
    *("masks.checking", "masks.making", "masks.conventions"),
    *("layouts", "_inputs", "styles.per_head", "styles.batched", "styles.fused"),
    *("styles.einsum", "styles.builtin", "styles.split_concat", "dropin"),
)
TABLES = (  # they move weights; tried if named
    *("convert", "convert.weights", "convert.notation", "convert.format"),
    *("convert.formats", "convert.kind", "convert.kinds"),
)


def file_of(module: str) -> Path:
    """'styles.fused' → mha_lib/styles/fused.py; of a package its __init__.py."""
    place = LIBRARY.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def module_of(file: Path) -> str:
    """The inverse of `file_of`."""
    parts = file.relative_to(LIBRARY).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def source(module: str) -> str:
    return file_of(module).read_text(encoding="utf-8")


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def sources() -> str:
    """What the stored result belongs to: the text of every module."""
    return digest(*map(source, MODULES + TABLES))
