"""Errors and odd answers become sentences: what was required, what came."""

import re
import warnings

import pytest
import torch
import torch.nn as nn

from mha_lib.check import check, diagnose
from mha_lib.check.failures import hint
from tests.check.layers import NoScale, Right
from tests.check.submissions_right import BareMatrices, Fused, FusedHeadByHead, Returns
from tests.check.submissions_wrong import Base, square_only, tiny_fill


def test_errors_become_sentences_about_what_was_required_and_what_came():
    def raises(q, k, v, mask=None):
        return q @ k

    def shape(q, k, v, mask=None):
        return q.sum(-1)

    for submission, words in (
        (raises, r"RuntimeError: .* \(your line \d+: return q @ k\)"),
        (lambda q: q, "takes 1 positional argument but 3 were given"),
        (lambda q, k, v, mask=None: None, "got None; is a `return` missing?"),
        (lambda q, k, v, mask=None: q.numpy(), "must be returned; got numpy.ndarray"),
        (shape, r"shape \(B, H, T, V\) = \((\d), (\d), (\d), \d\); got \(\1, \2, \3\)"),
        (7, "a function, a class or a module is required; got int"),
    ):
        report = check(submission, "attention")
        assert report.diagnosis.verdict == "failed"
        assert re.search(words, repr(report)), repr(report)
        assert "Required: attention(q, k, v, mask=None)" in repr(report)
        assert "Traceback" not in repr(report) and "mha_lib" not in repr(report)


def test_a_causal_mask_of_T_alone_is_half_of_what_is_asked():
    report = check(square_only, "causal_mask")
    assert report.diagnosis.properties["right: plain"]
    assert not report.diagnosis.properties["right: T < S"]
    assert "causal_mask must take T and S; this one takes T alone" in repr(report)
    assert "the mask is made as (T, T), and S is not used" in repr(report)


def test_a_view_of_a_transpose_is_not_right_yet():
    def merge_heads(x):
        B, H, T, D = x.shape
        return x.transpose(1, 2).view(B, T, H * D)

    report = check(merge_heads)
    assert report.diagnosis.verdict == "unmet"
    assert "reshape copies them where view cannot" in repr(report)
    assert repr(report).count("view size is not compatible") == 1
    assert "With that mended" not in repr(report)  # where it fails nobody knows


def test_a_product_with_a_key_that_is_not_turned_says_what_a_product_needs():
    class NotTurned(Right):
        def forward(self, query, key, value, mask=None):
            return super().forward(query @ key, key, value, mask)

    report = check(NotTurned, "mha")
    assert report.diagnosis.verdict == "failed"
    assert "should one be turned, with transpose(-2, -1)?" in repr(report)


class KeyOfTheQuery(Right):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, query, value, mask)


def test_weights_of_other_keys_than_there_are_values_are_not_to_be_turned():
    report = repr(check(KeyOfTheQuery, "mha"))
    assert "weights (T, S) meet values (S, D) in S." in report
    assert "should one be turned" not in report


class NoSuper(Right):
    def __init__(self, embed_dim, num_heads):
        self.w_q = nn.Linear(embed_dim, embed_dim)


def test_who_forgets_super_is_told_so():
    words = "The first line of __init__ has to be super().__init__()."
    assert words in repr(check(NoSuper, "mha"))


@pytest.mark.parametrize("place", [0, 2])
def test_an_axis_of_the_mask_at_another_place_than_the_heads_is_told(place):
    class Elsewhere(Right):
        def forward(self, query, key, value, mask=None):
            q, k, v = (
                self.heads(f(x))
                for f, x in ((self.w_q, query), (self.w_k, key), (self.w_v, value))
            )
            scores = q @ k.mT / self.scale()
            if mask is not None:
                scores = scores.masked_fill(~mask.unsqueeze(place), -torch.inf)
            weights = scores.softmax(-1)
            return self.w_o((weights @ v).transpose(1, 2).flatten(2)), weights

    words = "the mask needs one of size 1 at its place: for scores (B, H, T, S)"
    assert words in repr(check(Elsewhere, "mha"))


