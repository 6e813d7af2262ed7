"""Submissions that answer right, and do not do what their task asks."""

from collections import namedtuple
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from tests.check.layers import Right

BROKEN = []  # (submission, task, what is required beside, a property that it lacks)


def lacks(name, task="attention", *requires):
    def keep(submission):
        BROKEN.append((submission, task, requires, name))
        return submission

    return keep


def weights_of(q, k, mask=None, fill=-torch.inf):
    s = q @ k.mT / q.shape[-1] ** 0.5
    return (s if mask is None else s.masked_fill(~mask, fill)).softmax(-1)


# --- attention: the call --------------------------------------------------------------


@lacks("leading_axes")
def transposes_axes_one_and_two(q, k, v, mask=None):
    s = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
    if mask is not None:
        s = s.masked_fill(~mask, -torch.inf)
    return s.softmax(-1) @ v


@lacks("leading_axes")
def wants_four_axes(q, k, v, mask=None):
    B, H, T, D = q.shape
    return weights_of(q, k, mask) @ v


@lacks("leading_axes")
def wants_at_least_three(q, k, v, mask=None):
    return weights_of(q, k, mask).flatten(0, -3).unflatten(0, q.shape[:-2]) @ v


@lacks("three_axes", "attention", "three_axes")
def wants_four_where_three_are_asked(q, k, v, mask=None):
    B, H, T, D = q.shape
    return weights_of(q, k, mask) @ v


@lacks("mask_as_given")
def subtracts_a_boolean(q, k, v, mask=None):
    s = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        s = s + (1 - mask) * -1e9
    return s.softmax(-1) @ v


@lacks("mask_broadcasts")
def indexes_the_mask(q, k, v, mask=None):
    return weights_of(q, k, mask if mask is None else mask[..., :1, :, :]) @ v


@lacks("mask_optional")
def has_no_default(q, k, v, mask):
    return weights_of(q, k, mask) @ v


@lacks("mask_optional")
def fails_on_none(q, k, v, mask=None):
    return F.softmax((q @ k.mT / q.shape[-1] ** 0.5).masked_fill(~mask, -1e9), -1) @ v


@lacks("call_by_place", "attention", "call_by_place")
def another_order(q, v, k, mask=None):
    return weights_of(q, k, mask) @ v


@lacks("call_by_place", "attention", "call_by_place")
def by_keyword_alone(q, k, v, *, mask=None):
    return weights_of(q, k, mask) @ v


# --- attention: what comes back -------------------------------------------------------


@lacks("weights", "attention", "weights")
def context_alone(q, k, v, mask=None):
    return weights_of(q, k, mask) @ v


@lacks("weights")
def weights_without_a_mask_alone(q, k, v, mask=None):
    w = weights_of(q, k, mask)
    return w @ v, w if mask is None else None


@lacks("weights_gradients")
def detached_weights(q, k, v, mask=None):
    w = weights_of(q, k, mask)
    return w @ v, w.detach()


@lacks("zeros_for_empty_rows", "attention", "zeros_for_empty_rows")
def nan_for_an_empty_row(q, k, v, mask=None):
    return weights_of(q, k, mask) @ v


@lacks("half_precision", "attention", "half_precision")
def a_fill_that_half_precision_does_not_hold(q, k, v, mask=None):
    return weights_of(q, k, mask, -1e9) @ v


@lacks("any_device", "attention", "any_device")
def a_constant_on_the_cpu(q, k, v, mask=None):
    zeros = torch.zeros(q.shape[-2], k.shape[-2], device="cpu").to(q.dtype)
    s = q @ k.mT / q.shape[-1] ** 0.5 + zeros
    return (s if mask is None else s.masked_fill(~mask, -torch.inf)).softmax(-1) @ v


@lacks("double_precision")
def returns_float32(q, k, v, mask=None):
    return (weights_of(q, k, mask) @ v).float()


@lacks("double_precision")
def wants_float32(q, k, v, mask=None):
    return weights_of(q, k, mask) @ v @ torch.eye(v.shape[-1])


# --- attention: numbers that are seldom asked for -------------------------------------


@lacks("large_scores")
def without_a_maximum(q, k, v, mask=None):
    e = (q @ k.mT / q.shape[-1] ** 0.5).exp()
    if mask is not None:
        e = e * mask
    return e / e.sum(-1, keepdim=True) @ v


@lacks("large_scores")
def fills_with_minus_100(q, k, v, mask=None):
    return weights_of(q, k, mask, -100.0) @ v


@lacks("large_scores")
def clamps(q, k, v, mask=None):
    s = (q @ k.mT / q.shape[-1] ** 0.5).clamp(max=20)
    return (s if mask is None else s.masked_fill(~mask, -torch.inf)).softmax(-1) @ v


