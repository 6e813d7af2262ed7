"""Sections of the book that reports send readers to: their titles and addresses.

The one table of what the package knows of the book; a test compares it with the pages.
"""

from importlib.metadata import PackageNotFoundError, metadata

__all__ = ["TITLES", "link", "repository", "section_title"]

PAGES = "https://{owner}.github.io/{name}/book/{page}.html#{anchor}"
TITLES = {  # page: anchor: heading
    "01_attention": {
        "one-head-ask-offer-hand-over": "One head: ask, offer, hand over",
        "the-scale-forgotten-or-taken-from-the-wrong-size": (
            "The scale forgotten, or taken from the wrong size"
        ),
        "the-softmax-over-the-wrong-axis": "The softmax over the wrong axis",
        "why-divide-by-d": "Why divide by √D",
    },
    "02_heads_in_a_loop": {
        "heads-summed": "Heads summed",
        "the-number-of-heads-ignored": "The number of heads ignored",
        "what-the-output-projection-does": "What the output projection does",
    },
    "03_all_heads_at_once": {
        "heads-cut-without-a-transpose": "Heads cut without a transpose",
        "heads-merged-without-a-transpose": "Heads merged without a transpose",
        "the-key-transposed-by-its-shape": "The key transposed by its shape",
        "the-way-back": "The way back",
    },
    "05_one_matrix_for_qkv": {
        "a-published-fault": "A published fault",
        "each-third-meets-its-own-input": "Each third meets its own input",
        "what-goes-wrong": "What goes wrong",
    },
    "04_masks": {
        "an-axis-for-the-heads": "An axis for the heads",
        "before-the-softmax-not-after-it": "Before the softmax, not after it",
        "both-at-once": "Both at once",
        "is-true-true": "Is True True?",
        "the-causal-mask": "The causal mask",
        "the-padding-mask": "The padding mask",
        "what-goes-wrong": "What goes wrong",
    },
    "06_einsum_sequence_first": {
        "back-to-batch-first-by-reshape": "Back to batch first by reshape",
        "batch-and-sequence-exchanged": "Batch and sequence exchanged",
    },
    "08_tensorflow_style": {
        "a-key-mask-from-raw-embeddings": "A key mask from raw embeddings",
        "causality-relu-and-the-rest-of-the-block": (
            "Causality, ReLU and the rest of the block"
        ),
        "the-way-there-the-way-back": "The way there, the way back",
    },
    "deeper/01_right_shape_wrong_numbers": {
        "two-exchanges": "Two exchanges",
        "weights-that-are-called-scores": "Weights that are called scores",
    },
    "deeper/02_heads_put_to_the_test": {
        "only-head-0": "Only head 0",
        "the-heads-joined-in-reverse": "The heads joined in reverse",
    },
    "deeper/03_what_a_wrong_cut_costs": {
        "two-more-cuts": "Two more cuts",
    },
    "deeper/05_faults_that_no_shape_shows": {
        "a-bias-left-out": "A bias left out",
    },
    "deeper/05_what_dropout_drops": {
        "five-slips-and-what-each-leaves-behind": (
            "Five slips, and what each leaves behind"
        ),
        "which-number-does-dropout-drop": "Which number does dropout drop?",
    },
    "deeper/04_every_form_of_a_mask": {
        "the-conversions": "The conversions",
    },
    "deeper/04_faults_and_checks": {
        "the-right-mask-used-wrongly": "The right mask, used wrongly",
    },
    "deeper/04_fill_values_and_half_precision": {
        "eight-fills": "Eight fills",
    },
    "deeper/04_masks_of_every_rank": {
        "what-the-library-refuses": "What the library refuses",
    },
    "deeper/04_which_corner": {
        "top-left-or-bottom-right": "Top-left or bottom-right",
    },
    "deeper/08_what_the_post_says": {
        "in-its-code": "In its code",
    },
}


def section_title(section: str) -> str:
    """'01_attention#what-goes-wrong' → "chapter 1, 'What goes wrong'"."""
    page, anchor = section.split("#")
    name = page.removeprefix("deeper/")
    place = "chapter" if name == page else "a deeper page of chapter"
    return f"{place} {int(name[:2])}, '{TITLES[page][anchor]}'"


def link(section: str) -> str:
    """The address of a section of the published book; "" where it is not known."""
    page, anchor = section.split("#")
    _, _, path = repository().partition("github.com/")
    owner, _, name = path.partition("/")
    known = {"owner": owner.lower(), "name": name, "page": page, "anchor": anchor}
    return PAGES.format(**known) if path else ""


def repository() -> str:
    """The address that the installed package names as its own; "" where it is none."""
    try:
        urls = metadata("mha_lib").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    found = dict(url.split(", ", 1) for url in urls)
    return found.get("Repository", "")
