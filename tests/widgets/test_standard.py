"""One standard for all widgets, as `mha_lib/widgets/base.py` writes it down.

The lessons are as large as those of the book. The break-it machine is held to it by
tests of its own, in the states that its puzzles lead to.
"""

import re

import pytest
import torch

from mha_lib import BatchedMHA
from mha_lib.widgets import (
    AttentionExplorer,
    BreakIt,
    EinsumSteps,
    HeadLayout,
    MaskPainter,
    ModelLab,
    ScaleLab,
    VersionsSideBySide,
)
from mha_lib.widgets.base import HERE
from tests.widgets.conftest import MOST, ORDERS, PHONE

WORDS = "the cat chased the dog then slept".split()  # noqa: SIM905
GENERATOR = torch.Generator().manual_seed(0)
LESSONS = {
    "explorer": lambda: AttentionExplorer(
        torch.randn(2, 7, 7, generator=GENERATOR).softmax(dim=-1), WORDS
    ),
    "long text": lambda: AttentionExplorer(
        torch.randn(3, 4, 28, 28, generator=GENERATOR).softmax(dim=-1).unbind(),
        4 * WORDS,
    ),
    "layout": lambda: HeadLayout(T=2, embed_dim=6, num_heads=3),
    "orders": lambda: HeadLayout(
        2, embed_dim=4, num_heads=2, batch=2, recipes=ORDERS, beside=""
    ),
    "painter": lambda: MaskPainter(7),
    "einsum": EinsumSteps,
    "scale": lambda: ScaleLab(*torch.randn(2, 16, 256, generator=GENERATOR)),
    "model": ModelLab,
    "versions": lambda: VersionsSideBySide(
        torch.randn(2, 5, 12, generator=GENERATOR), BatchedMHA(12, 3).state_dict(), 3
    ),
    "fused": lambda: VersionsSideBySide(
        torch.randn(1, 6, 4, generator=GENERATOR),
        BatchedMHA(4, 2).state_dict(),
        2,
        right="FusedMHA",
    ),
}
EDITED = {
    "layout": "undo",
    "painter": "Undo",
}  # where a reader makes a thing of his own


def tries(opened):
    return opened.root_element.locator(".mha-tries button")


def state(opened) -> str:
    """All that a reader sees but what is called out in passing."""
    return opened.root_element.evaluate(
        """root => [...root.querySelectorAll('*')]
            .filter(x => !x.closest('.mha-top + .mha-lead + output, [hidden]'))
            .map(x => x.tagName === 'CANVAS' ? x.toDataURL() : x.children.length ? ''
                : `${x.textContent}|${x.value ?? ''}|${x.checked ?? ''}`).join('\\n')"""
    )


@pytest.mark.parametrize("name", LESSONS)
def test_its_title_is_a_question_and_one_sentence_says_how(live, name):
    opened = live(LESSONS[name]())
    assert re.fullmatch(r"[A-Z].+\?", opened.text(".mha-question"))
    lead = opened.text(".mha-lead")
    assert 20 < len(lead) < 110 and lead.endswith((".", "?"))


@pytest.mark.parametrize("name", LESSONS)
def test_its_still_has_the_question_for_a_caption(name):
    widget = LESSONS[name]()
    text = (HERE / f"{type(widget).__module__.rpartition('.')[2]}.js").read_text()
    question = re.search(r'question: "(.+)"', text)[1]
    assert widget.caption().startswith(question)
    assert widget.summary() in widget.caption()


@pytest.mark.parametrize("screen", MOST)
@pytest.mark.parametrize("name", LESSONS)
def test_it_fits_one_screen_in_every_state_to_try(live, name, screen):
    viewport, most = MOST[screen]
    opened = live(LESSONS[name](), viewport=viewport)
    measure = "x => x.getBoundingClientRect().height"
    found = {"at first": opened.root_element.evaluate(measure)}
    for i in range(tries(opened).count()):
        tries(opened).nth(i).click()
        found[tries(opened).nth(i).inner_text()] = opened.root_element.evaluate(measure)
    assert len(found) > 2
    assert max(found.values()) <= most, found


