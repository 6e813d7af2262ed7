"""What many tests need: a browser, and the tasks as they were before."""

import os

import pytest

from mha_lib.check import registered


@pytest.fixture(scope="module", autouse=True)
def tasks_as_they_were():
    """What a file registers, with each assignment it reads, is forgotten after it."""
    with registered():
        yield


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
