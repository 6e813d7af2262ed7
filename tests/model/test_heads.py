"""Scores of hand-made maps, circuits against the layer itself, and removal."""

import math

import pytest
import torch

from mha_lib import convert
from mha_lib.model import ATTENTIONS, LanguageModel, Sizes, next_token_loss
from mha_lib.model.heads import (
    composition,
    confidence,
    contexts,
    copying,
    distance,
    entropy,
    induction_score,
    ov_matrices,
    previous_token_score,
    prices,
    pruning,
    qk_matrices,
    read_from,
    removed,
    streams,
)
from tests.model.small import DEVICES

SIZES = Sizes(vocabulary=13, context=9, embed_dim=12, num_heads=3, num_layers=2)
LONELY = Sizes(13, 9, embed_dim=12, num_heads=3, num_layers=2, feed_forward=0)
B, T, H, D = 5, 7, 3, 4


def made(style: str = "fused", sizes: Sizes = SIZES) -> LanguageModel:
    """In float64, with biases and embeddings that matter."""
    torch.manual_seed(0)
    model = LanguageModel(sizes).double()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, x in model.named_parameters():
            if "bias" in name or "embedding" in name:
                x += torch.randn(x.shape, generator=generator, dtype=x.dtype)
    for block in model.blocks:
        block.attention = convert(block.attention, ATTENTIONS[style][0])
    return model


def tokens(device: str = "cpu") -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(13, (B, T), generator=generator).to(device)


def looking(*places: int) -> torch.Tensor:
    """The map (T, T) whose query t gives everything to key places[t]."""
    return torch.eye(len(places))[list(places)]


# --- scores of maps -----------------------------------------------------------------


def test_scores_of_maps_that_are_known():
    before = looking(0, 0, 1, 2, 3, 4, 5)
    first = looking(0, 0, 0, 0, 0, 0, 0)
    even = torch.ones(T, T).tril() / torch.arange(1.0, T + 1)[:, None]
    maps = torch.stack([before, first, even]).expand(2, B, H, T, T)  # (L, B, H, T, T)
    lns = sum(math.log(t + 1) for t in range(T)) / T
    shares = sum(1 / (t + 1) for t in range(1, T)) / (T - 1)
    highest = sum(1 / (t + 1) for t in range(T)) / T
    expected = {
        confidence: [1, 1, highest],
        entropy: [0, 0, lns],
        distance: [6 / 7, 3, 1.5],
        previous_token_score: [1, 1 / 6, shares],
    }
    for score, values in expected.items():
        torch.testing.assert_close(score(maps), torch.tensor([values, values]))


def test_induction_looks_behind_every_earlier_one():
    seen = torch.tensor([[4, 8, 4, 9, 4, 8], [1, 2, 3, 5, 6, 7]])  # one never repeats
    #    after a 4 came an 8 at 1, then a 9 at 3; after the 8 a 4 at 2
    maps = torch.stack([looking(0, 0, 1, 0, 1, 2), looking(0, 0, 0, 0, 2, 1)])
    maps = torch.stack([maps, torch.ones(2, 6, 6)])  # the second must not be read
    maps[0, 1, 4] = torch.tensor([0.2, 0.3, 0.1, 0.4, 0, 0])  # both places count
    expected = torch.tensor([1.0, 0.7 / 3])
    torch.testing.assert_close(induction_score(maps, seen), expected)
    many = induction_score(maps.expand(4, -1, -1, -1, -1), seen)
    torch.testing.assert_close(many, expected.expand(4, 2))


def test_induction_does_not_run_over_the_edge():
    seen = torch.tensor([[3, 5, 3, 3]])  # what followed the last 3 is not there yet
    maps = torch.tensor([[0, 0, 0, 0], [9, 0, 0, 0], [9, 0.5, 9, 9], [9, 0.2, 9, 0.1]])
    score = induction_score(maps[None, None], seen)
    torch.testing.assert_close(score, torch.tensor([(0.5 + 0.2 + 0.1) / 2]))


