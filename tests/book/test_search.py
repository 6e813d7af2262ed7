"""A search leads to the section that answers it, from a file and without a network."""

import gzip

import pytest

from tools import book

SECTIONS = book.HTML / "_static" / "sections.js"
MOST_BYTES = 150_000  # as a server sends it; the page of the search alone loads it
WANTED = {  # what is typed, and the first place that the results lead to
    # error messages
    "view size is not compatible with input tensor's size and stride": (
        "03_all_heads_at_once#the-way-back"
    ),
    "embed_dim must be divisible by num_heads": (
        "deeper/02_heads_put_to_the_test#sizes-that-do-not-divide"
    ),
    # questions
    "why divide by square root of d": "01_attention#why-divide-by-d",
    "multi head why": "intro#why-build-it-six-times",
    "difference between view and reshape": "03_all_heads_at_once#the-way-back",
    "half of a causal map": "10_what_it_costs#half-of-a-causal-map",
    "how to hand in": "assignments/index#how-to-hand-in",
    "grade a class": "instructors_guide#first-class-in-an-hour",
    # ideas
    "causal mask": "04_masks#the-causal-mask",
    "padding mask": "04_masks#the-padding-mask",
    "contiguous": "03_all_heads_at_once#the-way-back",
    "half precision": "deeper/04_fill_values_and_half_precision#eight-fills",
    "dropout": "deeper/11_the_wards#dropout",
    "memory": "deeper/09_three_layouts_one_count#memory",
    "flops cost": "10_what_it_costs",
    "cross attention": "09_they_all_agree#self-attention-hides-cross-attention",
    "tolerance allclose": (
        "deeper/09_rounding_and_tolerance#an-absolute-tolerance-and-small-numbers"
    ),
    "convert weights": "09_they_all_agree#one-set-of-weights",
    "load checkpoint from gpt2": "deeper/09_weights_from_elsewhere#formats",
    "einsum": "06_einsum_sequence_first#einsum-by-hand",
    "einsm": "06_einsum_sequence_first",  # a slip of the finger
    "glossary": "glossary",
    "notation": "notation",
    "labml": "deeper/06_labml_line_by_line",
    # names
    "FusedMHA": "05_one_matrix_for_qkv#the-layer-fusedmha",
    "EinsumMHA": "06_einsum_sequence_first#the-layer-step-by-step",
    "masked_softmax": (
        "deeper/04_a_query_with_nothing_to_see#the-function-masked-softmax"
    ),
    "split_heads": "03_all_heads_at_once#two-steps-view-then-transpose",
    "scaled_dot_product_attention": "01_attention#the-same-as-pytorch-s",
    "key_padding_mask": "07_pytorchs_own#the-mask-that-means-the-opposite",
    "need_weights": "07_pytorchs_own#the-function-underneath",
    "average_attn_weights": "07_pytorchs_own#every-switch",
    "attn_mask float or bool": "deeper/04_every_form_of_a_mask#every-form-measured",
    "is_causal": "deeper/07_the_function_underneath#a-mask-and-is-causal",
    "mask_zero": "deeper/08_the_layer_of_keras#mask-zero-a-note-on-the-tensor",
    "keras MultiHeadAttention": (
        "08_tensorflow_style#the-same-numbers-as-keras-own-layer"
    ),
    # mistakes
    "softmax over the wrong axis": "01_attention#the-softmax-over-the-wrong-axis",
    "batch first by reshape": "06_einsum_sequence_first#back-to-batch-first-by-reshape",
    "number of heads ignored": "02_heads_in_a_loop#the-number-of-heads-ignored",
    "mask means the opposite": "07_pytorchs_own#the-mask-that-means-the-opposite",
    # what is typed before the book's own words are known
    "attention weights are nan": ("deeper/04_a_query_with_nothing_to_see"),
    "model sees the future": ("deeper/04_a_guesser_that_must_not_peek"),
    "The shape of the 2D attn_mask is torch.Size": (
        "deeper/07_masks_for_the_layer#a-mask-for-each-head"
    ),
    "only one attention map instead of one per head": (
        "07_pytorchs_own#the-map-that-comes-back-is-a-mean"
    ),
    "induction head": ("13_what_the_heads_learned"),
    "rotary": "deeper/06_order_in_the_scores",
    "query and key of different lengths": (
        "deeper/04_which_corner#top-left-or-bottom-right"
    ),
    "flash attention": ("10_what_it_costs#one-row-in-pieces"),
    "query key value explained": ("01_attention#one-head-ask-offer-hand-over"),
    "positional encoding": ("12_a_model_of_our_own_layer#a-word-and-its-place"),
    "residual connection": ("12_a_model_of_our_own_layer#attention-added"),
    "different output in eval mode": ("09_they_all_agree#training-mode"),
    "-1e9 or -inf": ("deeper/04_fill_values_and_half_precision#eight-fills"),
    "xavier initialisation": ("deeper/05_the_first_random_numbers"),
    "alibi": ("deeper/06_order_in_the_scores#a-slope-for-each-head"),
    "reshape instead of transpose": (
        "03_all_heads_at_once#heads-cut-without-a-transpose"
    ),
    "why is my loss nan": ("deeper/04_a_query_with_nothing_to_see"),
    "skip connection": ("12_a_model_of_our_own_layer#attention-added"),
    "flashattention": ("10_what_it_costs#one-row-in-pieces"),
    "how many heads should I use": (
        "deeper/02_heads_put_to_the_test#what-do-h-heads-cost"
    ),
    "ablation": ("glossary#term-ablation"),
}


