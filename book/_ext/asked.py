"""What a student types who does not know yet what the book calls it.

A symptom, or a name from elsewhere, counts as much as the heading of its
section. Where a question holds all words of a phrase, it counts for more.
"""

PHRASES = {  # page and anchor, as in an address: what is typed
    "book/01_attention#one-head-ask-offer-hand-over": (
        "query key value explained",
        "what are q k v",
    ),
    "book/deeper/02_heads_put_to_the_test#what-do-h-heads-cost": (
        "how many heads",
        "number of heads",
    ),
    "book/02_heads_in_a_loop#what-the-output-projection-does": (
        "out_proj do",
        "output projection for",
    ),
    "book/03_all_heads_at_once#heads-cut-without-a-transpose": (
        "reshape instead of transpose",
        "view instead of transpose",
        "tokens are mixed",
    ),
    "book/deeper/06_order_in_the_scores#": ("rotary", "rope"),
    "book/deeper/04_a_guesser_that_must_not_peek#": (
        "model sees the future",
        "looks ahead",
        "cheats",
    ),
    "book/deeper/04_a_query_with_nothing_to_see#": (
        "weights are nan",
        "output is nan",
        "loss is nan",
    ),
    "book/deeper/04_fill_values_and_half_precision#eight-fills": (
        "-inf or -1e9",
        "half precision",
    ),
    "book/deeper/04_which_corner#top-left-or-bottom-right": (
        "different lengths of query and key",
    ),
    "book/07_pytorchs_own#the-map-that-comes-back-is-a-mean": (
        "only one attention map",
        "one map per head",
    ),
    "book/09_they_all_agree#training-mode": (
        "different output each time",
        "train and eval mode",
    ),
    "book/10_what_it_costs#one-row-in-pieces": (
        "flash attention",
        "online softmax",
    ),
    "book/12_a_model_of_our_own_layer#a-leak-in-the-mask": (
        "loss too good to be true",
        "loss goes to zero",
    ),
    "book/12_a_model_of_our_own_layer#a-word-and-its-place": (
        "positional encoding",
        "position embedding",
    ),
    "book/12_a_model_of_our_own_layer#attention-added": (
        "residual connection",
        "skip connection",
    ),
    "book/13_what_the_heads_learned#": ("induction head",),
    "book/deeper/02_heads_put_to_the_test#sizes-that-do-not-divide": (
        "embed_dim must be divisible by num_heads",
    ),
    "book/deeper/05_the_first_random_numbers#": (
        "xavier initialisation",
        "initialization",
    ),
    "book/deeper/06_order_in_the_scores#a-slope-for-each-head": ("alibi",),
    "book/deeper/07_masks_for_the_layer#a-mask-for-each-head": (
        "the shape of the 2D attn_mask is",
        "the shape of the 3D attn_mask is",
    ),
}
