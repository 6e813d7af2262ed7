"""Other people's cases: how many there are, and what they cannot see.

The tests are in tests/oracles, whose README shows `readme_table()`.
"""

import ast
import json
from dataclasses import dataclass
from pathlib import Path

from evidence.words import table

HERE = Path(__file__).resolve().parent
_DATA = json.loads((HERE / "oracles.json").read_text(encoding="utf-8"))
_ALL = _DATA.pop("all")

# How many cases each oracle has. Every number is asserted by the oracle's own test,
# so that whoever quotes it quotes what ran.
COUNTS: dict[str, dict[str, int]] = {key: x["counts"] for key, x in _DATA.items()}
NAMES: dict[str, str] = {key: x["name"] for key, x in _DATA.items()}


@dataclass(frozen=True)
class BlindSpot:
    """What an oracle's cases do not look at, and the test of ours that does."""

    oracle: str  # its name, or "all"
    blind_to: str
    seen_by: str  # tests/room/test_file.py::test_name


BLIND_SPOTS = [
    BlindSpot(oracle["name"], blind_to, seen_by)
    for oracle in (*_DATA.values(), _ALL)
    for blind_to, seen_by in oracle["blind to"].items()
]


def tests_of(key: str) -> str:
    """The file of an oracle's tests."""
    return f"tests/oracles/test_{key}.py"


def first_line(key: str) -> str:
    """What that file says that it is."""
    text = (HERE.parent / tests_of(key)).read_text(encoding="utf-8")
    return ast.get_docstring(ast.parse(text)).splitlines()[0]


def readme_table() -> str:
    """The blind spots as Markdown, with links as they hold in tests/oracles."""
    links = {"all": ("all", "")}
    for key, name in NAMES.items():
        links[name] = f"[{name}](test_{key}.py)", COUNTS[key]["cases"]
    rows = [(*links[x.oracle], x.blind_to, f"`{x.seen_by}`") for x in BLIND_SPOTS]
    return table(["Oracle", "Cases", "Blind to", "Seen by"], rows)
