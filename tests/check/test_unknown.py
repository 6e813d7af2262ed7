"""What is in no catalogue is not called right, and gets no name."""

import time

import pytest
import torch
import torch.nn.functional as F

from mha_lib.check import check, diagnose
from tests.check.layers import Right
from tests.check.submissions_right import zeros_for_empty_rows
from tests.check.submissions_wrong import Base


def squeezed(q, k, v, mask=None):
    """An axis of one query goes, with the axis that was to go."""
    s = (q.unsqueeze(-2) @ k.unsqueeze(-3).mT).squeeze() / q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf)
    return s.softmax(-1) @ v


def one_query_sees_all(q, k, v, mask=None):
    mask = None if q.shape[-2] == 1 else mask
    return F.scaled_dot_product_attention(q, k, v, mask)


def sums_that_are_not_rescaled(q, k, v, mask=None):
    """An online softmax: right as long as one block of 16 holds all keys."""
    out, total, top = 0, 0, torch.full((*q.shape[:-1], 1), -torch.inf)
    for a in range(0, k.shape[-2], 16):
        s = q @ k[..., a : a + 16, :].mT / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(~mask[..., a : a + 16], torch.finfo(s.dtype).min)
        top = torch.maximum(top.to(s), s.amax(-1, keepdim=True))
        p = (s - top).exp()
        out = out + p @ v[..., a : a + 16, :]
        total = total + p.sum(-1, keepdim=True)
    return out / total


def nothing_as_soon_as_one_row_is_empty(q, k, v, mask=None):
    s = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf)
    w = s.softmax(-1)
    return (torch.zeros_like(w) if w.isnan().any() else w) @ v


@pytest.mark.parametrize(
    "submission, task",
    [
        (squeezed, "attention"),
        (one_query_sees_all, "attention"),
        (sums_that_are_not_rescaled, "attention"),
        (nothing_as_soon_as_one_row_is_empty, "attention"),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_what_is_wrong_only_sometimes_is_not_called_right(submission, task):
    found = diagnose(submission, task)
    assert found.verdict in ("named", "unknown")
    assert not found.properties["right"]


def test_an_empty_row_may_be_zero_where_the_others_are_right():
    assert diagnose(zeros_for_empty_rows, "attention").verdict == "right"


def test_of_rows_that_are_left_out_the_mask_is_told():
    def attend(q, k, v, mask=None):
        """It goes on to the next query where every key is hidden from one."""
        scores = q @ k.mT / q.shape[-1] ** 0.5
        seen = torch.ones_like(scores) > 0 if mask is None else mask.expand_as(scores)
        rows = [
            scores[..., t, :].masked_fill(~seen[..., t, :], -torch.inf).softmax(-1)
            for t in range(q.shape[-2])
            if seen[..., t, :].any(-1).all()
        ]
        return torch.stack(rows, -2) @ v

    report = check(attend, "attention")
    assert (report.diagnosis.verdict, report.diagnosis.mistakes) == ("unknown", [])
    assert "Without a mask all is right: look at what the mask does" in repr(report)


def test_a_wide_layer_shows_its_map_where_the_catalogue_ends():
    class Halved(Base):
        def forward(self, query, key, value, mask=None):
            q, k, v = (
                self.heads(f(x))
                for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
            )
            s = q @ k.mT / self.d_k**0.5 / 3
            if mask is not None:
                s = s.masked_fill(~mask[:, None], -1e9)
            return self.w_o(self.join(s.softmax(-1) @ v))

    found = diagnose(Halved(96, 2), "mha", num_heads=2)
    assert found.verdict == "unknown" and found.mistakes == []
    words = "Its scores are 0.333 times the right ones: they are divided by 20.8, where"
    assert any(x.startswith(words) for x in found.to_dict()["evidence"])
    assert found.properties["runs"] and not found.properties["right_without_mask"]


class Normalised(Right):
    def forward(self, query, key, value, mask=None):
        output = super().forward(query, key, value, mask)
        return F.layer_norm(output, output.shape[-1:])


class HeadsTurned(Right):
    """Each head weighs the values of another one."""

    def heads(self, x):
        self.met = getattr(self, "met", 0) + 1
        return super().heads(x) if self.met % 3 == 0 else super().heads(x).flip(1)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (Normalised, "is there a LayerNorm behind the layer?"),
        (HeadsTurned, "Its heads are those of the reference in the order 1, 0."),
    ],
)
def test_what_is_seen_of_a_layer_without_a_name_is_told(layer, words):
    found = diagnose(layer, "mha")
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert any(words in x for x in found.to_dict()["evidence"])


