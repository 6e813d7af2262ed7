"""Hugging Face transformers: seven architectures with our attention plugged in.

Each model is tiny and made in memory. It runs twice with the same weights: with the
library's own "eager" attention, and with ours, registered under a name of its own.

The interface: https://huggingface.co/docs/transformers/attention_interface
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: nothing here may be downloaded

import pytest
import torch
import transformers  # its parts come when they are asked for
from torch import Tensor, nn

from evidence.helpers import B, S, T
from evidence.oracles import COUNTS
from mha_lib import attention, causal_mask, combine_masks
from mha_lib.masks import mask_to_bhts
from tests.oracles.common import fixed_noise, up_to

E, LAYERS, WINDOW = 24, 2, 3  # rotary embeddings need an even head size
SIZES = {
    "hidden_size": E,
    "intermediate_size": 17,
    "num_attention_heads": 3,
    "num_hidden_layers": LAYERS,
    "vocab_size": 13,
}
GROUPED = SIZES | {"num_attention_heads": 6, "num_key_value_heads": 2}
CONFIGS = {
    "gpt2": {
        "n_embd": E,
        "n_head": 3,
        "n_layer": LAYERS,
        "scale_attn_by_inverse_layer_idx": True,  # not 1/√D in the second layer
    },
    "llama": GROUPED | {"attention_bias": True},
    "qwen3": GROUPED
    | {
        "head_dim": 10,  # not E/H
        "layer_types": ["full_attention", "sliding_attention"],
        "sliding_window": WINDOW,
        "use_sliding_window": True,
    },
    "bert": SIZES,
    "mistral": GROUPED | {"sliding_window": WINDOW},
    "gpt_neox": SIZES,
    "bart": {
        "d_model": E,
        "decoder_attention_heads": 2,
        "decoder_ffn_dim": 19,
        "decoder_layers": LAYERS,
        "encoder_attention_heads": 3,
        "encoder_ffn_dim": 17,
        "encoder_layers": LAYERS,
        "vocab_size": 13,
    },
}
# One self-attention a layer; in BART also the encoder's, and one to the encoder.
CALLS = dict.fromkeys(CONFIGS, LAYERS) | {"bart": 3 * LAYERS}

PADDINGS = ("none", "right", "left")


# --- our attention behind their interface -------------------------------------


def our_attention(
    module,
    query,
    key,
    value,
    attention_mask,
    scaling=None,
    dropout=0.0,
    *,
    need_weights=True,
    **others,
):
    """(B, H, T, D), twice (B, G, S, D) → context (B, T, H, D), weights (B, H, T, S)."""
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    context, weights = attention(
        query,
        key,
        value,
        attention_mask,
        scale=scaling,
        dropout_p=dropout,
        need_weights=need_weights,
    )
    return context.transpose(1, 2), weights


def our_mask(
    batch_size,
    q_length,
    kv_length,
    mask_function,
    attention_mask=None,
    local_size=None,
    **others,
):
    """The mask that a model asks for, made of ours: boolean, True = may attend."""
    masks = []
    if mask_function is not transformers.masking_utils.bidirectional_mask_function:
        masks.append(causal_mask(q_length, kv_length))
    if local_size is not None:  # the last `local_size` keys only, the own included
        masks.append(~up_to(-local_size, q_length, kv_length))
    if attention_mask is not None:
        masks.append(attention_mask[:, None])  # (B, 1, S)
    mask = combine_masks(*masks)
    if mask is None:
        return None
    return mask_to_bhts(mask, (batch_size, 1, q_length, kv_length))


OURS = {"mha_lib": True, "mha_lib without weights": False}


@pytest.fixture
def calls():
    """Registers ours under two names; lists the modules that called it."""
    callers = []

    def register(name, need_weights):
        def counted(module, *arguments, **options):
            callers.append(module)
            options["need_weights"] = need_weights
            return our_attention(module, *arguments, **options)

        transformers.AttentionInterface.register(name, counted)
        transformers.masking_utils.AttentionMaskInterface.register(name, our_mask)

    for name, need_weights in OURS.items():
        register(name, need_weights)
    return callers


# --- tiny models --------------------------------------------------------------


def make_model(name: str) -> nn.Module:
    """Random biases and larger weights: as initialised, attention is nearly even."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(name, **CONFIGS[name])
    model = transformers.AutoModel.from_config(
        config, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def real_positions(padding: str, length: int) -> Tensor:
    """(B, length), True where a sequence has a token."""
    if padding == "none":
        return torch.ones(B, length, dtype=torch.bool)
    real = torch.arange(length) < torch.tensor([length, 2, 4])[:, None]
    return real if padding == "right" else real.flip(1)


def make_inputs(name: str, padding: str) -> dict[str, Tensor]:
    """Embeddings that need gradients, and the masks that go with them."""
    lengths = {"": S} if name != "bart" else {"": S, "decoder_": T}
    inputs = {}
    for seed, (prefix, length) in enumerate(lengths.items()):
        generator = torch.Generator().manual_seed(seed)
        embeddings = torch.randn(B, length, E, generator=generator)
        inputs[f"{prefix}inputs_embeds"] = embeddings.requires_grad_()
        if padding != "none":
            inputs[f"{prefix}attention_mask"] = real_positions(padding, length).long()
    return inputs


def run(model, inputs, padding: str, implementation: str) -> dict[str, Tensor]:
    """Hidden states, weights and gradients, zero where the query is padding.

    No one reads what becomes of padding, and it is not the same everywhere.
    """
    model.set_attn_implementation(implementation)
    outputs = model(
        **inputs,
        output_attentions=OURS.get(implementation, True),
        output_hidden_states=True,
        use_cache=False,
    )
    results = {}
    for name, tensors in outputs.items():
        if name == "pooler_output":  # of BERT: reads the first position, padding or not
            continue
        for i, tensor in enumerate([tensors] if torch.is_tensor(tensors) else tensors):
            real = real_positions(padding, tensor.shape[-2])[..., None]
            real = real if tensor.dim() == 3 else real[:, None]  # (B, [1,] T, 1)
            results[f"{name}[{i}]"] = tensor.masked_fill(~real, 0.0)
    last = results["last_hidden_state[0]"]
    embeddings = [x for x in inputs.values() if x.requires_grad]
    slopes = torch.autograd.grad((last * fixed_noise(last.shape)).sum(), embeddings)
    return results | {f"gradient {i}": slope for i, slope in enumerate(slopes)}


# --- the tests ----------------------------------------------------------------

# Five digits of float32, over two layers: at most 4e-6 was seen, beside hidden states
# and gradients of order 1.
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.mark.parametrize("ours", OURS)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("name", CONFIGS)
def test_states_weights_and_gradients_are_those_of_eager(name, padding, ours, calls):
    model, inputs = make_model(name), make_inputs(name, padding)
    expected = run(model, inputs, padding, "eager")
    assert not calls
    results = run(model, inputs, padding, ours)
    assert len(calls) == len(set(calls)) == CALLS[name]
    maps = {key for key in expected if "attentions" in key}
    assert len(maps) == CALLS[name]
    if not OURS[ours]:
        expected = {key: expected[key] for key in expected if key not in maps}
    torch.testing.assert_close(results, expected, **CLOSE)


def test_as_many_cases_as_counted():
    cases = len(CONFIGS) * len(PADDINGS) * len(OURS)
    counted = {"cases": cases, "architectures": len(CONFIGS)}
    assert counted == COUNTS["huggingface"]


# --- where we disagree: their value, then ours --------------------------------


def test_a_fully_masked_row_is_even_in_eager(calls):
    # Padding on the left: the first queries of sequence 1 see no key, being causal.
    model, inputs = make_model("gpt2"), make_inputs("gpt2", "left")
    empty = ~real_positions("left", S)
    weights = {}
    for implementation in ("eager", "mha_lib"):
        model.set_attn_implementation(implementation)
        maps = model(**inputs, output_attentions=True).attentions
        weights[implementation] = maps[0].transpose(1, 2)[empty]  # (rows, H, S)
    even = torch.full_like(weights["eager"], 1 / S)
    torch.testing.assert_close(weights["eager"], even)  # over the future and padding
    assert not weights["mha_lib"].any()
