"""The break-it machine once a line is found or shown, or a step is taken back."""

import pytest

from mha_lib.widgets import BreakIt
from tests.widgets.conftest import MOST
from tests.widgets.test_break_it import (
    PATIENT,
    PUZZLES,
    SAID,
    STEPS,
    WORDS,
    line,
    marks,
    press_line,
)


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
        opened.press(name)
        opened.press("show me")
        left, right = opened.page.evaluate("window.ends.slice(-2)")
        assert [left[0], right[0]] == [f"{what}, as it should be", f"{what}, here"]
        assert left[2] + 4 <= right[1]
    press_line(opened, "hide")
    assert opened.page.evaluate("window.ends.at(-2)[0]") == (
        "masked scores, as they should be"
    )


def test_where_no_number_differs_a_part_that_is_wrong_is_shown(live):
    opened = live(BreakIt(sealed=True))
    opened.press("silent")
    opened.press("show me")
    assert opened.text(".mha-below output").startswith("k, ")
    opened.control("three inputs").check()
    assert opened.text(".mha-below output")[:3] in ("k, ", "v, ")


@pytest.mark.parametrize("screen", MOST)
def test_nothing_comes_into_the_place_of_show_me(live, screen):
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0])
    for name in PUZZLES:
        opened.press(name)
        box = opened.button("show me").bounding_box()
        before = opened.box(".mha-controls")["height"]
        opened.press("show me")
        under = opened.page.evaluate(
            "([x, y]) => document.elementFromPoint(x, y).className",
            [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2],
        )
        assert under == "mha-controls", name
        row = opened.box(".mha-controls")
        assert row["height"] == pytest.approx(before, abs=4)
        assert opened.root_element.locator("select").is_visible()


@pytest.mark.parametrize("screen", MOST)
def test_the_answer_stands_apart_from_the_pictures(live, screen):
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0])
    press_line(opened, "mask")
    said, below = (
        opened.root_element.locator(x).bounding_box() for x in (SAID, ".mha-below")
    )
    assert below["y"] - said["y"] - said["height"] >= 4


PLACES = [".mha-tries", ".mha-tiles", ".mha-controls", ".mha-task", ".mha-below"]


def places(opened) -> dict[str, float]:
    found = {x: opened.root_element.locator(x).bounding_box()["y"] for x in PLACES}
    return {x: round(y) for x, y in found.items()}


@pytest.mark.parametrize("last", ["found", "shown"])
def test_a_patient_whose_mistake_is_found_is_told_of_like_a_puzzle(live, last):
    """The title asked on, all jumped up, and a right line stayed chosen."""
    opened = live(BreakIt(sealed=True))
    opened.page.clock.set_fixed_time("2026-11-16T10:00:00")
    opened.root_element.evaluate("x => (x.style.width = '704px')")  # drawn anew
    opened.press(PATIENT)
    before = places(opened)
    answers = opened.root_element.locator(".mha-answer")
    for answer in answers.all():
        answer.press("Enter")
        over = opened.root_element.locator(".mha-code").is_visible()
        if over or last == "shown":
            break
    if not over:
        opened.press("show me")
    wrong = marks(opened).index("✗")
    title = line(opened, STEPS[wrong]).get_attribute("title")
    word = "It was" if last == "shown" else "Found"
    assert opened.text(".mha-question") == f"{word}: {title}."
    assert opened.text(".mha-lead").startswith("✗ the wrong line")
    chosen = opened.root_element.locator(".mha-line[aria-pressed=true]")
    assert chosen.count() == 1 and "✗" in chosen.inner_text()
    assert places(opened) == before
    right = opened.root_element.locator(".mha-tile", has_text="✓").first
    right.click()
    assert opened.text(".mha-question").startswith("This program is right")
    assert opened.text(".mha-lead").endswith("Press a line for its numbers.")
    assert places(opened) == before


def test_three_inputs_show_the_sentence_that_was_shown_and_say_which(live):
    """The sentence changed silently, and the puzzle's button was chosen no more."""
    opened = live(BreakIt(sealed=True))
    opened.press("silent")
    shown = opened.text(".mha-below output")
    (said,) = [b for b in range(2) if f"sequence {b}:" in shown]
    assert shown.split(": ")[1].split(" → ")[0] in WORDS[said]
    opened.control("three inputs").check()
    assert f"sequence {said}:" in opened.text(".mha-below output")
    assert opened.pressed("silent")
    lead = opened.text(".mha-lead")  # of the same sentence
    assert lead.partition("“")[2].partition("”")[0] in WORDS[said]
    opened.root_element.locator(".mha-below .mha-map").press("End")
    assert opened.pressed("silent")


def test_the_loss_is_said_to_be_that_of_a_training(live):
    """“✓ loss, as good” beside “✗ map off” was read as a contradiction."""
    opened = live(BreakIt("scale-embed-dim", "BatchedMHA"))
    assert "✓ training loss" in opened.text(".mha-witnesses")
    assert "✗ map off" in opened.text(".mha-witnesses")
    said = opened.text(".mha-trained")
    assert said == "Loss: of a whole training. Map and output: of this input."


def test_a_right_program_is_given_one_order_and_a_true_one(live):
    """“In which line is the other wrong?” stood over “Choose a mistake for it”."""
    opened = live(BreakIt(sealed=True))
    opened.press_in(".mha-tile", "^Batched")
    assert opened.text(".mha-question").endswith("in which line is the other wrong?")
    assert "Open the program with ✗" in opened.text(".mha-lead")
    assert opened.text(SAID) == "All its numbers are those of the right program."
    opened.press_in(".mha-tile", "^Fused")
    opened.press("show me")
    opened.press_in(".mha-tile", "^Batched")  # nothing is asked any more
    title = "This program is right: which mistake would show in it?"
    assert opened.text(".mha-question") == title
    assert opened.text(".mha-lead").endswith("or choose a mistake.")
    assert opened.text(SAID) == "All its numbers are those of the right program."
    opened.press("silent")  # no tile has a ✗
    opened.press_in(".mha-tile", "^Batched")
    assert "Open the others" in opened.text(".mha-lead")


def state_seen(opened) -> str:
    """All that is written, and the maps."""
    maps = opened.root_element.locator("canvas").evaluate_all(
        "all => all.map(x => x.toDataURL()).join()"
    )
    return opened.root_element.inner_text() + maps


def test_undo_shows_the_map_that_was_seen(live):
    opened = live(BreakIt(sealed=True))
    opened.button("silent").click()
    opened.control("three inputs").check()
    before = state_seen(opened)
    opened.button("daily").click()
    opened.button("undo").click()
    assert state_seen(opened) == before
