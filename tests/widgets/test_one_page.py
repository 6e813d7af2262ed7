"""Widgets keep their looks beside each other, and in hosts with rules of their own."""

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
