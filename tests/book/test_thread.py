"""From chapter to chapter: what changes in a class, what stands, what is missing."""

import re

import pytest

from tools import book, notebook

DIFF = re.compile(r"^```diff\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEADS_ON = re.compile(
    r"^\*\*What stands:\*\* .+\n\*\*What is missing:\*\* .+\n\n"
    r"Next: \[(\d+) · [^]]+\]\((.+)\)",
    re.MULTILINE,
)


def code(path) -> set[str]:
    """Each line of code in a chapter, without the solutions."""
    cells = (cell for cell in notebook.read(path).cells if cell.cell_type == "code")
    shown = (cell.source for cell in cells if "solution" not in notebook.tags(cell))
    return set("\n".join(shown).splitlines())


def changes(path) -> list[str]:
    """The lines of every difference on the page, with their marks."""
    cells = notebook.read(path).cells
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    lines = "".join(DIFF.findall(prose)).splitlines()
    return [line for line in lines if line.strip()]


def untrue(lines: list[str], old: set[str], new: set[str]) -> list[str]:
    """Lines that say - of what was not there, or + of what is not there now."""
    fits = {"-": (old,), "+": (new,), " ": (old, new)}
    return [x for x in lines if any(x[1:] not in side for side in fits[x[0]])]


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_a_difference_is_the_true_one(path):
    chapters = book.chapters()
    old = set().union(*map(code, chapters[: chapters.index(path)]))
    assert untrue(changes(path), old, code(path)) == []


def test_the_class_that_grows_is_shown_growing():
    growing = [path.stem[:2] for path in book.chapters() if changes(path)]
    assert growing == ["02", "03", "04"]


def test_chapter_9_compares_the_class_of_chapter_5():
    pages = [notebook.read(book.chapters()[n - 1]).cells for n in (5, 9)]
    (built,), (compared,) = (
        [cell.source for cell in cells if cell.source.startswith("class MHA(")]
        for cells in pages
    )
    assert compared == built


@pytest.mark.parametrize("path", book.chapters()[:-1], ids=lambda path: path.stem)
def test_a_chapter_says_what_stands_and_leads_to_the_next(path):
    following = book.chapters()[book.chapters().index(path) + 1]
    (found,) = LEADS_ON.findall(notebook.read(path).cells[-1].source)
    assert found == (str(int(following.stem[:2])), following.name)


def test_an_untrue_difference_is_noticed():
    old, new = {"a = 1", "b = 2"}, {"a = 1", "c = 3"}
    assert untrue([" a = 1", "-b = 2", "+c = 3"], old, new) == []
    wrong = [" b = 2", "-c = 3", "+b = 2"]
    assert untrue(wrong, old, new) == wrong
