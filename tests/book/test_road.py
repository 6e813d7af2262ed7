"""Each chapter is a road that one person walks in one go: see tools/road.py."""

import pytest

from tools import book, notebook, road

# To be shortened and lengthened by nobody but the chapters themselves.
NOT_YET = {
    "04_one_matrix_for_qkv",
    "06_einsum_sequence_first",
    "07_pytorchs_own",
    "08_tensorflow_style",
    "09_they_all_agree",
    "10_what_it_costs",
}


@pytest.mark.parametrize("path", book.chapters(), ids=lambda path: path.stem)
def test_chapter_is_a_road(path):
    faults = road.measure(notebook.read(path)).faults
    if path.stem in NOT_YET:
        assert faults, f"{path.stem} is a road now: take it out of NOT_YET"
    else:
        assert faults == []


def test_what_is_left_to_do_is_there():
    assert {path.stem for path in book.chapters()} >= NOT_YET


@pytest.mark.parametrize("path", book.lessons(), ids=lambda path: path.stem)
def test_minutes_are_counted(path):
    if path.stem not in NOT_YET:
        page = notebook.read(path)
        said = road.TIME.findall(page.cells[0].source)
        assert said == [road.measure(page).time], "run: python -m tools.road --write"
