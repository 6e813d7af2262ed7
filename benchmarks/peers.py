"""Other libraries' layers with the same weights. Each is imported when it is built."""

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.contestants import Contestant, Layer, Result, fused
from benchmarks.workload import Workload
from mha_lib import convert


def keras_layer(workload: Workload) -> nn.Module:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    if keras.backend.backend() != "torch":
        raise RuntimeError(f"Keras runs on {keras.backend.backend()}, not on torch")
    layer = convert(fused(workload), keras.layers.MultiHeadAttention)

    def run(layer: nn.Module, x: Tensor) -> Result:
        causal, training = workload.causal, layer.training
        return layer(x, x, use_causal_mask=causal, training=training), None

    return Layer(layer, run)


def x_transformers(flash: bool) -> Callable[[Workload], nn.Module]:
    def build(workload: Workload) -> nn.Module:
        from x_transformers.x_transformers import Attention

        _, _, E, H = workload.size
        options = {"causal": workload.causal, "flash": flash}
        layer = Attention(E, dim_head=E // H, heads=H, **options)
        # Its projections have no biases; linear layers with biases take their place.
        blocks = zip(workload.in_weight.chunk(3), workload.in_bias.chunk(3))
        for name, block in zip(("to_q", "to_k", "to_v"), blocks):
            setattr(layer, name, linear(*block))
        layer.to_out = linear(workload.out_weight, workload.out_bias)
        return Layer(layer, lambda layer, x: (layer(x), None))

    return build


def linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(*reversed(weight.shape), device="meta")
    state = {"weight": weight.clone(), "bias": bias.clone()}
    layer.load_state_dict(state, assign=True)
    return layer.requires_grad_()


def gpt2(implementation: str) -> Callable[[Workload], nn.Module]:
    """Hugging Face's GPT-2 attention, its causality switched on or off."""

    def build(workload: Workload) -> nn.Module:
        from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

        layer = convert(fused(workload), GPT2Attention)
        layer.config._attn_implementation = implementation
        layer.is_causal = workload.causal
        added = None
        if workload.causal and implementation == "eager":  # its model adds this
            lowest = torch.finfo(workload.x.dtype).min
            zeros = workload.x.new_zeros(1, 1, *workload.mask.shape)
            added = zeros.masked_fill(~workload.mask, lowest)
        return Layer(layer, lambda layer, x: layer(x, attention_mask=added))

    return build


class Flax(nn.Module):
    """A jitted flax.nnx layer: in torch's clothes, so that it is called alike."""

    def __init__(self, workload: Workload) -> None:
        import jax
        from flax import nnx

        super().__init__()
        layer = convert(fused(workload), nnx.MultiHeadAttention)
        mask = None
        if workload.causal:
            mask = jax.numpy.asarray(workload.mask.numpy())[None, None]
        graph, self.state = nnx.split(layer)

        def run(state, x):
            return nnx.merge(graph, state)(x, mask=mask, deterministic=True)

        self.jitted = jax.jit(run)
        self.given = workload.x
        self.converted = jax.numpy.asarray(workload.x.numpy())

    def forward(self, x: Tensor) -> Result:
        if x is not self.given:
            raise ValueError("flax takes the workload's own x, converted beforehand")
        output = self.jitted(self.state, self.converted).block_until_ready()
        return torch.from_dlpack(output), None  # copies nothing


PEERS = (
    Contestant("Keras 3 on torch", keras_layer),
    Contestant("x-transformers, flash", x_transformers(True)),
    Contestant("x-transformers, not flash", x_transformers(False)),
    Contestant(
        "flax.nnx, jitted",
        Flax,
        passes=("forward",),
        dtypes=("float32",),
        devices=("cpu",),
    ),
    Contestant("Hugging Face GPT-2, SDPA", gpt2("sdpa")),
    Contestant(
        "Hugging Face GPT-2, eager",
        gpt2("eager"),
        weights="per head",
    ),
)
