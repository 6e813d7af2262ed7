"""Everything stays on the device of its input.

A machine without a GPU has the device "meta": tensors with a shape and no numbers,
which torch refuses to mix with those of the processor, as it does those of a GPU.
Where there is a GPU, its numbers are held to the processor's.
"""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from evidence.helpers import B, D, E, H, S, T, call, inputs, make, random_mask
from mha_lib import (
    MultiheadAttention,
    attention,
    causal_mask,
    combine_masks,
    masked_softmax,
    padding_mask,
)
from mha_lib.masks import additive_mask, embedding_mask, to_torch_mask
from mha_lib.styles import STYLES
from mha_lib.tiled import tiled_attention

CUDA = ["cuda"] if torch.cuda.is_available() else []
MASKS = {
    "none": None,
    "T S": random_mask(T, S),
    "1 S": random_mask(1, S),
    "B T S": random_mask(B, T, S),
}
on_every_device = pytest.mark.parametrize("device", ["meta", *CUDA])
with_every_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)

# The length of a difference as a part of that of the right numbers, or of 1, for the
# gradient of the bias of k is 0: the two devices add up in another order, and round
# each number to 2⁻⁵³, 2⁻²⁴ or 2⁻⁹ of it.
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 5e-2}


def moved(x, device, dtype=None):
    """The same on a device, as a leaf that takes gradients of its own."""
    if x is None:
        return None
    wanted = x.requires_grad
    return x.detach().to(device, dtype).requires_grad_(wanted)


def learned(call, module, inputs, mask):
    """Output, weights and all gradients of a loss with random factors."""
    output, weights = call(module, *inputs, mask)
    generator = torch.Generator().manual_seed(3)
    loss = 0
    for x in filter(lambda x: x is not None, (output, weights)):
        factors = torch.randn(x.shape, dtype=torch.float64, generator=generator)
        loss = loss + (x * factors.to(x.device, x.dtype)).sum()
    loss.backward()
    return {
        "output": output,
        "weights": weights,
        **{f"gradient {i}": x.grad for i, x in enumerate(inputs)},
        **{f"gradient of {n}": p.grad for n, p in module.named_parameters()},
    }


def check(call, module, given, mask, device, dtype):
    """Each result lies on the device and has the processor's shape and numbers."""
    wanted = learned(call, copy.deepcopy(module), given, mask)
    there = [moved(x, device, dtype) for x in given]
    came = learned(
        call, copy.deepcopy(module).to(device, dtype), there, moved(mask, device)
    )
    for what, right in wanted.items():
        if right is None:
            assert came[what] is None, what
            continue
        assert came[what].device.type == device, what
        assert came[what].shape == right.shape, what
        if device != "meta":
            found = came[what].cpu().double()
            scale = max(right.norm(), 1)
            assert (found - right).norm() <= CLOSE[dtype] * scale, what


@on_every_device
@with_every_mask
@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.__name__)
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_a_layer_of_each_style(device, mask, style, dtype):
    check(call, make(style), inputs(), mask, device, dtype)


@on_every_device
@with_every_mask
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_the_layer_that_takes_torchs_place(device, mask, need_weights, dtype):
    torch.manual_seed(0)
    layer = MultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    nn.init.normal_(layer.in_proj_bias)

    def run(layer, query, key, value, mask):
        if mask is not None and mask.dim() == 3:
            mask = mask.repeat_interleave(H, 0)
        hidden = None if mask is None else ~mask.expand(*mask.shape[:-2], T, S)
        return layer(query, key, value, attn_mask=hidden, need_weights=need_weights)

    check(run, layer, inputs(), mask, device, dtype)


@on_every_device
@with_every_mask
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("function", [attention, tiled_attention])
@pytest.mark.parametrize("dtype", CLOSE, ids=str)
def test_the_functions_under_all(device, mask, is_causal, function, dtype):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (
        torch.randn(B, H, length, D, dtype=torch.float64, generator=generator)
        for length in (T, S, S)
    )
    given = [x.requires_grad_() for x in (q, k, v)]
    mask = mask[:, None] if mask is not None and mask.dim() == 3 else mask

    def run(_, q, k, v, mask):
        return function(q, k, v, mask, is_causal=is_causal)

    check(run, nn.Module(), given, mask, device, dtype)


@on_every_device
def test_masks_lie_where_they_are_made_from(device):
    lengths = torch.tensor([S, 3, 1])
    words = torch.randn(B, S, E)
    words[1, 3:] = 0
    scores = torch.randn(B, H, T, S)

    def masks(lengths, words, scores, device):
        causal = causal_mask(T, S, device=device)
        padding = padding_mask(lengths, S)
        both = combine_masks(causal, padding)
        seen = combine_masks(both, embedding_mask(words))
        shape = (B, H, T, S)
        forms = [additive_mask(both), to_torch_mask(both, shape)]
        weights = masked_softmax(scores, seen[:, None])
        return [causal, padding, both, seen, *forms, weights]

    wanted = masks(lengths, words, scores, "cpu")
    given = [x.to(device) for x in (lengths, words, scores)]
    came = masks(*given, device)
    for found, right in zip(came, wanted):
        assert found.device.type == device
        assert (found.shape, found.dtype) == (right.shape, right.dtype)
        if device != "meta":
            assert_close(found.cpu(), right)
