"""What is answered to the code of a beginner, who has read a chapter or two."""

import math
import re

import pytest
import torch
from torch import nn

from mha_lib import attention as of_the_book
from mha_lib.check import MISTAKES, check
from tests.check.layers import Right

# --- before there are masks ---------------------------------------------------------


def bent(q, k, v):
    weights = torch.tanh(q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1)
    return weights @ v, weights


def root_of_the_keys(q, k, v):
    weights = (q @ (k.mT / q.shape[-1]) ** 0.5).softmax(dim=-1)
    return weights @ v, weights


def of_the_first_key(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1) @ v.detach()


def far_too_sharp(q, k, v):
    return (q @ k.mT * q.shape[-1] ** 3).softmax(dim=-1) @ v


@pytest.mark.parametrize(
    "wrong", [bent, root_of_the_keys, of_the_first_key, far_too_sharp]
)
def test_before_there_are_masks_nothing_is_said_of_them(wrong):
    report = check(wrong, "attention", mask=False)
    assert not report
    said = repr(report).replace("(no mask)", "")
    assert not re.search(r"\b(mask|hidden from)", said), said
    assert "right_with_mask" not in report.diagnosis.properties


def test_nan_before_there_are_masks_comes_from_arithmetic():
    said = repr(check(root_of_the_keys, "attention", mask=False))
    assert "the root of a negative number, 0/0 or ∞/∞ makes the first NaN" in said
    assert "Next: with T = 2, S = 3 and D = 4, print each step" in said


def test_with_masks_it_is_still_told_where_it_is_right():
    def attention(q, k, v, mask=None):
        return bent(q, k, v)

    assert "It is wrong without a mask and with one." in repr(check(attention))


# --- the scale ----------------------------------------------------------------------


def over(number):
    def attention(q, k, v, mask=None):
        scores = q @ k.mT / number
        if mask is not None:
            scores = scores.masked_fill(~mask, float("-inf"))
        return scores.softmax(dim=-1) @ v

    return attention


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (math.sqrt(2), "divided by 1.41 in every call, whatever D is; that is √D where "
                       "D = 2 alone"),
        (2, "divided by 2 in every call, whatever D is; that is √D where D = 4 alone"),
        (8**0.5, "divided by 2.83 in every call"),
        (8, "divided by 8 in every call"),
        (3.3, "divided by 3.3 in every call, whatever D is. Take D"),
        (1 / 3, "multiplied by 3 in every call, whatever D is. Take D"),
    ],
)  # fmt: skip
def test_a_constant_is_told_with_its_number(number, said):
    for seed in range(3):
        report = check(over(number), seed=seed)
        assert report.diagnosis.mistakes == ["scale-hard-coded"]
        assert said in repr(report)


def test_what_depends_on_a_size_is_no_constant():
    def of_keys(q, k, v, mask=None):
        return over(k.shape[-2] ** 0.5)(q, k, v, mask)

    def three_roots(q, k, v, mask=None):
        return over(3 * q.shape[-1] ** 0.5)(q, k, v, mask)

    assert check(of_keys, "attention").diagnosis.mistakes == ["scale-key-length"]
    assert check(three_roots, "attention").diagnosis.verdict == "unknown"
    assert check(over(1.0)).diagnosis.mistakes == ["no-scale"]


def test_of_a_module_with_one_head_size_no_constant_is_claimed():
    class Constant(Right):
        def scale(self):
            return 3.3

    report = check(Constant(12, 2), "mha", num_heads=2)
    assert report.diagnosis.mistakes == [] and "whatever D is" not in repr(report)


def test_a_constant_and_a_mask_the_wrong_way_round_are_two():
    def attention(q, k, v, mask=None):
        return over(math.sqrt(2))(q, k, v, None if mask is None else ~mask)

    found = check(attention).diagnosis
    assert found.mistakes == ["scale-hard-coded", "mask-inverted"]


def test_a_root_of_the_batch_is_told():
    def attention(q, k, v, mask=None):
        return over(len(q) ** 0.5)(q, k, v, mask)

    assert any("(here √B" in repr(check(attention, seed=n)) for n in range(3))


# --- where to read ------------------------------------------------------------------

LATE = {  # what is explained nowhere before, or can be made nowhere before
    *("merge-batch-major", "relu-after-projection", "relu-missing", "residual"),
    *("layout-exchanged", "output-reshaped", "key-mask-from-sum"),
    *("wrong-output-dtype", "constant-dtype", "constant-device"),
}


def test_a_mistake_of_the_first_chapters_is_read_about_there():
    chapter = {
        name: int(re.search(r"\d+", mistake.section)[0])
        for name, mistake in MISTAKES.items()
    }
    assert {name for name, n in chapter.items() if n > 5} == LATE


# --- errors -------------------------------------------------------------------------


