"""A submission as cells, and how they run: whatever fails, the rest goes on."""

import os
import sys
import time
from types import ModuleType

import pytest

from mha_lib.grade.inside import cells

alarm = pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")


def ran(*sources: str, seconds: float = 60.0) -> tuple[dict, list[str]]:
    module = ModuleType("submission")
    notes = cells.run(module, list(sources), seconds)
    return module.__dict__, list(notes.values())


MAGICS = {
    "%matplotlib inline\nx = 1": 1,
    "!ls\nx = 1": 1,
    "  \n%%time\nx = 1": 1,
    "%%capture out\nx = 1": 1,
    "%%bash\nx = 2": None,
    "%%writefile a.py\nx = 2": None,
    "%time x = 1": 1,
    "%timeit -n 3 -r 2 pass\nx = 1": 1,
    "x = 1\nx?\n?x\nx??": 1,
    "files = !ls\nx = 1": 1,
    "if True:\n    f = !ls\nx = 1": 1,
    "if True:\n    %time x = 1\n    !ls\n": 1,
    "x = (9\n%4)": 1,
    "x = len('''\n!''') // 2": 1,
}


@pytest.mark.parametrize("much", [" ", "\t", "a ", "a=", "%", "-a ", "?", ".", "\\"])
@pytest.mark.parametrize("start", ["", "%time ", "!", "a "])
def test_long_lines_take_no_longer_than_they_are_long(start, much):
    line = start + much * 40_000
    before = time.process_time()
    cells._without_magics(f"{line}(\nx = 1")
    assert time.process_time() - before < 2.0  # of CPU: a thousandth is usual


@alarm
@pytest.mark.parametrize("source", MAGICS)
def test_magics_are_stripped_and_python_is_not(source):
    names, notes = ran(source)
    assert (names.get("x"), notes) == (MAGICS[source], [])


@alarm
def test_the_first_failure_of_each_cell_is_noted_and_the_rest_runs():
    names, notes = ran("a = 1\nb = a / 0\nc = d\ne = 2", "def broken(:", "f = e")
    assert (names["a"], names["e"], names["f"]) == (1, 2, 2)
    assert notes[0] == "cell 1, line 2: ZeroDivisionError: division by zero"
    assert notes[1].startswith("cell 2, line 1: SyntaxError: ") and len(notes) == 2


@alarm
def test_a_cell_without_end_ends_and_the_next_one_runs():
    names, notes = ran("while True:\n    x = 1", "y = 2", seconds=0.5)
    assert names["y"] == 2
    words = "stopped after 0.5 seconds: a loop without end?"
    assert len(notes) == 1 and notes[0].endswith(words)
    assert cells.signal.getitimer(cells.signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_python_file_is_cut_into_cells():
    text = "a = 1\n# %%\nb = 2\n# In[3]:\nc = 3\nd = '# %%'\n"
    assert len(cells.read(text.encode(), "py")) == 3
    assert cells.read(b"\xef\xbb\xbfa = 1", "py") == ["a = 1"]


@alarm
@pytest.mark.parametrize(
    ("source", "hit"),
    [
        ("def split(x)\n    return x", "cell 2, line 1: SyntaxError"),
        ("class split\n    pass", "cell 2, line 1: SyntaxError"),
        ("y = 1 / 0\n\n\ndef split(x):\n    return x", "cell 2, line 1: ZeroDivision"),
        ("split = lambda x: x +", "cell 2, line 1: SyntaxError"),
        ("def split_heads(x)\n    return x", ""),
        ("def split(x):\n    return x", ""),
        ("split(3)\nx = )", ""),
    ],
)
def test_a_failure_belongs_to_what_its_cell_defines(source, hit):
    sources = ["def split(x):\n    return 2", source, "1 / 0"]
    notes = cells.run(ModuleType("submission"), sources, 60.0)
    found = cells.meant_for("split", sources, notes)
    assert found.startswith(hit) and bool(found) == bool(hit)


@alarm
def test_a_time_limit_that_python_swallows_comes_again(monkeypatch):
    """What is raised in a `__del__` is lost; both timers may fall into one."""
    # That of pytest takes its time, and the limit may come again in the middle of it.
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)

    class Slow:
        def __del__(self):
            while True:
                pass

    with pytest.raises(cells.OutOfTime), cells.time_limit(0.1):
        Slow(), Slow(), Slow()
        while True:
            pass
