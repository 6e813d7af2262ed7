"""The Python side works with what Colab has installed, older than what we pin."""

import os
import subprocess
import sys

import pytest

from tests.widgets.conftest import WITHOUT_BROWSER
from tools import book

COLAB = ("anywidget==0.9.21", "ipywidgets==7.7.1", "ipython-genutils==0.2.0")
SITE = book.ROOT / "_build" / "colab"
SCRIPT = """
import anywidget, ipywidgets, pytest, sys
assert (anywidget.__version__, ipywidgets.__version__) == ("0.9.21", "7.7.1")
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.fixture(scope="session")
def colab():
    """An environment in which Colab's releases come before ours."""
    if not (SITE / "ipython_genutils").exists():
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
        done = subprocess.run([*install, "--target", SITE, *COLAB], capture_output=True)
        if done.returncode:
            stop = pytest.fail if os.environ.get("CI") else pytest.skip
            stop(f"pip could not fetch {', '.join(COLAB)}")
    path = os.pathsep.join([str(SITE), str(book.ROOT)])
    return os.environ | {"PYTHONPATH": path, WITHOUT_BROWSER: "1"}


@pytest.mark.exhaustive  # it installs other releases and runs half of this folder again
def test_python_side_passes_with_colabs_releases(colab):
    """Every widget test that opens no browser, and every widget's example.

    What Keras does with a mask is no matter of these releases, and it loads slowly.
    """
    chosen = ["tests/widgets", "mha_lib/widgets", "-k", "not (test_colab or keras)"]
    options = ["-n0", "-q", "-p", "no:cacheprovider", "-W", "ignore"]  # they are old
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *options, *chosen],
        cwd=book.ROOT,
        env=colab,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout
