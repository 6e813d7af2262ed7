"""The first screen: the picture is above the fold, swings, and moves nothing else."""

import pytest

from tests.book.conftest import DESK

PHONE = {"width": 390, "height": 844}
BOTTOM = "x => x.getBoundingClientRect().bottom"
ARCS = "all => all.filter(x => x.checkVisibility()).map(x => x.getBoundingClientRect())"


@pytest.mark.parametrize("screen", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("colours", ["light", "dark"])
def test_all_of_the_picture_is_on_the_first_screen(visit, screen, colours):
    page = visit("book/intro", viewport=screen, colours=colours).page
    assert page.locator(".first-look").evaluate(BOTTOM) < screen["height"]
    arcs = page.locator(".first-look path").evaluate_all(ARCS)
    words = page.locator(".first-look svg text")
    sizes = words.evaluate_all(
        "all => all.filter(x => x.checkVisibility())"
        ".map(x => x.getBoundingClientRect().height)"
    )
    assert len(arcs) == 4 and min(sizes) > 15  # of lines, letters of 11 pixels and more


def test_the_picture_needs_no_script(visit):
    page = visit("book/intro", java_script_enabled=False, viewport=DESK).page
    assert "the animal" in page.locator(".first-look [role=status]").inner_text()
    page.locator("label[for=first-look-1]").click()
    assert "the street" in page.locator(".first-look [role=status]").inner_text()


@pytest.mark.parametrize("screen", [DESK, PHONE], ids=["desk", "phone"])
def test_arcs_swing_and_nothing_else_moves(visit, screen):
    page = visit("book/intro", viewport=screen, reduced_motion="reduce").page
    said = page.locator(".first-look [role=status]")
    seen = []
    for key in ("Space", "ArrowRight"):
        page.locator(".first-look input:checked").focus()
        page.keyboard.press(key)
        arcs = page.locator(".first-look path").evaluate_all(ARCS)
        seen.append(([(x["x"], x["y"]) for x in arcs], said.inner_text()))
        bottom = page.locator(".first-look").evaluate(BOTTOM)
        seen[-1] += (bottom,)
    (one, tired, high), (other, wide, still) = seen
    assert one != other and high == still
    assert "So it is the animal." in tired and "So it is the street." in wide


def test_arcs_take_their_time_where_motion_is_welcome(visit):
    page = visit("book/intro", viewport=DESK).page
    page.locator("label[for=first-look-1]").click()
    running = page.evaluate(
        "() => document.getAnimations().filter(x =>"
        " x.effect.target.matches('.first-look path')).length"
    )
    assert running > 0