@lacks("large_scores")
def one_maximum_for_all(q, k, v, mask=None):
    s = q @ k.mT / q.shape[-1] ** 0.5
    s = s if mask is None else s.masked_fill(~mask, -torch.inf)
    e = (s - s.max()).exp()
    return e / e.sum(-1, keepdim=True) @ v


@lacks("mask_broadcasts")
def the_mask_of_the_first_head(q, k, v, mask=None):
    mask = mask if mask is None or mask.dim() < 4 else mask[:, :1]
    return weights_of(q, k, mask) @ v


@lacks("loud_hidden_keys")
def mask_after_the_softmax_then_divided(q, k, v, mask=None):
    w = weights_of(q, k)
    if mask is not None:
        w = w * mask
        w = w / w.sum(-1, keepdim=True)
    return w @ v, w


@lacks("same_tensor")
def zeros_where_all_are_one(q, k, v, mask=None):
    return torch.zeros_like(q) if q is k is v else weights_of(q, k, mask) @ v


@lacks("gradients")
def no_gradient_without_a_mask(q, k, v, mask=None):
    with torch.set_grad_enabled(mask is not None):
        return weights_of(q, k, mask) @ v


@lacks("gradients")
def no_gradient_where_the_lengths_agree(q, k, v, mask=None):
    q = q.detach() if q.shape[-2] == k.shape[-2] else q
    return weights_of(q, k, mask) @ v


@lacks("gradients")
@torch.no_grad()
def no_gradient_at_all(q, k, v, mask=None):
    return weights_of(q, k, mask) @ v


@lacks("gradients")
def half_of_the_gradient(q, k, v, mask=None):
    return weights_of(q, (k + k.detach()) / 2, mask) @ v


@lacks("gradients")
def by_numpy(q, k, v, mask=None):
    return torch.from_numpy((weights_of(q, k, mask) @ v).numpy())


# --- attention: in what form it comes back --------------------------------------------


@dataclass
class Fields:
    output: torch.Tensor
    weights: torch.Tensor


Turned = namedtuple("Turned", "weights output")
FORMS = {  # what `output, weights = …` makes of it: two keys, an error, the wrong order
    "a dict with the keys loss, hidden_states": lambda out, w: {
        "loss": w,
        "hidden_states": out,
    },
    "a dict with the keys x, probs, cache": lambda out, w: {
        "x": out,
        "probs": w,
        "cache": None,
    },
    "one object of the class Fields": Fields,
    "a tuple of 3": lambda out, w: (out, w, None),
    "a list of 3": lambda out, w: [out, w, w],
    "a tuple of 1": lambda out, w: (out,),
    "a named tuple in which the output comes second": lambda out, w: Turned(w, out),
}


def returning(form):
    def attention(q, k, v, mask=None):
        w = weights_of(q, k, mask)
        return form(w @ v, w)

    return attention


for form in FORMS.values():
    for asked in (), ("weights",):
        lacks("output_shape", "attention", *asked)(returning(form))


@lacks("weights", "attention", "weights")
def weights_of_an_empty_row(q, k, v, mask=None):
    w = weights_of(q, k, mask)
    return w.nan_to_num() @ v, w


@lacks("zeros_for_empty_rows", "attention", "zeros_for_empty_rows")
def zeros_in_the_output_alone(q, k, v, mask=None):
    return weights_of_an_empty_row(q, k, v, mask)


@lacks("zeros_for_empty_rows", "attention", "weights", "zeros_for_empty_rows")
def equal_weights_beside_zeros(q, k, v, mask=None):
    w = weights_of(q, k, mask)
    return w.nan_to_num() @ v, w.nan_to_num(1 / w.shape[-1])


# --- layers ---------------------------------------------------------------------------


class Returning(Right):
    """Returns the weights, too; subclasses say what is amiss."""

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            self.heads(f(x))
            for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        )
        w = weights_of(q, k, mask if mask is None else mask[:, None])
        return self.answer(self.w_o(self.join(self.kept(w) @ v)), w)

    def kept(self, w):
        return w

    def answer(self, output, w):
        return output, w


A2 = ("weights", "biases", "mask_optional", "no_dropout", "call_by_place")


@lacks("weights", "mha", *A2)
class OutputAlone(Returning):
    def answer(self, output, w):
        return output


@lacks("weights", "mha", *A2)
class Averaged(Returning):
    def answer(self, output, w):
        return output, w.mean(1)


@lacks("training", "mha")
class NoneInTraining(Returning):
    def answer(self, output, w):
        return output, None if self.training else w


@lacks("training", "mha")
class OthersInTraining(Returning):
    def answer(self, output, w):
        return output, w + 1 if self.training else w


@lacks("training", "mha")
class DropsUnasked(Returning):
    def answer(self, output, w):
        return F.dropout(output, 0.1, self.training), w


