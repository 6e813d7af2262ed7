"""Widgets keep their looks beside each other, and in hosts with rules of their own."""

import base64
import re
from html import unescape

from mha_lib.widgets import to_html

CLASSIC = """
html { font-size: 10px; }
body { font-size: 14px; }
label { display: inline-block; margin-bottom: 5px; font-weight: bold; }
output { display: block; padding-top: 7px; font-size: 20px; color: #555; }
summary { display: block; }
"""  # what Notebook 6 gives to bare elements


def looks(opened) -> dict[str, list]:
    """The size of each widget, and how its maps and lists are laid out."""
    return opened.page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll('.mha')].map(root => [
            root.getAttribute('aria-label'),
            [root, ...root.querySelectorAll('.mha-map, .mha-steps, th, td')].map(x => [
                Math.round(x.offsetWidth), Math.round(x.offsetHeight),
                getComputedStyle(x).touchAction, getComputedStyle(x).display,
            ]),
        ]))"""
    )


def colours(opened) -> list:
    """What is seen of every part of the widgets, but for its size and place."""
    return opened.page.evaluate(
        """() => [...document.querySelectorAll('.mha, .mha *')].map(x => {
            const { color, backgroundColor, borderColor, fill, stroke }
                = getComputedStyle(x);
            return [x.toDataURL?.(), color, backgroundColor, borderColor, fill, stroke];
        })"""
    )


def test_no_widget_changes_the_looks_of_another(live, every_widget):
    """Each is as large as alone, whichever style sheet comes last."""
    alone = {}
    for widget in every_widget:
        alone |= looks(live(widget))
    for widgets in (every_widget, every_widget[::-1]):
        assert looks(live(*widgets)) == alone


def test_text_is_legible_where_a_rem_is_small(live, every_widget):
    opened = live(*every_widget)
    opened.page.add_style_tag(content=CLASSIC)
    opened.settle()
    sizes = opened.page.locator(".mha, .mha output, .mha label").evaluate_all(
        "all => all.map(x => parseFloat(getComputedStyle(x).fontSize))"
    )
    assert min(sizes) >= 12 and max(sizes) < 20
    marks = opened.page.locator(".mha summary").evaluate_all(
        "all => all.map(x => getComputedStyle(x).display)"
    )
    assert set(marks) == {"list-item"}


def test_a_page_opened_in_the_dark_is_one_that_was_switched(live, every_widget):
    opened = live(*every_widget)
    light = colours(opened)
    opened.light("dark")
    switched = colours(opened)
    assert switched != light
    assert colours(live(*every_widget, color_scheme="dark")) == switched


def test_who_has_no_javascript_sees_the_stills(every_widget):
    page = to_html(*every_widget)
    pattern = r'<noscript><figure><img alt="(.*?)" src="data:image/png;base64,(.*?)"'
    names, stills = zip(*re.findall(pattern, page))
    assert [*map(unescape, names)] == [*map(repr, every_widget)]
    assert len(set(stills)) == len(every_widget)
    assert all(base64.b64decode(still)[1:4] == b"PNG" for still in stills)
