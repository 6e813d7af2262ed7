"""Widgets in pages of their own, opened in a browser."""

import os
from functools import wraps

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Keyboard, Locator, Mouse, Page

from mha_lib.widgets import to_html
from tools.browser import Visit

WITHOUT_BROWSER = "WIDGETS_WITHOUT_BROWSER"  # set: only what tests Python

ACTS = {  # what a reader does; a widget answers in the frame after it
    Locator: "check click dispatch_event fill focus hover press select_option "
    "set_checked tap uncheck",
    Keyboard: "press type",
    Mouse: "click down move up wheel",
    Page: "emulate_media set_viewport_size",
}


def pytest_collection_modifyitems(config, items):
    """Leave out what opens a browser, where somebody asks for that."""
    if os.environ.get(WITHOUT_BROWSER):
        left_out = [x for x in items if "chromium" in getattr(x, "fixturenames", ())]
        items[:] = [x for x in items if x not in left_out]
        config.hook.pytest_deselected(items=left_out)


class Live(Visit):
    """A widget, alive in a page of its own on file://; more may stand below it."""

    def __init__(self, browser, widgets, folder, **context):
        file = folder / "page.html"
        file.write_text(to_html(*widgets, title="Test"), encoding="utf-8")
        super().__init__(browser, file.as_uri(), file.as_uri(), **context)
        self.page.set_default_timeout(5000)  # milliseconds
        self.page.wait_for_selector("html[data-widgets=ready]")
        self.root_element = self.page.locator(".mha").first
        self.settle()

    def settle(self):
        """Wait until what was asked for has been drawn: two frames."""
        self.page.evaluate(
            "() => new Promise(r => requestAnimationFrame("
            "() => requestAnimationFrame(() => r())))"
        )

    def text(self, selector: str) -> str:
        self.settle()
        return self.root_element.locator(selector).inner_text()

    def control(self, label: str):
        return self.root_element.get_by_label(label, exact=True)

    def button(self, label: str):
        return self.root_element.get_by_role("button", name=label, exact=True)

    def pixels(self, selector: str = ".mha-map canvas", at: int = 0) -> str:
        """What a canvas shows, as text to compare."""
        self.settle()
        canvas = self.root_element.locator(selector).nth(at)
        return canvas.evaluate("canvas => canvas.toDataURL()")

    def table(self, summary: str) -> list[list[str]]:
        """The cells of a folded table, heads included; it is left open."""
        details = self.root_element.locator("details", has_text=summary)
        if details.get_attribute("open") is None:
            details.locator("summary").click()
        self.settle()
        return details.locator("table").evaluate(
            "t => [...t.rows].map(r => [...r.cells].map(c => c.textContent))"
        )

    def faults(self) -> list[str]:
        """What axe-core finds."""
        found = Axe().run(self.page).response["violations"]
        return [
            f"{x['id']}: {node['html'][:200]}" for x in found for node in x["nodes"]
        ]

    def width(self) -> int:
        return self.page.evaluate("document.documentElement.scrollWidth")


@pytest.fixture
def live(chromium, tmp_path, monkeypatch):
    """Open a widget: live(widget, color_scheme="dark", viewport={...}).

    After each act of a reader the test goes on when the widgets have drawn: what a
    test reads is never of the frame before, however slow the machine.
    """
    visits = []

    def open_widget(*widgets, **context):
        visits.append(Live(chromium, widgets, tmp_path, **context))
        return visits[-1]

    def and_settle(act):
        @wraps(act)
        def act_and_settle(*args, **options):
            done = act(*args, **options)
            for visit in visits:
                visit.settle()
            return done

        return act_and_settle

    for kind, names in ACTS.items():
        for name in names.split():
            monkeypatch.setattr(kind, name, and_settle(getattr(kind, name)))
    yield open_widget
    for visit in visits:
        visit.context.close()
        assert visit.complaints == []


def number(text: str) -> float:
    """A number as the page writes it, with its own minus sign."""
    return float(text.replace("−", "-"))
