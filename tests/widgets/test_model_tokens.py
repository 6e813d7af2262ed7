"""The page cuts a text into the tokens that the library `tokenizers` makes of it."""

import random

import pytest

from mha_lib.model import UNKNOWN, read_text
from mha_lib.model.kept import load_kept
from mha_lib.model.quantised import read_packed

SPACES = "\t\n\v\f\r \x1c\x1f\x85\xa0\u1680\u180e\u2000\u200a\u200b\u2028\u2029\u202f"
SPACES += "\u205f\u3000\ufeff"
BY_HAND = [
    "",
    " ",
    "a",
    "  indented\n    more   ",
    "one  two   three\n\n\nfour \n five",
    "x=1;y = 22 333",
    '"quotes" and `code`_ (brackets) [1, 2]',
    "naïve café ß straße — dash … ‘single’ “double”",
    "日本語 and emoji 👩‍👩‍👧 🇩🇪 e\u0301",
    f"a{UNKNOWN}b {UNKNOWN}{UNKNOWN} c  {UNKNOWN}  d",
    "tab\tand\r\nreturn",
    "---- ==== ---------------------------------",
    "\U0001d400\U0010ffff",
    *(f"a{x}b {x} c{x}{x}d{x}" for x in SPACES),
]


@pytest.fixture(scope="module")
def tokenizer():
    return load_kept()[1]


@pytest.fixture(scope="module")
def encode(scripts):
    """What JavaScript makes of texts."""
    scripts.evaluate(
        """async text => {
            const { unpackModel } = await import("/packed_model.js");
            const { makeTokenizer } = await import("/model_tokens.js");
            window.cutter = makeTokenizer(unpackModel(text));
        }""",
        read_packed()[1],
    )
    return lambda texts: scripts.evaluate("x => x.map(window.cutter.encode)", texts)


def assert_equal(encode, tokenizer, texts):
    for text, found in zip(texts, encode(texts), strict=True):
        assert found == tokenizer.encode(text), repr(text)[:200]


def test_texts_by_hand(encode, tokenizer):
    assert_equal(encode, tokenizer, BY_HAND)


def test_the_whole_text(encode, tokenizer):
    assert_equal(encode, tokenizer, [read_text()])


def test_every_token_and_every_pair_of_tokens_by_itself(encode, tokenizer):
    draw = random.Random(0)
    pairs = ["".join(draw.choices(tokenizer.tokens, k=2)) for _ in range(2000)]
    assert_equal(encode, tokenizer, [*tokenizer.tokens, *pairs])


ALPHABETS = {
    "what the text has": sorted({*read_text()}),
    "spaces and little else": [*SPACES, "a", "1", "."],
    "the plane of most scripts": [
        chr(x) for x in range(0x10000) if not 0xD800 <= x < 0xE000
    ],
    "beyond": [chr(x) for x in range(0x1F300, 0x1F900)] + [" ", "\n", UNKNOWN],
}


@pytest.mark.parametrize("alphabet", ALPHABETS)
def test_texts_by_chance(encode, tokenizer, alphabet):
    draw = random.Random(alphabet)
    letters = ALPHABETS[alphabet]
    texts = ["".join(draw.choices(letters, k=draw.randint(1, 60))) for _ in range(500)]
    assert_equal(encode, tokenizer, texts)