def test_biases_that_are_asked_for_are_not_called_no_mistake():
    class NoBiases(Right):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            for layer in (self.w_q, self.w_k, self.w_v, self.w_o):
                layer.bias = None

    assert "they count as 0" in repr(check(NoBiases, "mha"))
    report = repr(check(NoBiases, "mha", requires=["biases"]))
    assert "lacks biases" in report and "they count as 0" not in report
    assert "(That of the key changes no weight" in report


class NotApart(Right):
    def heads(self, x):
        return super().heads(x).transpose(1, 2)


class NotJoined(Right):
    def join(self, context):
        return context.mT.mT


class Averaged(Right):
    def join(self, context):
        return context.mean(dim=1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (NotApart, "is the transpose missing that puts the heads before the tokens?"),
        (NotJoined, "; the heads have an axis of their own still: join it with D"),
        (Averaged, "The matrix takes E = H·D numbers: are the heads joined before it,"),
    ],
)
def test_where_heads_are_not_cut_or_joined_the_error_says_what_to_look_for(wrong, said):
    report = repr(check(wrong, "mha"))
    assert said in report
    for other in ("puts the heads before", "own still", "joined before it"):
        assert other in said or other not in report


def test_a_mask_that_is_turned_is_no_matter_of_heads():
    class Turned(Right):
        def forward(self, query, key, value, mask=None):
            mask = None if mask is None else mask.mT
            return super().forward(query, key, value, mask)

    assert "before the tokens" not in repr(check(Turned, "mha"))


class NoReturnWithMask(nn.Module):
    def forward(self, query, key, value, mask=None):
        result = super().forward(query, key, value, mask)
        if mask is None:
            return result
        return None


@pytest.mark.sweep(2)
@pytest.mark.parametrize("right", [Fused, FusedHeadByHead, BareMatrices, Right])
def test_a_branch_without_return_is_a_sentence_and_no_matter_of_sizes(right):
    forgets = type("Forgets", (NoReturnWithMask, right), {})
    found = diagnose(forgets, "mha")
    words = "a torch.Tensor must be returned; got None; is a `return` missing?"
    assert (found.error, found.verdict) == (words, "unmet")
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

    found = diagnose(RollsTheMask, "mha")
    assert (found.verdict, found.mistakes) == ("unknown", [])
    assert "Where it answers, it is right." not in found.to_dict()["evidence"]


def test_a_mistake_before_a_missing_return_is_named():
    found = diagnose(type("Forgets", (NoReturnWithMask, NoScale), {}), "mha")
    assert found.mistakes == ["no-scale"]
    assert "is a `return` missing?" in found.error


# --- answers of every kind ----------------------------------------------------------


class Unprintable(Exception):
    def __str__(self):
        raise self


def raising(kind, *words):
    def submission(*inputs):
        raise kind(*words)  # a new one: an old one's traceback grows with each call

    return submission


def merged(x):
    return x.transpose(1, 2).flatten(2)


