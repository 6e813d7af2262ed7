"""The check names what is wrong, faults nothing that is right and never guesses."""

import json
import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from evidence.reference import attend
from mha_lib.check import TASKS, check, diagnose, sections
from mha_lib.check.catalogue import MISTAKES, SAME_FUNCTION, stages_for
from mha_lib.check.diagnosis import conclude, property_names
from mha_lib.check.reference import Problem, compute
from mha_lib.check.sections import TITLES, link, section_title
from tests.check.submissions_right import RIGHT, Annotated, Fused, Lazy
from tests.check.submissions_wrong import (
    WRONG,
    Base,
    column_softmax,
    forgot_to_scale,
    square_only,
)
from tests.check.test_pairs import executed, one_name, said

ROOT = Path(__file__).parents[2]


def named(submission):
    return getattr(submission, "__name__", type(submission).__name__)


# --- the reference ------------------------------------------------------------------


def test_the_reference_is_attention_by_the_definition():
    probe = next(p for p in TASKS["attention"].probes(3) if p["name"] == "holes")
    problem = Problem.of(probe)
    found = compute(problem)
    q, k, v = (problem.x[name][1, 2].tolist() for name in "qkv")
    context, weights = attend(q, k, v, problem.x["mask"][1, 0].tolist())
    torch.testing.assert_close(found["output"][1, 2], torch.tensor(context).double())
    torch.testing.assert_close(found["weights"][1, 2], torch.tensor(weights).double())


@pytest.mark.parametrize("task", ["mha", "mha_sequence_first"])
def test_the_reference_is_the_layer_of_torch(task):
    for probe in TASKS[task].probes(1, torch.float64):
        if probe["name"] not in ("plain", "holes", "B = H"):
            continue
        E, H = probe["sizes"]["E"], probe["sizes"]["H"]
        layer = nn.MultiheadAttention(E, H, batch_first=task == "mha").double()
        w = probe["weights"]
        layer.in_proj_weight.data = torch.cat([w[f"W_{r}"] for r in "qkv"])
        layer.in_proj_bias.data = torch.cat([w[f"b_{r}"] for r in "qkv"])
        layer.out_proj.weight.data, layer.out_proj.bias.data = w["W_o"], w["b_o"]
        x = probe["inputs"]
        mask = x.get("mask")
        if mask is not None:
            mask = mask if task == "mha" else mask.permute(2, 0, 1)
            mask = ~mask.repeat_interleave(H, 0)
        theirs, weights = layer(
            *(x[n] for n in ("query", "key", "value")),
            attn_mask=mask,
            average_attn_weights=False,
        )
        ours = compute(Problem.of(probe))
        torch.testing.assert_close(ours["output"], theirs)
        torch.testing.assert_close(ours["weights"], weights)


# --- the catalogue ------------------------------------------------------------------

EVERY = [
    (task, stage)
    for task in TASKS
    for options in stages_for(task).values()
    for stage in options
    if stage.names
]
# A whole layer has three tasks with nearly the same stages: each is tried in one of
# the two torch layouts, and all of TensorFlow's.
TRIED = [
    (task, stage)
    for task, stage in EVERY
    if task not in ("mha", "mha_sequence_first")
    or len(MISTAKES[stage.names[0]].tasks) == 1
    or list(MISTAKES).index(stage.names[0]) % 2 == (task == "mha")
]


def test_the_catalogue_is_large_and_complete():
    assert sum(bool(mistake.stages) for mistake in MISTAKES.values()) >= 90
    assert {name for _, stage in TRIED for name in stage.names} == {
        name for name, mistake in MISTAKES.items() if mistake.stages
    }


@pytest.mark.parametrize("task", TASKS)
def test_every_mistake_is_named_by_its_own_name(task):
    mine = [stage for task_, stage in TRIED if task_ == task]
    for seed, stage in enumerate(mine):  # float32, and another seed for each
        found = conclude(task, *executed(task, (stage,), seed))
        assert said(found) == {frozenset(map(one_name, stage.names))}, stage.names
        if found.verdict == "ambiguous":
            same = {frozenset(names) for names in SAME_FUNCTION}
            assert {n for c in found.candidates for n in c} in same
            continue
        assert found.verdict == "named"
        assert not found.properties["right"]


@pytest.mark.parametrize("task", TASKS)
def test_the_right_answer_is_right_for_several_seeds_and_policies(task):
    for seed in range(4):
        policy = ("nan", "zeros", "uniform", "unmasked")[seed]
        found = conclude(task, *executed(task, (), seed, policy=policy))
        assert (found.verdict, found.mistakes) == ("right", [])
        if task in ("attention", "mha", "mha_sequence_first", "split_concat"):
            assert found.policy["empty rows"] == policy
        assert found.properties["right"]


