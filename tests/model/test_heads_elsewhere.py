"""Maps out of Hugging Face's models: three families, tiny and random, offline."""

import pytest
import torch
import transformers  # its parts come when they are asked for

from mha_lib.model.heads import maps_of

B, T, H, L, WORDS = 2, 7, 3, 4, 23
EDGES = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}


def gpt2():
    sizes = {"n_embd": 15, "n_head": H, "n_layer": L, "n_positions": 11}
    return transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=WORDS, **sizes, **EDGES)
    )


def bert():
    sizes = {"hidden_size": 15, "num_attention_heads": H, "num_hidden_layers": L}
    return transformers.BertModel(
        transformers.BertConfig(vocab_size=WORDS, **sizes, intermediate_size=17)
    )


def llama():  # three query heads share one key head
    sizes = {"hidden_size": 18, "num_attention_heads": H, "num_hidden_layers": L}
    sizes |= {"num_key_value_heads": 1, "intermediate_size": 17}
    return transformers.LlamaModel(transformers.LlamaConfig(vocab_size=WORDS, **sizes))


def t5():
    sizes = {"d_model": 15, "num_heads": H, "num_layers": L, "d_kv": 5, "d_ff": 17}
    return transformers.T5ForConditionalGeneration(
        transformers.T5Config(vocab_size=WORDS, **sizes, decoder_start_token_id=0)
    )


def tokens(length=T):
    generator = torch.Generator().manual_seed(1)
    return torch.randint(1, WORDS, (B, length), generator=generator)


def made(kind):
    torch.manual_seed(0)
    return kind()


@pytest.mark.parametrize("kind", [gpt2, bert, llama])
@pytest.mark.parametrize("training", [True, False])
def test_maps_of_three_families(kind, training):
    model = made(kind).train(training)
    kernel = model.config._attn_implementation
    maps = maps_of(model, tokens())
    assert maps.shape == (L, B, H, T, T) and not maps.requires_grad
    torch.testing.assert_close(maps.sum(dim=-1), torch.ones(L, B, H, T))
    assert torch.equal(maps, maps_of(model, tokens()))  # no dropout
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    assert (maps[..., hidden].max() == 0) == (kind is not bert)
    assert kernel != "eager" and model.config._attn_implementation == kernel
    assert model.training == training


def test_the_maps_are_those_that_act():
    model = made(gpt2).eval()
    maps = maps_of(model, tokens())
    block = model.transformer.h[0]
    with torch.no_grad():
        x = model.transformer.wte(tokens()) + model.transformer.wpe.weight[:T]
        projected = block.attn.c_attn(block.ln_1(x)).split(15, dim=-1)
        q, k, _ = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in projected)
        scores = q @ k.mT / 5**0.5
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    expected = scores.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    torch.testing.assert_close(maps[0], expected)


def test_what_a_tokenizer_returns_is_taken():
    mask = torch.ones(B, T, dtype=torch.long)
    mask[1, 5:] = 0
    maps = maps_of(made(bert), {"input_ids": tokens(), "attention_mask": mask})
    assert maps[:, 1, :, :, 5:].max() == 0 < maps[:, 0, :, :, 5:].min()


def test_an_encoder_with_a_decoder_has_three_kinds():
    model, inputs = made(t5), {"input_ids": tokens(), "decoder_input_ids": tokens(5)}
    lengths = {"encoder": (T, T), "decoder": (5, 5), "cross": (5, T)}
    for part, ends in lengths.items():
        maps = maps_of(model, inputs, f"{part}_attentions")
        assert maps.shape == (L, B, H, *ends)
    with pytest.raises(ValueError, match="T5ForConditionalGeneration returns, .*cross"):
        maps_of(model, inputs)


def test_the_kernel_comes_back_after_an_error():
    model = made(gpt2)
    kernel = model.config._attn_implementation
    with pytest.raises(IndexError):
        maps_of(model, tokens(12))  # longer than its places
    assert model.training and model.config._attn_implementation == kernel != "eager"


def test_what_has_no_such_maps_is_refused():
    with pytest.raises(TypeError, match="PreTrainedModel .* got Linear"):
        maps_of(torch.nn.Linear(2, 2), tokens())
    sizes = {"image_size": 16, "patch_size": 2, "embed_dim": 6, "window_size": 2}
    swin = transformers.SwinModel(
        transformers.SwinConfig(**sizes, depths=[1, 1], num_heads=[2, 3])
    )
    with pytest.raises(ValueError, match="one shape; got"):
        maps_of(swin, {"pixel_values": torch.randn(1, 3, 16, 16)})
