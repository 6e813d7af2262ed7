"""Serve all that a page needs from the book itself: it works offline."""

import re
from importlib.metadata import distribution
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.fileutil import copy_asset

SCRIPT = "mathjax/tex-chtml-full.js"  # plain tex-chtml.js fetches parts later
FONTS = "mathjax/output/chtml/fonts"
# On file:// the browser refuses to preload a font and logs an error for each.
FONT_PRELOAD = re.compile(r'<link rel="preload" as="font"[^>]*>\s*')


def use_local_mathjax(app: Sphinx, config: Config) -> None:
    config.mathjax_path = SCRIPT


def drop_thebe(
    app: Sphinx, page: str, template: str, context: dict, doctree
) -> None:
    """Take out the scripts for live kernels: unused here, they log an error."""
    context["script_files"] = [
        script
        for script in context["script_files"]
        if "thebe" not in f"{script.filename} {script.attributes.get('body')}"
    ]


def finish(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    package = distribution("sphinx-mathjax-offline")
    source = Path(package.locate_file("sphinx-mathjax-offline")) / "static"
    target = Path(app.outdir) / "_static"
    copy_asset(str(source / FONTS), str(target / FONTS))
    copy_asset(str(source / SCRIPT), str((target / SCRIPT).parent))
    for page in Path(app.outdir).rglob("*.html"):
        html = page.read_text(encoding="utf-8")
        page.write_text(FONT_PRELOAD.sub("", html), encoding="utf-8")


def setup(app: Sphinx) -> dict:
    app.connect("config-inited", use_local_mathjax)
    app.connect(
        "html-page-context", drop_thebe, priority=900
    )  # after they came
    app.connect("build-finished", finish)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
