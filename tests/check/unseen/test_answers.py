"""What is said of unseen programs is true, or asks for a step that helps."""

import pytest
import torch
from torch.nn import functional as F

from mha_lib.check import check, own_task, registered
from mha_lib.check.language.step import training_step
from tests.check.unseen.usual import Attention, Plain, PlainModel


class AddsInPlace(Plain):
    def forward(self, x, mask):
        h = self.norm1(x)
        x += self.attention(h, h, h, mask)[0]
        return x + self.mlp(self.norm2(x))


class MasksInPlace(Plain):
    def forward(self, x, mask):
        out = super().forward(x, mask)
        mask.logical_not_()
        return out


@pytest.mark.parametrize(
    "block",
    [pytest.param(AddsInPlace, marks=pytest.mark.exhaustive), MasksInPlace],
)
def test_an_input_that_is_changed_is_the_one_reason(block):
    said = repr(check(block, "block"))
    assert said.startswith("Not right yet") and " held other numbers." in said
    assert "dropout" not in said and "Next: " not in said


def test_tokens_that_are_changed_are_the_one_reason():
    class Replaces(PlainModel):
        def forward(self, tokens):
            logits = super().forward(tokens)
            tokens[tokens == 0] = 1
            return logits

    said = repr(check(Replaces, "language_model"))
    assert said.startswith("Not right yet") and "tokens held other numbers." in said
    assert "logit" not in said.partition("Required: ")[0] and "Next: " not in said


def test_an_error_that_is_no_change_of_an_input_is_still_looked_for():
    class InPlaceLater(Plain):
        def forward(self, x, mask):
            h = self.norm1(x).sigmoid().exp_()
            return super().forward(x, mask) + 0 * h

    said = repr(check(InPlaceLater, "block"))
    assert "inplace operation" in said and "Next: " in said


@pytest.mark.parametrize("twin", [{"k": "q"}, {"v": "k"}, {"k": "q", "v": "q"}])
def test_one_layer_with_two_names_is_told_so(twin):
    class Shares(Attention):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            for one, other in twin.items():
                setattr(self, f"{one}_proj", getattr(self, f"{other}_proj"))

    said = repr(check(Shares, "mha"))
    names = " and ".join(f"{x}_proj" for x in "qkv" if x in {*twin, *twin.values()})
    assert f"  {names} are one and the same layer: each needs a layer of" in said
    assert "by name" not in said


class DropsByItself(Attention):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return F.dropout(output, 0.2, self.training), weights


class ScalesInTraining(Attention):
    def forward(self, query, key, value, mask=None):
        output, weights = super().forward(query, key, value, mask)
        return output * (1 + self.training), weights


@pytest.mark.parametrize(
    ("layer", "draws"), [(DropsByItself, True), (ScalesInTraining, False)]
)
def test_what_is_drawn_without_a_dropout_module_is_told(layer, draws):
    said = repr(check(layer, "mha"))
    assert "every nn.Dropout set to 0, the output is wrong" in said
    assert ("random numbers are drawn all the same, as by F.dropout" in said) is draws


