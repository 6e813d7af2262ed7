"""Pieces of a tuple and axes that torch.stack makes: what is said of them is true."""

import pytest
import torch
import torch.nn as nn

from mha_lib.check import Fact, check, diagnose, in_words
from tests.check.layers import Right


class OfTuples(nn.Module):
    """A fused projection, cut in three; its heads are left out."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value, mask=None):
        q = self.in_proj(query).chunk(3, dim=-1)
        k = self.in_proj(key).chunk(3, dim=-1)
        v = self.in_proj(value).chunk(3, dim=-1)
        scores = q[0] @ k[1] / q[0].shape[-1] ** 0.5
        return self.out_proj(scores.softmax(-1) @ v[2])


class OfLists(Right):
    def forward(self, query, key, value, mask=None):
        q, k = (x.chunk(self.h, -1) for x in (query, key))
        return torch.cat([q[h] @ k[h] for h in range(self.h)], -1)


@pytest.mark.parametrize("layer", [OfTuples, OfLists], ids=["a tuple", "a list"])
def test_a_piece_of_a_tuple_is_not_called_a_place_of_the_batch(layer):
    said = repr(check(layer, "mha"))
    assert "the first axis, the batch" not in said
    assert "should one be turned, with transpose(-2, -1)?" in said


class StackedInFront(Right):
    """torch.stack is not told where; all three are alike."""

    def heads(self, x):
        return torch.stack(x.chunk(self.h, dim=-1))


class OneInFront(StackedInFront):
    def forward(self, query, key, value, mask=None):
        q, k = super().heads(query), Right.heads(self, key)
        return (q @ k.mT).sum(0)


@pytest.mark.parametrize("layer", [StackedInFront, OneInFront])
def test_heads_that_are_stacked_in_front_of_the_batch_are_told(layer):
    said = repr(check(layer, "mha"))
    assert "stack(…, dim=1) puts it behind the batch" in said
    assert "Add the axis of the heads yourself" not in said  # of the mask: it is there


def test_an_axis_that_a_stack_has_made_in_front_is_told():
    def split_heads(x, num_heads):
        return torch.stack(x.chunk(num_heads, dim=-1))

    def attention(q, k, v, mask=None):
        rows = ((q[..., t, :] @ k.mT).softmax(-1) @ v for t in range(q.shape[-2]))
        return torch.stack([*rows])

    def behind(x, num_heads):
        return torch.stack(x.chunk(num_heads, dim=-1), dim=-1)

    first = "stands first, where torch.stack puts a new one unless told: stack(…, dim="
    assert f"the axis of H {first}1)" in repr(check(split_heads))
    assert "the axis of H stands last" in repr(check(behind, "split_heads"))
    one = moved_of((2, 3, 6, 8), (6, 2, 3, 8), "(B, H, T, V)")
    assert f"the axis of T {first}-2)" in one
    assert "stands" not in moved_of((2, 6, 6, 8), (6, 2, 6, 8), "(B, H, T, V)")


def moved_of(required, got, axes):
    """What is said of a shape, where the sizes are those required."""
    sizes = dict(zip(axes[1:-1].split(", "), required))
    values = {"required": required, "got": got, "axes": axes, "sizes": sizes}
    return in_words(Fact("wrong-shape", values))


def test_values_of_the_query_are_not_to_be_turned():
    class ValuesOfTheQuery(Right):
        def forward(self, query, key, value, mask=None):
            return super().forward(query, key, query, mask)

    said = repr(check(ValuesOfTheQuery, "mha"))
    assert "the values have T rows here: of which input are they made?" in said
    assert "should one be turned" not in said


class SomeHeadsMasked(Right):
    """The mask reaches the first head alone."""

    some = slice(0, 1)

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            self.heads(f(x))
            for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        )
        scores = q @ k.mT / self.scale()
        if mask is not None:
            hidden = scores.masked_fill(~mask[:, None], -torch.inf)
            scores[:, self.some] = hidden[:, self.some]
        weights = scores.softmax(-1)
        return self.w_o(self.join(weights @ v)), weights


class LastHeadNotMasked(SomeHeadsMasked):
    some = slice(0, -1)


def test_heads_that_no_mask_reaches_are_told():
    for layer, words in (
        (SomeHeadsMasked, r"these heads are: 0; and these are not: 1, 2"),
        (LastHeadNotMasked, r"these heads are: 0, 1"),
    ):
        report = check(layer, "mha")
        assert any(x.code == "masks-of-heads" for x in report.diagnosis.evidence)
        assert words in repr(report)


def test_a_mask_that_is_wrong_for_all_heads_is_not_told_of_some():
    class Turned(Right):
        def forward(self, query, key, value, mask=None):
            if mask is not None:
                mask = mask.flip(-1)
            return super().forward(query, key, value, mask)

    found = diagnose(Turned, "mha")
    assert not any(x.code == "masks-of-heads" for x in found.evidence)
