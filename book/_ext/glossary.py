"""Where a chapter explains a word, lead to the word in the glossary."""

from docutils import nodes
from sphinx.application import Sphinx

GLOSSARY = "book/glossary"


Place = tuple[str, str]  # a page and an anchor on it


def known(text: str, terms: dict[str, Place]) -> Place | None:
    """Where a term stands, also one of several: keys as well as key."""
    text = text.lower()
    return terms.get(text) or terms.get(text.removesuffix("s"))


def lead_to_terms(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """The first emphasised place of each term on a page becomes a link."""
    if page == GLOSSARY:
        return
    terms, seen = app.env.domaindata["std"]["terms"], set()
    for emphasis in list(doctree.findall(nodes.emphasis)):
        found = known(emphasis.astext(), terms)
        if not found or found in seen or linked(emphasis):
            continue
        seen.add(found)
        glossary, place = found
        address = f"{app.builder.get_relative_uri(page, glossary)}#{place}"
        link = nodes.reference(refuri=address, internal=True)
        emphasis.replace_self(link)
        link += emphasis


def linked(node: nodes.Node) -> bool:
    """Whether it stands in a link or a heading, which can be no link."""
    while node := node.parent:
        if isinstance(node, nodes.reference | nodes.title):
            return True
    return False


def setup(app: Sphinx) -> dict:
    """Sphinx calls this."""
    app.connect("doctree-resolved", lead_to_terms)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
