"""One seed, one function, whatever attention the model is made of."""

import pytest
import torch

from mha_lib.model import (
    ATTENTIONS,
    LanguageModel,
    Sizes,
    generate,
    load_kept,
    next_token_loss,
    next_token_probabilities,
)

SIZES = Sizes(vocabulary=13, context=9, embed_dim=12, num_heads=3, num_layers=2)


def made(style: str, sizes: Sizes = SIZES) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(sizes, style).double()


def tokens(B: int = 5, T: int = 7) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(SIZES.vocabulary, (B, T), generator=generator)


@pytest.mark.parametrize("style", ATTENTIONS)
def test_every_style_is_the_same_model(style):
    model, reference = made(style), made("fused")
    logits, maps = model.maps(tokens())
    expected, expected_maps = reference.maps(tokens())
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(maps, expected_maps)
    torch.testing.assert_close(model(tokens()), expected)
    assert maps.shape == (2, 5, 3, 7, 7)  # (L, B, H, T, T)

    for each in (model, reference):
        next_token_loss(each(tokens()[:, :-1]), tokens()).backward()
    pairs = zip(model.token_embedding.parameters(), reference.parameters())
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.grad, theirs.grad)


@pytest.mark.parametrize("style", ATTENTIONS)
def test_no_place_sees_a_later_token(style):
    model, before = made(style), tokens()
    after = before.clone()
    after[:, 4] = (after[:, 4] + 1) % SIZES.vocabulary
    moved = (model(before) - model(after)).abs().amax(dim=(0, 2))
    assert (moved[:4] == 0).all() and (moved[4:] > 0).all()


def test_the_loss_begins_at_guessing():
    loss = next_token_loss(made("fused")(tokens()[:, :-1]), tokens())
    assert abs(loss.item() - torch.tensor(13.0).log().item()) < 0.1


@pytest.mark.parametrize("style", ATTENTIONS)
def test_the_last_logits_are_those_of_the_last_place(style):
    model = made(style)
    torch.testing.assert_close(model(tokens(), last=True), model(tokens())[:, -1])


def test_writing_asks_for_the_last_place_alone():
    asked = []
    model = made("fused")
    model.output.register_forward_hook(lambda _, given, out: asked.append(out.shape))
    generate(model, tokens(), new=4)
    assert asked == 4 * [(5, SIZES.vocabulary)]


def test_writing_takes_the_last_place_alone_through_the_last_feed_forward():
    asked = []
    model = made("fused")
    for block in model.blocks:
        block.feed_forward.register_forward_hook(
            lambda _, given, out: asked.append(out.shape)
        )
    first = tokens()
    generate(model, first, new=1)
    assert [shape[1] for shape in asked] == [first.shape[1], 1]


@pytest.mark.parametrize("temperature", [0, 1])
def test_the_text_is_that_of_all_logits(temperature):
    model, tokenizer = load_kept()
    text = torch.tensor([tokenizer.encode("The name of the ")])
    drawn, again = (torch.Generator().manual_seed(3) for _ in "ab")
    options = {"temperature": temperature, "top_k": 20}
    written = generate(model, text, 60, generator=drawn, **options)
    with torch.no_grad():
        for _ in range(60):
            logits = model(text[:, -model.sizes.context :])[:, -1]
            chances = next_token_probabilities(logits, **options)
            token = torch.multinomial(chances, 1, generator=again)
            text = torch.cat([text, token], dim=1)
    assert torch.equal(written, text)


def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match="style must be one of per_head"):
        LanguageModel(SIZES, "fast")
    with pytest.raises(ValueError, match=r"T at most 9, the context; got \(2, 10\)"):
        made("fused")(torch.zeros(2, 10, dtype=torch.long))
