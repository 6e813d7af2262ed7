"""The table of formats: the checkpoints of other libraries, and our own."""

from collections.abc import Mapping

from mha_lib.convert.format import Format

__all__ = ["FORMATS"]

_SEPARATE = Format(  # our BatchedMHA; Hugging Face's BART, OPT and CLIP
    "separate",
    {
        "q_proj.weight": "Wq: (H D) E -> (H D) E",
        "q_proj.bias": "bq: (H D) -> (H D)",
        "k_proj.weight": "Wk: (H D) E -> (H D) E",
        "k_proj.bias": "bk: (H D) -> (H D)",
        "v_proj.weight": "Wv: (H D) E -> (H D) E",
        "v_proj.bias": "bv: (H D) -> (H D)",
        "out_proj.weight": "Wo: E (H D) -> E (H D)",
        "out_proj.bias": "bo: E -> E",
    },
    optional=(("q_proj.bias",), ("k_proj.bias",), ("v_proj.bias",), ("out_proj.bias",)),
)

_TORCH_END = {  # what nn.MultiheadAttention calls the same in both of its forms
    "in_proj_bias": "bq bk bv: 3 (H D) -> (3 H D)",
    "bias_k": "bias_k: (H D) -> 1 1 (H D)",
    "bias_v": "bias_v: (H D) -> 1 1 (H D)",
    "out_proj.weight": "Wo: E (H D) -> E (H D)",
    "out_proj.bias": "bo: E -> E",
}
_TORCH = Format(
    "torch",
    {"in_proj_weight": "Wq Wk Wv: 3 (H D) E -> (3 H D) E"} | _TORCH_END,
    optional=(("in_proj_bias", "out_proj.bias"), ("bias_k", "bias_v")),
)
_TORCH_SEPARATE = Format(  # where kdim or vdim is not embed_dim
    "torch_separate",
    {
        "q_proj_weight": "Wq: (H D) E -> (H D) E",
        "k_proj_weight": "Wk: (H D) K -> (H D) K",
        "v_proj_weight": "Wv: (H D) W -> (H D) W",
    }
    | _TORCH_END,
    optional=(("in_proj_bias", "out_proj.bias"), ("bias_k", "bias_v")),
)

_KERAS = Format(  # Keras 3, and 2; the names are the ends of the variables' paths
    "keras",
    {
        "query/kernel": "Wq: (H D) E -> E H D",
        "query/bias": "bq: (H D) -> H D",
        "key/kernel": "Wk: (H D) K -> K H D",
        "key/bias": "bk: (H D) -> H D",
        "value/kernel": "Wv: (H V) W -> W H V",
        "value/bias": "bv: (H V) -> H V",
        "attention_output/kernel": "Wo: O (H V) -> H V O",
        "attention_output/bias": "bo: O -> O",
    },
    optional=(("query/bias", "key/bias", "value/bias", "attention_output/bias"),),
    square=False,
)
_FLAX = Format(  # flax.nnx and flax.linen; key and value have one width, K
    "flax",
    {
        "query.kernel": "Wq: (H D) E -> E H D",
        "query.bias": "bq: (H D) -> H D",
        "key.kernel": "Wk: (H D) K -> K H D",
        "key.bias": "bk: (H D) -> H D",
        "value.kernel": "Wv: (H D) K -> K H D",
        "value.bias": "bv: (H D) -> H D",
        "out.kernel": "Wo: O (H D) -> H D O",
        "out.bias": "bo: O -> O",
    },
    optional=(("query.bias", "key.bias", "value.bias", "out.bias"),),
    square=False,
)

