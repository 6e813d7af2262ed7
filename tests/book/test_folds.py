"""A fold says what it holds: the words on it, beside the code in it."""

import symtable

import pytest
from IPython.core.inputtransformer2 import TransformerManager

from tests.book.test_pages import soup
from tools import book, notebook

CHECKS = "The assertions behind the text"
ALSO_CHECKS = (CHECKS, "Code that is used below, and assertions")
PAGES = [path for path in book.lessons() if "assignments" not in path.parts]


def table(source: str) -> symtable.SymbolTable:
    return symtable.symtable(TransformerManager().transform_cell(source), "", "exec")


def given(source: str) -> set[str]:
    return {x.get_name() for x in table(source).get_symbols() if x.is_assigned()}


def read(source: str) -> set[str]:
    """Names of the page that it reads, in its functions too."""
    found, left = set(), [table(source)]
    while left:
        scope = left.pop()
        left += scope.get_children()
        found |= {
            x.get_name()
            for x in scope.get_symbols()
            if x.is_referenced() and (x.is_global() or scope.get_type() == "module")
        }
    return found


def folds(path) -> list[tuple[str | None, str]]:
    """(the words on its fold, its code) of each cell of code, in the page's order."""
    page = soup(book.HTML / path.relative_to(book.ROOT).with_suffix(".html"))
    titles = {
        fold.pre.get_text().strip(): fold.summary.get_text().strip()
        for fold in page.select("details.above-input")
    }
    cells = [x for x in notebook.read(path).cells if x.cell_type == "code"]
    return [(titles.get(x.source.strip()), x.source) for x in cells]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_fold_of_assertions_makes_nothing_that_is_used_below(path):
    cells = folds(path)
    assert any(title for title, _ in cells)
    known = set()
    for i, (title, source) in enumerate(cells):
        own = given(source) - known
        known |= own
        if not (title or "").startswith(CHECKS):
            continue
        for other, later in cells[i + 1 :]:
            if not (other or "").startswith(ALSO_CHECKS):
                assert not own & read(later) - given(later), source


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_no_two_folds_that_touch_have_one_name(path):
    page = soup(book.HTML / path.relative_to(book.ROOT).with_suffix(".html"))
    cells = page.select("div.cell")
    names = {
        id(cell): fold.get_text().strip()
        for cell in cells
        if (fold := cell.select_one("details.above-input > summary"))
    }
    for cell in cells:
        below = cell.find_next_sibling()
        if id(cell) in names and below and "cell_output" not in str(below):
            assert names[id(cell)] != names.get(id(below))


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_the_code_of_a_picture_stands_right_below_it(path):
    page = soup(book.HTML / path.relative_to(book.ROOT).with_suffix(".html"))
    for fold in page.select("details.above-input"):
        if fold.summary.get_text().strip() == "How this picture is drawn":
            above = fold.find_previous_sibling() or fold.parent.find_previous_sibling()
            assert above.find("img")
