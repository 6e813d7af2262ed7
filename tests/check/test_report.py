"""What is said: symptom, cause, section, source, and a place to look at."""

import json
import re
from importlib.metadata import PackageNotFoundError, metadata

import pytest
import torch

from mha_lib.check import check, diagnose, sections
from mha_lib.check.catalogue import MISTAKES
from mha_lib.check.report import link
from tests.check.layers import NoScale
from tests.check.submissions_right import Annotated, Fused
from tests.check.submissions_wrong import column_softmax, forgot_to_scale
from tests.check.test_guessed import attention as right


def test_the_report_gives_symptom_cause_section_source_and_a_counterexample():
    report = check(column_softmax, "attention")
    text = repr(report)
    assert not report
    assert "its rows do not: the softmax ran over dim=-2" in text
    assert "chapter 1, 'The softmax over the wrong axis'" in text
    assert "PetrochukM/PyTorch-NLP#2" in text
    total = float(re.search(r"Row \d+ of your map .* sums to ([\d.]+);", text)[1])
    assert abs(total - 1) > 0.01
    theirs = report.diagnosis.example.theirs
    rows = theirs.sum(-1).flatten()
    assert ((rows - total).abs() < 0.006).any()


@pytest.mark.parametrize("task", ["causal_mask", "padding_mask"])
def test_a_headline_is_good_english(task):
    headline, *_ = repr(check(lambda *sizes: None, task)).splitlines()
    words = task.replace("_", " ")
    assert headline == f"Your {words} gave no answer that could be compared."


def test_a_report_is_the_same_for_the_same_seed():
    first, second = (check(forgot_to_scale, "attention", seed=5) for _ in range(2))
    assert repr(first) == repr(second)
    assert first._repr_html_() == second._repr_html_()
    assert repr(check(forgot_to_scale, "attention", seed=6)) != repr(first)


def test_a_notebook_shows_a_picture_of_theirs_beside_the_expected():
    report = check(column_softmax, "attention")
    shown = report.picture()
    assert shown["kind"] == "map" and shown["yours"] != shown["expected"]
    right = check(Fused, "mha")
    page = report._repr_html_()
    assert "<caption>yours</caption>" in page and "<caption>expected</caption>" in page
    assert page.startswith("<div><style>")
    assert "<style>" not in right._repr_html_()
    assert f'<a href="{link(MISTAKES["softmax-over-queries"].section)}">' in page
    assert right.picture() is None


def test_a_notebook_shows_code_as_code():
    def attention(q, k, v):
        # yours
        ...

    report = check(attention, mask=False)
    assert "still is `...`" in repr(report)
    page = report._repr_html_()
    (code,) = re.findall(r"still is <code [^>]+>([^<]+)</code>\.", page)
    assert code == "..." and "`" not in page


def test_links_lead_to_the_published_pages_of_the_repository():
    urls = dict(u.split(", ") for u in metadata("mha_lib").get_all("Project-URL"))
    name = urls["Repository"].rsplit("/", 1)[1]
    page = link("04_masks#the-causal-mask")
    assert page.endswith(f".github.io/{name}/book/04_masks.html#the-causal-mask")


def test_a_package_that_is_not_installed_has_no_address(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sections, "metadata", missing)
    assert sections.repository() == link("04_masks#the-causal-mask") == ""


def test_the_diagnosis_is_ready_for_json():
    found = diagnose(column_softmax, "attention").to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["mistakes"] == ["softmax-over-queries"]
    assert found["example"].startswith("Row ")


def test_the_task_is_taken_from_the_name_or_the_kind():
    def causal_mask(T, S):
        return torch.ones(T, S, dtype=torch.bool).tril()

    assert diagnose(causal_mask).task == "causal_mask"
    assert diagnose(Annotated).task == "mha"
    assert diagnose(forgot_to_scale).task == "attention"
    with pytest.raises(ValueError, match="task must be one of attention, .*; got 'x'"):
        check(forgot_to_scale, "x")


def test_a_fill_that_half_precision_cannot_hold_is_not_called_another_number():
    def attention(q, k, v, mask=None):
        s = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            s = s.masked_fill(~mask, -1e30)
        return s.softmax(-1) @ v

    said = repr(check(attention))
    assert "Worth knowing: In half precision the code fails" in said
    assert "1e9" not in said


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", range(4))
def test_an_example_has_no_size_of_one_where_another_is_wrong_too(seed):
    for program, task in (column_softmax, "attention"), (NoScale, "mha"):
        found = diagnose(program, task, seed=seed)
        assert 1 not in found.example.sizes.values()


def test_what_was_not_seen_to_hold_is_told_in_words():
    said = repr(check(right, "attention", requires=["rows_sum_to_one"]))
    assert "it was not seen to hold: rows sum to one." in said


@pytest.mark.parametrize("name", ["v-from-key", "k-from-value", "q-from-key"])
def test_inputs_that_are_mixed_up_are_explained_where_each_has_its_own(name):
    assert "chapter 5, 'Each third" in sections.section_title(MISTAKES[name].section)
