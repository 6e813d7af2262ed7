"""The built book, opened in a browser."""

import functools
import http.server
import json
import threading
from collections import defaultdict
from contextlib import ExitStack, contextmanager
from itertools import chain

import pytest

import mha_lib.widgets
from mha_lib.widgets.base import Widget
from tools import book
from tools.browser import Visit

DESK = {"width": 1280, "height": 800}
PHONE = {"width": 360, "height": 740}
NARROW = {"width": 390, "height": 844}  # a phone of today
PAPER = {"width": 680, "height": 994}  # A4 without the margins of book.css
PATIENCE = 300_000  # milliseconds; nothing here takes one second on a quiet machine


@functools.cache
def widgets_of(page: str) -> int:
    """How many widgets a chapter shows, by what its committed outputs say."""
    path = book.ROOT / f"{page}.ipynb"
    if not path.exists():
        return 0
    values = vars(mha_lib.widgets).values()
    names = [
        x.__name__ for x in values if isinstance(x, type) and issubclass(x, Widget)
    ]
    outputs = [  # without nbformat, whose checks take most of the time
        "".join(output.get("data", {}).get("text/plain", ""))
        for cell in json.loads(path.read_text("utf-8"))["cells"]
        for output in cell.get("outputs", [])
    ]
    return sum(text.partition("(")[0] in names for text in outputs)


WITH_WIDGETS = [page for page in book.pages() if widgets_of(page)]


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    """Serve files without a line on stderr for each."""

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture(scope="module")
def roots():
    """Where the book starts, for each way to open it."""
    handler = functools.partial(QuietHandler, directory=book.HTML)
    with http.server.ThreadingHTTPServer(("localhost", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        port = server.server_address[1]
        yield {"http": f"http://localhost:{port}", "file": book.HTML.as_uri()}
        server.shutdown()


@pytest.fixture(scope="module")
def opened(chromium, roots):
    """Open a page for the length of a `with`, with its fonts.

    If `at_once`, nothing of what is shown takes its time.

    A tab that somebody has done with is used again, with nothing stored in it: a new
    one takes two to three times as long.
    """
    idle = defaultdict(list)

    def new_tab(root, at_once, context):
        visit = Visit(chromium, "about:blank", root, **context)
        visit.page.set_default_timeout(PATIENCE)
        if at_once:
            visit.page.add_init_script(AT_ONCE)
        return visit

    @contextmanager
    def open_page(
        page,
        scheme="http",
        colours="light",
        viewport=DESK,
        query="",
        at_once=False,
        **context,
    ):
        root = roots[scheme]
        tabs = idle[(scheme, at_once, *sorted(context.items()))]
        visit = tabs.pop() if tabs else new_tab(root, at_once, context)
        visit.page.set_viewport_size(viewport)
        visit.page.emulate_media(color_scheme=colours)
        visit.page.goto(f"{root}/{page}.html{query}")
        visit.page.evaluate("() => document.fonts.ready")
        visit.seen_in = colours, viewport
        yield visit
        visit.page.evaluate("() => [localStorage, sessionStorage].map(x => x.clear())")
        visit.page.goto("about:blank")
        visit.page.emulate_media(media="screen")
        visit.complaints.clear()
        tabs.append(visit)

    yield open_page
    for visit in chain(*idle.values()):
        visit.context.close()


# Buttons of the theme fade into their new colour: what axe saw halfway was too pale.
# It is there before the page: what is laid out would be laid out once more for it.
AT_ONCE = """{
    const sheet = new CSSStyleSheet();
    sheet.replaceSync("*, ::before, ::after { transition: none !important }");
    document.adoptedStyleSheets = [sheet];
}"""


TWO_FRAMES = """() => new Promise(done =>
    requestAnimationFrame(() => requestAnimationFrame(() => done())))"""


UNTIL = """([name, value, patience]) => new Promise((done, fail) => {
    const [end, said] = [Date.now() + patience, document.documentElement.dataset];
    const look = () => said[name] === value ? done()
        : Date.now() > end ? fail(`data-${name} is ${said[name]}, not ${value}`)
        : setTimeout(look, 20);
    look();
})"""


def until(page, name: str, value: str) -> None:
    """Wait until the page says so of itself, in a `data-` attribute of its root.

    A script of ours: a locator would bring one of Playwright's into each new page.
    """
    page.evaluate(UNTIL, [name, value, PATIENCE])


def switch(visit: Visit, colours: str, screen: dict) -> None:
    """What a reader's system does in the evening, on a screen of that size.

    The browser lays the page out anew each time: what is already so is left alone.
    """
    page, (colours_now, screen_now) = visit.page, visit.seen_in
    if screen != screen_now:
        page.set_viewport_size(screen)
    if colours != colours_now:
        page.emulate_media(color_scheme=colours)
        until(page, "theme", colours)
    if screen != screen_now:
        page.evaluate(TWO_FRAMES)  # what listens to the size has answered
    visit.seen_in = colours, screen


@contextmanager
def printing(page, sheet: dict | None = None):
    """What a browser does before it prints, and after; on a sheet of another size.

    It is laid out in that size for paper alone, and the size is left.
    """
    page.emulate_media(media="print")
    if sheet:
        page.set_viewport_size(sheet)
    page.evaluate("() => void dispatchEvent(new Event('beforeprint'))")
    try:
        yield
    finally:
        page.evaluate("() => void dispatchEvent(new Event('afterprint'))")
        page.emulate_media(media="screen")


@pytest.fixture
def visit(opened):
    """A function that opens a page, until the test is over."""
    with ExitStack() as visits:
        yield lambda *args, **context: visits.enter_context(opened(*args, **context))
