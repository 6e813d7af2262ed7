"""What many tests need: sweeps, a browser, and the tasks as they were before."""

import os
from collections import Counter

import pytest

from mha_lib.check import registered
from mha_lib.grade import sandbox
from tests import nursery


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is exhaustive
def pytest_collection_modifyitems(items):
    """Of the cases of a `sweep(n)` each n-th is a sample; the others are exhaustive."""
    met = Counter()
    for item in items:
        if (sweep := item.get_closest_marker("sweep")) is None:
            continue
        (every,), test = sweep.args, item.nodeid.partition("[")[0]
        if met[test] % every:
            item.add_marker(pytest.mark.exhaustive)
        met[test] += 1


@pytest.fixture(scope="module", autouse=True)
def tasks_as_they_were():
    """What a file registers, with each assignment it reads, is forgotten after it."""
    with registered():
        yield


@pytest.fixture(scope="session")
def forked_sandboxes():
    """Warm processes that fork from one: all but the first cost next to nothing."""
    if not hasattr(os, "pidfd_open"):  # it is Linux's
        yield
        return
    with nursery.forked_sandboxes(sandbox):
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
