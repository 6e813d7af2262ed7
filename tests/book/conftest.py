"""The built book, opened in a browser."""

import functools
import http.server
import threading

import pytest

from tools import book
from tools.browser import Visit

DESK = {"width": 1280, "height": 800}


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


@pytest.fixture
def visit(chromium, roots):
    visits = []

    def open_page(page, scheme="http", colours="light", viewport=DESK, **context):
        root = roots[scheme]
        opened = Visit(
            chromium,
            f"{root}/{page}.html",
            root,
            color_scheme=colours,
            viewport=viewport,
            **context,
        )
        opened.page.evaluate("() => window.MathJax?.startup?.promise")
        visits.append(opened)
        return opened

    yield open_page
    for each in visits:
        each.context.close()
