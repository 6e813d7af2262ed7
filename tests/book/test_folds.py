"""A fold says what it holds."""

import importlib

import pytest
from docutils import nodes

from tools import book


@pytest.fixture
def tidy(monkeypatch):
    """Our Sphinx extension that names them."""
    monkeypatch.syspath_prepend(book.ROOT / "book" / "_ext")
    return importlib.import_module("tidy")


@pytest.mark.parametrize(
    ("code", "title"),
    [
        ("# Stored results, of one machine\ntable = {}", "Stored results"),
        ("table = {}  # Stored results", "How this is computed"),
        ("table = {}", "How this is computed"),
    ],
)
def test_a_fold_with_an_output_says_whether_it_was_stored(tidy, code, title):
    fold = nodes.container("", nodes.literal_block(code, code))
    output = nodes.container("", nodes.literal_block("1", "1"))
    assert tidy.what_is_folded(nodes.container("", fold, output), []) == title
