"""What a task asks for decides, and what is said is true of the program before it."""

import math
import re

import pytest
import torch
from torch import nn

from mha_lib.check import check, diagnose
from tests.check.test_guessed import attention

A2 = ["weights", "biases", "mask_optional", "no_dropout", "projection_names"]


class Layer(nn.Module):
    """Right, with the names and biases that A2 asks for."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self.add_module(name, nn.Linear(embed_dim, embed_dim))

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            layer(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for layer, x in (
                (self.q_proj, query),
                (self.k_proj, key),
                (self.v_proj, value),
            )
        )
        scores = self.scored(q @ k.mT / q.shape[-1] ** 0.5)
        if mask is not None:
            scores = scores.masked_fill(~mask[..., None, :, :], -torch.inf)
        weights = scores.softmax(-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights

    def scored(self, scores):
        return scores


class Ignores(Layer):
    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__(embed_dim, num_heads)


class IgnoresNone(Layer):
    def __init__(self, embed_dim, num_heads, dropout=None):
        super().__init__(embed_dim, num_heads)


class Keeps(Layer):
    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__(embed_dim, num_heads)
        self.dropout = dropout


@pytest.mark.sweep(2)
@pytest.mark.parametrize("layer", [Ignores, IgnoresNone, Keeps])
def test_a_dropout_that_is_not_used_is_none_where_none_is_asked_for(layer):
    report = check(layer, "mha", requires=A2)
    assert report and "Worth knowing: Training and evaluation give" in repr(report)
    for requires in [], ["dropout"]:
        assert diagnose(layer, "mha", requires=requires).mistakes == ["dropout-unused"]


def test_a_key_has_a_bias_where_all_four_are_asked_for():
    class NoBias(Layer):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            self.k_proj = nn.Linear(embed_dim, embed_dim, bias=False)

    assert check(NoBias, "mha")
    report = check(NoBias, "mha", requires=["biases"])
    assert not report and "Your layer lacks biases: b_k. (That" in repr(report)


class Learns(Layer):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.tau = nn.Parameter(torch.ones(1))
        self.ffn = nn.Linear(embed_dim, 4 * embed_dim)

    def scored(self, scores):
        return scores * self.tau


def test_what_a_layer_learns_beside_its_projections_is_told():
    report = check(Learns, "mha", requires=A2)
    assert report.diagnosis.verdict == "unmet"
    assert "yours learns tau, ffn.weight, ffn.bias, too" in repr(report)
    report = check(Learns, "mha")
    assert report and "beside its projections your layer learns tau" in repr(report)
    assert "learns" not in repr(check(Layer, "mha"))


class InFloat32(Layer):
    def scored(self, scores):
        return scores.float().to(scores.dtype)

    def forward(self, *given):
        return tuple(x.float().to(x.dtype) for x in super().forward(*given))


class RootInFloat32(Layer):
    def scored(self, scores):
        D = self.q_proj.in_features / self.num_heads
        return scores * D**0.5 / torch.sqrt(torch.tensor(D))


def softmax_in_float32(q, k, v, mask=None):
    s = q @ k.mT / q.shape[-1] ** 0.5
    s = s if mask is None else s.masked_fill(~mask, -torch.inf)
    return s.softmax(-1, dtype=torch.float32).to(q.dtype) @ v


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_told_that_float64_is_computed_in_float32(seed):
    told = "Not a mistake: float64 comes back with the digits of float32"
    for program, task in (InFloat32, "mha"), (softmax_in_float32, "attention"):
        report = check(program, task, seed=seed)
        assert report and told in repr(report)
    for right in Layer, RootInFloat32:
        assert told not in repr(check(right, "mha", seed=seed))


# --- what is said --------------------------------------------------------------------


def over(axis):
    class Class(Layer):
        def forward(self, query, key, value, mask=None):
            cut = [
                layer(x).unflatten(-1, (self.num_heads, -1))
                for layer, x in zip(self.children(), (query, key, value))
            ]
            scores = torch.einsum("tbhd,sbhd->tsbh", *cut[:2]) / cut[0].shape[-1] ** 0.5
            if mask is not None:
                scores = scores.masked_fill(~mask[..., None], -torch.inf)
            weights = scores.softmax(axis)
            context = torch.einsum("tsbh,sbhd->tbhd", weights, cut[2])
            return self.out_proj(context.flatten(2))

    return Class


@pytest.mark.parametrize(
    ("axis", "said"),
    [(0, "the queries, t"), (2, "the batch, b"), (3, "the heads, h")],
)
def test_a_wrong_axis_is_told_by_its_letter_where_the_sequence_comes_first(axis, said):
    report = repr(check(over(axis), "mha_sequence_first"))
    assert f"the softmax ran over {said}, not over the keys, s" in report
    assert "dim=1 of tsbh" in report and not re.search(r"dim=-|\(B, H, T, S\)", report)


def expanded(lengths, S):
    return (torch.arange(S) < lengths[:, None])[:, None].expand(-1, S, -1)


def on_rows(causal, padding):
    return causal & padding.mT


def turned(x):
    B, H, T, D = x.shape
    return x.transpose(1, 3).reshape(B, T, H * D)


def transposed(causal, padding):
    return causal & padding.transpose(1, 2)


@pytest.mark.parametrize(
    ("program", "task"),
    [
        (expanded, "padding_mask"),
        (on_rows, "combine_masks"),
        (transposed, "combine_masks"),
        (turned, "merge_heads"),
    ],
)
def test_no_size_and_no_hint_of_another_task_is_told(program, task):
    said = repr(check(program, task))
    assert not re.search(r"chunk|\bfor E\b|In our tries|k\.(mT|transpose)", said)


def test_overlapping_slices_are_no_limit():
    def split_heads(x, num_heads):
        D = x.shape[-1] // num_heads
        return torch.stack([x[..., h : h + D] for h in range(num_heads)], 1)

    said = repr(check(split_heads))
    assert "It is right but for the cut, where head h" in said
    assert "which overlap" in said and "In our tries" not in said


def test_what_only_adds_up_with_the_size_is_no_limit():
    def attend(q, k, v, mask=None):
        s = q @ k.mT / q.shape[-1] ** 0.5
        s = s if mask is None else s.masked_fill(~mask, -torch.inf)
        return (s.softmax(-1) + 1e-6) @ v

    report = check(attend, "attention")
    assert not report and "In our tries" not in repr(report)


def infinite(T, S):
    return torch.full((T, S), -torch.inf).triu(1)


def far_below(T, S):
    return infinite(T, S).clamp(min=-1e9)


@pytest.mark.parametrize("mask", [infinite, far_below])
@pytest.mark.parametrize("seed", range(2))
def test_a_mask_to_be_added_holds_numbers_and_that_is_all(mask, seed):
    found = diagnose(mask, "causal_mask", seed=seed)
    assert (found.verdict, found.mistakes) == ("named", ["mask-not-boolean"])
    assert found.example is None


def test_masks_that_are_compared_are_told_as_one_thing():
    found = diagnose(lambda causal, padding: causal == padding, "combine_masks")
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert [x.code for x in found.evidence] == ["as-if-equal"]


def test_a_difference_that_is_taken_for_a_boolean_is_told_as_one_thing():
    def causal_mask(T, S):
        return (torch.arange(T)[:, None] - torch.arange(S)).bool()

    found = diagnose(causal_mask)
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert [x.code for x in found.evidence] == ["as-if-apart"]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", [0, 5])
def test_under_a_relu_the_bias_of_the_key_is_not_harmless(seed):
    def by_heads(queries, keys, weights, num_heads, causality=False):
        q, k, v = (
            (x @ weights[f"W_{role}"].mT + (role != "k") * weights[f"b_{role}"])
            .relu()
            .unflatten(-1, (num_heads, -1))
            .transpose(1, 2)
            for role, x in zip("qkv", (queries, keys, keys))
        )
        mask = (keys != 0).any(-1)[:, None, None].repeat(1, 1, queries.shape[1], 1)
        mask = mask.tril() if causality else mask
        scores = (q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
        context = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return context @ weights["W_o"].mT + weights["b_o"]

    report = check(by_heads, "split_concat", seed=seed)
    assert report.diagnosis.verdict == "unknown"
    for claim in ("the rest is right", "is kept from one call", "detached"):
        assert claim not in repr(report)


@pytest.mark.parametrize(
    ("program", "task", "code"),
    [
        (
            lambda lengths, S: (torch.arange(S) >= S - lengths[:, None])[:, None],
            *("padding_mask", "padding-at-left"),
        ),
        (
            lambda causal, padding: causal & ~padding,
            *("combine_masks", "padding-turned"),
        ),
        (
            lambda causal, padding: (causal & padding[0]).expand(len(padding), -1, -1),
            *("combine_masks", "padding-of-one"),
        ),
    ],
)
def test_a_mask_made_otherwise_is_told_and_no_next_step(program, task, code):
    report = check(program, task)
    assert report.diagnosis.mistakes == []
    assert [x.code for x in report.diagnosis.evidence] == [code]
    assert "Next:" not in repr(report)


def test_a_gradient_of_nan_is_not_called_detached():
    def rooted(q, k, v, mask=None):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        weights = scores.softmax(-1)
        return (weights * weights).sqrt() @ v  # a root of 0 has no slope

    said = repr(check(rooted, "attention"))
    assert "detached" not in said and "NaN or infinity is in the gradient" in said


def test_numbers_are_shown_with_the_digits_that_tell():
    def attend(q, k, v, mask=None):
        s = q @ k.mT / q.shape[-1] ** 0.5
        s = s if mask is None else s.masked_fill(~mask, -1e30)
        e = (s - s.amax(-1, keepdim=True)).exp()
        weights = e / (e.sum(-1, keepdim=True) + 1e-3)
        return weights @ v, weights

    said = repr(check(attend, "attention"))
    assert re.search(r"its rows sum to 0\.999\d* … 0\.999\d*\.\n", said)
    assert "the shares are right, and their sum is not 1" in said
    for got, due in re.findall(r"(?:is|weight) (-?[\d.]+); (-?[\d.]+) is right", said):
        assert got != due


@pytest.mark.parametrize("root", [lambda D: int(math.sqrt(D)), math.isqrt])
def test_a_root_without_its_fraction_is_told_so(root):
    def attend(q, k, v, mask=None):
        return attention(q * q.shape[-1] ** 0.5 / root(q.shape[-1]), k, v, mask)

    said = repr(check(attend, "attention"))
    assert "divided by 2, and √D = 2.65 is due; is its fraction cut off" in said


def scored(change):
    """Scores that are changed as a function of them and of D says."""

    def attend(q, k, v, mask=None):
        s = change(q @ k.mT, q.shape[-1])
        s = s if mask is None else s.masked_fill(~mask, -torch.inf)
        return s.softmax(-1) @ v

    return attend


def test_a_root_that_was_rounded_is_told_with_the_digits_that_tell():
    said = repr(check(scored(lambda s, D: s / round(math.sqrt(D), 2)), "attention"))
    assert "divided by 2.650, where √D = 2.646 is due" in said  # and not "(here √D)"


def test_scores_that_are_turned_round_are_not_called_a_division():
    said = repr(check(scored(lambda s, D: -0.7 * s / math.sqrt(D)), "attention"))
    assert "Its scores are -0.700 times the right ones.\n" in said


def fused(order):
    class Fused(Layer):
        """Its rows lie in an order of its own, which is right as it is."""

        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            del self.q_proj, self.k_proj, self.v_proj
            self.qkv = nn.Linear(embed_dim, 3 * embed_dim)

        def forward(self, query, key, value, mask=None):
            sizes = {"n": 3, "h": self.num_heads}
            sizes["d"] = query.shape[-1] // self.num_heads
            q, k, v = (
                torch.einsum(f"bt{order}->nbhtd", y)[n]
                for n, x in enumerate((query, key, value))
                for y in [self.qkv(x).unflatten(-1, [sizes[x] for x in order])]
            )
            scores = q @ k.mT / q.shape[-1] ** 0.5
            if mask is not None:
                scores = scores.masked_fill(~mask[:, None], -torch.inf)
            return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))

    return Fused


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ("hnd", "head by head, [H, 3, D];"),
        ("hdn", "feature by feature, [H, D, 3];"),
        ("dnh", "heads last, [D, 3, H];"),
        ("nhd", ""),
    ],
)
def test_the_order_of_a_fused_matrix_is_told_where_it_is_not_the_usual(order, said):
    report = check(fused(order), "mha")
    lines = re.findall(r"Not a mistake: the rows of its fused matrix .*", repr(report))
    assert report and len(lines) == bool(said)
    if said:
        assert said in lines[0] and "role by role, [3, H, D], so parameters" in lines[0]