def test_induction_is_the_mean_over_queries_of_all_sequences():
    seen = torch.tensor([[1, 1, 1, 2], [3, 4, 3, 5]])
    maps = torch.zeros(2, 1, 4, 4)
    maps[0, 0, 1, 1], maps[0, 0, 2, 2], maps[1, 0, 2, 1] = 0.9, 0.6, 0.3
    torch.testing.assert_close(induction_score(maps, seen), torch.tensor([0.6]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: entropy(torch.zeros(3, 7, 5)), r"\(\.\.\., B, H, T, S\); got"),
        (lambda: distance(torch.zeros(2, 3, 7, 5)), r"T, T\); got \(2, 3, 7, 5\)"),
        (lambda: previous_token_score(torch.ones(2, 3, 1, 1)), "T of at least 2"),
        (
            lambda: induction_score(torch.zeros(2, 3, 7, 7), torch.zeros(3, 7)),
            r"\(B, T\) = \(2, 7\) .* got \(3, 7\)",
        ),
        (
            lambda: induction_score(torch.zeros(1, 3, 7, 7), torch.arange(7)[None]),
            "repeat somewhere",
        ),
    ],
)
def test_maps_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# --- circuits -----------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("style", ATTENTIONS)
def test_circuits_are_the_layer(style, device):
    model = made(style).to(device)
    layer = model.blocks[1].attention
    with torch.no_grad():
        for name, x in layer.named_parameters():
            if "bias" in name:
                x.zero_()
    stream = streams(model, tokens(device))[1]
    added, weights = read_from(model.blocks[1], stream, stream, stream)
    x = model.blocks[1].attention_norm(stream).detach()[:, None]  # (B, 1, T, E)
    scores = x @ qk_matrices(layer) @ x.mT / math.sqrt(D)
    future = torch.ones(T, T, dtype=torch.bool, device=device).triu(1)
    by_hand = scores.masked_fill(future, -math.inf).softmax(dim=-1)
    torch.testing.assert_close(by_hand, weights)
    by_hand = (weights @ x @ ov_matrices(layer)).sum(dim=1)
    torch.testing.assert_close(by_hand, added)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("style", ATTENTIONS)
def test_contexts_and_streams_are_the_model(style, device):
    model = made(style, LONELY).to(device)
    x, said = streams(model, tokens(device)), contexts(model, tokens(device))
    assert x.shape == (3, B, T, 12) and said.shape == (2, B, H, T, D)
    found = model.output(model.norm(x[-1]))
    torch.testing.assert_close(found, model(tokens(device)))
    plain = made("batched", LONELY).to(device)
    for layer, block in enumerate(plain.blocks):
        joined = said[layer].transpose(1, 2).flatten(-2)  # (B, T, E)
        added = block.attention.out_proj(joined)
        torch.testing.assert_close(x[layer] + added, x[layer + 1])


def test_each_of_the_three_streams_is_read_for_one_thing():
    block = made().blocks[1]
    generator = torch.Generator().manual_seed(3)
    x, y = torch.randn(2, B, T, 12, generator=generator, dtype=torch.float64)
    added, weights = read_from(block, x, x, x)
    for place, changed in enumerate(([y, x, x], [x, y, x], [x, x, y])):
        others, their_weights = read_from(block, *changed)
        assert not torch.allclose(others, added)
        assert torch.equal(their_weights, weights) is (place == 2)


def test_a_head_that_copies_and_one_that_does_the_opposite():
    model = made(sizes=Sizes(13, 9, 12, 3, 1, feed_forward=0, tied=False))
    block = model.blocks[0]
    with torch.no_grad():
        v, out = block.attention.in_proj.weight[-12:], block.attention.out_proj.weight
        unembed = model.norm.weight * model.output.weight  # (W, E)
        x = block.attention_norm(model.token_embedding.weight)
        back = torch.linalg.pinv(unembed.T @ x)  # v · table · out becomes positive
        for head, factor in enumerate([2.0, -3.0, 1.0]):
            rows = slice(head * D, (head + 1) * D)
            out[:, rows] = factor * (v[rows] @ back).T
        shares = copying(model)
        torch.testing.assert_close(shares, torch.tensor([[1.0, -1.0, 1.0]]).double())
        of_tables = x @ ov_matrices(block.attention) @ unembed.T  # (H, W, W)
        values = torch.linalg.eigvals(of_tables)
        directly = values.sum(-1).real / values.abs().sum(-1)
    torch.testing.assert_close(directly[None], shares)


