"""Widgets that live in the page: their state, their modules, a still for each.

What myst-nb would do, load a widget manager from other hosts, is switched off
by `nb_ipywidgets_js` in `_config.yml`. Here every widget's module becomes a
file that all pages share, its state stays in the page, and `host.js` of
`mha_lib.widgets` brings both together.
"""

import hashlib
import json
import re
from pathlib import Path

import address
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms.post_transforms import SphinxPostTransform

from mha_lib.widgets.base import VIEW, caption
from mha_lib.widgets.page import STATE, host, in_script

HOST = "widgets/host.js"
NOTE = (  # what a page shows, where it has no controls
    "This is what the cell says at the start. "
    "In Jupyter or Colab it has controls, which ask Python for other answers."
)
NOTE_BELOW_A_WIDGET = (
    "This is the first picture of the cell, and can be pressed. "
    "In Jupyter or Colab it has controls, too, which ask Python for others."
)
LAYOUT = ("layout", "tabbable", "tooltip")  # of every widget; no use here
REFERENCE = "IPY_MODEL_"  # how a state names another model
MODEL_ID = re.compile(r'"model_id": ?"(\w+)"')


def scripts(app: Sphinx, page: str) -> dict[str, dict]:
    """{model: its state} of what a page's notebook has made."""
    stored = app.env.nb_metadata.get(page, {}).get("js_files", {})
    _, attributes = stored.get("ipywidgets_state", (None, {"body": "{}"}))
    return json.loads(attributes["body"]).get("state", {})


def is_ours(model: dict) -> bool:
    """Whether it draws itself; other widgets ask Python for everything."""
    return model["model_module"] == "anywidget"


class Stills(SphinxPostTransform):
    """Put a still beside each widget, and in place of one that needs Python."""

    default_priority = 3  # just before myst-nb selects one form of each output
    formats = ("html",)

    def run(self, **kwargs) -> None:
        models = scripts(self.app, self.env.docname)
        for bundle in list(self.document.findall(nodes.container)):
            forms = {
                child.get("mime_type"): child.children
                for child in bundle.children
                if isinstance(child, nodes.Element)
            }
            if bundle.get("nb_element") != "mime_bundle" or VIEW not in forms:
                continue
            still = forms.get("image/png") or forms.get("text/plain", [])
            model = MODEL_ID.search(forms[VIEW][0].astext())[1]
            drawing = drawn_by(models, model)
            shown = [*still]
            if drawing:
                text = forms.get("text/plain")
                still = [*still, *captioned(models[drawing], text)]
                before, after = (raw(f"<{end}noscript>") for end in ("", "/"))
                shown = [view(drawing), before, *still, after]
            if drawing != model:
                text = NOTE_BELOW_A_WIDGET if drawing else NOTE
                shown.append(where_to_run(self.config, self.env.docname, text))
            bundle.replace_self(shown)


def captioned(model: dict, text: list | None) -> list[nodes.Node]:
    """What a still shows, where there is nobody to press a button."""
    shown = text[0].astext() if text else ""
    if not shown.endswith(")"):
        return []
    words = caption(model["state"].get("_esm", ""), shown)
    return [nodes.paragraph("", words, classes=["still-caption"])]


def where_to_run(config: Config, page: str, text: str) -> nodes.paragraph:
    """Say where a page's controls can be moved, with a link if there is one."""
    notebook = f"{page}.ipynb"
    note = nodes.paragraph("", f"{text} To move them, open ")
    note += [nodes.literal("", notebook), nodes.Text(" in Jupyter")]
    if link := address.colab(config, notebook):
        note += nodes.Text(", or this page ")
        note += nodes.reference("", "in Colab", refuri=link)
    note += nodes.Text(".")
    note["classes"].append("needs-python")
    return note


def drawn_by(models: dict[str, dict], model: str) -> str | None:
    """The widget of ours that this is, or that a box of controls ends with."""
    if is_ours(models[model]):
        return model
    children = models[model]["state"].get("children", [])
    last = children[-1].removeprefix(REFERENCE) if children else model
    return last if is_ours(models[last]) else None


def view(model: str) -> nodes.raw:
    text = in_script({"model_id": model})
    return raw(f'<script type="{VIEW}">{text}</script>')


def raw(html: str) -> nodes.raw:
    return nodes.raw("", html, format="html")


def give_state(
    app: Sphinx, page: str, template: str, context: dict, doctree
) -> None:
    """State at the page's end, modules and host in files beside it."""
    models = {
        name: model
        for name, model in scripts(app, page).items()
        if is_ours(model)
    }
    context["script_files"][:] = [
        script
        for script in context["script_files"]
        if script.attributes.get("type") != STATE
    ]
    if not models:
        return
    states = {}
    for name, model in models.items():
        module = write_module(app, model["state"])
        app.add_js_file(f"widgets/{module}.js", loading_method="defer")
        own = {
            trait: value
            for trait, value in model["state"].items()
            if not trait.startswith("_") and trait not in LAYOUT
        }
        if own.get("packed"):
            own |= {"packed": "", "packed_at": write_packed(app, own, context)}
        states[name] = {"state": {**own, "_module": module}}
    app.add_js_file(HOST, loading_method="defer")
    write(app, HOST, host())
    text = in_script({"state": states})
    context["body"] += f'<script type="{STATE}">{text}</script>\n'


def write_module(app: Sphinx, state: dict) -> str:
    """Store a widget's module and style once for all pages; return its name."""
    parts = {part: state.get(part, "") for part in ("_esm", "_css")}
    text = json.dumps(parts)
    digest = hashlib.sha256(text.encode()).hexdigest()[:8]
    name = f"{state['_anywidget_id'].rsplit('.')[-1]}-{digest}"
    code = f"(window.mhaModules ??= {{}})[{json.dumps(name)}] = {text};\n"
    write(app, f"widgets/{name}.js", code)
    return name


def write_packed(app: Sphinx, state: dict, context: dict) -> str:
    """Store a model's numbers once for all pages; return their address.

    No page loads the file: a widget does, with a script element, when a reader
    asks for more than its first view.
    """
    name, text = json.dumps(state["packed_name"]), json.dumps(state["packed"])
    file = f"widgets/{state['packed_name']}.js"
    write(app, file, f"(window.mhaPacked ??= {{}})[{name}] = {text};\n")
    return context["pathto"](f"_static/{file}", resource=True)


def write(app: Sphinx, name: str, text: str) -> None:
    path = Path(app.outdir) / "_static" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict:
    app.add_post_transform(Stills)
    app.connect("html-page-context", give_state, priority=900)  # after myst-nb
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
