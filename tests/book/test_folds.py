"""A fold says what it holds, a sentence what it leads to."""

import ast
import importlib

import pytest
from docutils import nodes
from docutils.utils import new_document

from tests.book.test_pages import soup
from tools import book


@pytest.fixture
def extension(monkeypatch):
    """One of our Sphinx extensions, by its name."""
    monkeypatch.syspath_prepend(book.ROOT / "book" / "_ext")
    return importlib.import_module


@pytest.mark.parametrize(
    ("code", "title"),
    [
        ("# Stored results, of one machine\ntable = {}", "Stored results"),
        ("table = {}  # Stored results", "How this is computed"),
        ("table = {}", "How this is computed"),
    ],
)
def test_a_fold_with_an_output_says_whether_it_was_stored(extension, code, title):
    fold = nodes.container("", nodes.literal_block(code, code))
    output = nodes.container("", nodes.literal_block("1", "1"))
    cell = nodes.container("", fold, output)
    assert extension("folds").what_is_folded(cell, []) == title


def test_a_fold_names_what_is_used_below_it(extension):
    """Not what an earlier cell gave, nor what a check reads or a cell gives anew."""
    sources = ["a = b = 1", "a = c = d = e = 2", "assert d", "e = 3; a, c, b"]
    cells = [nodes.container("", nodes.literal_block(x, x)) for x in sources]
    cells[2]["hide_mode"] = "input"
    trees = [ast.parse(source) for source in sources]
    used = extension("folds").used_below(cells, sources, trees)
    assert used == [["a", "b"], ["c"], [], []]


@pytest.mark.parametrize(
    ("follows", "leads"),
    [(nodes.paragraph("", "One."), True), (nodes.section(), False), (None, False)],
)
def test_what_ends_in_a_colon_leads_into_no_new_section(extension, follows, leads):
    """*Your answer:* tore a rubric, which had to follow on the same sheet."""
    said = nodes.paragraph("", "Your answer:")
    page = new_document("page")
    page += nodes.section("", said, *filter(None, [follows]))
    page += nodes.section()
    extension("tidy").LeadsIn(page).run()
    assert (said["classes"] == ["leads-in"]) == leads


@pytest.mark.parametrize("path", book.chapters()[:5], ids=lambda path: path.stem)
def test_where_an_answer_is_promised_it_is_in_sight(path):
    """A blank without `...` would leave it among the checks, which are hidden."""
    article = soup(book.HTML / "book" / f"{path.stem}.html").article
    promises = [p for p in article.select("p") if "Ours is folded here" in p.text]
    assert promises
    for promise in promises:
        fold = promise.find_next("details")
        assert fold.summary.text.strip().startswith("The answer: "), promise.text
