"""What once got past the check, or ended it, does so no more."""

import random
import time
import warnings

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from mha_lib.check import beside, check, diagnose
from tests.check.submissions_right import (
    HEAD_COUNTS,
    AsModule,
    BareMatrices,
    Fused,
    FusedHeadByHead,
    FusedThatReturnsItsMap,
    Lazy,
    Projects,
    counted,
    zeros_for_empty_rows,
)
from tests.check.submissions_wrong import Base

LAYER = "mha"


class Right(Base):
    """A right layer of four nn.Linear."""

    def forward(self, query, key, value, mask=None):
        q, k, v = (
            self.heads(f(x))
            for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
        )
        s = q @ k.mT / self.scale()
        if mask is not None:
            s = s.masked_fill(~mask[:, None], -torch.inf)
        return self.w_o(self.join(s.softmax(-1) @ v))

    def scale(self):
        return self.d_k**0.5


class NoScale(Right):
    def scale(self):
        return 1.0


# --- what is wrong is not called right ----------------------------------------------


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


class FirstMaskForEver(Right):
    first = None

    def forward(self, query, key, value, mask=None):
        self.first = mask if self.first is None else self.first
        return super().forward(query, key, value, self.first)


class MasksOnce(Right):
    calls = 0

    def forward(self, query, key, value, mask=None):
        self.calls += 1
        return super().forward(query, key, value, mask if self.calls < 2 else None)


class KeepsKeys(Right):
    """A cache that nobody empties."""

    past = None

    def forward(self, query, key, value, mask=None):
        if self.past is not None and mask is None:
            pairs = zip(self.past, (key, value))
            key, value = (torch.cat(pair, 1) for pair in pairs)
        self.past = key, value
        return super().forward(query, key, value, mask)


class KeepsKeysIfMasked(Right):
    """Fails as soon as there are more keys than the mask has columns."""

    past = None

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            if self.past is not None:
                key = torch.cat([self.past, key], 1)
            self.past = key
        return super().forward(query, key, value, mask)


class KeepsOneCall(Right):
    """What comes out depends on the last call alone, so the third is as the second."""

    past = None

    def forward(self, query, key, value, mask=None):
        last, self.past = self.past, value
        fits = last is not None and last.shape == value.shape
        return super().forward(query, key, value + last if fits else value, mask)


class OwnGenerator(Right):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.draws = torch.Generator()

    def forward(self, query, key, value, mask=None):
        noise = torch.rand(query.shape, generator=self.draws)
        return super().forward(query + noise, key, value, mask)


class Drops(Right):
    def forward(self, query, key, value, mask=None):
        return super().forward(self.kept(query), key, value, mask)

    def kept(self, x):
        return F.dropout(x, 0.1)


class DropsByNumPy(Drops):
    def kept(self, x):
        return x * torch.from_numpy(np.random.rand(*x.shape) > 0.1)


class DropsByPython(Drops):
    def kept(self, x):
        return x * (random.random() > 0.1) + random.random()


@pytest.mark.parametrize(
    "layer", [KeepsKeys, KeepsKeysIfMasked, KeepsOneCall, OwnGenerator]
)
@pytest.mark.parametrize("made", [lambda layer: layer, lambda layer: layer(16, 2)])
def test_memory_is_no_dropout(layer, made):
    found = diagnose(made(layer), LAYER)
    assert (found.verdict, found.mistakes) == ("unknown", [])
    (words,) = found.to_dict()["evidence"]
    assert "something is kept from one call to the next" in words
    assert not found.properties["deterministic"]


@pytest.mark.parametrize("layer", [Drops, DropsByNumPy, DropsByPython])
def test_chance_is_dropout_whoever_draws(layer):
    state, draws = random.getstate(), np.random.get_state()[1]
    found = diagnose(layer, LAYER)
    assert (found.verdict, found.mistakes) == ("named", ["dropout-in-eval"])
    assert not found.properties["deterministic"]
    if layer is Drops:
        assert random.getstate() == state
        assert (np.random.get_state()[1] == draws).all()


@pytest.mark.parametrize(
    "submission, task",
    [
        (squeezed, "attention"),
        (one_query_sees_all, "attention"),
        (sums_that_are_not_rescaled, "attention"),
        (nothing_as_soon_as_one_row_is_empty, "attention"),
        (FirstMaskForEver, LAYER),
        (MasksOnce, LAYER),
        (KeepsKeys, LAYER),
    ],
    ids=lambda x: getattr(x, "__name__", x),
)
def test_what_is_wrong_only_sometimes_is_not_called_right(submission, task):
    found = diagnose(submission, task)
    assert found.verdict in ("named", "unknown")
    assert not found.properties["right"]


def test_a_module_that_remembers_its_first_mask_is_not_right_either():
    module = FirstMaskForEver(16, 2)
    found = diagnose(module, LAYER)
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert found.properties["right_without_mask"]
    assert not found.properties["right_with_mask"]