def test_composition_of_strangers_is_one_over_root_e():
    generator = torch.Generator().manual_seed(4)
    a, b = torch.randn(2, 30, 50, 5, generator=generator)
    strangers = composition(a @ a.roll(1, 0).mT, b @ b.roll(1, 0).mT)
    # The mean of 900 pairs; one pair scatters by a tenth of its value.
    assert abs(strangers.mean() * 50**0.5 - 1) < 0.02


def test_composition_is_one_where_all_is_read_and_zero_where_nothing_is():
    first, second = torch.zeros(2, 4, 4), torch.zeros(3, 4, 4)
    first[0, 3, 0], first[1, 2, 1] = 5.0, 2.0  # write feature 0, feature 1
    second[0, 0, 2], second[1, 1, 3] = 7.0, 1.0  # read feature 0, feature 1
    second[2, 0, 0] = second[2, 1, 1] = 1.0  # reads both
    expected = torch.tensor([[1, 0, 0.5**0.5], [0, 1, 0.5**0.5]])
    torch.testing.assert_close(composition(first, second), expected)


# --- removal ------------------------------------------------------------------------


def state(model) -> dict:
    return {name: x.detach().clone() for name, x in model.named_parameters()}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("style", ATTENTIONS)
@pytest.mark.parametrize("with_means", [False, True])
def test_a_removed_head_says_nothing_or_its_mean(style, with_means, device):
    model = made(style, LONELY).to(device)
    said = contexts(model, tokens(device))
    means = said.mean(dim=(1, 3)) if with_means else None
    instead = torch.zeros_like(said[:, 0, :, 0]) if means is None else means
    with removed(model, [(1, 0), (1, 2)], means):
        logits = model(tokens(device))
    said[1, :, [0, 2]] = instead[1, [0, 2]][None, :, None]
    joined = said[1].transpose(1, 2).flatten(-2)
    plain = made("batched", LONELY).to(device)
    added = plain.blocks[1].attention.out_proj(joined)
    by_hand = model.output(model.norm(streams(model, tokens(device))[1] + added))
    torch.testing.assert_close(logits, by_hand)


@pytest.mark.parametrize("style", ATTENTIONS)
def test_afterwards_all_is_as_it_was(style):
    model = made(style)
    next_token_loss(model(tokens()[:, :-1]), tokens()).backward()
    before = state(model)
    slopes = {name: x.grad.clone() for name, x in model.named_parameters()}
    means = contexts(model, tokens()).mean(dim=(1, 3))
    with (
        pytest.raises(KeyError),
        removed(model, [(0, 1)], means),
        removed(model, [(0, 1), (1, 2)]),
    ):
        raise KeyError
    for name, x in model.named_parameters():
        assert torch.equal(x, before[name]) and x.requires_grad
        assert torch.equal(x.grad, slopes[name])


def test_what_cannot_be_removed_is_said_and_nothing_is_touched():
    model = made()
    before = state(model)
    with (
        pytest.raises(ValueError, match=r"below \(2, 3\); got \(1, 3\)"),
        removed(model, [(0, 1), (1, 3)]),
    ):
        pass
    with (
        pytest.raises(ValueError, match=r"\(2, 3, 4\); got \(2, 3\)"),
        removed(model, [(0, 1)], torch.zeros(2, 3)),
    ):
        pass
    assert all(torch.equal(x, before[name]) for name, x in state(model).items())


def test_prices_and_pruning_count_what_is_missing():
    model = made()
    worth = torch.tensor([[3.0, 1.0, 4.0], [1.5, -9.0, 2.0]])

    def loss():  # of a model: what the heads that are gone were worth
        rows = [x.attention.out_proj.weight.unflatten(1, (H, D)) for x in model.blocks]
        gone = torch.stack([(x == 0).all(dim=2).all(dim=0) for x in rows])
        return 10 + (gone * worth).sum()

    torch.testing.assert_close(prices(model, loss), worth)
    order = list(pruning(model, loss))
    assert [head for head, _ in order] == [
        (1, 1), (0, 1), (1, 0), (1, 2), (0, 0), (0, 2)
    ]  # fmt: skip
    assert [x for _, x in order] == [1, 2, 3.5, 5.5, 8.5, 12.5]
