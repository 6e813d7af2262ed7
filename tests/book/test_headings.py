"""A heading goes on in a second line where it may."""

import importlib

import pytest
from docutils import nodes
from docutils.utils import new_document

from tools import book


@pytest.fixture
def headings(monkeypatch):
    """Our Sphinx extension that parts them."""
    monkeypatch.syspath_prepend(book.ROOT / "book" / "_ext")
    return importlib.import_module("headings")


@pytest.mark.parametrize(
    ("heading", "whole"),
    [
        ("3 · All heads at once", ["3 ·"]),
        ("Assignment 3 · Layouts", ["Assignment 3 ·"]),
        ("Task 2: split · 5 to 20 min · easy", ["split ·", "5 to 20 min ·"]),
        ("The way back", []),
    ],
)
def test_no_line_begins_with_a_dot_or_ends_within_a_time(headings, heading, whole):
    page = new_document("page")
    page += nodes.section("", nodes.title("", heading))
    headings.HeadingInParts(page).run()
    (title,) = page.findall(nodes.title)
    assert title.astext() == heading
    parts = title.findall(nodes.inline)
    assert [x.astext() for x in parts if x["classes"] == ["unbroken"]] == whole