def test_an_empty_row_may_be_zero_where_the_others_are_right():
    assert diagnose(zeros_for_empty_rows, "attention").verdict == "right"


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
    found = diagnose(layer, LAYER, num_heads=2)
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert any(
        "hidden keys take the weight" in text for text in found.to_dict()["evidence"]
    )


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16]
)
def test_a_fill_that_is_low_enough_is_right(dtype):
    for number in (-1e4, torch.finfo(dtype).min, -torch.inf):
        assert diagnose(filled(number), "attention", dtype=dtype).verdict == "right"
        layer = FilledLayer(16, 2).to(dtype)
        layer.fill = number
        assert diagnose(layer, LAYER, num_heads=2).verdict == "right"


class OneNumber(Right):
    number = torch.inf

    def forward(self, query, key, value, mask=None):
        out = super().forward(query, key, value, mask).clone()
        out[-1, -1, -1] = self.number
        return out


@pytest.mark.parametrize("number", [torch.inf, torch.nan, 1e30, 1e6])
def test_one_number_that_cannot_be_does_not_let_everything_pass(number):
    layer = type("Layer", (OneNumber,), {"number": number})
    start = time.process_time()
    found = diagnose(layer, LAYER)
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert time.process_time() - start < 30  # or it takes minutes


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


@pytest.mark.parametrize(
    "submission, task, lost",
    [(Frozen, LAYER, "W_q, W_k, W_v, W_o"), (detached, "attention", "q, k")],
)
def test_where_no_gradient_arrives_is_said(submission, task, lost):
    found = diagnose(submission, task)
    assert (found.verdict, found.properties["gradients"]) == ("right", False)
    words = f"No gradient reaches {lost}: a detach, .data, a no_grad or NumPy?"
    assert words in found.to_dict()["evidence"] and words in repr(
        check(submission, task)
    )


def test_a_layer_that_learns_is_told_nothing_about_gradients():
    found = diagnose(Right, LAYER)
    assert found.properties["gradients"]
    assert not any("gradient" in text for text in found.to_dict()["evidence"])


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_a_notebook_may_have_switched_gradients_off(off):
    with off():
        found = diagnose(Right, LAYER)
        assert not torch.is_grad_enabled()
        assert diagnose(NoScale, LAYER).mistakes == ["no-scale"]
    assert found.verdict == "right" and found.properties["gradients"]


# --- weights that lie otherwise -----------------------------------------------------


def test_a_map_belongs_to_the_weights_that_were_loaded_the_same_way():
    found = diagnose(FusedThatReturnsItsMap, LAYER)
    assert (found.verdict, found.mistakes) == ("right", [])
    assert found.to_dict()["evidence"] == []


class NoReturnWithMask(nn.Module):
    def forward(self, query, key, value, mask=None):
        result = super().forward(query, key, value, mask)
        if mask is None:
            return result
        return None


@pytest.mark.parametrize("right", [Fused, FusedHeadByHead, BareMatrices, Right])
def test_a_branch_without_return_is_a_sentence_and_no_matter_of_sizes(right):
    forgets = type("Forgets", (NoReturnWithMask, right), {})
    found = diagnose(forgets, LAYER)
    words = "a torch.Tensor must be returned; got None; is a `return` missing?"
    assert (found.error, found.verdict) == (words, "unknown")
    assert (found.mistakes, found.to_dict()["evidence"][0]) == (
        [],
        "Where it answers, it is right.",
    )
    assert not found.properties["right_with_mask"]


def test_what_answers_wrong_beside_an_error_is_not_called_right():
    class RollsTheMask(Right):
        def forward(self, query, key, value, mask=None):
            if len(query) == 1:
                raise RuntimeError("one sequence")
            mask = None if mask is None else mask.roll(1, -1)
            return super().forward(query, key, value, mask)

    found = diagnose(RollsTheMask, LAYER)
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert "Where it answers, it is right." not in found.to_dict()["evidence"]


def test_a_mistake_before_a_missing_return_is_named():
    found = diagnose(type("Forgets", (NoReturnWithMask, NoScale), {}), LAYER)
    assert found.mistakes == ["no-scale"]
    assert "is a `return` missing?" in found.error


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

    found = diagnose(Bare, LAYER)
    assert found.mistakes == ([] if dropped else ["dropout-unused"])
    assert not [text for text in found.to_dict()["evidence"] if "dropout" in text]


@pytest.mark.parametrize("name", HEAD_COUNTS.split())
def test_the_number_of_heads_has_many_names(name):
    layer = counted(name)
    assert diagnose(layer, LAYER).verdict == "right"
    assert beside.sizes(layer(12, **{name: 3})) == (12, 3)


# --- modules ------------------------------------------------------------------------


