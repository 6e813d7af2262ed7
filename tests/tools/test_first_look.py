"""The first picture is drawn from the weights that are kept."""

import re

import pytest

from tools import first_look


@pytest.fixture(scope="module")
def found():
    return first_look.looks()


def test_what_is_committed_is_what_the_weights_say():
    kept = first_look.PAGE.read_text(encoding="utf-8")
    assert kept == first_look.page(), "run: python -m tools.first_look"


def test_the_noun_changes_with_the_ending(found):
    assert [look.noun for look in found] == ["animal", "street"]
    assert [look.words[-1] for look in found] == list(first_look.ENDINGS)
    assert all(abs(sum(row) - 1) < 1e-5 for look in found for row in look.weights)


@pytest.mark.parametrize("upright", [False, True])
def test_an_arc_is_as_wide_as_its_weight(found, upright):
    drawn = first_look.drawing(found, upright)
    for i, look in enumerate(found):
        widths = [float(x) for x in re.findall(rf"--wide-{i}:([\d.]+)px", drawn)]
        due = [w for row in look.weights for w in row if w >= first_look.FAINT]
        assert sorted(x for x in widths if x) == [
            round(1 + 7 * w, 1) for w in sorted(due)
        ]


@pytest.mark.parametrize("upright", [False, True])
def test_arcs_end_at_the_words(found, upright):
    drawn = first_look.drawing(found, upright)
    axis = "y" if upright else "x"
    at = {
        word: int(where)
        for where, word in re.findall(rf'{axis}="(\d+)" dy=".32em">(\w+)<', drawn)
    }
    for i, look in enumerate(found):
        ends = {
            int(a if not upright else b) + int(x if not upright else y)
            for a, b, x, y in re.findall(
                rf"--go-{i}:translate\(([-\d]+)px,([-\d]+)px\) "
                r"scale\(([-\d]+),([-\d]+)\)",
                drawn,
            )
        }
        for row in look.weights:
            key = look.words[max(range(len(row)), key=row.__getitem__)]
            assert min(abs(end - at[key]) for end in ends) <= 1, key


def test_words_do_not_touch_in_a_line(found):
    words = found[0].words
    places = first_look.across(words)
    for (a, x), (b, y) in zip(
        list(zip(words, places))[:-1], list(zip(words, places))[1:]
    ):
        assert (
            y - x > (len(a) + len(b)) / 2 * 8.5
        )  # the widest usual letters, on average