@pytest.mark.parametrize("name", [*LESSONS, "break it"])
def test_a_phone_says_what_the_buttons_are_for(live, name):
    opened = live(BreakIt() if name == "break it" else LESSONS[name](), viewport=PHONE)
    row = opened.root_element.locator(".mha-tries")
    caption = row.locator(".mha-caption")
    assert caption.inner_text() == ("Puzzles:" if name == "break it" else "Try this:")
    buttons = tries(opened).all()
    assert len(buttons) > 1 and all(x.is_visible() for x in [caption, *buttons])


def any_widget(name: str):
    return BreakIt(sealed=True) if name == "break it" else LESSONS[name]()


# What the chosen option needs, with the arrow beside it, and what its list has.
TOO_LONG = """() => [...document.querySelectorAll('.mha select')]
    .filter(list => list.checkVisibility()).flatMap(list => {
    const [style, now] = [getComputedStyle(list), list.selectedIndex];
    const pen = document.createElement('canvas').getContext('2d');
    pen.font = style.font;
    const beside = parseFloat(style.paddingLeft) + parseFloat(style.paddingRight) + 16;
    const found = [...list.options].filter((option, i) => {
        list.selectedIndex = i;
        return pen.measureText(option.text).width + beside > list.clientWidth;
    });
    list.selectedIndex = now;
    return found.map(option => option.text);
})"""


@pytest.mark.parametrize("screen", MOST)
@pytest.mark.parametrize("name", [*LESSONS, "break it"])
def test_what_is_chosen_is_read_whole(live, name, screen):
    opened = live(any_widget(name), viewport=MOST[screen][0], folded=False)
    if name == "break it":
        opened.button("show me").click()
    assert opened.page.evaluate(TOO_LONG) == []


@pytest.mark.parametrize("name", [*LESSONS, "break it"])
def test_the_focus_is_never_lost(live, name):
    """A reader with a keyboard goes on from the place where a button was pressed."""
    opened = live(any_widget(name), folded=False)
    focus = "() => document.activeElement.closest('.mha') !== null"
    labels = opened.root_element.locator(".mha-button, .mha-answer").all_inner_texts()
    for label in dict.fromkeys(x for x in labels if x and x != "copy link"):
        button = opened.root_element.get_by_role("button", name=label, exact=True)
        one = button.first
        if one.count() and one.is_visible() and one.is_enabled():
            one.press("Enter")
            assert opened.page.evaluate(focus), label


@pytest.mark.parametrize("name", LESSONS)
def test_buttons_set_states_and_reset_brings_the_lesson_back(live, name):
    opened = live(LESSONS[name]())
    first = state(opened)
    seen = [first]
    for i in range(tries(opened).count()):
        tries(opened).nth(i).click()
        seen.append(state(opened))
    assert len(set(seen)) > 2
    opened.button("reset").click()
    assert state(opened) == first


@pytest.mark.parametrize("name", LESSONS)
def test_a_link_opens_what_was_sent_from_a_file_too(live, name):
    opened = live(LESSONS[name]())
    assert opened.page.url.startswith("file://")
    first = state(opened)
    shown = [first]
    for i in range(tries(opened).count()):  # the last that differs from the lesson
        tries(opened).nth(i).click()
        if state(opened) != first:
            shown.append(state(opened))
    if state(opened) == first:
        tries(opened).nth(0).click()
    sent = state(opened)
    opened.button("copy link").click()
    address = opened.page.url
    assert "#" in address
    opened.page.goto("about:blank")
    opened.page.goto(address)
    opened.page.wait_for_selector("html[data-widgets=ready]")
    opened.settle()
    assert state(opened) == sent != first


