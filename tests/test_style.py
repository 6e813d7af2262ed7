"""The code is as ruff wants it; pyproject.toml holds the rules."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("command", ["check", "format --check"])
def test_ruff_is_content(command):
    done = subprocess.run(
        [sys.executable, "-m", "ruff", *command.split(), "."],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