def test_a_wrong_map_that_comes_back_is_looked_at_first():
    class Bounded(Right):
        """The sequence comes first; scores are kept between -1 and 1."""

        def forward(self, query, key, value, mask=None):
            inputs = (self.w_q, query), (self.w_k, key), (self.w_v, value)
            q, k, v = (self.heads(f(x.transpose(0, 1))) for f, x in inputs)
            s = torch.tanh(q @ k.mT / self.scale())
            if mask is not None:
                s = s.masked_fill(~mask.movedim(-1, 0)[:, None], -torch.inf)
            weights = s.softmax(-1)
            return self.w_o(self.join(weights @ v)).transpose(0, 1), weights

    said = repr(check(Bounded, "mha_sequence_first"))
    assert "The output is the weights that you return times the values, and" in said
    assert "these weights are wrong: look at what comes before them" in said


def test_masks_under_a_broken_softmax_are_not_judged():
    def broken(q, k, v, mask=None):
        s = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            s = s + 0.3 * mask
        return s.softmax(-2) @ v

    found = diagnose(broken, "attention")
    assert found.mistakes == ["softmax-over-queries"]
    assert any("fix this first" in text for text in found.to_dict()["evidence"])


class OneNumber(Right):
    number = torch.inf

    def forward(self, query, key, value, mask=None):
        out = super().forward(query, key, value, mask).clone()
        out[-1, -1, -1] = self.number
        return out


@pytest.mark.long
@pytest.mark.sweep(3)
@pytest.mark.parametrize("number", [torch.inf, torch.nan, 1e30, 1e6])
def test_one_number_that_cannot_be_does_not_let_everything_pass(number):
    layer = type("Layer", (OneNumber,), {"number": number})
    start = time.process_time()
    found = diagnose(layer, "mha")
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert time.process_time() - start < 30  # or it takes minutes


# --- fills --------------------------------------------------------------------------


def filled(number):
    def attention(q, k, v, mask=None):
        s = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(~mask, number)
        return s.softmax(-1) @ v

    return attention


class FilledLayer(Right):
    fill = -20.0

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            self.heads(f(x))
            for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        )
        seen = None if mask is None else mask[:, None]
        return self.w_o(self.join(filled(self.fill)(q, k, v, seen)))


@pytest.mark.parametrize("number", [-12, -20, -40])
def test_a_fill_that_scores_can_undercut_leaks(number):
    found = diagnose(filled(number), "attention")
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert not found.properties["right_with_mask"]
    (words,) = (
        text for text in found.to_dict()["evidence"] if "hidden keys take" in text
    )
    assert "filled with a number that is not low enough" in words


@pytest.mark.parametrize("layer", [FilledLayer, FilledLayer(16, 2)])
def test_a_fill_of_a_layer_leaks_too(layer):
    found = diagnose(layer, "mha", num_heads=2)
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert any(
        "hidden keys take the weight" in text for text in found.to_dict()["evidence"]
    )


@pytest.mark.long
@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16]
)
def test_a_fill_that_is_low_enough_is_right(dtype):
    for number in (-1e4, torch.finfo(dtype).min, -torch.inf):
        assert diagnose(filled(number), "attention", dtype=dtype).verdict == "right"
        layer = FilledLayer(16, 2).to(dtype)
        layer.fill = number
        assert diagnose(layer, "mha", num_heads=2).verdict == "right"


@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(3))
def test_a_turned_mask_is_named_where_it_fits_no_other_sizes(seed):
    class Turns(Right):
        def forward(self, query, key, value, mask=None):
            turned = None if mask is None else mask.mT
            return super().forward(query, key, value, turned)

    assert diagnose(Turns, "mha", seed=seed).mistakes == ["mask-transposed"]


