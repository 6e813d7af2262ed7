"""What one call does not show: dropout, dtypes, devices and gradients."""

import re
from functools import cache

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from mha_lib.check import check, diagnose, own_task, registered
from mha_lib.check.catalogue import MISTAKES
from tests.check.layers import NoScale, Right
from tests.check.submissions_right import BareMatrices, FusedThatReturnsItsMap
from tests.check.submissions_wrong import WRONG, Drops
from tests.check.test_guessed import attention as right_attention


@cache
def checked(layer):
    """Once for several tests."""
    return check(layer, "mha")


class DropsWeights(Drops):
    weights = Drops.drop


def test_dropout_that_is_right_is_not_faulted():
    found = checked(DropsWeights).diagnosis
    assert found.verdict == "right" and found.properties["dropout"]


class DropsLikeNobody(Drops):
    def weights(self, w):
        return w * (1 + torch.rand_like(w)) if self.training else w


class NoiseOnScores(Drops):
    """A dropout by noise: each row still sums to 1."""

    def scores(self, s):
        return s * (1 + torch.randn_like(s)) if self.training else s


class DropsOnOutput(Drops):
    output = Drops.drop


class DropsInEval(Drops):
    def weights(self, w):
        return F.dropout(w, self.p or 0.5)


class ReturnsWhatItDropped(DropsWeights):
    def returned(self, w, dropped):
        return dropped


class LongerInTraining(DropsWeights):
    def output(self, x):
        return torch.cat([x, x], 1) if self.training else x


class IgnoresItsDropout(Drops):
    """And its mask the wrong way round: nothing can be said about dropout."""

    def forward(self, query, key, value, mask=None):
        mask = None if mask is None else ~mask
        return super().forward(query, key, value, mask)


@pytest.mark.long
@pytest.mark.parametrize(
    ("submission", "holds"),
    [
        (DropsWeights, True),
        (Drops, False),
        (DropsOnOutput, False),
        (DropsLikeNobody, False),
        (NoiseOnScores, False),
        (DropsInEval, False),
        (ReturnsWhatItDropped, True),
        (LongerInTraining, None),
        (IgnoresItsDropout, None),
        (Right, None),
        (Drops(12, 3), None),  # heads too narrow to show the map
    ],
)
def test_dropout_holds_where_it_was_judged_and_is_right(submission, holds):
    assert checked(submission).diagnosis.properties.get("dropout") is holds


def test_noise_on_scores_is_like_no_dropout():
    said = repr(checked(NoiseOnScores))
    assert "In training the output is like no dropout we know." in said


class DropsIfAsked(DropsOnOutput):
    def __init__(self, embed_dim, num_heads, dropout=0.0):
        super().__init__(embed_dim, num_heads, dropout)


class DropsWhatItMust(DropsOnOutput):
    def __init__(self, embed_dim, num_heads, dropout):
        super().__init__(embed_dim, num_heads, dropout)


@pytest.mark.parametrize(
    ("submission", "requires", "names"),
    [
        (DropsIfAsked, (), []),  # as it was made it drops nothing
        (DropsIfAsked, ("dropout",), ["dropout-on-output"]),
        (DropsOnOutput, (), ["dropout-on-output"]),
        (DropsWhatItMust, (), ["dropout-on-output"]),
    ],
)
def test_a_dropout_of_the_output_is_a_mistake_where_it_acts(
    submission, requires, names
):
    found = diagnose(submission, "mha", requires=requires)
    assert found.mistakes == names and (found.verdict == "right") != bool(names)
    assert found.properties.get("dropout") is (False if names else None)


class ReturnsItUnscaled(DropsWeights):
    def returned(self, w, dropped):
        return w * (dropped != 0)


class AveragesWhatItDropped(DropsWeights):
    def returned(self, w, dropped):
        return dropped.mean(1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("submission", "advice"),
    [
        (DropsWeights, []),
        (ReturnsWhatItDropped, ["weights-after-dropout"]),
        (ReturnsItUnscaled, ["weights-after-dropout"]),
        (AveragesWhatItDropped, []),
        (Right, []),
    ],
)
def test_weights_may_come_back_before_or_after_dropout(submission, advice):
    report = checked(submission)
    found = report.diagnosis
    assert (found.verdict, found.mistakes, found.advice) == ("right", [], advice)
    words = "Worth knowing: The returned weights do not sum to 1 in training"
    assert (words in repr(report)) == bool(advice)


def test_where_training_fails_dropout_does_not_hold():
    class Fails(DropsWeights):
        def weights(self, w):
            if self.training:
                raise RuntimeError("not while training")
            return w

    found = diagnose(Fails, "mha")
    assert found.verdict == "unmet" and "dropout" not in found.properties
    assert "not while training" in found.to_dict()["unmet"][0]