class Merge(nn.Module):
    def forward(self, x):
        return x.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("num_heads", [None, 3])
@pytest.mark.parametrize(
    "module, task", [(AsModule(), "attention"), (Merge(), "merge_heads")]
)
def test_a_module_without_weights_is_asked_as_a_function(module, task, num_heads):
    assert diagnose(module, task, num_heads=num_heads).verdict == "right"


def test_a_lazy_module_has_to_be_called_once():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = Lazy(16, 2)
    words = "call your module once before it is checked: it has lazy layers"
    assert diagnose(module, LAYER, num_heads=2).error == words
    module(*torch.randn(3, 2, 5, 16))
    assert diagnose(module, LAYER, num_heads=2).verdict == "right"


@pytest.mark.parametrize("num_heads", [-2, 0, 17])
def test_a_number_of_heads_that_cannot_be_is_a_sentence(num_heads):
    words = f"the number of heads must be from 1 to 16, the width; got {num_heads}"
    assert diagnose(Projects(16, 2), LAYER, num_heads=num_heads).error == words


@pytest.mark.parametrize(
    "submission, task",
    [
        (zeros_for_empty_rows, "attention"),
        (Right, LAYER),
        (lambda T, S: torch.ones(T, S, dtype=torch.bool).tril(), "causal_mask"),
    ],
)
def test_a_notebook_may_have_another_default_device(submission, task):
    with torch.device("meta"):
        assert diagnose(submission, task).verdict == "right"


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_inputs_are_of_floating_point(dtype):
    words = f"dtype must be one of float64, .*, bfloat16; got {dtype}"
    with pytest.raises(ValueError, match=words):
        diagnose(zeros_for_empty_rows, "attention", dtype=dtype)


# --- answers of every kind ----------------------------------------------------------


class Unprintable(Exception):
    def __str__(self):
        raise self


def raising(error):
    def submission(*inputs):
        raise error

    return submission


def merged(x):
    return x.transpose(1, 2).flatten(2)


DENSE = "a dense torch.Tensor must be returned; got another layout"
ODD = {
    "empty numbers": (lambda T, S: torch.empty(0), "causal_mask", r"got \(0,\)"),
    "no sequences": (
        lambda lengths, S: torch.zeros(0, 1, S),
        "padding_mask",
        r"must have the shape \(3, 1, 7\); got \(0, 1, 7\)",
    ),
    "complex mask": (
        lambda T, S: torch.ones(T, S, dtype=torch.complex64),
        "causal_mask",
        "The mask holds numbers",
    ),
    "sparse mask": (
        lambda T, S: torch.ones(T, S).tril().to_sparse(),
        "causal_mask",
        DENSE,
    ),
    "sparse": (lambda q, k, v, mask=None: q.to_sparse(), "attention", DENSE),
    "complex": (
        lambda q, k, v, mask=None: q.to(torch.complex64),
        "attention",
        "another dtype than the input",
    ),
    "quantized": (
        lambda x: torch.quantize_per_tensor(merged(x), 0.1, 0, torch.qint8),
        "merge_heads",
        DENSE,
    ),
    "nested": (lambda x: torch.nested.nested_tensor([*x]), "merge_heads", DENSE),
    "on another device": (
        lambda x: merged(x).to("meta"),
        "merge_heads",
        "the output must be on cpu, as the inputs; got meta",
    ),
    "sys.exit": (raising(SystemExit(1)), "attention", "SystemExit: 1"),
    "unprintable": (
        raising(Unprintable()),
        "attention",
        "Unprintable: it cannot be printed",
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_answer_becomes_a_sentence(name):
    submission, task, words = ODD[name]
    with warnings.catch_warnings():  # quantized and nested tensors warn
        warnings.filterwarnings("ignore", message=".*(quantiz|nested).*")
        report = check(submission, task)
    assert not report
    report.diagnosis.to_dict()
    assert words.replace("\\", "") in repr(report)
    assert "Traceback" not in repr(report) and report._repr_html_()


def test_a_class_that_exits_is_a_sentence():
    class Exits(Base):
        def __init__(self, embed_dim, num_heads):
            raise SystemExit

    assert "SystemExit" in diagnose(Exits, LAYER).error


@pytest.mark.parametrize("task", ["mha", "mha_sequence_first", "split_concat"])
@pytest.mark.parametrize(
    "cut",
    [
        lambda x: x.sum(),
        lambda x: x[0, 0],
        lambda x: x[:, 0],
        lambda x: x[None],
        lambda x: x[:, 1:],
    ],
    ids=["number", "row", "matrix", "four axes", "short"],
)
def test_an_output_of_any_shape_is_told_its_shape(task, cut):
    def layer(query, *rest, **weights):
        return cut(query)

    found = diagnose(layer, task=task)
    assert found.verdict == "failed"
    assert "the output must have the shape" in found.error