def turned_by_T(q, k, v):
    return (q @ k.T / q.shape[-1] ** 0.5).softmax(-1) @ v


def turned_by_t(q, k, v):
    return (q @ k.t() / q.shape[-1] ** 0.5).softmax(-1) @ v


def turned_in_front(q, k, v):
    return (q @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1) @ v


def two_axes(q, k, v):
    T, D = q.shape
    return (q @ k.mT / D**0.5).softmax(-1) @ v


def of_matrices(q, k, v):
    return (torch.mm(q, k.mT) / q.shape[-1] ** 0.5).softmax(-1) @ v


def entry_by_entry(q, k, v):
    scores = q * k / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v


def root_of_a_number(q, k, v):
    return (q @ k.mT / torch.sqrt(q.shape[-1])).softmax(-1) @ v


def in_loops(q, k, v):
    scores = torch.zeros(q.shape[-2], k.shape[-2])
    for t in range(q.shape[-2]):
        for s in range(k.shape[-2]):
            scores[t, s] = q[t] @ k[s] / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ v


def sums_without_an_axis(q, k, v):
    shares = (q @ k.mT / q.shape[-1] ** 0.5).exp()
    total = shares.sum(dim=-1)
    weights = shares / total
    return weights @ v


def values_first(q, k, v):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    return v @ weights


def no_axis(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax() @ v


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (turned_by_T, "k.mT, or k.transpose(-2, -1), turns the last two alone."),
        (turned_by_t, "k.mT, or k.transpose(-2, -1), turns the last two alone."),
        (turned_in_front, "Count the axes from the end, whatever stands before"),
        (two_axes, "*_, T, D = q.shape takes the last two"),
        (of_matrices, "@ multiplies stacks of matrices"),
        (entry_by_entry, "each query meets each key in q @ k.mT."),
        (root_of_a_number, "math.sqrt, or ** 0.5."),
        (in_loops, "q[..., t, :] is one of them."),
        (sums_without_an_axis, "sum(dim=-1, keepdim=True) keeps it"),
        (values_first, "weights (T, S) meet values (S, D), weights @ v."),
        (no_axis, "The keys are the last axis: softmax(dim=-1)."),
    ],
)
def test_an_error_of_attention_is_met_with_the_cure(wrong, said):
    report = repr(check(wrong, "attention", mask=False))
    assert said in report
    assert "should one be turned" not in report


def asks(hide):
    def attention(q, k, v, mask=None):
        scores = hide(q @ k.mT / q.shape[-1] ** 0.5, mask)
        return scores.softmax(dim=-1) @ v

    return attention


def if_mask(scores, mask):
    if mask:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores


def not_a_mask(scores, mask):
    if mask is not None:
        scores = scores.masked_fill(not mask, float("-inf"))
    return scores


def by_an_index(scores, mask):
    if mask is not None:
        scores[~mask] = float("-inf")
    return scores


def of_no_mask(scores, mask):
    return scores.masked_fill(~mask[:, :1], float("-inf"))


def of_plus_infinity(scores, mask):
    return scores if mask is None else scores.masked_fill(~mask, float("inf"))


def times_infinity(scores, mask):
    return scores if mask is None else scores + (~mask) * float("-inf")


@pytest.mark.parametrize(
    ("hide", "said"),
    [
        (if_mask, "Whether there is a mask asks `if mask is not None:`."),
        (not_a_mask, "To turn each entry of a mask, write ~mask;"),
        (by_an_index, "masked_fill takes one that broadcasts."),
        (of_no_mask, "Where no mask is given it is None: first ask"),
        (of_plus_infinity, "Where a key is hidden, NaN comes out"),
        (times_infinity, "Where a key is hidden, NaN comes out"),
    ],
)
def test_a_mask_that_is_used_wrongly_is_met_with_the_cure(hide, said):
    assert said in repr(check(asks(hide)))


# --- layers -------------------------------------------------------------------------


class Head(nn.Module):
    def __init__(self, embed_dim, head_dim):
        super().__init__()
        self.q_proj = nn.Linear(embed_dim, head_dim)
        self.k_proj = nn.Linear(embed_dim, head_dim)
        self.v_proj = nn.Linear(embed_dim, head_dim)

    def forward(self, query, key, value):
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return of_the_book(q, k, v)


