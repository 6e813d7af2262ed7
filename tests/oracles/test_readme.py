"""The table of README.md names what exists: files, numbers of cases, tests of ours."""

import ast
import re
from pathlib import Path

import pytest

from tests.oracles.common import COUNTS

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LINES = (HERE / "README.md").read_text(encoding="utf-8").splitlines()
TABLE = [line for line in LINES if line.startswith("|")]
NO_ORACLES = {"test_readme.py", "test_torch_suite.py"}
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TABLE[2:]]


def test_every_oracle_has_a_row_with_its_number_of_cases():
    stated = {}
    for oracle, cases, _, _ in ROWS:
        if oracle != "all":
            file = re.fullmatch(r"\[.+\]\((test_\w+\.py)\)", oracle)[1]
            stated.setdefault(file, set()).add(cases)
    files = {path.name for path in HERE.glob("test_*.py")}
    assert stated.keys() == files - NO_ORACLES
    for file, numbers in stated.items():
        name = file.removeprefix("test_").removesuffix(".py")
        assert numbers == {str(COUNTS[name]["cases"])}, name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2])
def test_the_test_that_sees_it_exists(row):
    path, name = re.fullmatch(r"`(tests/\w+/\w+\.py)::(test_\w+)`", row[3]).groups()
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = [x.name for x in tree.body if isinstance(x, ast.FunctionDef)]
    assert functions.count(name) == 1
