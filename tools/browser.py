"""A real browser: the system's, or the one that Playwright has fetched."""

import shutil
from pathlib import Path

from playwright.sync_api import Browser, Playwright

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


def launch(playwright: Playwright, *more: str) -> Browser:
    """The system's Chromium, or else the one that Playwright has fetched."""
    found = filter(None, map(shutil.which, NAMES))
    executable = next(found, playwright.chromium.executable_path)
    if not Path(executable).exists():
        raise FileNotFoundError("No Chromium here; run: playwright install chromium")
    return playwright.chromium.launch(executable_path=executable, args=[*FLAGS, *more])
