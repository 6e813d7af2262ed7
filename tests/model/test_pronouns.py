"""The reader of pronouns: what the first page says, over all that is new to it."""

import pytest
import torch

from mha_lib.model.pronouns import (
    BEINGS,
    NEVER,
    PLACES,
    encode,
    load_pronoun_reader,
    sentences,
    train_reader,
)
from tools.book import ROOT

ENDING = 11  # its place in every sentence


@pytest.fixture(scope="module")
def new():
    """Words, nouns and what the kept reader makes of them, of sentences new to it."""
    words, nouns = zip(*sentences(learned=False))
    with torch.no_grad():
        votes, weights = load_pronoun_reader()(encode(words))
    return words, nouns, votes, weights


def place(words, kind) -> torch.Tensor:
    """Where each sentence has its word of a kind."""
    return torch.tensor([next(i for i, w in enumerate(s) if w in kind) for s in words])


def test_no_pair_was_learned_that_is_called_new():
    learned = {(noun, words[-1]) for words, noun in sentences()}
    new = {(noun, words[-1]) for words, noun in sentences(learned=False)}
    assert new == NEVER and not learned & new
    assert {("animal", "tired"), ("street", "wide")} <= new
    assert {noun for noun, _ in learned} == {noun for noun, _ in new}
    assert len(sentences()) == 6000 and len(sentences(learned=False)) == 1200


def test_every_new_sentence_is_answered_right(new):
    words, nouns, votes, _ = new
    answers = encode([nouns])[0]
    assert votes.argmax(dim=-1).equal(answers)
    sure = votes.softmax(dim=-1).gather(1, answers[:, None])
    assert sure.min() > 0.95


def test_the_first_page_says_the_shares_of_its_picture():
    sentence = "the animal did not cross the street because it was too tired"
    _, maps = load_pronoun_reader()(encode([sentence.split()]))
    (places, beings), text = maps[0], (ROOT / "book" / "intro.md").read_text("utf-8")
    assert f"head 1 gives {beings[1]:.2f} to *animal*" in text
    tired = f"*tired* itself takes {places[ENDING]:.2f} and leaves *street* little"
    assert tired in text and places[sentence.split().index("street")] < 0.15


def test_both_heads_swing_in_every_new_sentence(new):
    words, nouns, _, weights = new
    each = torch.arange(len(words))
    being = torch.tensor([noun in BEINGS for noun in nouns])
    assert being.sum() == 600 > 50
    for head, kind, meant in ((0, PLACES, ~being), (1, BEINGS, being)):
        noun = weights[each, head, place(words, kind)]
        ending = weights[:, head, ENDING]
        assert noun[meant].min() > 0.9 > 0.2 > ending[meant].max()
        assert ending[~meant].min() > 0.8 > 0.2 > noun[~meant].max()


def test_order_does_not_matter_to_it():
    words, _ = sentences()[0]
    votes, _ = load_pronoun_reader()(
        encode([words, words[:1] + words[6:7] + words[2:6] + words[1:2] + words[7:]])
    )
    torch.testing.assert_close(votes[0], votes[1])


@pytest.mark.long
def test_training_again_gives_such_a_reader():
    reader = train_reader()
    words, nouns = zip(*sentences(learned=False))
    with torch.no_grad():
        votes, _ = reader(encode(words))
    assert votes.argmax(dim=-1).equal(encode([nouns])[0])
    kept = dict(load_pronoun_reader().named_parameters())
    for name, parameter in reader.named_parameters():
        assert parameter.shape == kept[name].shape


def test_an_unknown_word_is_named():
    with pytest.raises(ValueError, match="elephant"):
        encode([["the", "elephant"]])
