"""From chapter to chapter: what changes in a class, what stands, what is missing."""

import re

import pytest

from tools import book, notebook

GROWS = {  # chapter: where the class before is, that class, what grows out of it
    "02": ("01", "Head", "Head"),
    "03": ("02", "PerHeadMHA", "BatchedMHA"),
    "04": ("03", "BatchedMHA", "MHA"),
    "05": ("03", "BatchedMHA", "FusedMHA"),
}
ONCE = {"02"}  # where nearly every line is new, each change is marked once
COMMENT, MARK = re.compile(r"  +# .*$"), re.compile(r"  # new\b")
LEADS_ON = re.compile(
    r"^\*\*What stands:\*\* .+\n\*\*What is missing:\*\* .+\n\n"
    r"Next: \[(\d+) · [^]]+\]\((.+)\)",
    re.MULTILINE,
)


def class_of(number: str, name: str) -> list[str]:
    """The lines of a class as the chapter ends up with it, below its first."""
    (path,) = (path for path in book.chapters() if path.stem.startswith(number))
    cells = (cell for cell in notebook.read(path).cells if cell.cell_type == "code")
    shown = (x.source for x in cells if "solution" not in notebook.tags(x))
    found = [x for x in shown if x.startswith(f"class {name}(")]
    return [line for line in found[-1].splitlines()[1:] if line.strip()]


def untrue(old: list[str], new: list[str]) -> list[str]:
    """Lines that are new and not marked, or marked and not new."""
    before = {COMMENT.sub("", line) for line in old}
    return [x for x in new if bool(MARK.search(x)) == (COMMENT.sub("", x) in before)]


@pytest.mark.parametrize("number", GROWS)
def test_what_is_new_in_a_class_is_marked_and_nothing_else(number):
    earlier, before, now = GROWS[number]
    old = class_of(earlier, before)
    new = class_of(number, now)
    wrong = [x for x in untrue(old, new) if MARK.search(x) or number not in ONCE]
    assert wrong == []
    assert any(map(MARK.search, new)) and not all(map(MARK.search, new))


def test_a_mark_that_is_missing_or_not_true_is_noticed():
    old = ["a = 1", "b = 2  # why"]
    assert untrue(old, ["a = 1", "b = 2", "c = 3  # new: a third"]) == []
    wrong = ["a = 1  # new", "c = 3", "b = 2  # new"]
    assert untrue(old, wrong) == wrong


def test_chapter_9_compares_the_class_of_chapter_4():
    pages = [notebook.read(book.chapters()[n - 1]).cells for n in (4, 9)]
    (_, built), (compared,) = (  # chapter 4 asks for it first
        [cell.source for cell in cells if cell.source.startswith("class MHA(")]
        for cells in pages
    )
    assert compared == built


@pytest.mark.parametrize("path", book.chapters()[:-1], ids=lambda path: path.stem)
def test_a_chapter_says_what_stands_and_leads_to_the_next(path):
    following = book.chapters()[book.chapters().index(path) + 1]
    (found,) = LEADS_ON.findall(notebook.read(path).cells[-1].source)
    assert found == (str(int(following.stem[:2])), following.name)
