"""The tool that puts faults into the library: its rules, and some faults tried."""

import ast
import subprocess
import sys

import pytest

from mutants import __main__, held_out, modules, result
from mutants.__main__ import named
from mutants.equivalent import EQUIVALENT_HELD_OUT
from mutants.modules import MODULES, TABLES, file_of, module_of
from mutants.operators import mutants
from tools.book import ROOT

MODULE = '''
"""A text - that is no arithmetic."""
LINE = "Wq Wk: 2 (H D) E -> (2 H D) E"

def f(q: Tensor | None, k, mask=None):
    """Nor is q - k here."""
    if mask is None or len(q) < 1:
        raise ValueError(f"{q} - {k}")
    scores = torch.einsum("td,sd->ts", q, -k)
    return scores.softmax(-1), q
'''
CHANGES = [
    "'Wq Wk: 2 (H D) E -> (2 H D) E' → 'Wk Wq: 2 (H D) E -> (2 H D) E'",
    "'Wq Wk: 2 (H D) E -> (2 H D) E' → 'Wq Wk: 2 (H D) E -> (H 2 D) E'",
    "'Wq Wk: 2 (H D) E -> (2 H D) E' → 'Wq Wk: 2 (H D) E -> (2 D H) E'",
    "'Wq Wk: 2 (H D) E -> (2 H D) E' → 'Wq Wk: 2 (H D) E -> (2 H E) D'",
    "mask is None or len(q) < 1 → not (mask is None or len(q) < 1)",
    "mask is None or len(q) < 1 → mask is None and len(q) < 1",
    "mask is None or len(q) < 1 → len(q) < 1",
    "mask is None or len(q) < 1 → mask is None",
    "mask is None → mask is not None",
    "len(q) < 1 → len(q) <= 1",
    "len(q) < 1 → 1 < len(q)",
    "q → k",
    "1 → 0",
    "1 → 2",
    "torch.einsum('td,sd->ts', q, -k) → torch.einsum('td,sd->ts', q)",
    "'td,sd->ts' → 'dt,sd->ts'",
    "'td,sd->ts' → 'td,ds->ts'",
    "'td,sd->ts' → 'td,sd->st'",
    "q → k #2",
    "-k → k",
    "(scores.softmax(-1), q) → (q, scores.softmax(-1))",
    "scores.softmax(-1) → scores",
    "-1 → -2",
    "q → k #3",
]


def test_arithmetic_is_changed_and_words_are_not():
    faults = list(mutants("module", MODULE))
    assert [fault.change for fault in faults] == CHANGES
    assert all("is no arithmetic" in fault.text for fault in faults)
    assert {fault.where for fault in faults[4:]} == {"f"}


def test_the_held_out_rules_make_other_faults():
    text = "def f(q, k):\n    return q + 2 * k if q > 3 else mask\n"
    faults = list(held_out.others("module", text))
    assert [fault.change for fault in faults] == [
        "q > 3 → True",
        "q > 3 → False",
        "q → mask",
        "3 → 2",
        "q + 2 * k → q",
        "q + 2 * k → 2 * k",
        "q → mask #2",
        "2 * k → 2",
        "2 * k → k",
        "2 → 1",
        "k → mask",
        "k → q",
        "mask → k",
        "mask → q",
    ]
    ours = {ast.dump(ast.parse(fault.text)) for fault in mutants("module", text)}
    assert ours.isdisjoint(ast.dump(ast.parse(fault.text)) for fault in faults)


@pytest.mark.exhaustive  # it makes the sample again, from all faults there are
def test_the_held_out_sample_is_the_stored_one():
    stored = result.held_out()
    sample = held_out.sample(list(held_out.SAMPLED), stored["faults"])
    assert stored["found"] + len(stored["survived"]) == len(sample)
    if stored["sources"] == modules.sources():
        assert set(stored["survived"]) <= {fault.key for fault in sample}
    assert EQUIVALENT_HELD_OUT.keys() <= set(stored["survived"])


def test_the_readme_says_what_the_stored_run_found():
    stored = result.stored()
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert result.SENTENCE.format(**stored) in readme
    assert f"{stored['equivalent']} more change no result" in readme


def test_a_run_is_stale_once_the_library_has_changed(monkeypatch):
    now = {"sources": result.sources()}
    monkeypatch.setattr(result, "stored", lambda: now)
    assert not result.is_stale()
    monkeypatch.setattr(modules, "source", lambda module: f"{module} has changed")
    assert result.is_stale()


def test_keys_do_not_depend_on_lines():
    moved = "\n\n\n" + MODULE
    keys, others = ([x.key for x in mutants("m", text)] for text in (MODULE, moved))
    assert keys == others and len(set(keys)) == len(keys)


def test_a_fault_is_found_and_the_library_is_not():
    """Before any fault is tried, the tests have to pass without one."""
    command = [sys.executable, "-m", "mutants", "layouts", "--tests", "layouts"]
    done = subprocess.run(
        [*command, "--jobs", "1", "--show", "layouts.merge_heads: 2 → 3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    verdict = "found by tests/library/test_layouts.py::test_split_"
    assert verdict in done.stdout + done.stderr


def test_a_fault_that_nobody_makes_is_named(monkeypatch):
    """There is nothing to try, so no tests are collected for it."""
    monkeypatch.setattr(__main__, "collected", lambda _, work: work(None))
    monkeypatch.setattr(__main__, "Reach", lambda *_: None)
    argv = ["mutants", "layouts", "--jobs", "1", "--show", "layouts.MISSING"]
    monkeypatch.setattr(sys, "argv", argv)
    assert __main__.main() == "No fault has this key: layouts.MISSING"


@pytest.mark.parametrize("module", MODULES + TABLES)
def test_a_module_and_its_file_name_each_other(module):
    assert module_of(file_of(module)) == module
    assert file_of(module).is_file()


def test_a_package_stands_for_its_modules():
    assert named(["styles.fused", "convert"])[:2] == ["styles.fused", "convert"]
    assert set(named(["convert"])) == set(TABLES)
    assert named(["masks", "masks.making"]) == [x for x in MODULES if "masks" in x]
    with pytest.raises(SystemExit, match="No module or package has this name: mask"):
        named(["mask"])


def test_every_module_of_a_room_is_tried():
    rooms = {file_of(module).parent for module in MODULES + TABLES}
    found = {module_of(file) for room in rooms for file in room.glob("*.py")}
    names_alone = {"", "masks", "styles", "checkpoints"}  # nothing in them computes
    assert found - names_alone == set(MODULES + TABLES)