@pytest.fixture(scope="module")
def search(opened):
    """The page of the search, over file://, ready to be asked."""
    with opened("search", scheme="file") as visit:
        yield visit.page


def first(page, query: str) -> str:
    found = page.evaluate("(query) => Search._performSearch(query).pop()", query)
    assert found, f"nothing is found for {query!r}"
    return f"{found[0]}{found[2]}".removeprefix("book/")


@pytest.mark.parametrize("query", WANTED)
def test_the_first_hit_is_the_section_that_answers(search, query):
    assert first(search, query) == WANTED[query]


def test_there_are_at_least_fifty_nine_queries():
    assert len(WANTED) >= 59


def test_a_word_of_the_glossary_leads_to_its_place_there(search):
    """Where no section has that name; else the section comes first."""
    assert first(search, "ablation") == "glossary#term-ablation"
    assert first(search, "causal mask") == "04_masks#the-causal-mask"


def test_the_results_are_listed_without_a_fetch(visit):
    asked = visit("search", scheme="file")
    asked.page.goto(f"{asked.page.url}?q=causal+mask")
    links = asked.page.locator("#search-results li a")
    links.first.wait_for()
    assert links.first.get_attribute("href") == "book/04_masks.html#the-causal-mask"
    assert "Masks" in asked.page.locator("#search-results li").first.inner_text()
    assert not asked.complaints


def test_what_is_nowhere_says_so(search):
    assert search.evaluate("Search._performSearch('zeppelin quetzal').length") == 0
    assert search.evaluate("Search._performSearch('').length") == 0


def test_a_heading_stays_text(search):
    """Sphinx writes what it gets as HTML."""
    titles = search.evaluate(
        """() => {
          const [page, anchor, heading] = bookSections.sections[0];
          bookSections.sections[0][2] = '<img src=x>causal';
          const found = Search._performSearch(heading);
          bookSections.sections[0][2] = heading;
          return found.map((entry) => entry[1]);
        }"""
    )
    assert titles and not any("<img" in title for title in titles)


def test_the_index_is_small_and_loaded_by_the_search_alone():
    assert len(gzip.compress(SECTIONS.read_bytes())) < MOST_BYTES
    with_it = [p for p in book.HTML.rglob("*.html") if SECTIONS.name in p.read_text()]
    assert [path.name for path in with_it] == ["search.html"]
