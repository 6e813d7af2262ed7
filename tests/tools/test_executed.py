"""A page runs again if something that its outputs depend on has changed, only then."""

import shutil
from pathlib import Path

import nbformat
import pytest

from tools import book, executed, notebook

TOC = """format: jb-book
root: book/first
chapters: [{file: book/01_notebook}, {file: book/text}]
"""
TEXT = """---
jupytext: {text_representation: {extension: .md, format_name: myst}}
kernelspec: {name: python3, display_name: Python 3}
---

# Text

```{code-cell} ipython3
print(open("../evidence/number").read())
```
"""


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """A book of a page without code, a notebook, and a page of text with code."""
    for name in ("book", *executed.ROOMS):
        (tmp_path / name).mkdir()
    shutil.copy(book.ROOT / "_config.yml", tmp_path)
    (tmp_path / "_toc.yml").write_text(TOC)
    (tmp_path / "book" / "first.md").write_text("# First\n")
    (tmp_path / "book" / "text.md").write_text(TEXT)
    (tmp_path / "evidence" / "number").write_text("7")
    (tmp_path / "mha_lib" / "it.py").write_text("x = 3")
    cells = [
        nbformat.v4.new_markdown_cell("# 1 · Notebook"),
        nbformat.v4.new_code_cell("# from mha_lib import it\nprint(1)"),
    ]
    page = nbformat.v4.new_notebook(cells=cells)
    notebook.write(page, tmp_path / "book" / "01_notebook.ipynb")
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "HTML", tmp_path / "_build" / "html")
    return tmp_path


@pytest.fixture
def ran(monkeypatch):
    """The pages that a call of `again` runs; no kernel starts for it."""
    monkeypatch.setattr(executed, "digest_of_packages", lambda: "packages as they are")
    names = []

    def note(page, path, manager):
        names.append(path.name)
        if "raise" in page.cells[-1].source:
            raise notebook.NotebookError(f"{path.name}: it raised")

    monkeypatch.setattr(notebook, "run", note)
    return names


def again(ran):
    """What has to run now, and what failed of it."""
    ran.clear()
    found = executed.pages()
    return executed.fill(found, executed.digests(found)), sorted(ran)


def edit(path, old, new):
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_what_takes_long_or_may_comes_first():
    names = ["01_a", "02_b", "deeper/13_c", "14_d"]
    first, second, deeper, last = paths = [Path("book", name) for name in names]
    seconds = {str(first): 9.0, str(last): 7.0}
    assert executed.longest_first(paths, seconds) == [deeper, second, first, last]
    assert executed.longest_first(paths, {}) == [last, deeper, second, first]


def test_what_did_not_change_is_kept(pages, ran):
    assert again(ran) == ([], ["01_notebook.ipynb", "text.md"])
    assert again(ran) == ([], [])


@pytest.mark.parametrize(
    "file, old, new, runs",
    [
        ("book/01_notebook.ipynb", "Notebook", "New title", []),
        ("book/01_notebook.ipynb", "print(1)", "print(2)", ["01_notebook.ipynb"]),
        ("book/text.md", "# Text", "# Other text", []),
        ("book/text.md", "print", "str", ["text.md"]),
        ("mha_lib/it.py", "3", "4", ["01_notebook.ipynb"]),
        ("evidence/number", "7", "8", ["text.md"]),
        ("book/first.md", "First", "Start", []),
    ],
)
def test_what_changed_is_run(pages, ran, file, old, new, runs):
    again(ran)
    edit(pages / file, old, new)
    assert again(ran) == ([], runs)


@pytest.mark.parametrize("folder", executed.PASSING)
def test_what_tools_leave_behind_changes_nothing(pages, folder):
    before = executed.digest_of_files("mha_lib")
    (pages / "mha_lib" / folder).mkdir()
    (pages / "mha_lib" / folder / "it").touch()
    assert executed.digest_of_files("mha_lib") == before
    (pages / "mha_lib" / "it").touch()
    assert executed.digest_of_files("mha_lib") != before


@pytest.mark.parametrize(
    "file, old, new",
    [
        ("book/01_notebook.ipynb", "print(1)", "print(2)"),
        ("mha_lib/it.py", "3", "4"),
    ],
)
def test_what_is_not_as_it_was_run_is_not_remembered(pages, ran, file, old, new):
    path = pages / "book" / "01_notebook.ipynb"

    def remembered():
        found = executed.pages()
        return executed.remembered(path, found[path], executed.digests(found)[path])

    with pytest.raises(executed.NotRun, match="01_notebook.ipynb .* run: make book"):
        remembered()
    again(ran)
    assert remembered().cells[-1].source == "# from mha_lib import it\nprint(1)"
    edit(pages / file, old, new)
    with pytest.raises(executed.NotRun):
        remembered()


def test_what_a_cell_says_of_its_picture_is_part_of_it(pages, ran):
    again(ran)
    path = pages / "book" / "01_notebook.ipynb"
    page = notebook.read(path)
    page.cells[1].metadata["mystnb"] = {"image": {"alt": "a line that rises"}}
    notebook.write(page, path)
    assert again(ran) == ([], ["01_notebook.ipynb"])


def test_a_new_package_runs_everything(pages, ran, monkeypatch):
    again(ran)
    monkeypatch.setattr(executed, "digest_of_packages", lambda: "another torch")
    assert again(ran) == ([], ["01_notebook.ipynb", "text.md"])


def test_what_fails_is_said_and_the_rest_is_kept(pages, ran):
    edit(pages / "book" / "text.md", "print(", "raise ValueError(")
    assert again(ran) == (["text.md: it raised"], ["01_notebook.ipynb", "text.md"])
    assert again(ran) == (["text.md: it raised"], ["text.md"])


def test_the_outputs_are_those_of_a_kernel(pages, cold):
    found = executed.pages()
    assert executed.fill(found, executed.digests(found)) == []
    cache = executed.get_cache(str(executed.folder()))
    said = {}
    for path, page in executed.pages().items():
        _, filled = cache.merge_match_into_notebook(page)
        said[path.name] = filled.cells[-1].outputs[0].text
    assert said == {"01_notebook.ipynb": "1\n", "text.md": "7\n"}


def test_packages_are_those_installed_and_not_what_the_path_leads_to(
    tmp_path, monkeypatch
):
    before = executed.digest_of_packages()
    other = tmp_path / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: other\nVersion: 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert executed.digest_of_packages() == before
    monkeypatch.setattr(executed.sysconfig, "get_path", lambda kind: str(tmp_path))
    assert executed.digest_of_packages() != before
