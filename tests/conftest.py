"""A browser for the tests that need one."""

import os

import pytest


@pytest.fixture(scope="module")
def chromium():
    """One for each file: while it is open, no second can be started beside it."""
    from playwright.sync_api import sync_playwright

    from tools.browser import NoChromium, launch

    with sync_playwright() as playwright:
        try:
            browser = launch(playwright)
        except NoChromium as missing:
            stop = pytest.fail if os.environ.get("CI") else pytest.skip
            stop(str(missing))
        yield browser
        browser.close()
