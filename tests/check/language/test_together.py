"""Two mistakes in one program are both named; a factor is told as what it is."""

import pytest
import torch

from mha_lib.check import check, diagnose
from mha_lib.check.language import MISTAKES
from mha_lib.check.together import both, pairs
from tests.check.language.wrong import changed

LOSS, BLOCK, MODEL = "next_token_loss", "block", "language_model"
STEP, WRITER = "training_step", "generate"
TWO = [  # task, program, two changes, the names of both
    (
        *(LOSS, "plain", "logits.mT, targets", "logits.softmax(-1).mT, targets"),
        *(", ignore_index=padding", ""),
        {"softmax-twice-in-loss", "padding-counted"},
    ),
    (
        *(LOSS, "one_hot", "tokens[:, 1:]", "tokens[:, :-1]"),
        *("/ counts.sum()", ""),
        {"loss-not-shifted", "loss-summed"},
    ),
    (
        *(BLOCK, "Usual", "x = x + out", "x = out", "nn.GELU", "nn.ReLU"),
        {"no-residual-attention", "relu"},
    ),
    (
        *(BLOCK, "Usual", "(h, h, h, mask)", "(h, h, h)"),
        *("self.norm2(x)", "x"),
        {"block-without-mask", "no-norm-mlp"},
    ),
    (
        *(MODEL, "Model", "self.norm(x)", "x", "bias=False", "bias=True"),
        {"no-final-norm", "output-bias"},
    ),
    (
        *(MODEL, "Model", ".bool()", ".bool().mT"),
        *("self.word(tokens) + ", "self.word(tokens) * "),
        {"model-mask-turned", "places-multiplied"},
    ),
    (
        *(STEP, "usual", "    optimizer.zero_grad(set_to_none=True)\n", ""),
        *(
            "    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=clip)\n",
            "",
        ),
        {"no-zero-grad", "no-clipping"},
    ),
    (
        *(STEP, "usual", ".param_groups:", ".param_groups[:1]:"),
        *("tokens[:, 1:].flatten())", "tokens[:, 1:].flatten(), ignore_index=0)"),
        {"rate-of-first-group", "step-word-0-left-out"},
    ),
    (
        *(WRITER, "writes", "/ temperature", "* temperature"),
        *("logits < least", "logits <= least"),
        {"temperature-multiplied", "top-k-one-less"},
    ),
    (
        *(WRITER, "writes", "    model.eval()\n", ""),
        *("-context:", ":context"),
        {"training-mode-while-writing", "context-cut-in-front"},
    ),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize("row", TWO, ids=lambda row: " and ".join(sorted(row[-1])))
def test_two_mistakes_of_one_program_have_both_names(row):
    task, program, *changes, names = row
    report = check(changed(program, *changes), task)
    assert report.diagnosis.verdict == "stacked"
    assert {*report.diagnosis.mistakes} == names
    assert "2 mistakes at once" in repr(report)
    assert "Together these explain" in repr(report)


def test_the_first_to_be_mended_comes_first_in_the_catalogue():
    task, program, *changes, names = TWO[0]
    found = diagnose(changed(program, *changes), task)
    assert found.mistakes == [name for name in MISTAKES[task] if name in names]


def test_one_change_in_two_parts_is_no_pair_of_a_right_one():
    """What no two mistakes give stays without a name."""
    found = diagnose(
        changed("plain", "logits.mT, targets", "logits.mT.relu(), tokens[:, :-1]"),
        LOSS,
    )
    assert (found.verdict, found.mistakes) == ("unknown", [])


@pytest.mark.parametrize("task", MISTAKES)
def test_pairs_are_of_two_parts(task):
    versions = {name: version for name, (version, _) in MISTAKES[task].items()}
    one = next(iter(versions.values()))
    assert both(one, one) is None
    found = dict(pairs(versions, dict.fromkeys(versions), None, torch.zeros(1)))
    assert len(found) > 100
    assert all(set(names) <= versions.keys() for names in found)


def test_what_one_leaves_as_it_is_has_to_come_from_the_other():
    versions = dict.fromkeys("abc", type("Any", (), {"one": 1}))
    versions["b"] = type("Any", (), {"two": 2})
    right = torch.tensor([1.0, 1.0, 1.0])
    alone = {
        "a": torch.tensor([2.0, 1.0, 1.0]),
        "b": torch.tensor([1.0, 3.0, 1.0]),
        "c": torch.tensor([5.0, 1.0, 1.0]),
    }
    found = dict(pairs(versions, alone, torch.tensor([2.0, 3.0, 1.0]), right))
    assert [*found] == [("a", "b")]
    assert not dict(pairs(versions, alone, torch.tensor([2.0, 3.0, 4.0]), right))


def test_a_right_program_does_not_wait_for_pairs(monkeypatch):
    def none(*_):
        raise AssertionError("no pair is tried")

    monkeypatch.setattr("mha_lib.check.own.pairs", none)
    assert check(changed("plain", "=padding", "=padding"), LOSS)
    assert diagnose(changed("plain", "=padding", "=0"), LOSS).mistakes


FACTORS = [
    (LOSS, "one_hot", "/ counts.sum()", "/ counts.sum() / 2", "0.5 times"),
    (LOSS, "one_hot", "/ counts.sum()", "/ counts.sum() / len(tokens)", "1/B times"),
    (STEP, "usual", "].flatten())", "].flatten()) / 3", "0.333 times"),
    (STEP, "usual", "loss.item()", "loss.item() * len(tokens)", "B times"),
    (STEP, "usual", "loss.item()", "loss.item() / logits.shape[1]", "1/T times"),
]


@pytest.mark.parametrize("row", FACTORS, ids=lambda row: f"{row[0]} {row[-1]}")
def test_a_factor_of_the_loss_is_told(row):
    task, program, old, new, words = row
    report = check(changed(program, old, new), task)
    assert report.diagnosis.verdict == "unknown"
    assert f"Every loss is {words} the right one" in repr(report)


@pytest.mark.parametrize("factor", ["loss / 4", "10 * loss", "loss / len(tokens)"])
def test_a_factor_of_the_gradients_alone_shows_where_nothing_is_clipped(factor):
    report = check(changed("usual", "loss.backward()", f"({factor}).backward()"), STEP)
    assert not report and "Is backward() called of a multiple of" in repr(report)
    assert "Every loss" not in repr(report)


def test_another_loss_has_no_factor():
    report = check(changed("one_hot", "cost * counts", "cost**2 * counts"), LOSS)
    assert not report and "Every loss is" not in repr(report)