@pytest.mark.parametrize("order", ["transposed", ""])
@pytest.mark.parametrize("dropped", [True, False])
def test_dropout_is_seen_however_the_matrices_lie(order, dropped):
    class Bare(BareMatrices):
        def __init__(self, embed_dim, num_heads, dropout=0.1):
            super().__init__(embed_dim, num_heads)
            self.drop = nn.Dropout(dropout if dropped else 0.0)

        def forward(self, Q, K, V, mask=None):
            q, k, v, o = (
                W.T if order else W for W in (self.W_Q, self.W_K, self.W_V, self.W_O)
            )
            q, k, v = (
                (x @ W).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                for x, W in ((Q, q), (K, k), (V, v))
            )
            s = q @ k.mT / q.shape[-1] ** 0.5
            if mask is not None:
                s = s.masked_fill(~mask[:, None], -torch.inf)
            w = s.softmax(-1)
            w = self.drop(w) if dropped else w
            return (w @ v).transpose(1, 2).flatten(2) @ o

    found = diagnose(Bare, "mha")
    assert found.mistakes == ([] if dropped else ["dropout-unused"])
    assert not [text for text in found.to_dict()["evidence"] if "dropout" in text]


def test_a_map_belongs_to_the_weights_that_were_loaded_the_same_way():
    found = diagnose(FusedThatReturnsItsMap, "mha")
    assert (found.verdict, found.mistakes) == ("right", [])
    assert found.to_dict()["evidence"] == []


def needs_half_care(q, k, v, mask=None):
    s = q @ k.mT / q.shape[-1] ** 0.5
    return (s if mask is None else s.masked_fill(~mask, -1e9)).softmax(-1) @ v


def test_half_precision_and_other_devices_are_advice_where_they_do_no_harm():
    def constant(q, k, v, mask=None):
        hidden = torch.zeros(q.shape[-2], k.shape[-2])
        if mask is not None:
            hidden = hidden.masked_fill(~mask, -torch.inf)
        return (q @ k.mT / q.shape[-1] ** 0.5 + hidden).softmax(-1) @ v

    found = diagnose(constant, "attention")
    assert found.verdict == "right"
    assert found.advice == ["constant-dtype", "constant-device"]
    assert diagnose(needs_half_care, "attention").advice == ["fill-overflows-half"]
    found = diagnose(needs_half_care, "attention", dtype=torch.float16)
    assert (found.verdict, found.mistakes) == ("named", ["fill-overflows-half"])


def test_every_mistake_without_a_stage_is_shown_by_a_submission():
    shown = {"constant-dtype", "constant-device", "fill-overflows-half"}
    shown |= {"weights-after-dropout"}  # advice
    shown |= {name for names in WRONG for name in names}
    assert {name for name, m in MISTAKES.items() if not m.stages} <= shown


# --- gradients ----------------------------------------------------------------------


