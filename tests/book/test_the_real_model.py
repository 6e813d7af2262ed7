"""Chapter 14's model is the model: Hugging Face's class, with the same numbers.

The functions are those of the page. The library's class keeps the two numbers that one
angle turns half a head apart, so the rows of q and k are put in that order.
"""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read at import: nothing here may be downloaded

import ast
import re

import pytest
import torch
import transformers  # its parts come when they are asked for
from torch.nn import functional as F

from mha_lib import attention, causal_mask
from mha_lib.layouts import merge_heads, split_heads
from mha_lib.model.published import load_published
from tools import book, notebook

PAGE = book.ROOT / "book" / "14_a_real_model.ipynb"
OURS = ("turned", "normed", "look", "think", "layer", "run", "says")
THEIRS = {  # the file's name: the library's
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TEXTS = (
    "When Mary and John went to the store, John gave a drink to",
    "It was 1984. The clocks, all thirteen of them, were striking; nobody heard",
)


@pytest.fixture(scope="module")
def loaded():
    return load_published()


@pytest.fixture
def page(loaded):
    """What the page defines on its way to the model."""
    tensors, settings, _ = loaded
    names = {
        "torch": torch,
        "F": F,
        "attention": attention,
        "causal_mask": causal_mask,
        "merge_heads": merge_heads,
        "split_heads": split_heads,
        "tensors": tensors,
        "settings": settings,
        "parts": list(THEIRS),
    }
    sources = [cell.source for cell in notebook.read(PAGE).cells]
    for name in OURS:
        (source,) = (s for s in sources if re.search(rf"^def {name}\(", s, re.M))
        functions = ast.parse(source)
        functions.body = [x for x in functions.body if isinstance(x, ast.FunctionDef)]
        exec(compile(functions, PAGE.name, "exec"), names)
    return names


def half_apart(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """The rows (0, 1), (2, 3), … of each head in the order 0, 2, …, 1, 3, …"""
    pairs = rows.view(heads, -1, 2, rows.shape[1])
    return pairs.transpose(1, 2).reshape_as(rows)


@pytest.fixture(scope="module")
def theirs(loaded):
    tensors, settings, _ = loaded
    config = transformers.LlamaConfig(
        vocab_size=len(tensors["token_embd.weight"]),
        hidden_size=settings["embed_dim"],
        intermediate_size=len(tensors["blk.0.ffn_up.weight"]),
        num_hidden_layers=settings["layers"],
        num_attention_heads=settings["num_heads"],
        num_key_value_heads=settings["key_heads"],
        rms_norm_eps=settings["epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": settings["base"]},
        tie_word_embeddings=True,
        attn_implementation="eager",  # the one that returns its maps
    )
    with torch.device("meta"):  # no random numbers first
        model = transformers.LlamaForCausalLM(config)
    state = {
        "model.embed_tokens.weight": tensors["token_embd.weight"],
        "model.norm.weight": tensors["output_norm.weight"],
        "lm_head.weight": tensors["token_embd.weight"],
    }
    for n in range(settings["layers"]):
        for part, name in THEIRS.items():
            tensor = tensors[f"blk.{n}.{part}.weight"]
            if part in ("attn_q", "attn_k"):
                tensor = half_apart(tensor, len(tensor) // 64)
            state[f"model.layers.{n}.{name}.weight"] = tensor
    model.load_state_dict(state, assign=True)
    rotary = type(model.model.rotary_emb)  # its angles are no parameters
    model.model.rotary_emb = rotary(config)
    return model.eval().requires_grad_(False)


@pytest.mark.parametrize("text", TEXTS)
def test_the_page_computes_what_hugging_faces_class_computes(
    page, theirs, loaded, text
):
    _, _, tokenizer = loaded
    tokens = torch.tensor([tokenizer.encode(text).ids])
    with torch.no_grad():
        x, maps, _ = page["run"](tokens)
        logits = page["says"](x)
        other = theirs(tokens, output_attentions=True)
    assert maps.shape == (30, 1, 9, tokens.shape[1], tokens.shape[1])
    # float32: what is added grows to 2e4 in 30 layers, logits are about 20
    torch.testing.assert_close(maps, torch.stack(other.attentions), atol=1e-4, rtol=0)
    torch.testing.assert_close(logits, other.logits, atol=2e-3, rtol=0)


def test_pairs_of_another_order_are_seen(page, theirs, loaded):
    """What a reader of the text hardly notices."""
    _, _, tokenizer = loaded
    tokens = torch.tensor([tokenizer.encode(TEXTS[0]).ids])
    right = page["turned"]
    order = torch.arange(64).view(2, 32).T.flatten()
    page["turned"] = lambda x: right(x[..., order])[..., order.argsort()]
    with torch.no_grad():
        logits = page["says"](page["run"](tokens)[0])
        assert (logits - theirs(tokens).logits).abs().max() > 1


@pytest.mark.parametrize("text", TEXTS[:1])
def test_tokens_are_those_of_hugging_faces_reader(loaded, text):
    from mha_lib.model import published

    path = published._file()
    other = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    assert loaded[2].encode(text).ids == other(text).input_ids