def test_a_turned_mask_is_all_that_is_named_where_other_sizes_fail_without_one():
    def attend(q, k, v, mask=None):
        T = q.shape[-2]
        mask = torch.ones(T, T, dtype=torch.bool) if mask is None else mask.mT
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return scores.masked_fill(~mask, -torch.inf).softmax(-1) @ v

    report = check(attend, "attention")
    assert report.diagnosis.mistakes == ["mask-transposed"]
    assert "[mask-transposed]" in repr(report)
    assert "needs-equal-sizes" not in repr(report)


# --- masks that are used at the wrong place, or where there is none ------------------


def masked_as(mask_of):
    def attention(q, k, v, mask=None):
        s = q @ k.mT / q.shape[-1] ** 0.5
        weights = s.masked_fill(~mask_of(mask, s), -torch.inf).softmax(-1)
        return weights @ v, weights

    return attention


@pytest.mark.parametrize(
    ("wrote", "changed"),
    [
        ("mask[None]", lambda mask: mask[None]),
        ("mask[:, None]", lambda mask: mask[:, None]),
    ],
)
@pytest.mark.parametrize("seed", [0, 7])
def test_an_axis_too_many_of_a_mask_is_told(wrote, changed, seed):
    ones = torch.ones(1, 1, dtype=torch.bool)
    attend = masked_as(lambda mask, s: ones if mask is None else changed(mask))
    said = repr(check(attend, seed=seed))
    assert f"as {wrote} makes it: the mask fits the scores as it is" in said


@pytest.mark.parametrize("seed", [0, 7])
def test_keys_that_are_hidden_where_there_is_no_mask_are_told(seed):
    none = torch.zeros(1, 1, dtype=torch.bool)
    attend = masked_as(lambda mask, s: none if mask is None else mask)
    said = repr(check(attend, seed=seed))
    assert "Without one every key is hidden" in said
    assert "values are projected" not in said


class AddsTooLittle(Right):
    def forward(self, query, key, value, mask=None):
        pairs = (self.w_q, query), (self.w_k, key), (self.w_v, value)
        q, k, v = (self.heads(f(x)) for f, x in pairs)
        s = q @ k.mT / self.scale()
        s = s if mask is None else s + ~mask[:, None] * -100.0
        return self.w_o(self.join(s.softmax(-1) @ v))


def test_a_fill_that_is_not_low_enough_is_told_and_no_gradient():
    said = repr(check(AddsTooLittle, "mha"))
    assert "with a number that is low enough" in said
    assert "The output is right, and the gradient" not in said


def test_integers_are_not_called_scores():
    def attention(q, k, v, mask=None):
        s = q @ k.mT / q.shape[-1] ** 0.5
        weights = (s if mask is None else s.masked_fill(~mask, -torch.inf)).softmax(-1)
        return weights @ v, weights.argmax(-1)

    said = repr(check(attention))
    assert "What you return as the weights is the key of the largest weight" in said


def test_weights_of_0_are_not_called_nan():
    def split_concat(queries, keys, weights, num_heads, causality=False):
        def heads(x, r):
            x = F.relu(F.linear(x, weights[f"W_{r}"], weights[f"b_{r}"]))
            return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)

        q, k, v = heads(queries, "q"), heads(keys, "k"), heads(keys, "v")
        s = q @ k.mT / q.shape[-1] ** 0.5
        s = s.masked_fill(~(keys != 0).any(-1)[:, None, None], -1e9)
        if causality:
            s = s.masked_fill(~torch.ones_like(s).tril().bool(), -1e9)
        real = (queries != 0).any(-1)[:, None, :, None]
        context = (s.softmax(-1) * real @ v).transpose(1, 2).flatten(2)
        return F.linear(context, weights["W_o"], weights["b_o"])

    said = repr(check(split_concat))
    assert "[padding-on-both]" in said
    assert "gives every key the weight 0" in said and "NaN" not in said
