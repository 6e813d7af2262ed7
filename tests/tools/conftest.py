"""Kernels that are cheap to start."""

import re

import pytest

from tools import kernels


@pytest.fixture
def cold(tmp_path_factory, monkeypatch):
    """Kernels are forked from a process without the libraries, which take seconds."""
    libraries = r"\n +import (matplotlib|torch|mha_lib)\b.*"
    text, left_out = re.subn(libraries, "", kernels.WARM.read_text("utf-8"))
    assert left_out == 3
    bare = tmp_path_factory.mktemp("cold") / "warm.py"
    bare.write_text(text, "utf-8")
    monkeypatch.setattr(kernels, "WARM", bare)
