"""The task as it is written is judged; what is lacking has a name and a sentence."""

import json

import pytest
import torch
import torch.nn.functional as F

from mha_lib import BatchedMHA
from mha_lib.check import TASKS, check, diagnose, judged, property_names
from mha_lib.check.beside.words import RAN_WITH
from mha_lib.check.contract import ON_REQUEST
from mha_lib.check.words import WORDS
from tests.check.layers import NoScale, Right
from tests.check.submissions_broken import (
    A2,
    BROKEN,
    FORMS,
    Returning,
    equal_weights_beside_zeros,
    returning,
    weights_of,
    weights_of_an_empty_row,
)
from tests.check.submissions_right import AsModule, functional, sdpa, with_einsum

IDS = [submission.__name__ for submission, *_ in BROKEN]


@pytest.mark.sweep(3)
@pytest.mark.parametrize("submission, task, requires, name", BROKEN, ids=IDS)
def test_what_breaks_the_contract_is_not_right_and_is_told(
    submission, task, requires, name
):
    report = check(submission, task, requires=requires, seed=len(submission.__name__))
    found = report.diagnosis
    assert (found.verdict, found.mistakes, found.error) == ("unmet", [], None)
    assert not report and not found.properties["right"]
    assert not found.properties.get(name, False)
    assert found.unmet and all(
        words in repr(report) for words in found.to_dict()["unmet"]
    )
    assert json.loads(json.dumps(found.to_dict())) == found.to_dict()
    assert "With that mended, the rest is right." in repr(report)


@pytest.mark.parametrize("asked", [(), ("weights",)])
@pytest.mark.parametrize("words", FORMS)
def test_what_no_two_names_can_take_is_told_in_words(words, asked):
    report = check(returning(FORMS[words]), "attention", requires=asked)
    said = f"As the task calls it, `output, weights = …` fails: {words} comes back."
    assert repr(report).count(said) == 1 and not report
    assert bool(asked) <= (not report.diagnosis.properties["weights"])


def test_a_dict_in_place_of_a_mask_is_told_in_words():
    def causal_mask(T, S):
        return {"mask": torch.ones(T, S).tril().bool()}

    said = repr(check(causal_mask))
    assert "`output = …` fails: a dict with the keys mask comes back" in said


EMPTY = "in its row of the weights that come back stand "


def test_what_is_said_of_an_empty_row_is_true_of_output_and_weights():
    said = repr(check(weights_of_an_empty_row, "attention"))
    assert f"Not a mistake: the output {MADE}zeros; {EMPTY}NaN." in said
    said = repr(check(equal_weights_beside_zeros, "attention", requires=["weights"]))
    assert f"Not a mistake: the output {MADE}zeros; {EMPTY}other numbers." in said
    for asked in ["weights"], ["zeros_for_empty_rows"], ["zeros_for_empty_rows"] * 2:
        said = repr(check(weights_of_an_empty_row, "attention", requires=asked))
        assert "NaN" in said and "Not a mistake" not in said


def test_a_cut_that_is_wrong_is_not_told_to_be_a_reshape():
    def split_heads(x, num_heads):
        B, T, E = x.shape
        return x.view(B, num_heads, T, E // num_heads)

    said = repr(check(split_heads, requires=["strided"]))
    assert "[split-by-view]" in said and "reshape" not in said


class Averaged(BatchedMHA):
    def forward(self, *inputs, **options):
        output, weights = super().forward(*inputs, **options)
        return output, weights.mean(1)


@pytest.mark.parametrize(("asked", "no_mistake"), [((), True), (("weights",), False)])
def test_averaged_weights_are_no_mistake_where_nobody_asks_for_others(
    asked, no_mistake
):
    said = repr(check(Averaged, "mha", requires=asked))
    words = "Not a mistake: the returned weights are averaged over the heads."
    assert (words in said) is no_mistake
    assert ("yours are averaged." in said) is not no_mistake


class Inverted(Right):
    def forward(self, query, key, value, mask=None):
        return super().forward(query, key, value, None if mask is None else ~mask)


def test_beside_a_mistake_nothing_is_said_of_empty_rows():
    said = repr(check(Inverted, "mha"))
    assert "[mask-inverted]" in said and "Not a mistake" not in said


MADE = "of a query that sees no key is made of "
ON_TOP = [(x, task) for x, task, requires, name in BROKEN if name in requires]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    "submission, task", ON_TOP, ids=[x.__name__ for x, _ in ON_TOP]
)
def test_what_is_required_alone_is_no_fault_where_it_is_not(submission, task):
    found = diagnose(submission, task, seed=len(submission.__name__))
    owed = {"leading_axes", "mask_broadcasts"}  # a task that lets these go has another
    lost = {x for x, holds in found.properties.items() if not holds} & judged(task)
    assert found.verdict == "right" or lost & owed, found.to_dict()


@pytest.mark.parametrize(
    "submission, task, requires",
    [
        (with_einsum, "attention", ("weights", "weights_gradients", "call_by_place")),
        (Returning, "mha", A2),
        (
            Right,
            "mha",
            ("biases", "any_device", "half_precision", "rows_sum_to_one")[:2],
        ),
        (functional, "mha", ("mask_optional", "no_dropout", "biases", "call_by_place")),
        (AsModule, "attention", ("no_dropout",)),
        (sdpa, "attention", "call_by_place"),
    ],
)
def test_whoever_does_what_is_required_is_right(submission, task, requires):
    assert diagnose(submission, task, requires=requires).verdict == "right"


