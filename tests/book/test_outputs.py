"""What the build's kernels said is what is committed, by the rules of strict nbval.

`make book` has just run every page. Here nbval judges those outputs instead of running
all again: it gets a kernel that remembers. `pytest book/04_masks.ipynb` runs a page.
"""

import re
from collections import deque

import nbformat
import pytest
from nbval.plugin import IPyNbFile, NbCellError

from tools import book, executed, notebook


class Remembering:
    """A kernel, as nbval uses one, that answers with what another one said."""

    def __init__(self, page):
        self.cells = (cell for cell in page.cells if cell.cell_type == "code")
        self.messages = deque()

    def is_alive(self):
        return True

    def execute_cell_input(self, source, allow_stdin):
        cell = next(cell for cell in self.cells if cell.source == source)
        said = [(output.output_type, output) for output in cell.outputs]
        self.messages = deque(
            {"msg_type": kind, "content": content, "parent_header": {"msg_id": cell.id}}
            for kind, content in [*said, ("status", {"execution_state": "idle"})]
        )
        return cell.id

    def await_reply(self, msg_id, timeout):
        """It never takes time to think."""

    await_idle = await_reply

    def get_message(self, stream, timeout):
        return self.messages.popleft()


def faults(session, path, said) -> list[str]:
    """What nbval has to say of the committed page, if a kernel says this of it."""
    page = IPyNbFile.from_parent(session, path=path)
    page.kernel = Remembering(said)
    page.setup_sanitize_files()
    found = []
    for cell in page.collect():
        try:
            cell.runtest()
        except NbCellError as error:
            why = error.inner_traceback
            found.append(f"code cell {error.cell_num}: {error}\n{error.source}\n{why}")
    return found


@pytest.fixture(scope="module")
def digests():
    return executed.digests(executed.pages())


@pytest.mark.parametrize("path", book.lessons(), ids=lambda path: path.stem)
def test_the_build_got_what_is_committed(request, digests, path):
    said = executed.remembered(path, notebook.read(path), digests[path])
    assert faults(request.session, path, said) == []


# --- what it notices ------------------------------------------------------------------

new = nbformat.v4
SAYS = {  # a cell, and what it says
    "print(1)": new.new_output("stream", name="stdout", text="1\n"),
    "1 + 1": new.new_output("execute_result", {"text/plain": "2"}, execution_count=2),
    "draw()": new.new_output("display_data", {"image/png": "aa", "text/plain": "<it>"}),
    "1 / 0": new.new_output("error", ename="ZeroDivisionError", evalue="by zero"),
    "clock()": new.new_output("stream", name="stdout", text="noon\n"),
    "# NBVAL_IGNORE_OUTPUT\nclock()": new.new_output("stream", text="noon\n"),
}
TAGS = {"1 / 0": ["raises-exception"], "clock()": ["nbval-ignore-output"]}
OTHER = {  # what changes nothing, and what is a fault
    "text": ("print(1)", "text", "1.0\n", True),
    "stderr": ("print(1)", "name", "stderr", True),
    "result": ("1 + 1", "data", {"text/plain": "3"}, True),
    "another form": ("1 + 1", "data", {"text/plain": "2", "text/html": "2"}, True),
    "a form less": ("draw()", "data", {"image/png": "aa"}, True),
    "pixels": ("draw()", "data", {"image/png": "bb", "text/plain": "<it>"}, False),
    "another error": ("1 / 0", "ename", "ValueError", True),
    "another message": ("1 / 0", "evalue", "by one", True),
    "frames": ("1 / 0", "traceback", ["line 2"], False),
    "tagged": ("clock()", "text", "one\n", False),
    "told by a comment": ("# NBVAL_IGNORE_OUTPUT\nclock()", "text", "one\n", False),
}


@pytest.fixture
def committed(tmp_path):
    """A small page on disk, and it as a kernel would leave it."""
    page = new.new_notebook()
    for n, (source, output) in enumerate(SAYS.items(), 1):
        cell = new.new_code_cell(source, outputs=[output.copy()], execution_count=n)
        cell.metadata["tags"] = TAGS.get(source, [])
        page.cells += [new.new_markdown_cell("Text."), cell]
    path = tmp_path / "page.ipynb"
    nbformat.write(page, path)
    return path, notebook.read(path)


def cell_of(page, source):
    return next(cell for cell in page.cells if cell.source == source)


def test_what_is_the_same_is_no_fault(request, committed):
    assert faults(request.session, *committed) == []


@pytest.mark.parametrize(("source", "key", "value", "told"), OTHER.values(), ids=OTHER)
def test_what_differs_is_told(request, committed, source, key, value, told):
    path, said = committed
    cell_of(said, source).outputs[0][key] = value
    found = faults(request.session, path, said)
    assert [source in fault for fault in found] == [True] * told


@pytest.mark.parametrize("source", ["print(1)", "1 / 0"])
def test_an_output_that_is_missing_is_told(request, committed, source):
    path, said = committed
    cell_of(said, source).outputs = []
    (found,) = faults(request.session, path, said)
    assert "Missing output fields" in found


@pytest.mark.parametrize("source", ["print(1)", "clock()"])
def test_a_cell_that_raises_is_told(request, committed, source):
    path, said = committed
    raised = new.new_output("error", ename="NameError", evalue="x", traceback=["here"])
    cell_of(said, source).outputs.append(raised)
    (found,) = faults(request.session, path, said)
    assert "caused an exception" in found and "here" in found


def test_every_notebook_is_compared_somewhere(request):
    config = request.config
    again = {
        x for pattern in config.getini("testpaths") for x in book.ROOT.glob(pattern)
    }
    assert again >= set(book.sources())  # the build does not run them
    assert len(again & set(book.lessons())) >= 2  # with kernels of nbval's own
    makefile = (book.ROOT / "Makefile").read_text(encoding="utf-8")
    folders = {
        f"{path.parent.relative_to(book.ROOT)}/*.ipynb" for path in book.lessons()
    }
    (every_night,) = re.findall(r"-m pytest (book/\*.*)", makefile)
    assert set(every_night.split()) == folders
