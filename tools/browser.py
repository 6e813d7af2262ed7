"""A real browser, and a visit that reaches nothing but what it is given."""

import shutil
from pathlib import Path

from playwright.sync_api import Browser, Page, Playwright

FLAGS = [  # keep Chromium from calling home, and let it run as root
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--proxy-server=http://localhost:9",  # nobody listens; localhost needs no proxy
]
NAMES = [  # the first has no window, and takes two thirds of the CPU
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
]


class NoChromium(FileNotFoundError):
    """Neither the system nor Playwright has one."""


def launch(playwright: Playwright, *more: str) -> Browser:
    """The system's Chromium, or else the one that Playwright has fetched."""
    found = filter(None, map(shutil.which, NAMES))
    executable = next(found, playwright.chromium.executable_path)
    if not Path(executable).exists():
        raise NoChromium("No Chromium here; run: playwright install chromium")
    return playwright.chromium.launch(executable_path=executable, args=[*FLAGS, *more])


def open_folder(browser: Browser, folder: Path) -> Page:
    """An empty page whose scripts may import the folder's JavaScript, as "/name.js"."""

    def give(route):
        name = route.request.url.rpartition("/")[2]
        kind, text = "text/html", ""
        if name:
            kind, text = "text/javascript", (folder / name).read_text(encoding="utf-8")
        route.fulfill(content_type=kind, body=text)

    page = browser.new_page()
    page.route("http://folder.test/**", give)
    page.goto("http://folder.test/")
    return page


class Visit:
    """A page in a fresh context, and all that it complained of."""

    def __init__(
        self, browser: Browser, url: str, root: str, **context: object
    ) -> None:
        self.root = root
        self.complaints: list[str] = []
        self.context = browser.new_context(**context)
        self.page: Page = self.context.new_page()
        self.page.on("request", self.only_local)
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("response", self.check)
        self.page.goto(url)

    def only_local(self, request):
        if not request.url.startswith((self.root, "data:", "blob:")):
            self.complaints.append(f"asked for {request.url}")

    def hear(self, message):
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def check(self, response):
        if response.status >= 400:
            self.complaints.append(f"{response.status} for {response.url}")

    def count(self, selector: str) -> int:
        return self.page.locator(selector).count()
