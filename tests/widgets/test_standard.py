"""One standard for all widgets, as `mha_lib/widgets/base.py` writes it down.

The lessons are as large as those of the book. The break-it machine is held to it by
tests of its own, in the states that its puzzles lead to. Each lesson is walked through
once a screen, `Walk`; what it can show is asked of that, the rest of a page of its own.
In `make test` a lesson is walked on one of the two screens, in turn, and a page of its
own is opened for one lesson of each widget; `make exhaustive` has the others.
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
X = torch.tensor([[3.0, 0, 0], [0, 1, 2], [0, 3, 0]])
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
        2, embed_dim=6, num_heads=2, batch=2, recipes=ORDERS, beside=""
    ),
    "painter": lambda: MaskPainter(7),
    "einsum": EinsumSteps,
    "words": lambda: EinsumSteps(
        {
            "words with words": ("te,se->ts", {"left x": X, "right x": X}),
            "weights and values": ("ts,se->te", {"weights": X[:2] / 4, "x": X}),
        }
    ),
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
UNFOLDED = {"model": "only the likeliest"}  # a state to try that lies under *More*
EDITED = {
    "layout": "undo",
    "painter": "Undo",
}  # where a reader makes a thing of his own
SECOND = {"long text", "orders", "words", "fused"}  # of a widget that has one above


def sample(names: str, cases: dict[tuple | str, bool]):
    """All of the cases; those of False are exhaustive."""
    marks = {True: (), False: pytest.mark.exhaustive}
    each = [
        pytest.param(*[case] if isinstance(case, str) else case, marks=marks[tried])
        for case, tried in cases.items()
    ]
    return pytest.mark.parametrize(names, each)


WALKED = {
    (name, screen): (i + j) % 2 == 0
    for i, name in enumerate(LESSONS)
    for j, screen in enumerate(MOST)
}
on_each_screen = sample("name, screen", WALKED)
on_one_screen = pytest.mark.parametrize(
    "name, screen", [case for case, tried in WALKED.items() if tried]
)
of_each_widget = sample("name", {name: name not in SECOND for name in LESSONS})


def tries(opened):
    return opened.root_element.locator(".mha-tries button")


# All that a reader sees but what is called out in passing.
STATE = """root => [...root.querySelectorAll('*')]
    .filter(x => !x.closest('.mha-top + .mha-lead + output, [hidden]'))
    .map(x => x.tagName === 'CANVAS' ? x.toDataURL() : x.children.length ? ''
        : `${x.textContent}|${x.value ?? ''}|${x.checked ?? ''}`).join('\\n')"""
HEIGHT = "root => root.getBoundingClientRect().height"
OF_TWENTY_FRAMES = """root => new Promise(done => {
    const seen = [];
    const look = () => {
        seen.push(root.getBoundingClientRect().height);
        seen.length < 20 ? requestAnimationFrame(look) : done(seen);
    };
    look();
})"""
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


def state(opened) -> str:
    opened.settle()
    return opened.measure(STATE)


class Walk:
    """What is seen of a lesson: at first, in every state to try, and after a reset."""

    def __init__(self, opened) -> None:
        buttons = tries(opened).all()
        self.coming = opened.measure(OF_TWENTY_FRAMES)
        self.question, self.lead = map(opened.text, (".mha-question", ".mha-lead"))
        self.row = row_of_tries(opened)
        self.heights, self.states = [opened.measure(HEIGHT)], [state(opened)]
        for button in buttons:
            button.click()
            self.heights.append(opened.measure(HEIGHT))
            self.states.append(state(opened))
        buttons[0].click()
        self.heights.append(opened.measure(HEIGHT))
        opened.button("reset").click()
        self.reset = state(opened)
        unfold_all(opened)
        self.too_long = opened.measure(TOO_LONG)


WALKS = {}  # of each lesson on each screen: what several tests ask about is done once


@pytest.fixture
def walk(live):
    def walk_once(name: str, screen: str) -> Walk:
        if (name, screen) not in WALKS:
            opened = live(LESSONS[name](), viewport=MOST[screen][0])
            WALKS[name, screen] = Walk(opened)
        return WALKS[name, screen]

    return walk_once


def row_of_tries(opened) -> tuple[str, list[bool]]:
    """What it is called, and which of its parts are seen."""
    caption = opened.root_element.locator(".mha-tries .mha-caption")
    return caption.inner_text(), [x.is_visible() for x in tries(opened).all()]


def unfold_all(opened) -> None:
    opened.page.evaluate(
        "document.querySelectorAll('.mha-more').forEach(x => (x.open = true))"
    )


@on_one_screen
def test_its_title_is_a_question_and_one_sentence_says_how(walk, name, screen):
    seen = walk(name, screen)
    assert re.fullmatch(r"[A-Z].+\?", seen.question)
    assert 20 < len(seen.lead) < 110 and seen.lead.endswith((".", "?"))


@pytest.mark.parametrize("name", LESSONS)
def test_its_still_has_the_question_for_a_caption(name):
    widget = LESSONS[name]()
    text = (HERE / f"{type(widget).__module__.rpartition('.')[2]}.js").read_text()
    question = re.search(r'question: "(.+)"', text)[1]
    assert widget.caption().startswith(question)
    assert widget.summary() in widget.caption()


@on_each_screen
def test_it_fits_one_screen_in_every_state_to_try(walk, name, screen):
    heights = walk(name, screen).heights
    assert len(heights) > 3
    assert max(heights) <= MOST[screen][1], heights


@pytest.mark.parametrize("screen", MOST)
@pytest.mark.parametrize(("name", "inside"), UNFOLDED.items())
def test_it_fits_one_screen_unfolded_where_a_state_to_try_lies_there(
    live, name, inside, screen
):
    viewport, most = MOST[screen]
    opened = live(LESSONS[name](), viewport=viewport, folded=False)
    heights = [opened.measure(HEIGHT)]
    for button in [*tries(opened).all(), opened.button(inside)]:
        button.click()
        opened.page.wait_for_function("() => !document.body.innerText.match('Loading')")
        opened.settle()
        heights.append(opened.measure(HEIGHT))
    assert max(heights) <= most, heights


@on_each_screen
def test_what_stands_below_a_widget_never_jumps_up(walk, name, screen):
    heights = [round(x) for x in walk(name, screen).heights]
    assert heights == sorted(heights)


@of_each_widget
def test_a_screen_that_grows_leaves_no_empty_foot(live, name):
    """A tablet that is turned: what a narrow column needed is given back."""
    desk, phone = MOST["desk"][0], MOST["phone"][0]
    widget = LESSONS[name]()
    fresh = live(widget, viewport=desk).measure(HEIGHT)
    opened = live(widget, viewport=phone)
    opened.page.set_viewport_size(desk)
    opened.settle()
    assert opened.measure(HEIGHT) == pytest.approx(fresh, abs=1)


@on_each_screen
def test_nothing_moves_when_a_widget_has_come(walk, name, screen):
    """What is seen in its first frame is as high as what is seen later."""
    assert len(set(walk(name, screen).coming)) == 1


@sample("name", {name: WALKED[name, "phone"] for name in LESSONS})
def test_a_phone_says_what_the_buttons_are_for(walk, name):
    caption, seen = walk(name, "phone").row
    says = {"versions": "Mistake:", "fused": "Mistake:"}.get(name, "Try this:")
    assert caption == says and len(seen) > 1 and all(seen)


def any_widget(name: str):
    return BreakIt(sealed=True) if name == "break it" else LESSONS[name]()


@on_each_screen
def test_what_is_chosen_is_read_whole(walk, name, screen):
    assert walk(name, screen).too_long == []


@pytest.mark.parametrize("screen", MOST)
def test_the_machine_is_read_whole_and_says_what_its_buttons_are_for(live, screen):
    opened = live(BreakIt(sealed=True), viewport=MOST[screen][0], folded=False)
    opened.press("show me")
    assert opened.page.evaluate(TOO_LONG) == []
    if screen == "phone":
        caption, seen = row_of_tries(live(BreakIt(), viewport=PHONE))
        assert caption == "Puzzles:" and len(seen) > 1 and all(seen)


TAKES_FOCUS = """(root, label) => {
    const one = [...root.querySelectorAll('button')].find(x => x.innerText === label
        && x.checkVisibility() && !x.matches(':disabled, [aria-disabled=true]'));
    one?.focus();
    return one !== undefined;
}"""
HAS_FOCUS = "root => root.contains(document.activeElement)"


@sample("name", {name: name not in SECOND for name in [*LESSONS, "break it"]})
def test_the_focus_is_never_lost(live, name):
    """A reader with a keyboard goes on from the place where a button was pressed."""
    opened = live(any_widget(name), folded=False)
    labels = opened.texts(".mha-button, .mha-answer")
    for label in dict.fromkeys(x for x in labels if x and x != "copy link"):
        if opened.measure(TAKES_FOCUS, label):
            opened.page.keyboard.press("Enter")
            assert opened.measure(HAS_FOCUS), label


def test_what_is_done_while_the_page_is_idle_takes_no_focus(live):
    """The first act brings the focus, and with it the time for what lies ready."""
    opened = live(BreakIt(sealed=True))
    opened.page.evaluate(
        """() => {
            const frame = requestAnimationFrame.bind(window);
            window.requestAnimationFrame = act => setTimeout(() => frame(act), 400);
        }"""
    )
    opened.press("show me")  # its focus and its click at once
    assert opened.button("show me").is_hidden() and opened.measure(HAS_FOCUS)


@on_each_screen
def test_buttons_set_states_and_reset_brings_the_lesson_back(walk, name, screen):
    states = walk(name, screen).states
    assert len(set(states)) >= len(states) - 1 > 1  # one may be that of the lesson
    assert walk(name, screen).reset == states[0]


# Press all that there is to try, then a list's next entries, a frame or two after each.
# A widget that an error has broken is built anew by the next act: its parts are others.
HASTE = """async root => {
    const frame = () => new Promise(requestAnimationFrame);
    const [parts, acts] = [[...root.children], []];
    for (const one of root.querySelectorAll('.mha-tries button'))
        acts.push(() => one.isConnected && one.click());
    for (const list of root.querySelectorAll('select')) {
        for (const { value } of [...list.options].slice(0, 4)) acts.push(() => {
            list.value = value;
            if (list.value === value) list.dispatchEvent(new Event('change'));
        });
    }
    for (const [i, act] of [...acts, ...acts.toReversed()].entries()) {
        act();
        for (let n = 0; n <= i % 3; n++) await frame();
    }
    return parts.every(x => x.parentElement === root);
}"""


@of_each_widget
def test_who_is_faster_than_the_frames_breaks_nothing(live, name):
    opened = live(LESSONS[name]())
    assert opened.measure(HASTE)
    opened.settle()
    assert opened.count(".mha > .mha-problem:not([hidden])") == 0


@of_each_widget
def test_a_link_opens_what_was_sent_from_a_file_too(live, name):
    opened = live(LESSONS[name]())
    assert opened.page.url.startswith("file://")
    first = state(opened)
    tries(opened).last.click()
    if state(opened) == first:
        tries(opened).first.click()
    sent = state(opened)
    address = opened.follow_link()
    assert "#" in address
    opened.settle()
    assert state(opened) == sent != first


@pytest.mark.parametrize("name", ["layout", "painter"])
def test_a_link_made_before_anything_was_changed_opens_the_lesson(live, name):
    opened = live(LESSONS[name]())
    first, said = state(opened), ".mha-top + .mha-lead + output"
    opened.follow_link()
    assert (state(opened), opened.text(said)) == (first, "")
    place, _ = opened.page.url.rsplit("=")
    opened.page.goto("about:blank")
    opened.page.goto(place)  # as a page leads to a widget
    opened.root_element.locator("button").first.wait_for()
    assert (state(opened), opened.text(said)) == (first, "")
    opened.page.goto("about:blank")
    opened.page.goto(f"{place}=nonsense")
    opened.root_element.locator("button").first.wait_for()
    assert state(opened) == first and "does not hold a state" in opened.text(said)


@of_each_widget
def test_a_link_that_is_copied_moves_nothing_and_goes_with_its_state(live, name):
    opened = live(LESSONS[name]())
    opened.page.evaluate("navigator.clipboard.writeText = async () => {}")
    before = opened.box()
    opened.press("copy link")
    opened.button("copied ✓").wait_for()
    copied = state(opened)
    assert opened.box() == before
    said = opened.root_element.locator(".mha-top + .mha-lead + output")
    assert "this state" in said.inner_text()
    for at in range(tries(opened).count()):
        opened.press_in(".mha-tries button", at=at)
        if state(opened) != copied:
            break
    opened.button("copy link").wait_for()
    assert said.inner_text() == ""


@pytest.mark.sweep(3)
@pytest.mark.parametrize("screen", MOST)
@pytest.mark.parametrize("name", [*LESSONS, "break it"])
def test_a_link_that_has_to_be_copied_by_hand_moves_nothing(live, name, screen):
    """From a file the browser may refuse: the sentence takes the place of the lead."""
    opened = live(any_widget(name), viewport=MOST[screen][0])
    opened.page.evaluate(
        "() => { navigator.clipboard.writeText = () => Promise.reject(); }"
    )
    places = """root => [...root.querySelectorAll('button, .mha-question, summary')]
        .map(x => x.getBoundingClientRect().y).join()"""
    before = opened.measure(places)
    opened.press("copy link")
    said = opened.root_element.locator(".mha-over")
    assert said.inner_text() == "The address bar now holds this state: copy it."
    assert opened.measure(places) == before
    top, over, row = (
        opened.root_element.locator(x).first.bounding_box()
        for x in (".mha-tools", ".mha-over", ".mha-tries")
    )
    assert top["y"] + top["height"] <= over["y"] + 1  # it covers no button
    assert over["y"] + over["height"] <= row["y"] + 1
    assert over["x"] + over["width"] <= MOST[screen][0]["width"]


@pytest.mark.parametrize("name", EDITED)
def test_who_edits_can_go_back_one_step(live, name):
    opened = live(LESSONS[name](), folded=False)
    first = state(opened)
    assert opened.button(EDITED[name]).is_disabled()
    if name == "layout":
        opened.press("append")
    else:
        opened.press("Swap True and False")
    assert state(opened) != first
    opened.press(EDITED[name])
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


@pytest.mark.parametrize(("touch", "least"), [(False, 24), (True, 44)])
def test_a_slider_is_hit(live, touch, least):
    opened = live(MaskPainter(7), has_touch=touch, is_mobile=touch)
    sliders = opened.root_element.locator("input[type=range]")
    assert sliders.count() > 1
    heights = sliders.evaluate_all("all => all.map(x => x.offsetHeight)")
    assert min(heights) >= least
