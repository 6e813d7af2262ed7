"""The twelve small maps of the model lab: names, frames, and a word for off."""

import pytest

from mha_lib.widgets import ModelLab
from tests.widgets.conftest import MOST
from tests.widgets.test_model_lab import type_text

NAMES_OF_HEADS = """root => [...root.querySelectorAll(".mha-grid button")].map(one => {
    const text = document.createRange();
    text.selectNodeContents(one.querySelector('span'));
    const [name, frame] = [text.getBoundingClientRect(), one.getBoundingClientRect()];
    const map = one.querySelector('canvas').getBoundingClientRect();
    return [name.left - frame.left, frame.right - name.right, name.top - map.bottom];
})"""


@pytest.mark.parametrize("screen", MOST)
def test_the_name_of_a_head_stands_below_its_map_inside_its_frame(live, screen):
    opened = live(ModelLab(), viewport=MOST[screen][0])
    room = opened.measure(NAMES_OF_HEADS)
    assert len(room) == 12
    assert min(min(left, right) for left, right, _ in room) >= 2.5  # a frame is 2 wide
    assert min(above for *_, above in room) >= 0


def test_the_button_that_the_lead_speaks_of_is_framed_and_off_is_a_word(live):
    opened = live(ModelLab())
    assert opened.texts(".mha-invite") == ["turn L0 H3 on"]
    written = "x => getComputedStyle(x, '::after').content"
    head = opened.button("L0 H3: layer 0, head 3, switched off")
    assert "off" in head.evaluate(written)
    opened.press("all on")
    on = opened.button("L0 H3: layer 0, head 3")
    assert "off" not in on.evaluate(written)


@pytest.mark.parametrize("screen", MOST)
def test_off_stands_below_the_map_and_moves_nothing(live, screen):
    opened = live(ModelLab(), viewport=MOST[screen][0])
    grid, off = (opened.root_element.locator(x) for x in (".mha-grid", ".mha-off"))
    below = """one => {
        const [map, name] = [...one.children].map(x => x.getBoundingClientRect());
        const { position, content } = getComputedStyle(one, '::after');
        return [position, content, name.top >= map.bottom,
            one.getBoundingClientRect().bottom - name.bottom >= 9];
    }"""
    assert off.evaluate(below) == ["static", '"off"', True, True]
    before = grid.bounding_box()
    opened.press("all on")
    assert off.count() == 0 and grid.bounding_box() == before


@pytest.mark.parametrize("screen", MOST)
def test_off_leaves_its_map_in_sight_and_the_legend_in_one_line(live, screen):
    opened = live(ModelLab(), viewport=MOST[screen][0])
    faint, mark, lines = opened.measure(
        """root => {
            const off = root.querySelector('.mha-off');
            const [map, mark] = [off.querySelector('canvas'), off];
            const style = getComputedStyle(mark, '::after');
            return [getComputedStyle(map).opacity, parseFloat(style.height),
                root.querySelector('.mha-legend > :nth-child(2)').getClientRects()
                    .length + root.querySelectorAll('.mha-whole-line').length
                    - [...root.querySelectorAll('.mha-whole-line')]
                        .filter(x => x.getClientRects().length === 1).length];
        }"""
    )
    assert float(faint) > 0.5 and mark <= 14 and lines == 1


def test_of_a_deleted_text_no_sentence_stays(live):
    opened = live(ModelLab())
    note = opened.root_element.locator(".mha-note").first
    type_text(opened, "The list was chang")
    assert note.inner_text().startswith("With L0 H3 off, ")
    type_text(opened, "")
    assert note.inner_text() == "" and opened.text(".mha-lead") == "Type a text."
    type_text(opened, "The")
    assert note.inner_text().startswith("With L0 H3 off, ")


def test_what_comes_next_is_drawn_before_the_map(live):
    """In each frame: the answer, the list of tokens, the large map."""
    opened = live(ModelLab())
    opened.press("all on")
    opened.settle()
    seen = opened.root_element.evaluate(
        """async root => {
        const text = selector => root.querySelector(selector).textContent;
        const map = () => root.querySelector(".mha-map canvas").toDataURL();
        const [before, found] = [map(), []];
        [...root.querySelectorAll("button")]
            .find(x => x.textContent === "looks, no help").click();
        do {
            await new Promise(requestAnimationFrame);
            found.push([text(".mha-note").includes("looks at the quote"),
                text(".mha-legend").includes("silent: L1 H0"), map() !== before]);
        } while (root.ariaBusy === "true");
        return found;
    }"""
    )
    answered = [True, False, False]
    listed, drawn = [True, True, False], [True, True, True]
    assert seen == [answered, listed, listed, drawn]  # the small maps come third
