"""A forked kernel is to its page what any other one is: alone, and at home."""

import asyncio
from contextlib import closing

import nbformat
import psutil
import pytest

from tools import kernels, notebook

# What a page can see of where it runs. `tools` imports only where that folder is known.
LOOK = """
import os, sys
import torch
print(os.getcwd(), os.environ["GREETING"], sys.path, sys.argv[1:2])
print(torch.get_num_threads(), __name__, get_ipython().history_manager.hist_file)
try:
    import tools
    print("tools is", tools)
except ImportError:
    print("no tools")
print([name for name in ("jax", "keras", "mha_lib.check") if name in sys.modules])
"""
DRAW = """
import matplotlib.pyplot as plt
figure, axes = plt.subplots(figsize=(1, 1))
"""


@pytest.fixture(scope="module")
def forks():
    with closing(kernels.Forks()) as made:
        yield made


def page(*sources):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return nbformat.v4.new_notebook(cells=cells)


def said(executed):
    return "".join(o.get("text", "") for cell in executed.cells for o in cell.outputs)


def test_a_page_sees_what_it_would_see_in_a_kernel_of_its_own(
    forks, tmp_path, monkeypatch
):
    monkeypatch.setenv("GREETING", "hello")
    path = tmp_path / "page.ipynb"
    fresh = notebook.run(page(LOOK, DRAW), path)
    forked = notebook.run(page(LOOK, DRAW), path, forks.manager())
    assert said(forked).startswith(f"{tmp_path} hello [")
    assert said(forked) == said(fresh)
    assert [cell.outputs for cell in forked.cells] == [
        cell.outputs for cell in fresh.cells
    ]
    assert "image/png" in forked.cells[1].outputs[0].data


def test_what_a_page_does_to_a_library_stays_with_it(forks, tmp_path):
    path = tmp_path / "page.ipynb"
    change = "import torch, mha_lib\ntorch.pi = 3; mha_lib.x = 1"
    notebook.run(page(change), path, forks.manager())
    ask = "import torch, mha_lib\nprint(torch.pi, hasattr(mha_lib, 'x'))"
    again = notebook.run(page(ask), path, forks.manager())
    assert said(again).startswith("3.14159") and "False" in said(again)


def test_a_kernel_that_dies_is_noticed(forks, tmp_path):
    killed = page("import os; os.kill(os.getpid(), 9)")
    with pytest.raises(notebook.NotebookError, match="cell 1 of 1 .*the kernel died"):
        notebook.run(killed, tmp_path / "page.ipynb", forks.manager())


def test_a_kernel_ends_with_the_process_it_was_forked_from(tmp_path, cold):
    """As when the build is killed, and nobody closes anything."""
    with closing(kernels.Forks()) as forks:
        manager = forks.manager()
        asyncio.run(manager.start_kernel(cwd=str(tmp_path)))
        forks.server.kill()
        kernel = manager.provisioner.process
        kernel.wait(timeout=300)  # not for a time: until it has ended
        assert not kernel.is_running()
        manager.context.destroy()


def test_nothing_is_left_when_they_are_closed(tmp_path, cold):
    with closing(kernels.Forks()) as forks:
        assert forks.server is None  # nothing is started for nothing
        ran = notebook.run(
            page("import os; print(os.getpid(), os.getppid())"),
            tmp_path / "page.ipynb",
            forks.manager(),
        )
    own, server = (int(x) for x in said(ran).split())
    assert server == forks.server.pid != own
    assert not any(map(psutil.pid_exists, (own, server)))
