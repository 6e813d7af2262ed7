"""A strip of the six versions, on their chapters and on the ninth."""

from html import escape

from sphinx.application import Sphinx

# Chapter, class, and how it holds the queries of all heads. E = H·D.
VERSIONS = (
    ("book/02_heads_in_a_loop", "PerHeadMHA", "H × (B, T, D)"),
    ("book/03_all_heads_at_once", "BatchedMHA", "(B, H, T, D)"),
    ("book/05_one_matrix_for_qkv", "FusedMHA", "(B, T, 3E)"),
    ("book/06_einsum_sequence_first", "EinsumMHA", "(T, B, H, D)"),
    ("book/07_pytorchs_own", "BuiltinMHA", "torch’s own"),
    ("book/08_tensorflow_style", "SplitConcatMHA", "(H·B, T, D)"),
)
CAPTION = (
    "One layer, six times: B texts of T words, H heads of D numbers, E = H·D"
)
COMPARED = "book/09_they_all_agree"  # none of them is the page's own


def strip(app: Sphinx, page: str) -> str:
    """One link a version; the chapter that is read has none."""
    parts = []
    for chapter, name, layout in VERSIONS:
        words = f"<b>{name}</b> <span>{escape(layout)}</span>"
        if chapter == page:
            parts.append(f'<li><a aria-current="page">{words}</a></li>')
        else:
            to = app.builder.get_relative_uri(page, chapter)
            parts.append(f'<li><a href="{to}">{words}</a></li>')
    return (
        '<nav class="six-versions" aria-label="The six versions, and how '
        f'each holds its heads"><p>{CAPTION}</p><ol>{"".join(parts)}</ol></nav>'
    )


def put_strip(
    app: Sphinx, page: str, template: str, context: dict, doctree
) -> None:
    if page in {COMPARED, *(chapter for chapter, *_ in VERSIONS)}:
        head, end, rest = context["body"].partition("</h1>")
        context["body"] = f"{head}{end}\n{strip(app, page)}{rest}"


def setup(app: Sphinx) -> dict:
    app.connect("html-page-context", put_strip)
    return {
        "version": "1",
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
