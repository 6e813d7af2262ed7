"""What `diagnose` says of each typical mistake: a table, counted by kind.

    python -m tests.check.stress.table

writes ``table.json`` and prints the totals and each misleading answer. An answer is

- *passed*: the verdict is right;
- *misleading*: a name that is not true of the program, in all candidates if there are
  several; or rows of the map that are said to sum to another number than 1, where the
  weights that the program returns do; or `diagnose` itself raises an error;
- *named*: names, all of them true;
- *pinpointed*: an error at the line where the teacher sees it, or with the words that
  he expects (a `return` is missing, say);
- *next step*: no name, but a fact, a property or an error that says where to look: see
  `points`;
- *vague*: nothing of these.
"""

import io
import json
import warnings
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

import torch

from mha_lib.check import Diagnosis, diagnose, in_words
from tests.check.stress import plain
from tests.check.stress.typical import TYPICAL, Typical, made

__all__ = ["TABLE", "kind_of", "row_of", "table"]

TABLE = Path(__file__).with_name("table.json")
KINDS = ("named", "pinpointed", "next step", "vague", "misleading", "passed")
SAYS_NOTHING = {  # facts that are true of nearly every wrong program
    *("reproduced", "right-elsewhere", "masks-later", "other-number", "other-weight"),
}
SUMS = {"map-sums": ("low", "high"), "row-sum": ("yours",)}


def kind_of(row: Typical, found: Diagnosis) -> str:
    """One of `KINDS`, by the rules above."""
    if found.verdict == "right":
        return "passed"
    sets = [set(names) for names in found.candidates or [found.mistakes] if names]
    if sets and not any(names <= row.true for names in sets):
        return "misleading"
    if _false_sums(row, found):
        return "misleading"
    if sets:
        return "named"
    said = [found.error or "", *map(in_words, found.unmet)]
    if row.at and any(row.at in words for words in said):
        return "pinpointed"
    return "next step" if points(found) else "vague"


def points(found: Diagnosis) -> bool:
    """Whether something says where to look: an error, a fact, a split of properties."""
    split = {
        value
        for name, value in found.properties.items()
        if name.startswith(("right_w", "right: "))
    }
    facts = [fact for fact in _facts(found) if fact.code not in SAYS_NOTHING]
    facts = [fact for fact in facts if fact.code not in SUMS or _off(fact)]
    return bool(found.error or facts or split == {True, False})


def _facts(found: Diagnosis) -> list:
    facts = [*found.evidence, *found.unmet, getattr(found.example, "fact", None)]
    return [fact for fact in facts if hasattr(fact, "code")]


def _off(fact) -> bool:
    """Whether it says that a row does not sum to 1."""
    return any(abs(fact.values[name] - 1) > 0.01 for name in SUMS[fact.code])


def _false_sums(row: Typical, found: Diagnosis) -> bool:
    said = any(_off(fact) for fact in _facts(found) if fact.code in SUMS)
    return said and _rows_sum_to_one(row)


def _rows_sum_to_one(row: Typical) -> bool:
    """Of the weights that it returns: a map (…, T, S) without negative numbers."""
    try:
        caller = plain.Caller(made(row.name, row.source), row.task, {})
        args = (plain.given(row.task, **o) for o in ({}, {"mask": "random"}))
        return all(_is_map(caller(each, {})[1]) for each in args)
    except Exception:
        return False  # it fails, or returns no map


def _is_map(weights: torch.Tensor) -> bool:
    sums = weights.sum(-1)
    fits = weights.shape[-2:] == (4, 5) and bool((weights >= 0).all())
    return fits and torch.allclose(sums, torch.ones_like(sums), atol=1e-3)


def row_of(row: Typical, seed: int = 0) -> dict:
    """What is kept of a row: the teacher, the names, the kind."""
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")  # a student sees both beside the answer
            found = diagnose(made(row.name, row.source), row.task, seed=seed)
    except Exception as error:
        return {"teacher": row.says, "kind": "misleading", "words": repr(error)}
    told = found.to_dict()
    words = [
        f"{told['verdict']}: {told['candidates'] or told['mistakes']}",
        *(told["evidence"] if told["verdict"] != "right" else []),
        *filter(None, (told["example"], told["error"], *told["unmet"])),
    ]
    return {
        "teacher": row.says,
        "kind": kind_of(row, found),
        "words": " | ".join(words),
    }


def table() -> dict:
    """All rows and the totals."""
    rows = {name: row_of(row) for name, row in TYPICAL.items()}
    counts = Counter(row["kind"] for row in rows.values())
    totals = {kind: counts[kind] for kind in KINDS}
    return {"totals": totals | {"all": len(rows)}, "rows": rows}


def main() -> None:
    """Write it and say what misleads."""
    made_now = table()
    TABLE.write_text(json.dumps(made_now, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name, row in made_now["rows"].items():
        if row["kind"] == "misleading":
            print(f"{name}\n  {row['words']}")
    print(", ".join(f"{n} {kind}" for kind, n in made_now["totals"].items()))


if __name__ == "__main__":
    main()
