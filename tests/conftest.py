"""A browser for the tests that need one."""

import pytest


@pytest.fixture(scope="module")
def chromium():
    """One for each file: while it is open, no second can be started beside it."""
    from playwright.sync_api import sync_playwright

    from tests.browser import launch

    with sync_playwright() as playwright:
        browser = launch(playwright)
        yield browser
        browser.close()
