"""What holds for every test: the workers share the cores, one thread each.

With torch's default of one thread a core they fight, and small tensors gain nothing.
"""

import gc
import os
from collections import defaultdict
from itertools import chain

import pytest

collect_ignore_glob = ["book/assignments/student/*"]  # blanks fail, as they should

gc.disable()  # until all is collected
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported; kernels too

# After that: a module collected before the package would hide the function of its name
# (mha_lib.attention, mha_lib.convert) in everything that follows.
import mha_lib  # noqa: E402, F401, I001
import torch  # noqa: E402


@pytest.hookimpl(optionalhook=True)  # somebody may run without xdist
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are cores: half of the time they wait for other processes."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(trylast=True)  # what is left out is gone
def pytest_collection_modifyitems(items: list[pytest.Item]):
    """After each file with a browser, which mostly waits, come four that compute.

    In the order of their names all workers would wait at once.
    """
    files, waiting, order = defaultdict(list), [], []
    for item in items:
        files[item.path].append(item)
    for file in files.values():
        waits = any("chromium" in getattr(item, "fixturenames", ()) for item in file)
        (waiting if waits else order).append(file)
    for place, file in enumerate(waiting):
        order.insert(5 * place, file)
    items[:] = chain(*order)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Twenty thousand cases and all modules stay to the end: none of it is garbage."""
    yield
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def torch_as_it_comes():
    """What a page's set-up changes, run in a test, must not reach the next module."""
    yield
    torch.set_printoptions(profile="default")
    torch.set_default_dtype(torch.float32)
