"""What `check` says of each fresh layer, as a table.

    python -m tests.check.fresh.table

writes ``table.json``: of each wrong layer what a teacher says, the names and whether it
was *named* or *pinpointed*; of each right one the verdict.
"""

import json
from pathlib import Path

from mha_lib.check import Report, check
from tests.check.fresh.right_layers import RIGHT
from tests.check.fresh.wrong_layers import WRONG

__all__ = ["TABLE", "kind_of", "table"]

TABLE = Path(__file__).with_name("table.json")


def kind_of(report: Report, sets: list[set[str]], says: str) -> str:
    """Whether all that is named is true; else whether the words point to the place."""
    found = report.diagnosis
    names = [{*x} for x in found.candidates or [found.mistakes] if x]
    if report:
        return "passed"
    if names:
        return "named" if names == sets or names == sets[::-1] else "misnamed"
    return "pinpointed" if says and says in repr(report) else "vague"


def table() -> dict:
    """A row for each layer."""
    rows = {}
    for layer, task, sets, says in WRONG:
        report = check(layer, task)
        rows[layer.__name__] = {
            "teacher": layer.__doc__.splitlines()[0],
            "found": report.diagnosis.candidates or report.diagnosis.mistakes or says,
            "kind": kind_of(report, sets, says),
        }
    right = {x.__name__: check(x, task).diagnosis.verdict for x, task in RIGHT}
    return {"wrong": rows, "right": right}


if __name__ == "__main__":
    text = json.dumps(table(), indent=1, ensure_ascii=False)
    TABLE.write_text(text + "\n", encoding="utf-8")