def test_a_missing_bias_of_the_keys_is_no_fault_unless_biases_are_asked_for():
    class NoKeyBias(Returning):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            self.w_k = torch.nn.Linear(embed_dim, embed_dim, bias=False)

    rest = {*A2} - {"biases"}
    assert diagnose(NoKeyBias, "mha", requires=rest).verdict == "right"
    assert diagnose(NoKeyBias, "mha", requires=A2).verdict == "unmet"


def test_three_axes_take_the_place_of_all_others():
    def three(q, k, v, mask=None):
        s = torch.bmm(q, k.transpose(1, 2)) / q.shape[2] ** 0.5
        s = s if mask is None else s.masked_fill(mask == 0, -torch.inf)
        return torch.bmm(s.softmax(-1), v), s.softmax(-1)

    assert diagnose(three, "attention").verdict == "unmet"
    found = diagnose(three, "attention", requires=["weights", "three_axes"])
    assert (found.verdict, found.policy.keys()) == ("right", {"empty rows"})
    assert found.properties["three_axes"] and not found.properties["leading_axes"]


def test_a_mistake_keeps_its_name_beside_a_call_that_fails():
    def unscaled(q, k, v, mask=None):
        s = q @ k.mT
        return (s if mask is None else s + (1 - mask) * -1e9).softmax(-1) @ v

    report = check(unscaled, "attention", requires=["weights"])
    assert report.diagnosis.mistakes == ["no-scale"]
    (fact,) = report.diagnosis.unmet  # numbers of conduct show nothing here
    assert fact.code == RAN_WITH and fact.values["numbers"]
    assert "As the task calls it, it fails: RuntimeError: Subtraction" in repr(report)
    assert "With that mended" not in repr(report)


def test_a_required_property_that_was_not_seen_is_not_there():
    found = diagnose(Right, "mha", requires=["dropout"])
    assert found.verdict == "unmet" and "dropout" not in found.properties
    assert found.to_dict()["unmet"] == [
        "The task asks for this, and it was not seen to hold: dropout."
    ]


@pytest.mark.parametrize("call", [check, diagnose, lambda _, *x, **y: judged(*x, **y)])
def test_an_unknown_requirement_is_refused_with_the_list(call):
    words = "attention may require any_device, .*, weights.*; got colours, wings"
    with pytest.raises(ValueError, match=words):
        call(sdpa, "attention", requires=["wings", "weights", "colours"])


def test_tasks_owe_what_they_say():
    with pytest.raises(ValueError, match="task must be one of attention, .*; got 'x'"):
        judged("x")
    for task in TASKS:
        assert judged(task) <= property_names(task)
        assert judged(task, property_names(task) - {"three_axes"}) == property_names(
            task
        ) - {"three_axes"}
    assert judged("attention", "three_axes") == (
        judged("attention") - {"leading_axes", "mask_broadcasts"} | {"three_axes"}
    )
    assert {*ON_REQUEST, "biases"} <= property_names("mha") - judged("mha")
    assert "biases" in property_names("split_concat")


def test_each_probe_of_conduct_has_words_and_no_name_for_a_mistake():
    for task in TASKS.values():
        for probe in task.probes():
            name = probe["options"].get("conduct")
            assert name is None or name in WORDS and name in property_names(task.name)


@pytest.mark.long
@pytest.mark.sweep(3)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "submission, task", [(with_einsum, "attention"), (Right, "mha")]
)
def test_other_dtypes_have_their_own_loud_scores(submission, task, dtype, seed):
    if submission is with_einsum:

        def submission(q, k, v, mask=None):
            w = weights_of(q, k, mask)
            return w @ v, w

    assert diagnose(submission, task, dtype=dtype, seed=seed).verdict == "right"
    if task == "attention":

        def naive(q, k, v, mask=None):
            e = (q @ k.mT / q.shape[-1] ** 0.5).exp()
            e = e if mask is None else e * mask
            return e / e.sum(-1, keepdim=True) @ v

        found = diagnose(naive, task, dtype=dtype, seed=seed)
        assert found.properties["large_scores"] is False


def test_a_gradient_is_compared_only_where_the_numbers_are_right():
    found = diagnose(NoScale, "mha")
    assert found.mistakes == ["no-scale"] and found.properties["gradients"]


def test_an_answer_of_another_shape_does_not_stop_the_probes_of_conduct():
    def squeezes(q, k, v, mask=None):
        out = F.scaled_dot_product_attention(q, k, v, mask)
        return out[0] if mask is not None and mask.dim() < 4 and q.dim() == 4 else out

    found = diagnose(squeezes, "attention")
    assert found.verdict == "unmet" and not found.properties["mask_broadcasts"]


def test_complex_numbers_are_compared_by_their_real_part():
    def layer(q, k, v, mask=None):
        return (weights_of(q, k, mask) @ v).to(torch.complex64)

    assert diagnose(layer, "attention").mistakes == ["wrong-output-dtype"]


class LosesItsAxis(BatchedMHA):
    """One head is returned without an axis, which is no average of several."""

    def forward(self, *inputs, **options):
        output, weights = super().forward(*inputs, **options)
        return output, weights.squeeze(1)


@pytest.mark.parametrize("layer", [LosesItsAxis, LosesItsAxis(16, 1)])
def test_weights_of_one_head_are_not_called_averaged(layer):
    said = repr(check(layer, "mha"))
    assert "where there is one head, the returned weights lack its axis" in said
    asked = repr(check(layer, "mha", requires=["weights"]))
    assert "where there is one head, yours lack the axis of the heads" in asked
    assert "averaged" not in said + asked
