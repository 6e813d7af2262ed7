"""What README and CONTRIBUTING name is there: paths, targets of make, modules."""

import importlib.util
import re

import pytest

from tools import book

PAGES = ["README.md", "CONTRIBUTING.md"]
# What a newcomer will write, what a command makes, and paths from elsewhere.
PLACES = re.compile(r"NN|^FOLDER/|_name\b|\bname\.|/aN|^\.|^student/|^_build/")
IN_WORDS = re.compile(r"`([\w.-]+/[\w./*-]*)`")
IN_COMMANDS = re.compile(r"(?:pytest|python -m|jupyter)[\w. -]* ([\w.-]+/[\w./-]+)")


def text(page):
    return (book.ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page):
    named = {*IN_WORDS.findall(text(page)), *IN_COMMANDS.findall(text(page))}
    ours = {path for path in named if not PLACES.search(path)}
    assert len(ours) > 5
    assert [path for path in sorted(ours) if not any(book.ROOT.glob(path))] == []


@pytest.mark.parametrize("page", PAGES)
def test_targets_of_make_exist(page):
    targets = set(re.findall(r"^(\w+):.*## ", text("Makefile"), re.MULTILINE))
    named = set(re.findall(r"^make (\w+)|`make (\w+)", text(page), re.MULTILINE))
    assert {"".join(pair) for pair in named} <= targets


@pytest.mark.parametrize("page", PAGES)
def test_modules_that_are_run_exist(page):
    named = set(re.findall(r"python -m ([\w.]+)", text(page)))
    assert len(named) > 1
    assert [name for name in sorted(named) if not importlib.util.find_spec(name)] == []
