"""A build that fails says what failed, in one sentence."""

import shutil

import nbformat
import pytest

from tools import book, build

TOC = "format: jb-book\nroot: book/first\n"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A book of one page, with our settings and extensions."""
    (tmp_path / "book").mkdir()
    shutil.copy(book.ROOT / "_config.yml", tmp_path)
    for name in ("_ext", "_static"):
        shutil.copytree(book.ROOT / "book" / name, tmp_path / "book" / name)
    (tmp_path / "book" / "references.bib").write_text("")
    (tmp_path / "book" / "first.md").write_text("# First\n\n" + "A sentence. " * 9)
    (tmp_path / "_toc.yml").write_text(TOC)
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "HTML", tmp_path / "_build" / "html")
    return tmp_path


def test_another_jupyter_book_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(build, "version", lambda name: "2.1.7")
    assert build.main() == 1
    assert "needs jupyter-book 1.x, and 2.1.7 is installed" in capsys.readouterr().err


def test_a_page_that_nobody_wrote_is_named(small, capsys):
    (small / "_toc.yml").write_text(TOC + "chapters:\n  - file: book/second\n")
    assert build.main() == 1
    assert "names what does not exist: book/second." in capsys.readouterr().err


def test_a_page_that_was_not_built_is_named(small, monkeypatch, capsys):
    # what jupyter-book 2 does: it builds nothing and is content
    monkeypatch.setattr(build, "run_jupyter_book", lambda: (0, ""))
    assert build.main() == 1
    assert "Missing or empty pages: book/first." in capsys.readouterr().err


def test_a_dead_link_is_repeated_and_the_book_is_not_served(small, capsys):
    with (small / "book" / "first.md").open("a") as page:
        page.write("[away](nowhere.md)\n")
    assert build.main() == 1
    assert "cross-reference target not found: 'nowhere.md'" in capsys.readouterr().err
    assert not book.HTML.exists()


def test_a_failing_cell_is_named(small, cold, capsys):
    """Of a notebook with its line, of a page of text with its message."""
    cells = [
        nbformat.v4.new_markdown_cell("# Second\n\nText."),
        nbformat.v4.new_code_cell('rule = """\n-----\n"""\nassert rule == 2'),
    ]
    notebook = nbformat.v4.new_notebook(cells=cells)
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3"}
    nbformat.write(notebook, small / "book" / "second.ipynb")
    form = "{extension: .md, format_name: myst}"
    header = f"---\njupytext:\n  text_representation: {form}\n---\n"
    cell = "```{code-cell} ipython3\nassert not (found := [3]), f'three: {found}'\n```"
    page = f"{header}\n# Third\n\nText.\n\n{cell}\n\nMore text.\n"
    (small / "book" / "third.md").write_text(page)
    chapters = "chapters:\n  - file: book/second\n  - file: book/third\n"
    (small / "_toc.yml").write_text(TOC + chapters)
    assert build.main() == 1
    second, third = sorted(capsys.readouterr().err.splitlines()[-2:])
    assert "book/second.ipynb, cell 2 of 2" in second
    assert "AssertionError: assert rule == 2" in second
    assert "book/third.md, cell 2 of 3" in third
    assert "AssertionError: three: [3]" in third
