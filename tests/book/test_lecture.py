"""The links for lecturers: each opens its widget, whole on the screen, in a state."""

import re

import pytest

from mha_lib.widgets.base import HERE
from tests.book.conftest import DESK, until
from tools import book

GUIDE = (book.ROOT / "book" / "instructors_guide.md").read_text(encoding="utf-8")
ROWS = r'href="([\w/]+)\.html(#mha-[\w=-]+)".*\|(.*)\|$'  # page, place, what to press
LINKS = re.findall(ROWS, GUIDE, re.MULTILINE)
ANSWERS = {  # what the lesson shows at its start, and a lecture does not
    "09_they_all_agree": "✗",
    "play/which_head_knows": "L0 H3 off",
}
SEEN = """() => [...document.querySelectorAll('.mha')].map(root => {
    const { top, bottom } = root.getBoundingClientRect();
    const named = [...root.querySelectorAll('button, summary')]
        .filter(x => x.checkVisibility()).map(x => x.innerText.trim());
    return [0 <= top && bottom <= innerHeight, root.innerText, named];
})"""


KIND = re.compile(r'^export default widget\("([\w -]+)"', re.MULTILINE)


def test_there_is_one_for_each_kind():
    found = [KIND.search(path.read_text("utf-8")) for path in HERE.glob("*.js")]
    kinds = sorted(one[1].lower().replace(" ", "-") for one in found if one)
    linked = sorted(
        re.match(r"#mha-([\w-]+)-1(?:=|$)", place)[1] for _, place, _ in LINKS
    )
    assert linked == kinds and len(kinds) > 7


@pytest.mark.parametrize("page, place, press", LINKS, ids=[x for x, *_ in LINKS])
def test_it_opens_the_widget_with_what_is_pressed_then(visit, page, place, press):
    opened = visit(f"book/{page}", viewport=DESK, query=place).page
    until(opened, "widgets", "ready")
    ((whole, text, named),) = opened.evaluate(SEEN)
    assert whole and "does not hold a state" not in text
    assert ANSWERS.get(page, "the answer") not in text
    for told in re.findall(r"\*(.+?)\*", press):
        wanted = re.escape(told).replace("…", ".+")
        assert any(re.fullmatch(wanted, name) for name in named), told
