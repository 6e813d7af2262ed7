"""Every page works in a browser: no network, no errors, mathematics, small screens."""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tools import book

FLAGS = [  # keep Chromium from calling home, and let it run as root
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ["chromium", "chromium-browser", "google-chrome"]
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1280, "height": 800}
TOO_WIDE = """() => {
    const scrolls = e => e !== null && e !== document.body
        && (getComputedStyle(e).overflowX !== 'visible' || scrolls(e.parentElement));
    return [...document.querySelectorAll('article *')]
        .filter(e => e.getBoundingClientRect().right > innerWidth
            && !scrolls(e.parentElement))
        .map(e => e.outerHTML.slice(0, 120)).slice(0, 5);
}"""
DISTORTED = """() => [...document.querySelectorAll('article img')]
    .filter(e => Math.abs(e.naturalWidth / e.naturalHeight
        - e.clientWidth / e.clientHeight) > 0.05 * e.naturalWidth / e.naturalHeight)
    .map(e => e.alt)"""


@pytest.fixture(scope="module")
def chromium():
    with sync_playwright() as playwright:
        found = filter(None, map(shutil.which, NAMES))
        executable = next(found, playwright.chromium.executable_path)
        if not Path(executable).exists():
            stop = pytest.fail if os.environ.get("CI") else pytest.skip
            stop("No Chromium here; run: playwright install chromium")
        browser = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield browser
        browser.close()


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


class Visit:
    """One page, opened in a fresh browser context that reaches nothing but the book."""

    def __init__(self, chromium, root: str, page: str, colours: str, viewport: dict):
        self.root = root
        self.complaints: list[str] = []
        context = chromium.new_context(color_scheme=colours, viewport=viewport)
        context.route("**/*", self.only_local)
        self.page = context.new_page()
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("response", self.check)
        self.page.goto(f"{root}/{page}.html")
        self.page.evaluate("() => window.MathJax?.startup?.promise")

    def only_local(self, route):
        if route.request.url.startswith((self.root, "data:", "blob:")):
            route.continue_()
        else:
            self.complaints.append(f"asked for {route.request.url}")
            route.abort()

    def hear(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def check(self, response):
        if response.status >= 400:
            self.complaints.append(f"{response.status} for {response.url}")

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()


@pytest.fixture
def visit(chromium, roots):
    visits = []

    def open_page(page, scheme="http", colours="light", viewport=DESK):
        visits.append(Visit(chromium, roots[scheme], page, colours, viewport))
        return visits[-1]

    yield open_page
    for each in visits:
        each.page.context.close()


@pytest.mark.parametrize("colours", ["light", "dark"])
@pytest.mark.parametrize("scheme", ["http", "file"])
@pytest.mark.parametrize("page", book.pages())
def test_page_works_on_its_own(visit, page, scheme, colours):
    opened = visit(page, scheme, colours)
    opened.page.evaluate("() => document.fonts.ready")
    assert opened.complaints == []
    assert opened.page.locator("html").get_attribute("data-theme") == colours
    assert opened.count("mjx-container") == opened.count(".math")
    assert opened.count("mjx-merror") == 0


@pytest.mark.parametrize("page", book.pages())
def test_page_fits_a_phone(visit, page):
    opened = visit(page, viewport=PHONE)
    width = opened.page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"], opened.page.evaluate(TOO_WIDE)
    assert opened.page.evaluate(DISTORTED) == []
