"""The links for lecturers: each opens its widget, whole on the screen, in a state."""

import re
from typing import NamedTuple

import pytest

from mha_lib.widgets.base import HERE
from tests.book.conftest import DESK, TWO_FRAMES, until
from tools import book

GUIDE = (book.ROOT / "book" / "instructors_guide.md").read_text(encoding="utf-8")
ROWS = r'href="([\w/]+)\.html(#mha-[\w=-]+)">(.+?)</a>.*\|(.*)\|$'
LINKS = re.findall(ROWS, GUIDE, re.MULTILINE)  # page, place, its name, what to press
ANSWERS = {  # what the lesson shows at its start, and a lecture does not
    "09_they_all_agree": "✗",
    "play/which_head_knows": "L0 H3 off",
}


class Then(NamedTuple):
    """What is pressed (patterns), what the widget says by then, what the guide does."""

    pressed: list[str]
    said: list[str]
    told: list[str]


THEN = {
    "chapter 1": Then(
        ["the", "q · k, dimension by dimension"],
        ["q of “the” 0.00 0.00", "score 0.000", "“the”: 7 words", "more than 0.14"],
        ["0.00 in both dimensions", "score is 0", "seven words gets the weight 0.14"],
    ),
    "Deeper 1": Then(
        ["End"],
        ["0.431", "0.191", "undivided 0.999, divided 0.229"],
        ["undivided it grows from 0.431 to 0.999", "0.191 and 0.229"],
    ),
    "chapter 3": Then(
        ["next step", "next step"],
        ["b3 belongs to token b, head 1; below it lies in token a, head 2", "9 b3"],
        ["never moves", "with token b, head 1", "a part of token a, head 2"],
    ),
    "chapter 4": Then(
        ["padding on the left"],
        ["“0”, “1”, “2”, “3” see no key"],
        ["four, “0” to “3”"],
    ),
    "chapter 6": Then(
        ["transpose: te → et"],
        ["Each sum is that of ts,se->te, only its place is another"],
        ["Each sum is that of `ts,se->te`, only its place is another"],
    ),
    "chapter 9": Then(
        ["exchange q, k"],
        ["x (B, T, E) = (T, B, E) project 3 × (B, T, E) ≠", "split v (B, H, S, D) ="],
        ["part at *project*", "Only *split v* is equal after it"],
    ),
    "Break it": Then(
        [r"\?.*mask = .*"],
        ["Program Fused is wrong", "too well: loss 0.31", "Found: making the mask"],
        ["the line `mask = …` of *Fused*", "too good, 0.31"],
    ),
    "Which head knows?": Then(
        ["L0 H3", "turn L0 H3 off", "all on", "L1 H1", "turn L1 H1 off"],
        ["] 79 % → 12 %", "] 79 % → 21 %"],
        ["without it `]` falls from 79 % to 12 %", "L1 H1, to 21 %"],
    ),
}
SEEN = """() => [...document.querySelectorAll('.mha')].map(root => {
    const { top, bottom } = root.getBoundingClientRect();
    const named = [...root.querySelectorAll('button, summary')]
        .filter(x => x.checkVisibility()).map(x => x.innerText.trim());
    return [0 <= top && bottom <= innerHeight, root.innerText, named];
})"""
PRESS = """name => {
    const named = x => RegExp(`^(?:${name})$`, 's').test(x.innerText.trim());
    [...document.querySelectorAll('.mha :is(button, summary)')]
        .find(x => x.checkVisibility() && named(x)).click();
}"""
KIND = re.compile(r'^export default widget\("([\w -]+)"', re.MULTILINE)


def test_there_is_one_for_each_kind():
    found = [KIND.search(path.read_text("utf-8")) for path in HERE.glob("*.js")]
    kinds = sorted(one[1].lower().replace(" ", "-") for one in found if one)
    linked = sorted(
        re.match(r"#mha-([\w-]+)-1(?:=|$)", place)[1] for _, place, *_ in LINKS
    )
    assert linked == kinds and len(kinds) > 7


@pytest.mark.parametrize(
    "page, place, name, press", LINKS, ids=[name for *_, name, _ in LINKS]
)
def test_it_opens_the_widget_and_what_is_pressed_then_gives_the_answer(
    visit, page, place, name, press
):
    opened = visit(f"book/{page}", viewport=DESK, query=place).page
    until(opened, "widgets", "ready")
    ((whole, text, named),) = opened.evaluate(SEEN)
    assert whole and "does not hold a state" not in text
    assert ANSWERS.get(page, "the answer") not in text
    for told in re.findall(r"\*(.+?)\*", press):
        wanted = re.escape(told).replace("…", ".+")
        assert any(re.fullmatch(wanted, name) for name in named), told
    then = THEN[name]
    shown = [text]
    for one in then.pressed:
        if one == "End":
            opened.locator(".mha input[type=range]").first.press("End")
        else:
            opened.evaluate(PRESS, one)
        opened.evaluate(TWO_FRAMES)
        shown.append(opened.evaluate(SEEN)[0][1])
    everything = " ".join(" ".join(shown).split())
    assert [words for words in then.said if words not in everything] == []
    _, _, answer = GUIDE.partition(f"**{name.capitalize().rstrip('?')}")
    answer, *_ = answer.partition("\n")
    assert [words for words in then.told if words not in answer] == []
