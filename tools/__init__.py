"""Commands that build and keep the book; run each as ``python -m tools.NAME``."""

import importlib.util
import sys

if sys.version_info < (3, 10):  # noqa: UP036 - the sentence is for old Pythons
    sys.exit(f"The book needs Python 3.10 or newer; this is {sys.version.split()[0]}.")
NEEDED = ("jupyter_book", "sphinx_exercise", "jupytext", "nbclient", "bs4")
FREE = {"tools.practice", "tools.stamp"}  # they need no more than mha_lib[grade]
if FREE.isdisjoint(sys.orig_argv) and not all(map(importlib.util.find_spec, NEEDED)):
    sys.exit("Install the book's packages: pip install -r requirements.txt -e .")
