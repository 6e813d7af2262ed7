"""Draw formulas when the book is built: a reader's browser loads no MathJax.

MathJax itself draws them, in the engine of JavaScript that mini-racer brings. A
page gets boxes, MathML for screen readers, and one style sheet and fonts with
the signs that the book has.
"""

import atexit
import json
import re
from functools import cache
from importlib.metadata import distribution
from pathlib import Path

from docutils import nodes
from fontTools import subset
from py_mini_racer import JSEvalException, MiniRacer
from roles import ELSEWHERE
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import wrap_displaymath

PARTS = (
    "core",
    "adaptors/liteDOM",
    "input/tex",
    "output/chtml",
    "output/chtml/fonts/tex",
    "a11y/assistive-mml",
)
PACKAGES = ("base", "ams")  # of TeX; an unknown command is an error
LOAD = """
globalThis.MathJax = {
    loader: {
        paths: {mathjax: ""},
        load: Object.keys(PARTS).slice(1),
        require: name => (0, eval)(PARTS[name.slice(1, -3)]),
    },
    tex: {packages: PACKAGES, formatError: (tex, error) => { throw error; }},
    chtml: {fontURL: "formulas"},
    startup: {typeset: false, ready: () => {
        MathJax.startup.defaultReady();
        MathJax.startup.document.inputJax[0].postFilters.add(({data}) => {
            data.root.walkTree(node => node.isKind("mi") && mark(node));
        });
    }},
};
(0, eval)(PARTS.startup);
// The letters of query, key and value, but none that is an index; all of W^Q.
const ROLES = {q: "q", k: "k", v: "v", Q: "q", K: "k", V: "v"};
let others = ""; // letters that mean something else on the line
const scriptOf = letter => {
    for (let node = letter; node.parent; node = node.parent) {
        const {kind, childNodes} = node.parent;
        const at = childNodes.indexOf(node);
        if (at > 0 && /^m(sub|sup|under|over)/.test(kind)) {
            const high = kind === "msup" || at === 2;
            return {base: childNodes[0], high, node};
        }
    }
};
const mark = letter => {
    const name = letter.getText(), script = scriptOf(letter);
    const matrix = script?.high && script.base.isKind("mi")
        && script.base.getText() === "W";
    if (!ROLES[name] || (script ? !matrix : others.includes(name))) return;
    const parts = script?.node === letter ? [script.base, letter] : [letter];
    for (const part of parts)
        part.attributes.set("class", `role-${ROLES[name]}`);
};
const draw = (tex, display, plain) => {
    others = plain;
    try {
        return MathJax.startup.adaptor.outerHTML(
            MathJax.tex2chtml(tex, {display}));
    } catch (error) {
        throw new Error(error.message);
    }
};
const styles = () => MathJax.startup.adaptor.textContent(
    MathJax.chtmlStylesheet());
"""

# A formula's x is as tall as that of the text around it, whatever its font.
SIZE = """
mjx-container[jax="CHTML"] {
  font-size: calc(1ex / 0.442);
}
"""
INPUT = re.compile(r"(?<![\^{\w\\])[QK]\b")  # alone, no index of a matrix
DRAWN = re.compile(r'content: "(?P<signs>[^"]+)"')
SIGN = re.compile(r"\\(?P<code>[0-9A-F]+)|(?P<sign>.)")
ZERO = "MathJax_Zero"  # keeps lines low; it draws nothing

log = logging.getLogger(__name__)


def mathjax() -> Path:
    package = distribution("sphinx-mathjax-offline")
    located = package.locate_file("sphinx-mathjax-offline")
    return Path(located) / "static" / "mathjax"


@cache
def engine() -> MiniRacer:
    parts = {
        name: (mathjax() / f"{name}.js").read_text(encoding="utf-8")
        for name in ("startup", *PARTS)
    }
    racer = MiniRacer()
    atexit.register(racer.close)  # left open, it may keep Python from ending
    racer.eval(
        f"const PARTS = {json.dumps(parts)}, PACKAGES = {json.dumps(PACKAGES)};"
        f"{LOAD}"
    )
    return racer


@cache
def draw(tex: str, display: bool, others: str = "V") -> str:
    """The HTML of a formula; JSEvalException where it is not TeX.

    `others` are the letters that mean no query, key or value in it.
    """
    return engine().call("draw", tex, display, others)


def beside_queries(node: nodes.math | nodes.math_block) -> bool:
    """Whether Q and K stand in the formula or in another of its paragraph."""
    while isinstance(node, nodes.Inline):
        node = node.parent
    kinds = nodes.math | nodes.math_block
    formulas = [x.astext() for x in node.findall() if isinstance(x, kinds)]
    return {"Q", "K"} <= {*INPUT.findall(" ".join(formulas))}


def visit_math(writer, node: nodes.math | nodes.math_block) -> None:
    block = isinstance(node, nodes.math_block)
    tex = node.astext()
    others = "".join(ELSEWHERE.get(writer.builder.current_docname, ()))
    if not beside_queries(node):
        others += "V"  # the width of a value
    if block and not node["nowrap"]:
        tex = wrap_displaymath(tex, None, numbering=False)
    try:
        drawn = draw(tex, block, others)
    except JSEvalException as error:
        said = str(error).splitlines()[0].rpartition("Error: ")[2]
        log.warning("%s in the formula %s", said, tex, location=node)
        raise nodes.SkipNode from None
    tag = "div" if block else "span"
    start = writer.starttag(node, tag, "", CLASS="math notranslate")
    writer.body.append(f"{start}{drawn}</{tag}>")
    raise nodes.SkipNode


def link_styles(
    app: Sphinx, page: str, template: str, context: dict, doctree
) -> None:
    if app.env.get_domain("math").has_equations(page):
        app.add_css_file("formulas.css")


def write_styles(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    css = engine().call("styles") + SIZE
    (static / "formulas.css").write_text(css, encoding="utf-8")
    codes = {
        int(sign["code"], 16) if sign["code"] else ord(sign["sign"])
        for drawn in DRAWN.finditer(css)
        for sign in SIGN.finditer(drawn["signs"])
    }
    fonts = static / "formulas"
    fonts.mkdir()
    for file in (mathjax() / "output/chtml/fonts/woff-v2").glob("*.woff"):
        shrink_font(file, fonts / file.name, codes)


def shrink_font(file: Path, target: Path, codes: set[int]) -> None:
    """Leave the signs that the book draws in some formula."""
    options = subset.Options(flavor="woff", hinting=False)
    options.drop_tables += ["FFTM"]  # when the font was made
    font = subset.load_font(file, options)
    subsetter = subset.Subsetter(options)
    kept = font.getBestCmap() if file.stem == ZERO else codes
    subsetter.populate(unicodes=kept)
    subsetter.subset(font)
    subset.save_font(font, target, options)


def setup(app: Sphinx) -> dict:
    draws = (visit_math, None)
    app.add_html_math_renderer("built", draws, draws)
    app.connect("html-page-context", link_styles)
    app.connect("build-finished", write_styles)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": False,  # one engine knows what was drawn
    }