_LABML = Format(  # labml.ai's module; value and output always have a bias
    "labml",
    {
        "query.linear.weight": "Wq: (H D) E -> (H D) E",
        "query.linear.bias": "bq: (H D) -> (H D)",
        "key.linear.weight": "Wk: (H D) E -> (H D) E",
        "key.linear.bias": "bk: (H D) -> (H D)",
        "value.linear.weight": "Wv: (H D) E -> (H D) E",
        "value.linear.bias": "bv: (H D) -> (H D)",
        "output.weight": "Wo: E (H D) -> E (H D)",
        "output.bias": "bo: E -> E",
    },
    optional=(("query.linear.bias", "key.linear.bias"),),
)

_BERT = Format(  # Hugging Face, RoBERTa and others too; all biases, always
    "bert",
    {
        "self.query.weight": "Wq: (H D) E -> (H D) E",
        "self.query.bias": "bq: (H D) -> (H D)",
        "self.key.weight": "Wk: (H D) E -> (H D) E",
        "self.key.bias": "bk: (H D) -> (H D)",
        "self.value.weight": "Wv: (H D) E -> (H D) E",
        "self.value.bias": "bv: (H D) -> (H D)",
        "output.dense.weight": "Wo: E (H D) -> E (H D)",
        "output.dense.bias": "bo: E -> E",
    },
    ignored=(  # the norm after the residual; older checkpoints say gamma and beta
        "output.LayerNorm.weight",
        "output.LayerNorm.bias",
        "output.LayerNorm.gamma",
        "output.LayerNorm.beta",
    ),
)

_GPT2 = Format(  # Hugging Face; Conv1D keeps (in, out); all biases, always
    "gpt2",
    {
        "c_attn.weight": "Wq Wk Wv: 3 (H D) E -> E (3 H D)",
        "c_attn.bias": "bq bk bv: 3 (H D) -> (3 H D)",
        "c_proj.weight": "Wo: E (H D) -> (H D) E",
        "c_proj.bias": "bo: E -> E",
    },
    ignored=("bias", "masked_bias"),  # the causal mask, in older checkpoints
)
_GPT2_CROSS = Format(  # its cross-attention cuts c_attn in two and has q_attn
    "gpt2_cross",
    {
        "q_attn.weight": "Wq: (H D) E -> E (H D)",
        "q_attn.bias": "bq: (H D) -> (H D)",
        "c_attn.weight": "Wk Wv: 2 (H D) E -> E (2 H D)",
        "c_attn.bias": "bk bv: 2 (H D) -> (2 H D)",
        "c_proj.weight": "Wo: E (H D) -> (H D) E",
        "c_proj.bias": "bo: E -> E",
    },
    ignored=("bias", "masked_bias"),
)

_FUSED_3HD = Format(  # timm's vision transformers; with other names, many more
    "fused_3hd",
    {
        "qkv.weight": "Wq Wk Wv: 3 (H D) E -> (3 H D) E",
        "qkv.bias": "bq bk bv: 3 (H D) -> (3 H D)",
        "proj.weight": "Wo: E (H D) -> E (H D)",
        "proj.bias": "bo: E -> E",
    },
    optional=(("qkv.bias",), ("proj.bias",)),
)
_FUSED_H3D = Format(  # GPT-NeoX and BLOOM; the same shapes, the rows in another order
    "fused_h3d",
    {
        "query_key_value.weight": "Wq Wk Wv: 3 (H D) E -> (H 3 D) E",
        "query_key_value.bias": "bq bk bv: 3 (H D) -> (H 3 D)",
        "dense.weight": "Wo: E (H D) -> E (H D)",
        "dense.bias": "bo: E -> E",
    },
    optional=(("query_key_value.bias",), ("dense.bias",)),
    ignored=("bias", "masked_bias"),
)

FORMATS: Mapping[str, Format] = {
    format.name: format
    for format in (
        _SEPARATE,
        _TORCH,
        _TORCH_SEPARATE,
        _KERAS,
        _FLAX,
        _LABML,
        _BERT,
        _GPT2,
        _GPT2_CROSS,
        _FUSED_3HD,
        _FUSED_H3D,
    )
}
