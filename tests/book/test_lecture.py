"""The links for lecturers: each opens its widget, whole on the screen, in a state."""

import re

import pytest

from tests.book.conftest import DESK, until
from tools import book

GUIDE = (book.ROOT / "book" / "instructors_guide.md").read_text(encoding="utf-8")
LINKS = re.findall(r'href="([\w/]+)\.html(#mha-[\w=-]+)"', GUIDE)
SEEN = """() => [...document.querySelectorAll('.mha')].map(root => {
    const { top, bottom } = root.getBoundingClientRect();
    return [0 <= top && bottom <= innerHeight, root.innerText];
})"""


def test_there_is_one_for_each_kind():
    assert len({place.partition("=")[0] for _, place in LINKS}) == len(LINKS) == 8


@pytest.mark.sweep(3)
@pytest.mark.parametrize("page, place", LINKS, ids=lambda x: x.rpartition("/")[2])
def test_it_opens_the_widget(visit, page, place):
    opened = visit(f"book/{page}", viewport=DESK, query=place).page
    until(opened, "widgets", "ready")
    opened.wait_for_timeout(0)
    ((whole, text),) = opened.evaluate(SEEN)
    assert whole and "does not hold a state" not in text
    if "=" in place:  # a state that is not the lesson's, and without its answer
        assert " off" not in text and "✗" not in text
