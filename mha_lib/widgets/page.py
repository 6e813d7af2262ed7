"""A page of widgets in one file, without kernel and network."""

import json
from html import escape
from importlib.resources import files
from math import isfinite

from ipywidgets.embed import dependency_state

from mha_lib.widgets.base import VIEW, Widget, png

STATE = "application/vnd.jupyter.widget-state+json"
PAGE = """<!DOCTYPE html>
<html lang="{language}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<script>
document.documentElement.dataset.theme =
  matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
</script>
<style>
html {{ background: #fff; }}
html[data-theme="dark"] {{ background: #0d1014; color: #e8ecf0; }}
</style>
</head>
<body>
<main>
<h1>{title}</h1>
{views}
</main>
<script type="{mime}">{state}</script>
<script>{host}</script>
</body>
</html>
"""


def host() -> str:
    """The script that brings widgets to life where no kernel is."""
    return (files(__package__) / "host.js").read_text(encoding="utf-8")


def in_script(data: object) -> str:
    """JSON that may stand in a script element; NaN, which JSON lacks, becomes null."""
    text = json.dumps(_finite(data), separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _finite(data: object) -> object:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    return None if isinstance(data, float) and not isfinite(data) else data


def to_html(*widgets: Widget, title: str = "Attention", language: str = "en") -> str:
    """Widgets as a page of their own, to be sent around or put on a web site.

    Args:
        widgets: any of this package, in the order in which they shall stand.
        title: the page's title and heading.
        language: the language of the title, for screen readers.

    Returns:
        HTML that needs nothing else.

    Example:
        >>> import torch
        >>> from mha_lib.widgets import AttentionExplorer, to_html
        >>> page = to_html(AttentionExplorer(torch.eye(3)[None]), title="Identity")
        >>> "<h1>Identity</h1>" in page, "https://" in page
        (True, False)
    """
    state = dependency_state(list(widgets), drop_defaults=False)
    views = "\n".join(
        f'<script type="{VIEW}">{in_script({"model_id": widget.model_id})}</script>'
        f'<noscript><figure><img alt="{escape(repr(widget))}" '
        f'src="data:image/png;base64,{png(widget.still())}">'
        f"<figcaption>{escape(widget.caption())}</figcaption></figure></noscript>"
        for widget in widgets
    )
    return PAGE.format(
        title=title,
        language=language,
        views=views,
        mime=STATE,
        state=in_script({"state": state}),
        host=host(),
    )