def test_stacks_of_up_to_six_are_named_and_the_first_is_to_be_mended_first():
    stages = stages_for("mha")
    by_name = {n: s for options in stages.values() for s in options for n in s.names}
    for names in (
        ("split-interleaved", "no-scale", "mask-inverted"),
        ("wq-wk-swapped", "scale-num-heads", "merge-reversed", "no-bias-out"),
        (
            "no-bias-q",
            "cosine-scores",
            "scale-hard-coded",
            "softmax-twice",
            "merge-interleaved",
            "residual",
        ),
    ):
        path = tuple(by_name[name] for name in names)
        found = conclude("mha", *executed("mha", path))
        assert found.verdict == "stacked"
        assert found.mistakes == list(names)


def slug(heading):
    """The anchor that myst gives a heading."""
    text = re.sub(r"[^\w\s-]", "", heading.strip().lower())
    return re.sub(r"\s", "-", text)


def test_every_mistake_points_to_a_section_that_exists():
    headings = {}
    for page in sorted((ROOT / "book").glob("[0-9]*.ipynb")):
        for cell in json.loads(page.read_text(encoding="utf-8"))["cells"]:
            if cell["cell_type"] == "markdown":
                for heading in re.findall(
                    r"^#{1,3} (.+)$", "".join(cell["source"]), re.MULTILINE
                ):
                    headings[f"{page.stem}#{slug(heading)}"] = heading
    told = {
        f"{page}#{x}": y for page, found in TITLES.items() for x, y in found.items()
    }
    assert told.keys() == {m.section for m in MISTAKES.values()}
    assert told == {section: headings[section] for section in told}
    assert section_title("04_one_matrix_for_qkv#a-published-fault") == (
        "chapter 4, 'A published fault'"
    )


def test_messages_are_sentences_and_sources_are_threads():
    for name, mistake in MISTAKES.items():
        assert re.fullmatch(r"[a-z0-9-]+", name)
        assert mistake.message.endswith(".") and len(mistake.message) < 200
        assert mistake.symptom[0].isupper()
        assert re.fullmatch(r"([\w.-]+/[\w.-]+#\d+)?", mistake.source)


# --- submissions in many styles -----------------------------------------------------


@pytest.mark.parametrize("submission, task", RIGHT, ids=[named(s) for s, _ in RIGHT])
def test_nothing_that_is_right_is_faulted(submission, task):
    found = diagnose(submission, task, seed=len(named(submission)))
    assert found.mistakes == [] and found.verdict == "right"


@pytest.mark.parametrize("submission, task", RIGHT, ids=[named(s) for s, _ in RIGHT])
def test_properties_have_names_that_are_known(submission, task):
    found = diagnose(submission, task).properties
    assert found.keys() <= property_names(task)
    assert found["right"] and found.get("right_with_mask", True)


def test_a_mask_of_another_shape_is_a_property_and_no_mistake():
    class Late(Fused):  # the caller is to give the heads an axis
        def forward(self, query, key=None, value=None, mask=None):
            if mask is not None and mask.dim() != 4:
                raise RuntimeError("the mask must have four axes")
            return super().forward(query, key, value, mask)

    found = diagnose(Late, "mha")
    assert found.verdict == "right" and found.properties["right_with_mask"]
    assert not found.properties["mask_as_given"]
    assert "it ran with a mask (B, 1, T, S), not as the task" in found.policy["call"]
    assert diagnose(Fused, "mha").properties["mask_as_given"]


def test_wrong_submissions_are_named_or_unknown_and_never_misnamed():
    right_names = 0
    for seed, (submission, task, names) in enumerate(WRONG):
        found = diagnose(submission, task, seed=seed)
        assert found.verdict not in ("right", "failed"), named(submission)
        if found.verdict == "unknown":
            assert not names, (named(submission), "is in the catalogue")
            continue
        sets = found.candidates or [found.mistakes]
        assert names in map(frozenset, sets), (named(submission), sets)
        right_names += 1
    assert len(WRONG) >= 50 and right_names >= 45


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_dtypes_are_judged_with_their_own_tolerance(dtype):
    names = {"sdpa", "additive", "allowed_plus_one", "float32_inside", "by_cat"}
    for submission, task in RIGHT:
        if named(submission) in names:
            assert diagnose(submission, task, dtype=dtype).verdict == "right"
    for layer in (Fused, Lazy):
        assert diagnose(layer, "mha", dtype=dtype).verdict == "right"
    found = diagnose(forgot_to_scale, "attention", dtype=dtype)
    assert found.mistakes == ["no-scale"]


# --- what the numbers of one call do not show ---------------------------------------


class Drops(Base):
    """A right layer, but for what its dropout does."""

    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__(embed_dim, num_heads)
        self.p = dropout

    def forward(self, query, key, value, mask=None):
        q, k, v = self.heads(self.w_q(query)), self.w_k(key), self.w_v(value)
        k, v = self.heads(k), self.heads(v)
        s = self.scores(q @ k.mT / self.d_k**0.5)
        s = s if mask is None else s.masked_fill(~mask[:, None], -torch.inf)
        w = s.softmax(-1)
        dropped = self.weights(w)
        out = self.output(self.w_o(self.join(dropped @ v)))
        return out, self.returned(w, dropped)

    def scores(self, s):
        return s

    weights = output = scores

    def returned(self, w, dropped):
        return w

    def drop(self, x):
        return F.dropout(x, self.p, self.training)