class CutInOneView(Attention):
    """Sequence first; `cut` is how (L, B, E) becomes (B·H, L, D)."""

    def cut(self, x):
        L, B, E = x.shape
        return x.reshape(B * self.num_heads, L, E // self.num_heads)

    def forward(self, query, key, value, mask=None):
        T, B, E = query.shape
        projections = self.q_proj, self.k_proj, self.v_proj
        q, k, v = (self.cut(f(x)) for f, x in zip(projections, (query, key, value)))
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            mask = mask.expand(T, len(key), B).permute(2, 0, 1)
            mask = mask.repeat_interleave(self.num_heads, 0)
            scores = scores.masked_fill(~mask, float("-inf"))
        weights = scores.softmax(-1)
        out = self.join(weights @ v).reshape(T, B, E)
        return self.out_proj(out), weights.unflatten(0, (B, self.num_heads))

    def join(self, context):
        return context.transpose(0, 1)


class JoinedInOneView(CutInOneView):
    def join(self, context):
        return context


class CutInTwoSteps(CutInOneView):
    def cut(self, x):
        L, B, E = x.shape
        rows = x.reshape(L, B * self.num_heads, E // self.num_heads)
        return rows.transpose(0, 1)


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("layer", "rest"), [(JoinedInOneView, ", and the same back"), (CutInOneView, "")]
)
def test_a_cut_by_one_view_is_told_where_the_sequence_comes_first(layer, rest):
    said = repr(check(layer, "mha_sequence_first"))
    told = f"view(T, B * H, D) and then transpose(0, 1){rest}; the rest is right."
    assert told in said and "Next: " not in said


def test_that_cut_is_right_in_two_steps():
    assert check(CutInTwoSteps, "mha_sequence_first")


def rounds(*given):
    return round(training_step(*given), 2)


def test_a_loss_that_is_rounded_has_moved_nothing_otherwise():
    said = repr(check(rounds, "training_step"))
    assert "The model has moved as it has to: only the number" in said
    assert "moved the model otherwise" not in said


def test_a_step_that_is_left_out_moves_the_model_otherwise():
    def moves_at_even_steps(model, optimizer, tokens, step, rate_of, clip):
        def rate(n):
            return rate_of(n) if n % 3 else 2 * rate_of(n)

        loss = training_step(model, optimizer, tokens, step, rate, clip)
        for group in optimizer.param_groups:
            group["lr"] = rate_of(step)
        return loss

    said = repr(check(moves_at_even_steps, "training_step"))
    assert "the step before it moved the model otherwise" in said
    assert "has moved as it has to" not in said


class MeetsOtherHeads(Attention):
    """Queries lie sequence by sequence, keys and values head by head."""

    def forward(self, query, key, value, mask=None):
        B, T, E = query.shape
        H = self.num_heads

        def cut(x):
            return x.unflatten(-1, (H, -1)).transpose(1, 2)

        q = cut(self.q_proj(query)).flatten(0, 1)
        k, v = (
            cut(f(x)).transpose(0, 1).flatten(0, 1)
            for f, x in ((self.k_proj, key), (self.v_proj, value))
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask.repeat_interleave(H, 0), float("-inf"))
        weights = scores.softmax(-1)
        out = (weights @ v).view(B, H, T, -1).transpose(1, 2).reshape(B, T, E)
        return self.out_proj(out), weights.view(B, H, T, -1)


def test_values_of_another_sequence_are_not_called_the_own_ones():
    said = repr(check(MeetsOtherHeads, "mha"))
    assert "the same in all sequences and heads, the output is the weights" in said
    assert "look at what comes before them" not in said


def in_float32(q, k, v, mask=None):
    scores = (q @ k.mT / q.shape[-1] ** 0.5).float()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    weights = scores.softmax(-1)
    return weights @ v.float(), weights


def test_another_dtype_is_told_once():
    said = repr(check(in_float32, "attention"))
    assert said.count("torch.float32 comes out") == 1
    assert "overflows" not in said


def test_biases_that_are_not_added_need_no_fused_weight():
    class WithoutBiases(Attention):
        def forward(self, *given, **named):
            biases = [getattr(self, f"{x}_proj").bias for x in "qkv"]
            kept = [x.data.clone() for x in biases]
            for x in biases:
                x.data.zero_()
            found = super().forward(*given, **named)
            for x, old in zip(biases, kept):
                x.data.copy_(old)
            return found

    report = check(WithoutBiases, "mha")
    assert report.diagnosis.mistakes == ["no-bias-qkv"]
    assert "b_q, b_k and b_v are not added" in repr(report)


class AddsTwiceInPlace(Plain):
    def forward(self, x, mask):
        h = self.norm1(x)
        x += self.attention(h, h, h, mask)[0]
        x += self.mlp(self.norm2(x))
        return x


def test_what_comes_back_changed_in_place_depends_on_the_heads():
    said = repr(check(AddsTwiceInPlace, "block"))
    assert said.startswith("Not right yet") and "x held other numbers." in said
    assert "number of heads" not in said


class NeedsAnotherArgument(Attention):
    def forward(self, query, key, value, need_weights=True, mask=None):
        return super().forward(query, key, value, mask)


def test_an_argument_between_those_of_the_task_is_named():
    said = repr(check(NeedsAnotherArgument, "mha", requires=["call_by_place"]))
    assert "yours has query, key, value, need_weights, mask." in said


def masks_the_weights(q, k, v, mask=None):
    weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
    if mask is not None:
        weights = weights * mask
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-9)
    return weights @ v, weights


def test_weights_that_a_loud_key_rounds_to_zero_are_not_called_detached():
    required = ["weights", "weights_gradients"]
    said = repr(check(masks_the_weights, "attention", requires=required))
    assert "a hidden key has by far the largest score" in said
    assert "No gradient flows" not in said


class SeesNeighbours(Attention):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.out_proj = torch.nn.Conv1d(embed_dim, embed_dim, 3, padding=1)


def test_a_wide_kernel_is_told_by_its_width():
    said = repr(check(SeesNeighbours, "mha"))
    assert (
        "the kernel of out_proj.weight must be 1" in said and "yours is 3 wide" in said
    )
    assert "RuntimeError" not in said and "3 is H" not in said


def test_a_table_of_truths_is_not_called_a_mask():
    def above(x):
        return x > 0

    task = own_task("above", above, lambda _: {"two": {"x": torch.tensor([1.0, -1.0])}})
    with registered(task):
        said = repr(check(lambda x: x < 0, "above"))
    assert "output[0] is False; True is right." in said and "mask" not in said
