"""A right class is right whatever becomes of its matrices at other sizes."""

import pytest
import torch
from torch import nn

from mha_lib.check import TASKS, check, diagnose
from tests.check.layers import Right
from tests.check.test_guessed import attention


class BareHeads(nn.Module):
    """One stack of matrices, which are square for one head."""

    order = (0, 1, 2)  # of (H, E, D)

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        E, H, D = embed_dim, num_heads, embed_dim // num_heads
        shape = [(H, E, D)[axis] for axis in self.order]
        self.w_q, self.w_k, self.w_v = (
            nn.Parameter(torch.randn(shape)) for _ in range(3)
        )
        self.b_q, self.b_k, self.b_v = (
            nn.Parameter(torch.zeros(H, 1, D)) for _ in range(3)
        )
        self.out = nn.Linear(E, E)

    def forward(self, query, key, value, mask=None):
        back = sorted(range(3), key=self.order.__getitem__)
        q, k, v = (
            x[:, None] @ W.permute(back) + b
            for x, W, b in (
                (query, self.w_q, self.b_q),
                (key, self.w_k, self.b_k),
                (value, self.w_v, self.b_v),
            )
        )
        context = attention(q, k, v, None if mask is None else mask[:, None])
        return self.out(context.transpose(1, 2).flatten(2))


class FeaturesFirst(BareHeads):
    order = (0, 2, 1)  # (H, D, E)


class WidthFirst(BareHeads):
    order = (1, 0, 2)  # (E, H, D)


class HeadByHead(nn.Module):
    """A layer of matrices for each head: their number is that of the heads."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = nn.ModuleList(Head(embed_dim, num_heads) for _ in range(num_heads))
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, mask=None):
        each = [head(query, key, value, mask) for head in self.heads]
        return self.out(torch.cat(each, -1))


class Head(nn.Module):
    """Its matrices are square, for one head, and say nothing of how they lie."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        shape = embed_dim, embed_dim // num_heads
        self.query, self.key, self.value = (
            nn.Parameter(torch.randn(shape)) for _ in range(3)
        )

    def forward(self, query, key, value, mask=None):
        q, k, v = query @ self.query, key @ self.key, value @ self.value
        return attention(q, k, v, mask)


class HeadTurned(Head):
    """The other way round: (D, E)."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        for x in (self.query, self.key, self.value):
            x.data = x.data.mT.contiguous()

    def forward(self, query, key, value, mask=None):
        q, k, v = query @ self.query.mT, key @ self.key.mT, value @ self.value.mT
        return attention(q, k, v, mask)


class HeadByHeadTurned(HeadByHead):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.heads = nn.ModuleList(
            HeadTurned(embed_dim, num_heads) for _ in range(num_heads)
        )


class Buffered(Right):
    """Asks how long the sequences may become."""

    def __init__(self, embed_dim, num_heads, context_length):
        super().__init__(embed_dim, num_heads)
        self.register_buffer("places", torch.zeros(context_length, embed_dim))

    def forward(self, query, key, value, mask=None):
        query = query + self.places[: query.shape[1]]
        return super().forward(query, key + self.places[: key.shape[1]], value, mask)


@pytest.mark.long
@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", [0, 41])
@pytest.mark.parametrize(
    "layer",
    [BareHeads, FeaturesFirst, WidthFirst, HeadByHead, HeadByHeadTurned, Buffered],
)
def test_what_is_right_is_right_at_all_sizes(layer, seed):
    assert diagnose(layer, "mha", seed=seed).verdict == "right"


def cut_from_a_square(T, S):
    longest = max(T, S)
    return torch.ones(longest, longest).tril()[:T, :S].bool()


def test_a_mask_cut_from_a_square_is_right_and_has_the_memory():
    assert diagnose(cut_from_a_square, "causal_mask").verdict == "right"
    for task in "causal_mask", "padding_mask":
        for probe in TASKS[task].probes(0):
            longest = max(probe["sizes"].get(axis, 1) for axis in "TS")
            assert 4 * longest**2 < 1 << 27, probe["name"]  # bytes


@pytest.mark.parametrize("layer", [BareHeads, FeaturesFirst])
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_a_layer_of_one_head_keeps_its_matrices_in_either_order(layer, heads):
    assert diagnose(layer(16, heads), "mha", num_heads=heads).verdict == "right"


class Turned(Right):
    """Some of its matrices act as their transposes."""

    turned = "o"

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        for role in self.turned:
            layer = getattr(self, f"w_{role}")
            layer.forward = lambda x, layer=layer: x @ layer.weight + layer.bias


@pytest.mark.parametrize(
    ("roles", "said"),
    [
        ("o", "It concerns W_o alone."),
        ("qkv", "It concerns W_q, W_k, W_v alone."),
        ("qkvo", "It concerns all of W_q, W_k, W_v, W_o."),
    ],
)
def test_it_is_said_which_matrices_are_turned(roles, said):
    report = check(type("Layer", (Turned,), {"turned": roles}), "mha")
    assert report.diagnosis.mistakes == ["weights-not-transposed"]
    assert said in repr(report)
