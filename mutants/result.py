"""What a full run found, as it is stored, and whether the library is still the same."""

import json

from mutants.equivalent import EQUIVALENT_HELD_OUT
from mutants.modules import sources
from tools.book import ROOT

RESULT = ROOT / "mutants" / "result.json"
HELD_OUT = ROOT / "mutants" / "held_out.json"
SENTENCE = (
    "Of {mutants:,} small faults put into the library's arithmetic one at a time, "
    "the tests find {found:,}"
)


def stored() -> dict:
    """What `python -m mutants` found when it was run last."""
    return json.loads(RESULT.read_text(encoding="utf-8"))


def held_out() -> dict:
    """What `python -m mutants --held-out N` found when it was run last."""
    found = json.loads(HELD_OUT.read_text(encoding="utf-8"))
    alike = EQUIVALENT_HELD_OUT.keys() & set(found["survived"])
    return found | {"equivalent": len(alike)}


def is_stale() -> bool:
    """Whether the library has changed since the stored run."""
    return stored()["sources"] != sources()
