"""Other libraries' layers with the same weights. Each is imported when it is built."""

import os
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.contestants import Contestant, Layer, Result, fused
from benchmarks.problem import Problem
from mha_lib import convert


def keras_layer(problem: Problem) -> nn.Module:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    import keras

    if keras.backend.backend() != "torch":
        raise RuntimeError(f"Keras runs on {keras.backend.backend()}, not on torch")
    layer = convert(fused(problem), keras.layers.MultiHeadAttention)

    def run(layer: nn.Module, x: Tensor) -> Result:
        causal, training = problem.causal, layer.training
        return layer(x, x, use_causal_mask=causal, training=training), None

    return Layer(layer, run)


def x_transformers(flash: bool) -> Callable[[Problem], nn.Module]:
    def build(problem: Problem) -> nn.Module:
        from x_transformers.x_transformers import Attention

        _, _, E, H = problem.size
        options = {"causal": problem.causal, "flash": flash}
        layer = Attention(E, dim_head=E // H, heads=H, **options)
        # Its projections have no biases; linear layers with biases take their place.
        blocks = zip(problem.in_weight.chunk(3), problem.in_bias.chunk(3))
        for name, block in zip(("to_q", "to_k", "to_v"), blocks):
            setattr(layer, name, linear(*block))
        layer.to_out = linear(problem.out_weight, problem.out_bias)
        return Layer(layer, lambda layer, x: (layer(x), None))

    return build


def linear(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(*reversed(weight.shape), device="meta")
    state = {"weight": weight.clone(), "bias": bias.clone()}
    layer.load_state_dict(state, assign=True)
    return layer.requires_grad_()


def gpt2(implementation: str) -> Callable[[Problem], nn.Module]:
    """Hugging Face's GPT-2 attention, its causality switched on or off."""

    def build(problem: Problem) -> nn.Module:
        from transformers.models.gpt2.modeling_gpt2 import GPT2Attention

        layer = convert(fused(problem), GPT2Attention)
        layer.config._attn_implementation = implementation
        layer.is_causal = problem.causal
        added = None
        if problem.causal and implementation == "eager":  # its model adds this
            lowest = torch.finfo(problem.x.dtype).min
            zeros = problem.x.new_zeros(1, 1, *problem.mask.shape)
            added = zeros.masked_fill(~problem.mask, lowest)
        return Layer(layer, lambda layer, x: layer(x, attention_mask=added))

    return build


class Flax(nn.Module):
    """A jitted flax.nnx layer: in torch's clothes, so that it is called alike."""

    def __init__(self, problem: Problem) -> None:
        import jax
        from flax import nnx

        super().__init__()
        layer = convert(fused(problem), nnx.MultiHeadAttention)
        mask = None
        if problem.causal:
            mask = jax.numpy.asarray(problem.mask.numpy())[None, None]
        graph, self.state = nnx.split(layer)

        def run(state, x):
            return nnx.merge(graph, state)(x, mask=mask, deterministic=True)

        self.jitted = jax.jit(run)
        self.given = problem.x
        self.converted = jax.numpy.asarray(problem.x.numpy())

    def forward(self, x: Tensor) -> Result:
        if x is not self.given:
            raise ValueError("flax takes the problem's own x, converted beforehand")
        output = self.jitted(self.state, self.converted).block_until_ready()
        return torch.from_dlpack(output), None  # copies nothing


PEERS = (
    Contestant("Keras 3 on torch", keras_layer),
    Contestant("x-transformers, flash", x_transformers(True)),
    Contestant("x-transformers, not flash", x_transformers(False), makes_map=True),
    Contestant(
        "flax.nnx, jitted",
        Flax,
        passes=("forward",),
        dtypes=("float32",),
        devices=("cpu",),
        makes_map=True,
    ),
    Contestant("Hugging Face GPT-2, SDPA", gpt2("sdpa")),
    Contestant(
        "Hugging Face GPT-2, eager",
        gpt2("eager"),
        weights="per head",
        makes_map=True,
    ),
)