@pytest.mark.parametrize("name", LESSONS)
def test_what_is_said_of_a_link_goes_with_its_state(live, name):
    opened = live(LESSONS[name]())
    first = state(opened)
    opened.button("copy link").click()
    said = opened.root_element.locator(".mha-top + .mha-lead + output")
    assert "this state" in said.inner_text()
    for i in range(tries(opened).count()):
        tries(opened).nth(i).click()
        if state(opened) != first:
            break
    assert said.inner_text() == ""


@pytest.mark.parametrize("name", LESSONS)
def test_a_link_that_is_copied_moves_nothing(live, name):
    opened = live(LESSONS[name]())
    opened.page.evaluate("navigator.clipboard.writeText = async () => {}")
    before = opened.root_element.bounding_box()
    opened.button("copy link").click()
    opened.button("copied ✓").wait_for()
    assert opened.root_element.bounding_box() == before
    first = state(opened)
    for i in range(tries(opened).count()):
        tries(opened).nth(i).click()
        if state(opened) != first:
            break
    opened.button("copy link").wait_for()


@pytest.mark.parametrize("name", EDITED)
def test_who_edits_can_go_back_one_step(live, name):
    opened = live(LESSONS[name](), folded=False)
    first = state(opened)
    assert opened.button(EDITED[name]).is_disabled()
    if name == "layout":
        opened.button("append").click()
    else:
        opened.button("Swap True and False").click()
    assert state(opened) != first
    opened.button(EDITED[name]).click()
    assert state(opened) == first
    assert opened.button(EDITED[name]).is_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_right_wrong_and_chosen_have_a_colour_each(live, scheme):
    opened = live(HeadLayout(), color_scheme=scheme)
    opened.light(scheme)
    marks = opened.root_element.locator(".mha-outcome b")
    assert marks.all_inner_texts() == ["✓", "✗"]  # shapes
    colour = "x => getComputedStyle(x).color"
    chosen = opened.root_element.locator(".mha-cell[aria-pressed=true]").first
    outline = chosen.evaluate("x => getComputedStyle(x).outlineColor")
    colours = {*(mark.evaluate(colour) for mark in marks.all()), outline}
    assert len(colours) == 3


def test_a_finger_scrolls_and_paints_when_told_to(live):
    opened = live(MaskPainter(7), has_touch=True, viewport=PHONE)
    canvas = opened.root_element.locator(".mha-paint canvas")
    touch = "x => getComputedStyle(x.closest('.mha-map')).touchAction"
    assert "pan-y" in canvas.evaluate(touch)
    opened.button("Paint with a finger").tap()
    assert "pan-y" not in canvas.evaluate(touch)


@pytest.mark.parametrize("name", LESSONS)
def test_nothing_moves_when_a_widget_has_come(live, name):
    """What is seen in its first frame is as high as what is seen later."""
    opened = live(LESSONS[name]())
    heights = opened.root_element.evaluate(
        """root => new Promise(done => {
            const seen = [];
            const look = () => {
                seen.push(root.getBoundingClientRect().height);
                seen.length < 20 ? requestAnimationFrame(look) : done(seen);
            };
            look();
        })"""
    )
    assert len(set(heights)) == 1


@pytest.mark.parametrize("screen", MOST)
@pytest.mark.parametrize("name", LESSONS)
def test_what_stands_below_a_widget_never_jumps_up(live, name, screen):
    opened = live(LESSONS[name](), viewport=MOST[screen][0])
    heights = [opened.root_element.evaluate("x => x.offsetHeight")]
    for i in [*range(tries(opened).count()), 0]:
        tries(opened).nth(i).click()
        opened.settle()
        heights.append(opened.root_element.evaluate("x => x.offsetHeight"))
    assert heights == sorted(heights)


@pytest.mark.parametrize(("touch", "least"), [(False, 24), (True, 44)])
def test_a_slider_is_hit(live, touch, least):
    opened = live(MaskPainter(7), has_touch=touch, is_mobile=touch)
    sliders = opened.root_element.locator("input[type=range]")
    assert sliders.count() > 1
    heights = sliders.evaluate_all("all => all.map(x => x.offsetHeight)")
    assert min(heights) >= least