class NoFactor(Drops):
    def weights(self, w):
        return w * (torch.rand_like(w) > self.p) if self.training else w


class OnScores(Drops):
    scores = Drops.drop


class OnOutput(Drops):
    output = Drops.drop


class ReturnsDropped(Drops):
    weights = Drops.drop

    def returned(self, w, dropped):
        return dropped


class AlwaysOn(Drops):
    def weights(self, w):
        return F.dropout(w, self.p)


class Right(Drops):
    weights = Drops.drop


class ReturnsScores(Drops):
    def returned(self, w, dropped):
        return w.log()


def changes_q(q, k, v, mask=None):
    q *= q.shape[-1] ** -0.5
    s = q @ k.mT
    s = s if mask is None else s.masked_fill(~mask, -torch.inf)
    return s.softmax(-1) @ v


def answers_in_float64(q, k, v, mask=None):
    return F.scaled_dot_product_attention(*(x.double() for x in (q, k, v)), mask)


def causal_numbers(T, S):
    return torch.ones(T, S).tril()


def only_square(q, k, v, mask=None):
    T = q.shape[-2]
    return F.scaled_dot_product_attention(q, k.reshape(*k.shape[:2], T, -1), v, mask)


def needs_half_care(q, k, v, mask=None):
    s = q @ k.mT / q.shape[-1] ** 0.5
    return (s if mask is None else s.masked_fill(~mask, -1e9)).softmax(-1) @ v


BESIDE = {
    "dropout-not-rescaled": (NoFactor, "mha"),
    "dropout-on-scores": (OnScores, "mha"),
    "dropout-on-output": (OnOutput, "mha"),
    "dropout-in-eval": (AlwaysOn, "mha"),
    "dropout-unused": (Drops, "mha"),
    "weights-after-dropout": (ReturnsDropped, "mha"),
    "weights-returned-wrong": (ReturnsScores, "mha"),
    "inputs-changed": (changes_q, "attention"),
    "wrong-output-dtype": (answers_in_float64, "attention"),
    "mask-not-boolean": (causal_numbers, "causal_mask"),
    "needs-equal-sizes": (only_square, "attention"),
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_one_call_does_not_show_is_named_too(name):
    submission, task = BESIDE[name]
    found = diagnose(submission, task)
    assert name in found.mistakes
    extra = {"dropout-unused"} if submission in (ReturnsScores,) else set()
    assert set(found.mistakes) == {name} | extra


def test_dropout_that_is_right_is_not_faulted():
    found = diagnose(Right, "mha")
    assert found.verdict == "right" and found.properties["dropout"]


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
    shown = {*BESIDE, "constant-dtype", "constant-device", "fill-overflows-half"}
    assert shown == {name for name, m in MISTAKES.items() if not m.stages}


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
    assert "Its scores are 0.333 times the right ones." in found.evidence
    assert found.properties["runs"] and not found.properties["right_without_mask"]


def test_masks_under_a_broken_softmax_are_not_judged():
    def broken(q, k, v, mask=None):
        s = q @ k.mT / q.shape[-1] ** 0.5
        if mask is not None:
            s = s + 0.3 * mask
        return s.softmax(-2) @ v

    found = diagnose(broken, "attention")
    assert found.mistakes == ["softmax-over-queries"]
    assert any("fix this first" in text for text in found.evidence)


# --- what is said -------------------------------------------------------------------


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
    page = report._repr_html_()
    assert "<caption>yours</caption>" in page and "<caption>expected</caption>" in page
    assert (
        page.startswith("<div><style>")
        and "<style>" not in check(Fused, "mha")._repr_html_()
    )
    assert f'<a href="{link(MISTAKES["softmax-over-queries"].section)}">' in page
    assert check(Fused, "mha").picture() is None


def test_links_lead_to_the_published_pages_of_the_repository():
    urls = dict(u.split(", ") for u in metadata("mha_lib").get_all("Project-URL"))
    name = urls["Repository"].rsplit("/", 1)[1]
    page = link("05_masks#the-causal-mask")
    assert page.endswith(f".github.io/{name}/book/05_masks.html#the-causal-mask")


def test_a_package_that_is_not_installed_has_no_address(monkeypatch):
    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(sections, "metadata", missing)
    assert sections.repository() == link("05_masks#the-causal-mask") == ""


def test_the_diagnosis_is_ready_for_json():
    found = diagnose(column_softmax, "attention").to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["mistakes"] == ["softmax-over-queries"]
    assert found["example"].startswith("Row ")


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
        (shape, r"must have the shape \(2, 3, 4, 5\); got \(2, 3, 4\)"),
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


def test_the_task_is_taken_from_the_name_or_the_kind():
    def causal_mask(T, S):
        return torch.ones(T, S, dtype=torch.bool).tril()

    assert diagnose(causal_mask).task == "causal_mask"
    assert diagnose(Annotated).task == "mha"
    assert diagnose(forgot_to_scale).task == "attention"
    with pytest.raises(ValueError, match="task must be one of attention, .*; got 'x'"):
        check(forgot_to_scale, "x")
