"""Names of query, key and value have their colour, in sentences and in code.

The extension `formulas` does the same for letters; `book.css` has the colours.
"""

import re
from functools import partial
from html import unescape

from sphinx.application import Sphinx

NAME = r"(?:[Wb]_)?([qkv])(?!_and_)(?:_\w+)?|(query|key|value)"
IN_TEXT = re.compile(
    rf'<code class="(?=[^"]*"><span class="pre">(?P<name>{NAME})</span></code>)'
)
BLOCK = re.compile(
    r'(?<=<div class="highlight"><pre>)<span></span>.*?(?=</pre>)', re.DOTALL
)
CODE = re.compile(
    r'(?P<dot><span class="o">\.</span>)?'
    rf'<span class="n">(?P<name>{NAME})</span>'
)
TAG = re.compile(r"<[^>]+>")

# Where a name or a letter means something else: on these pages, and in a block
# of code that takes it from a list, sorts by a key or pairs v with u.
ELSEWHERE = {
    "book/assignments/student/a5_language_model": {"query"},  # its place
    "book/play/break_it": {"key"},  # of a dictionary
}
BOUND = re.compile(r"\bfor ([\w\s,()]+?) in\b|, (key)=(?!key)|\bu, (v) =")


def colour_code(block: str, plain: set[str]) -> str:
    """Give names a class instead of the one that says that they are names."""
    text = unescape(TAG.sub("", block))
    bound = " ".join(found for each in BOUND.findall(text) for found in each)
    plain = plain | {*re.findall(r"\w+", bound)}

    def paint(found: re.Match) -> str:
        dot, name, letter, word = found.groups()
        if name in plain or (dot and word):  # an attribute, `.value` say
            return found[0]
        role = letter or word[0]
        return f'{dot or ""}<span class="role-{role}">{name}</span>'

    return CODE.sub(paint, block)


def name_in_text(found: re.Match, plain: set[str]) -> str:
    name, letter, word = found.groups()
    if name in plain:
        return found[0]
    return f'<code class="role-{letter or word[0]} '


def colour_page(
    app: Sphinx, page: str, template: str, context: dict, doctree
) -> None:
    if "body" not in context or not page.startswith("book/"):
        return
    plain = ELSEWHERE.get(page, set())
    body = BLOCK.sub(
        lambda block: colour_code(block[0], plain), context["body"]
    )
    context["body"] = IN_TEXT.sub(partial(name_in_text, plain=plain), body)


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", colour_page)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
