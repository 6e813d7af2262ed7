"""The README shows the table of blind spots, and the table names what exists."""

import ast
from pathlib import Path

import pytest

from evidence.oracles import BLIND_SPOTS, COUNTS, NAMES, first_line, readme_table

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
NO_ORACLES = {"test_readme.py", "test_torch_suite.py"}


def test_the_readme_shows_the_table():
    assert f"\n\n{readme_table()}\n\n" in (HERE / "README.md").read_text(
        encoding="utf-8"
    )


def test_every_oracle_has_its_number_of_cases_and_a_blind_spot():
    files = {path.name for path in HERE.glob("test_*.py")} - NO_ORACLES
    assert files == {f"test_{key}.py" for key in COUNTS}
    assert {x.oracle for x in BLIND_SPOTS} == {*NAMES.values(), "all"}
    assert all(COUNTS[key]["cases"] > 0 and first_line(key) for key in COUNTS)


@pytest.mark.parametrize("spot", BLIND_SPOTS, ids=lambda x: f"{x.oracle}: {x.blind_to}")
def test_the_test_that_sees_it_exists(spot):
    path, name = spot.seen_by.split("::")
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = [x.name for x in tree.body if isinstance(x, ast.FunctionDef)]
    assert functions.count(name) == 1