class Loop(nn.Module):
    """Right, to be broken."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.heads = self.made(embed_dim, num_heads)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def made(self, E, H):
        return nn.ModuleList(Head(E, E // H) for _ in range(H))

    def forward(self, query, key, value):
        contexts, maps = zip(*(head(query, key, value) for head in self.heads))
        return self.out_proj(self.joined(contexts)), self.weights(maps)

    def joined(self, contexts):
        return torch.cat(contexts, dim=-1)

    def weights(self, maps):
        return torch.stack(maps, dim=1)


def test_the_loop_is_right():
    assert check(Loop, mask=False)


class PlainList(Loop):
    def made(self, E, H):
        return [Head(E, E // H) for _ in range(H)]


class PlainDict(Loop):
    def made(self, E, H):
        return {f"{h}": Head(E, E // H) for h in range(H)}

    def forward(self, query, key, value):
        contexts, _ = zip(*(x(query, key, value) for x in self.heads.values()))
        return self.out_proj(self.joined(contexts))


class OfFloats(Loop):
    def made(self, E, H):
        D = E / H
        return nn.ModuleList(Head(E, D) for _ in range(H))


class OneForAll(Loop):
    def made(self, E, H):
        return nn.ModuleList([Head(E, E // H)] * H)


class TooWide(Loop):
    def made(self, E, H):
        return nn.ModuleList(Head(E, E) for _ in range(H))


class JoinedAcross(Loop):
    def joined(self, contexts):
        return torch.cat(contexts, dim=1)


class ListOfMaps(Loop):
    def weights(self, maps):
        return [*maps]


class Forgetful(Loop):
    def joined(self, contexts):
        return torch.cat(contexts[:num_heads], dim=-1)  # noqa: F821


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (PlainList, r"self.heads is a plain list, which hides .*nn.ModuleList\("),
        (PlainDict, r"self.heads is a plain dict, which hides .*nn.ModuleDict\("),
        (OfFloats, "E // num_heads is one, E / num_heads is none."),
        (OneForAll, r"self.heads holds one and the same layer \d times"),
        (TooWide, r"yours has \((\d+), \1\)\. Here \d+ is D, \1 is E\."),
        (JoinedAcross, r"the last axis \(torch.cat\(…, dim=-1\)\)\?"),
        (ListOfMaps, r"must be one torch.Tensor; got list. .*torch.stack\(…, dim=1\)"),
        (Forgetful, "In a method it is self.num_heads"),
    ],
)
def test_a_loop_that_fails_is_met_with_the_cure(wrong, said):
    report = repr(check(wrong, mask=False))
    assert re.search(said, report)
    if wrong in (OneForAll, TooWide, JoinedAcross):  # right for one head alone
        assert "Where it answers, with H = 1, it is right." in report


@pytest.mark.parametrize(
    ("together", "said"),
    [
        (lambda maps: torch.stack(maps), "are (H, B, T, S), where (B, H, T, S) is due"),
        (lambda maps: torch.stack(maps, dim=-1), "are (B, T, S, H), where"),
        (lambda maps: torch.stack(maps, dim=2), "are (B, T, H, S), where"),
        (lambda maps: torch.cat(maps), "are (H·B, T, S), where"),
        (
            lambda maps: torch.stack(maps, 1).flatten(0, 1),
            "The weights that you return are (B·H, T, S), where (B, H, T, S) is due: "
            "unflatten(0, (B, H)) brings them there.",
        ),
        (lambda maps: torch.cat(maps, dim=1), "are (B, H·T, S), where"),
        (lambda maps: torch.cat(maps, dim=-1), "are (B, T, H·S), where"),
        (lambda maps: maps[-1], "is the map of the last head."),
        (lambda maps: maps[0], "is the map of the first head."),
        (lambda maps: torch.stack(maps, 1).mT, "turned, with a row for each key."),
        (lambda maps: torch.stack(maps, 1).log(), "is the scores, from before the"),
    ],
)
def test_weights_that_lie_otherwise_are_told_how(together, said):
    class Otherwise(Loop):
        def weights(self, maps):
            return together(maps)

    report = check(Otherwise, mask=False)
    assert report.diagnosis.mistakes == ["weights-returned-wrong"]
    _, what, how, *_ = repr(report).splitlines()
    assert "[weights-returned-wrong]" in what and said in how  # no section says more
    assert "Read:" not in repr(report) and repr(report).count(said) == 1
    assert ("torch.stack(…, dim=1)" in how) == said.startswith("are (")


def test_weights_that_are_something_else_are_told_no_axes():
    class Other(Loop):
        def weights(self, maps):
            return torch.stack(maps, 1).flip(-1)

    report = repr(check(Other, mask=False))
    assert "weights-returned-wrong" in report and "that you return are" not in report


class Fused(Right):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        del self.w_q, self.w_k, self.w_v
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)

    def forward(self, query, key, value):
        q, k, v = self.thirds(query, key, value)
        q, k, v = self.heads(q), self.heads(k), self.heads(v)
        context, weights = of_the_book(q, k, v)
        return self.w_o(self.join(context)), weights


class CutAcross(Fused):
    def heads(self, x):
        B, T, _ = x.shape
        return x.view(B, T, self.h, self.d_k).transpose(1, 2)

    def thirds(self, query, key, value):
        q, k, v = self.in_proj(query).chunk(3)
        return q, k, v


class NotCut(CutAcross):
    def thirds(self, query, key, value):
        return self.in_proj(query), self.in_proj(key), self.in_proj(value)


class NotCutIntoMore(Fused):
    thirds = NotCut.thirds


class Turned(Fused):
    def thirds(self, query, key, value):
        return query, value, key

    def heads(self, x):
        return super().heads(x).mT


class Exchanged(Right):
    def heads(self, x):
        B, T, E = x.shape
        return x.view(B, T, self.d_k, self.h).transpose(1, 2)


class Overlapping(Right):
    def heads(self, x):
        D = self.d_k
        return torch.stack([x[..., h : h + D] for h in range(self.h)], dim=1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (CutAcross, "chunk cuts the first axis, the batch, unless it is told"),
        (NotCut, "Three times as many numbers come: chunk(3, dim=-1) gives q, k and v"),
        (NotCutIntoMore, "; three times as many numbers: chunk(3, dim=-1) gives q, k"),
        (
            Exchanged,
            "write view(B, T, H, D) before the transpose, not view(B, T, D, H)",
        ),
        pytest.param(  # what is said of its heads names no variable
            Overlapping,
            "It is right but for the cut, where head h gets the features h to "
            "h + D - 1, which overlap: h * D to (h + 1) * D - 1 are due.",
            marks=pytest.mark.exhaustive,  # long; test_as_asked has it of a function
        ),
    ],
)
def test_a_projection_or_a_cut_that_is_wrong_is_met_with_the_cure(wrong, said):
    report = repr(check(wrong, "mha", mask=not issubclass(wrong, Fused)))
    assert said in report and "Next:" not in report


def turned(q, k, v):
    q, k, v = q.mT, k.mT, v.mT
    context, weights = of_the_book(q, k, v)
    return context, weights


@pytest.mark.parametrize(
    ("wrong", "task"),
    [
        (turned, "attention"),
        pytest.param(Turned, "mha", marks=pytest.mark.exhaustive),  # takes long
    ],
)
def test_the_line_of_an_error_is_theirs_and_not_the_library_s(wrong, task):
    report = repr(check(wrong, task, mask=False))
    assert "context, weights = of_the_book(q, k, v)" in report
    assert "raise" not in report


def test_shares_over_the_sum_of_all_are_told_so():
    def attention(q, k, v):
        shares = (q @ k.mT / q.shape[-1] ** 0.5).exp()
        weights = shares / shares.sum()
        return weights @ v, weights

    report = repr(check(attention, mask=False))
    assert "divide each row by the sum of its own" in report
    assert "the map is right" not in report and "Next:" not in report


def by_powers_of_2(q, k, v):
    powers = 2 ** (q @ k.mT / math.sqrt(q.shape[-1]))
    weights = powers / powers.sum(-1, keepdim=True)
    return weights @ v, weights


def test_powers_of_2_are_told():
    """Chapter 1 begins with them."""
    said = repr(check(by_powers_of_2, task="attention", mask=False))
    assert "that is ln 2: are these powers of 2?" in said


def heads_taken_for_tokens(x):
    B, T, H, D = x.shape
    return x.transpose(1, 2).contiguous().view(B, T, H * D)


def test_a_merge_that_names_the_axes_in_another_order_is_told():
    said = repr(check(heads_taken_for_tokens, task="merge_heads"))
    assert "(B, H, T, D), the heads come before the tokens" in said


class CutsTheBatch(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.in_proj = nn.Linear(embed_dim, 3 * embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, query, key, value):
        q, k, v = self.in_proj(query).chunk(3)
        return q, k


def test_a_chunk_of_the_batch_is_told():
    said = repr(check(CutsTheBatch, task="mha", mask=False))
    assert "chunk(3, dim=-1)" in said


@pytest.mark.parametrize("takes_it", [True, False])
def test_who_takes_no_mask_for_all_is_told(takes_it):
    class Layer(Right):
        def forward(self, query, key, value, mask=None):
            if takes_it and mask is not None and mask.dim() == 2:
                mask = mask[None]  # else the layer below makes (T, 1, S) of it
            return super().forward(query, key, value, mask)

    report = check(Layer, task="mha")
    assert report and ("one mask (T, S) for all" in repr(report)) is not takes_it


class ThirdsByColumn(Fused):
    """The matrix is cut where it is stored, and along its inputs."""

    def thirds(self, query, key, value):
        each = self.in_proj.weight.chunk(3, dim=-1)
        return [nn.functional.linear(x, W) for x, W in zip((query, key, value), each)]


def test_a_stored_matrix_that_is_cut_across_is_met_with_the_cure():
    report = repr(check(ThirdsByColumn, mask=False))
    assert "its thirds are rows, weight.chunk(3) without dim=-1" in report