class Frozen(nn.Module):
    """Computes with .data: right numbers, and nothing to learn from."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = Right(embed_dim, num_heads)

    def forward(self, query, key, value, mask=None):
        data = {name: x.data for name, x in self.inner.named_parameters()}
        return torch.func.functional_call(self.inner, data, (query, key, value, mask))


def detached(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q.detach(), k.detach(), v, mask)


def detached_key(q, k, v, mask=None):
    return F.scaled_dot_product_attention(q, k.detach(), v, mask)


@pytest.mark.parametrize(
    "submission, task, lost",
    [
        (Frozen, "mha", "W_q, W_k, W_v, W_o, b_q, b_k, b_v, b_o: are they"),
        (detached, "attention", "q, k: are they"),
        (detached_key, "attention", "k: is it"),
    ],
)
def test_where_no_gradient_arrives_is_said(submission, task, lost):
    report = check(submission, task)
    found = report.diagnosis
    assert (found.verdict, found.properties["gradients"]) == ("unmet", False)
    words = f"No gradient reaches {lost} used? If so, a detach, .data, a no_grad or"
    assert found.to_dict()["unmet"][0].startswith(words)
    assert words in repr(report)


def test_a_layer_that_learns_is_told_nothing_about_gradients():
    found = checked(Right).diagnosis
    assert found.properties["gradients"]
    assert found.unmet == []


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_notebook_may_have_switched_gradients_off(off):
    with off():
        found = diagnose(Right, "mha")
        assert not torch.is_grad_enabled()
        assert diagnose(NoScale, "mha").mistakes == ["no-scale"]
    assert found.verdict == "right" and found.properties["gradients"]


# --- inputs -------------------------------------------------------------------------


def unsqueezes(q, k, v, mask=None):
    out = right_attention(q, k, v, mask)
    if mask is not None:
        mask.unsqueeze_(0)
    return out


def turns(q, k, v, mask=None):
    return right_attention(q, k.transpose_(-2, -1).mT, v, mask)


def rewrites(q, k, v, mask=None):
    out = right_attention(q, k, v, mask)
    v.mul_(2)
    return out


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (unsqueezes, r"mask had another shape, \(1, .*\) where \(\d.*\) came in\."),
        (turns, r"k had another shape, \((\d, \d), (\d), (\d)\) where \(\1, \3, \2\)"),
        (rewrites, r"v held other numbers\."),
    ],
)
def test_it_is_said_what_became_of_an_input(program, said):
    report = check(program, "attention")
    assert report.diagnosis.mistakes == ["inputs-changed"]
    assert re.search(rf"  After the call {said}", repr(report))
    assert ("numbers" in repr(report)) == (program is rewrites)


def test_a_task_of_ones_own_says_what_became_of_an_input_too():
    def split_heads(x, num_heads):
        B, T, E = x.shape
        return x.unsqueeze_(2).view(B, T, num_heads, -1).transpose(1, 2)

    shape = r"x had another shape, \((\d+, \d+), 1, (\d+)\) where \(\1, \2\) came in"
    assert re.search(shape, repr(check(split_heads)))

    task = own_task(
        "double", lambda x: 2 * x, lambda _: {"a row": {"x": torch.ones(3)}}
    )
    with registered(task):
        said = repr(check(lambda x: 2 * x.unsqueeze_(0)[0], "double"))
    assert "x had another shape, (1, 3) where (3,) came in" in said


# --- what differs between the modes -------------------------------------------------


class MasksInTraining(Right):
    """In evaluation mode it hides nothing, which no thrown away fill explains."""

    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, mask if self.training else None)


class MasksOddly(Right):
    def forward(self, query, key, value, mask=None):
        if mask is not None and not self.training:
            mask = mask.roll(1, dims=1)
        return super().forward(query, key, value, mask)


@pytest.mark.parametrize("layer", [MasksInTraining, MasksOddly, MasksOddly(16, 2)])
def test_what_is_wrong_in_evaluation_mode_alone_is_told_so(layer):
    report = check(layer, "mha", num_heads=2)
    assert (report.diagnosis.verdict, report.diagnosis.mistakes) == ("unknown", [])
    said = repr(report)
    assert (
        "  In training mode, every nn.Dropout set to 0, it is right, and in eval"
        in said
    )
    assert "Without a mask all is right" not in said


class NoisyInTraining(Right):
    def forward(self, query, key, value, mask=None):
        output = super().forward(query, key, value, mask)
        return output + self.training * torch.randn_like(output)


@pytest.mark.parametrize("seed", [0, 5])
def test_a_gradient_of_another_output_is_no_fault_of_its_own(seed):
    said = repr(check(NoisyInTraining, "mha", seed=seed))
    assert said.count("In training mode, every nn.Dropout set to 0, the output is") == 1
    assert "The output is right" not in said and "detached" not in said


def fills(number):
    def attention(q, k, v, mask=None):
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask, number)
        weights = scores.softmax(dim=-1)
        return weights @ v, weights

    return attention


@pytest.mark.parametrize("number", [-100.0, -1e3, -4e3])
def test_a_number_that_hides_has_to_be_below_every_score(number):
    report = check(fills(number), task="attention")
    assert not report and "a hidden score is not the lowest" in repr(report)


@pytest.mark.parametrize(
    "number", [float("-inf"), -1e9, torch.finfo(torch.float32).min]
)
def test_a_number_that_is_low_enough_hides(number):
    assert check(fills(number), task="attention")


class OneAxisAtATime(Right):
    """Sequence first: of a mask (1, S, 1) the batch is left as it is."""

    def forward(self, query, key, value, mask=None):
        (T, B, _), S = query.shape, len(key)
        if mask is not None:
            if len(mask) == 1:
                mask = mask.expand(T, -1, -1)
            elif mask.shape[2] == 1:
                mask = mask.expand(-1, -1, B)
            mask = mask.reshape(T, S, B).permute(2, 0, 1)
        turned = (x.transpose(0, 1) for x in (query, key, value))
        return super().forward(*turned, mask).transpose(0, 1)


class BothAxes(OneAxisAtATime):
    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.expand(len(query), len(key), query.shape[1])
        return super().forward(query, key, value, mask)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("seed", [0, 7])
def test_a_mask_for_all_queries_of_all_sequences_is_broadcast_too(seed):
    options = {"requires": ["mask_broadcasts"], "seed": seed}
    report = check(OneAxisAtATime, "mha_sequence_first", **options)
    assert report.diagnosis.verdict == "unmet"
    assert check(BothAxes, "mha_sequence_first", **options)
