"""The break-it machine once a line is found or shown: headings, places, distances."""

import pytest

from mha_lib.widgets import BreakIt
from tests.widgets.conftest import MOST
from tests.widgets.test_break_it import PUZZLES, SAID, line


@pytest.mark.parametrize("screen", MOST)
def test_the_headings_say_which_quantity_the_two_grids_hold(live, screen):
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0])
    opened.page.evaluate(
        """() => { window.ends = [];
            const write = CanvasRenderingContext2D.prototype.fillText;
            CanvasRenderingContext2D.prototype.fillText = function (text, x, ...rest) {
                if (/, (as|here)/.test(text)) window.ends.push(
                    [text, x, x + Math.min(this.measureText(text).width, rest[1])]);
                write.call(this, text, x, ...rest); }; }"""
    )
    for name, what in (("odd map", "k"), ("low loss", "mask")):
        opened.button(name).click()
        opened.button("show me").click()
        left, right = opened.page.evaluate("window.ends.slice(-2)")
        assert [left[0], right[0]] == [f"{what}, as it should be", f"{what}, here"]
        assert left[2] + 4 <= right[1]
    line(opened, "hide").click()
    assert opened.page.evaluate("window.ends.at(-2)[0]") == (
        "masked scores, as they should be"
    )


def test_where_no_number_differs_a_part_that_is_wrong_is_shown(live):
    opened = live(BreakIt(sealed=True))
    opened.button("silent").click()
    opened.button("show me").click()
    assert opened.text(".mha-below output").startswith("k, ")
    opened.control("three inputs").check()
    assert opened.text(".mha-below output")[:3] in ("k, ", "v, ")


@pytest.mark.parametrize("screen", MOST)
def test_nothing_comes_into_the_place_of_show_me(live, screen):
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0])
    for name in PUZZLES:
        opened.button(name).click()
        box = opened.button("show me").bounding_box()
        before = opened.root_element.locator(".mha-controls").bounding_box()["height"]
        opened.button("show me").click()
        under = opened.page.evaluate(
            "([x, y]) => document.elementFromPoint(x, y).className",
            [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2],
        )
        assert under == "mha-controls", name
        row = opened.root_element.locator(".mha-controls").bounding_box()
        assert row["height"] == pytest.approx(before, abs=4)
        assert opened.root_element.locator("select").is_visible()


@pytest.mark.parametrize("screen", MOST)
def test_the_answer_stands_apart_from_the_pictures(live, screen):
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0])
    line(opened, "mask").click()
    said, below = (
        opened.root_element.locator(x).bounding_box() for x in (SAID, ".mha-below")
    )
    assert below["y"] - said["y"] - said["height"] >= 4