DENSE = "a dense torch.Tensor must be returned; got another layout"
ODD = {
    "empty numbers": (lambda T, S: torch.empty(0), "causal_mask", r"got \(0,\)"),
    "no sequences": (
        lambda lengths, S: torch.zeros(0, 1, S),
        "padding_mask",
        r"must have the shape \(B, 1, S\) = \(\d, 1, (\d)\); got \(0, 1, \1\)",
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
        "what is returned must be on cpu, as the inputs; got meta",
    ),
    "sys.exit": (raising(SystemExit, 1), "attention", "SystemExit: 1"),
    "unprintable": (
        raising(Unprintable),
        "attention",
        "Unprintable: it cannot be printed",
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", ODD)
def test_an_odd_answer_becomes_a_sentence(name):
    submission, task, words = ODD[name]
    with warnings.catch_warnings():  # quantized and nested tensors warn
        warnings.filterwarnings("ignore", message=".*(quantiz|nested).*")
        report = check(submission, task)
    assert not report
    report.diagnosis.to_dict()
    assert re.search(words, repr(report))
    assert "Traceback" not in repr(report) and report._repr_html_()


def test_a_class_that_exits_is_a_sentence():
    class Exits(Base):
        def __init__(self, embed_dim, num_heads):
            raise SystemExit

    assert "SystemExit" in diagnose(Exits, "mha").error


@pytest.mark.long
@pytest.mark.sweep(4)
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


def test_an_empty_tuple_and_a_module_without_matrices_are_sentences():
    found = diagnose(lambda q, k, v, mask=None: (), "attention")
    assert found.error == "a torch.Tensor must be returned; got an empty tuple"
    found = diagnose(nn.Identity(), "mha", num_heads=2)
    assert found.error.startswith("the weights of q, k, v and the output must be found")
    assert "found no matrices" in found.error


def test_weights_may_be_none():
    layer = type(
        "Layer", (Returns,), {"answer": lambda self, output, _: (output, None)}
    )
    assert diagnose(layer, "mha").verdict == "right"


def test_ambiguous_answers_are_told_as_alternatives():
    report = check(tiny_fill, "attention")
    assert report.diagnosis.candidates == [["fill-zero"], ["fill-tiny"]]
    lines = [line.strip() for line in repr(report).splitlines()]
    assert lines[0].endswith("wrong in one of 2 ways, which give the same numbers.")
    assert lines.index("Either") < lines.index("or")


def test_a_product_of_other_sizes_is_no_matter_of_heads_that_were_not_joined():
    sizes = {"B": 2, "T": 6, "S": 7, "H": 3, "D": 5, "E": 15}
    error = "mat1 and mat2 shapes cannot be multiplied ({}x{} and {}x15)"
    said = "are the heads joined before it"
    assert said in hint(error.format(36, 5, 15), "", sizes)
    assert said not in hint(error.format(36, 7, 15), "", sizes)
    assert said not in hint(error.format(36, 5, 7), "", sizes)


class NoClass:
    """Whoever asks for its class gets an error."""

    @property
    def __class__(self):
        raise RuntimeError("no class")

    def __call__(self, q, k, v, mask=None):
        return q


class NoClassOfALayer(nn.Module):
    __class__ = vars(NoClass)["__class__"]


@pytest.mark.parametrize("task", [None, "attention", "mha", "split_heads", "generate"])
@pytest.mark.parametrize("kind", [NoClass, NoClassOfALayer])
def test_a_class_that_raises_is_a_sentence(kind, task):
    found = diagnose(kind(), task)
    assert found.verdict == "failed"
    assert "its __class__ raises RuntimeError: no class" in found.error


def test_of_a_class_is_required_what_concerns_one():
    def function(query, key, value, weights, num_heads, mask=None):
        return None

    assert "weights W_q" in repr(check(function, "mha"))
    said = repr(check(KeyOfTheQuery, "mha"))
    assert "weights W_q" not in said and "boolean mask (B, T, S)" in said


class JoinsPairs(Right):
    """Each head returns its context and its weights, and all of that is joined."""

    def head(self, q, k, v, mask):
        s = q @ k.mT / q.shape[-1] ** 0.5
        weights = (s if mask is None else s.masked_fill(~mask, -torch.inf)).softmax(-1)
        return weights @ v, weights

    def forward(self, query, key, value, mask=None):
        inputs = (self.w_q, query), (self.w_k, key), (self.w_v, value)
        q, k, v = (self.heads(f(x)).unbind(1) for f, x in inputs)
        heads = [self.head(*each, mask) for each in zip(q, k, v)]
        return self.w_o(torch.cat(heads, dim=-1))


def test_pairs_that_are_joined_are_to_be_taken_apart():
    said = repr(check(JoinsPairs, "mha"))
    assert "take them apart first: contexts, weights = zip(*pairs)" in said


def test_a_function_that_was_taken_for_attention_is_told_so():
    def split_into_heads(x, num_heads):
        return x.unflatten(-1, (num_heads, -1)).transpose(1, 2)

    def glue(x):
        return x.transpose(1, 2).flatten(2)

    said = repr(check(split_into_heads))
    assert 'check(split_into_heads, task="split_heads")' in said
    assert check(split_into_heads, task="split_heads")
    said = repr(check(glue))
    assert 'check(glue, task="…")' in said and "merge_heads" in said
    assert "No task has this name" not in repr(check(glue, "attention"))
    assert "No task has this name" not in repr(check(lambda q, k, v: q @ k))
