"""Committed numbers: their tables, plots and goals, and what chapter 10 has of them."""

import nbformat
import pytest

from benchmarks import __main__, chapter, goals, jobs, plots, report, results, timing
from tools import notebook

MAX_BYTES = 300_000


def committed():
    return sorted(results.FOLDER.glob("*.json"))


def of_layers():
    return [path for path in committed() if not path.stem.startswith("models")]


@pytest.mark.parametrize("path", committed(), ids=lambda path: path.stem)
def test_committed_numbers_are_small_and_complete(path):
    assert path.stat().st_size < MAX_BYTES
    content = results.load(path)
    assert set(content["machine"]) >= {"processor", "cores", "versions", "date"}
    entries = content["entries"]
    assert len({results.identity(entry) for entry in entries}) == len(entries)
    for entry in entries:
        assert entry["kind"] in jobs.BY_KIND
        assert not entry.get("refused") and "died" not in entry
        for row in entry.get("rows", {}).values():
            assert 0 < row["low"] <= row["ratio"] <= row["high"]
            assert row["ms"] > 0 and row["rounds"] >= timing.LEAST_ROUNDS
            assert row["faults"] >= 0 and row["system"] >= 0
    parts = {entry["part"] for entry in entries}
    measured = set(__main__.PARTS) - (
        {"shares"} if "gpu" in content["machine"] else set()
    )
    assert parts == ({"models"} if path.stem.startswith("models") else measured)


@pytest.mark.parametrize("path", of_layers(), ids=lambda path: path.stem)
def test_tables_and_plots_of_committed_numbers(path, tmp_path):
    content = results.load(path)
    text = report.report(content)
    assert "nan" not in text
    assert "## forward, no mask" in text and "## MiB against T" in text
    on_a_processor = "gpu" not in content["machine"]
    assert ("## Where the time goes" in text) is on_a_processor
    assert ("## Goals" in text) is on_a_processor  # that is what they were set for
    drawn = list(plots.draw_all(content, path.stem, tmp_path))
    kinds = {p.stem.removeprefix(f"{path.stem}_") for p in drawn}
    assert kinds >= {"forward_no_mask", "length", "heads", "memory", "roofline"}
    assert min(p.stat().st_size for p in drawn) > 10_000


def test_goals_are_judged_by_their_worst_case():
    def cell(size, **ratios):
        rows = {name.replace("_", " "): {"ratio": r} for name, r in ratios.items()}
        return {
            "part": "sizes",
            "size": size,
            "causal": False,
            "run": "forward",
            "dtype": "float32",
            "threads": 1,
            "allocator": "system",
            "rows": rows,
        }

    ours, theirs = goals.NO_WEIGHTS[0], "nn.MultiheadAttention, no weights"
    big, small = [4, 512, 512, 8], [8, 128, 256, 8]
    content = {
        "entries": [
            cell(big, **{ours: 1.02, theirs: 1.3}),
            cell(small, **{ours: 1.20, theirs: 1.1}),
            cell([4, 64, 64, 4], **{ours: 9.0, theirs: 1.0}),  # no goal is set here
        ]
    }
    judged = {goal.text: goal for goal in goals.goals(content)}
    assert not judged[f"{ours}: at most 1.03"].reached
    worst = judged[f"{ours}: at most 1.03"].worst
    assert worst.startswith("1 of 2 cells; 1.20 at (8, 128, 256, 8)")
    content["entries"][1] = cell(small, **{ours: 1.0, theirs: 1.1})
    assert all(goal.reached for goal in goals.goals(content))


def stored():
    return chapter.sources(results.load(results.FOLDER / "cpu.json"))


@pytest.mark.parametrize("path", chapter.notebooks(), ids=lambda path: path.stem)
def test_a_page_holds_the_committed_numbers(path):
    cells = [cell.source for cell in notebook.read(path).cells]
    found = [source for source in cells if source.startswith("# Stored results")]
    assert found == stored()[path], "run: python -m benchmarks.chapter"


def test_a_page_without_its_cells_is_not_written(tmp_path):
    page = tmp_path / "page.ipynb"
    notebook.write(nbformat.v4.new_notebook(), page)
    with pytest.raises(ValueError, match="needs a cell for each"):
        chapter.write(page, stored()[chapter.notebooks()[0]])


def test_stored_numbers_are_python_and_fit_on_the_page():
    for source in sum(stored().values(), []):
        compile(source, "cell", "exec")
        assert len(source.splitlines()) <= 20
        assert max(map(len, source.splitlines())) <= 80


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0304, "0.0304"), (1234.5, "1230"), (101346, "101346"), (None, "None")],
)
def test_numbers_are_stored_with_three_digits(value, text):
    assert chapter.number(value) == text