@lacks("no_dropout", "mha", *A2)
class HasADropout(Returning):
    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__(embed_dim, num_heads)
        self.dropout = nn.Dropout(dropout)

    def kept(self, w):
        return self.dropout(w)


@lacks("no_dropout", "mha")
class DropoutOfNobody(HasADropout):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)


@lacks("biases", "mha", *A2)
class NoBiases(Returning):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        for name in ("w_q", "w_k", "w_v", "w_o"):
            setattr(self, name, nn.Linear(embed_dim, embed_dim, bias=False))


@lacks("mask_optional", "mha")
class WantsAMask(Returning):
    def forward(self, query, key, value, mask):
        return super().forward(query, key, value, mask)


@lacks("mask_as_given", "mha")
class NoAxisForTheHeads(Right):
    def forward(self, query, key, value, mask=None):
        q, k, v = (
            self.heads(f(x))
            for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        )
        return self.w_o(self.join(weights_of(q, k, mask) @ v))


@lacks("mask_for_all", "mha", "mask_for_all")
class FailsOnOneMaskForAll(Returning):
    pass


@lacks("same_tensor", "mha")
class NoMaskForItself(Returning):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, None if query is key else mask)


@lacks("without_gradients", "mha")
class NoMaskWithoutGradients(Returning):
    def forward(self, query, key, value, mask=None):
        mask = mask if torch.is_grad_enabled() else None
        return super().forward(query, key, value, mask)


@lacks("gradients", "mha")
class NoGradientInTraining(Returning):
    def forward(self, query, key, value, mask=None):
        with torch.set_grad_enabled(not self.training):
            return super().forward(query, key, value, mask)


@lacks("gradients", "mha")
class FrozenBias(Returning):
    def forward(self, query, key, value, mask=None):
        projected = F.linear(value, self.w_v.weight, self.w_v.bias.detach())
        q, k, v = map(self.heads, (self.w_q(query), self.w_k(key), projected))
        w = weights_of(q, k, mask if mask is None else mask[:, None])
        return self.w_o(self.join(w @ v)), w


@lacks("other_sizes", "mha")
class LastMaskAgain(Returning):
    last = None

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            self.last = mask
        elif self.last is not None and self.last.shape[-1] == key.shape[1]:
            mask = self.last if len(self.last) == len(query) else None
        return super().forward(query, key, value, mask)


@lacks("other_sizes", "mha")
class NeverLonger(Returning):
    longest = None

    def forward(self, query, key, value, mask=None):
        self.longest = n = self.longest or key.shape[1]
        mask = None if mask is None else mask[..., :n]
        return super().forward(query, key[:, :n], value[:, :n], mask)


@lacks("gradients", "mha")
class UnderNoGrad(Returning):
    @torch.no_grad()
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, mask)


class WithSharedWidth(Returning):
    width = None

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        type(self).width = num_heads


@lacks("other_sizes", "mha")
class KeptByTheClass(WithSharedWidth):
    """The second layer that is made changes the first."""

    def heads(self, x):
        own = x.shape[-1] // self.width * self.width == x.shape[-1]
        return super().heads(x if own else 0 * x)


@lacks("other_sizes", "mha")
class GivesUpAfterManyCalls(Returning):
    calls = 0

    def forward(self, query, key, value, mask=None):
        self.calls += 1
        output, w = super().forward(query, key, value, mask)
        return output * (self.calls < 5), w


@lacks("mask_as_given", "mha_sequence_first")
class OneAxisMore(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = Returning(embed_dim, num_heads)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            T, S, B, one = mask.shape
            mask = mask[..., 0].permute(2, 0, 1)
        x = (x.transpose(0, 1) for x in (query, key, value))
        output, w = self.inner(*x, mask)
        return output.transpose(0, 1), w


@lacks("mask_broadcasts", "mha_sequence_first", "mask_broadcasts")
class FailsOnAnAxisOfSizeOne(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = Returning(embed_dim, num_heads)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            assert mask.shape == (len(query), len(key), query.shape[1])
            mask = mask.permute(2, 0, 1)
        x = (x.transpose(0, 1) for x in (query, key, value))
        output, w = self.inner(*x, mask)
        return output.transpose(0, 1), w


# --- parts ----------------------------------------------------------------------------


@lacks("gradients", "split_heads")
def detaches(x, num_heads):
    return x.detach().unflatten(2, (num_heads, -1)).transpose(1, 2)


@lacks("output_shape", "merge_heads")
def returns_two(x):
    return x.transpose(1, 2).flatten(2), x


@lacks("output_shape", "causal_mask")
def has_an_axis_too_many(T, S):
    return torch.ones(1, T, S, dtype=torch.bool).tril()


@lacks("double_precision", "merge_heads")
def merges_into_float32(x):
    return torch.cat([*x.unbind(1)], -1).float()
