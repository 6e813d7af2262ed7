"""What a full run found, as it is stored, and whether the library is still the same."""

import hashlib
import json

from tools.book import ROOT

MODULES = (
    *("attention", "tiled", "masks", "layouts", "_inputs"),
    *("per_head", "batched", "fused", "einsum", "builtin", "split_concat"),
    "dropin",
)
TABLES = ("convert", "checkpoints", "_kinds")  # they move weights; tried if named
RESULT = ROOT / "mutants" / "result.json"
SENTENCE = (
    "Of {mutants:,} small faults put into the library's arithmetic one at a time, "
    "the tests find {found:,}"
)


def source(module: str) -> str:
    return (ROOT / "mha_lib" / f"{module}.py").read_text(encoding="utf-8")


def digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def sources() -> str:
    """What the stored result belongs to: the text of every module."""
    return digest(*map(source, MODULES + TABLES))


def stored() -> dict:
    """What `python -m mutants` found when it was run last."""
    return json.loads(RESULT.read_text(encoding="utf-8"))


def is_stale() -> bool:
    """Whether the library has changed since the stored run."""
    return stored()["sources"] != sources()
