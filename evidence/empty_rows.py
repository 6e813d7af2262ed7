"""What each library gives for a query that may attend to nothing, by calling it.

The tests in tests/oracles pin such values one by one; the page *How we know it is
right* shows them side by side.
"""

import os

os.environ["KERAS_BACKEND"] = "torch"  # read once, when Keras is imported

from collections.abc import Callable
from functools import partial

import keras
import torch
from jax.experimental import enable_x64
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.masking_utils import bidirectional_mask_function, eager_mask
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

from evidence.flax_layer import call_with_torch
from evidence.helpers import STYLES, B, T, call, inputs, make
from evidence.words import which_of
from evidence.x_transformers_layer import to_x_transformers
from mha_lib import BatchedMHA, MultiheadAttention, convert
from mha_lib.layouts import merge_heads, split_heads

REAL = torch.tensor([[True], [True], [False]]).expand(B, T)  # a sequence of length 0
MASK = REAL[:, None].expand(B, T, T)  # the queries of sequence 2 may attend to nothing

Results = tuple[Tensor, Tensor | None]  # output (B, T, E), weights (B, [H,] T, T)


def by_torch(mha: BatchedMHA, x: Tensor, target: type, **options) -> Results:
    layer = convert(mha, target)  # True = hidden
    return layer(x, x, x, key_padding_mask=~REAL, **options)


def by_torch_for_inference(mha: BatchedMHA, x: Tensor) -> Results:
    with torch.inference_mode():
        return by_torch(mha, x, nn.MultiheadAttention, need_weights=False)


def by_our_drop_in_as_torch(mha: BatchedMHA, x: Tensor) -> Results:
    layer = convert(mha, MultiheadAttention)
    layer.torch_empty_rows = True
    return layer(x, x, x, key_padding_mask=~REAL)


def by_function(function: Callable, mha: BatchedMHA, x: Tensor) -> Results:
    """A function of q, k and v between our projections."""
    projections = mha.q_proj, mha.k_proj, mha.v_proj
    q, k, v = (split_heads(linear(x), mha.num_heads) for linear in projections)
    context, weights = function(q, k, v)
    return mha.out_proj(merge_heads(context)), weights


def sdpa(q: Tensor, k: Tensor, v: Tensor) -> Results:
    return F.scaled_dot_product_attention(q, k, v, MASK[:, None]), None


def onnx(q: Tensor, k: Tensor, v: Tensor) -> Results:
    """The operator of ONNX, as its own reference computes it."""
    operands = {"Q": q, "K": k, "V": v, "M": MASK[:, None].clone()}
    kinds = dict.fromkeys("QKVYW", TensorProto.DOUBLE) | {"M": TensorProto.BOOL}
    info = {
        x: helper.make_tensor_value_info(x, kind, None) for x, kind in kinds.items()
    }
    names = list(operands), ["Y", "", "", "W"]
    node = helper.make_node("Attention", *names, qk_matmul_output_mode=3)
    graph = helper.make_graph(
        [node], "attention", [info[x] for x in operands], [info["Y"], info["W"]]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    arrays = {x: tensor.detach().numpy() for x, tensor in operands.items()}
    return tuple(map(torch.from_numpy, ReferenceEvaluator(model).run(None, arrays)))


def by_keras(mha: BatchedMHA, x: Tensor, scores: bool) -> Results:
    with keras.device("cpu"):  # Keras would take a GPU that it finds
        layer = convert(mha, keras.layers.MultiHeadAttention)
        results = layer(x, x, attention_mask=MASK, return_attention_scores=scores)
    return results if scores else (results, None)


def by_flax(mha: BatchedMHA, x: Tensor, sow: bool) -> Results:
    with enable_x64():
        return call_with_torch(mha, (x,), MASK[:, None].clone(), sow)


def by_hugging_face(mha: BatchedMHA, x: Tensor) -> Results:
    mask = eager_mask(
        B,
        T,
        T,
        mask_function=bidirectional_mask_function,
        attention_mask=REAL,
        dtype=x.dtype,
    )
    return convert(mha, GPT2Attention)(x, attention_mask=mask)


def by_x_transformers(mha: BatchedMHA, x: Tensor) -> Results:
    layer = to_x_transformers(mha).to(x.dtype)
    output, seen = layer(x, attn_mask=MASK[:, None], return_intermediates=True)
    return output, seen.post_softmax_attn


def by_style(mha: BatchedMHA, x: Tensor, style: type) -> Results:
    return call(convert(mha, style), x, mask=MASK)


f32, f64 = torch.float32, torch.float64
TORCH = "torch, the layer"
theirs = partial(by_torch, target=nn.MultiheadAttention)
ours = partial(by_torch, target=MultiheadAttention)
CALLS: list[tuple[str, str, Callable[[BatchedMHA, Tensor], Results], torch.dtype]] = [
    *(("mha_lib", f"`{s.__name__}`", partial(by_style, style=s), f64) for s in STYLES),
    ("mha_lib", "`MultiheadAttention`", ours, f64),
    ("mha_lib", "`torch_empty_rows = True`", by_our_drop_in_as_torch, f64),
    (TORCH, "with weights", theirs, f64),
    (TORCH, "without weights", partial(theirs, need_weights=False), f64),
    (TORCH, "the same, for inference", by_torch_for_inference, f64),
    ("torch", "`scaled_dot_product_attention`", partial(by_function, sdpa), f64),
    ("ONNX", "`Attention`", partial(by_function, onnx), f64),
    ("Keras", "with scores", partial(by_keras, scores=True), f64),
    ("Keras", "without scores", partial(by_keras, scores=False), f64),
    ("flax", "with weights", partial(by_flax, sow=True), f64),
    ("flax", "without weights", partial(by_flax, sow=False), f32),
    ("flax", "the same, in float64", partial(by_flax, sow=False), f64),
    ("Hugging Face, GPT-2", "eager", by_hugging_face, f64),
    ("x-transformers", "", by_x_transformers, f32),
    ("x-transformers", "the same, in float64", by_x_transformers, f64),
]


def rows() -> list[tuple[str, str, str, str]]:
    """For each call: the library, the way, the weights and the context, in words."""
    found = []
    for library, way, function, dtype in CALLS:
        mha = make(BatchedMHA, dtype, bias=library != "x-transformers")  # it has none
        x = inputs(dtype)[0].detach()
        output, weights = function(mha, x)
        if weights is not None:
            weights = weights[-1, ..., -1, :]
        zeros = torch.zeros(T)
        bias = torch.zeros(()) if mha.out_proj.bias is None else mha.out_proj.bias
        mean = mha.out_proj(mha.v_proj(x[-1]).mean(0))
        found.append(
            (
                library,
                way,
                which_of({"0": zeros, f"1/{T} each": zeros + 1 / T}, weights),
                which_of({"0": bias, "the mean of all values": mean}, output[-1, -1]),
            )
        )
    return found
