"""Whole models are timed if they learn the same, and write the same."""

import pytest
import torch
from torch import nn

from benchmarks import jobs, models, results, worker
from benchmarks.models import LEARNERS, Learner, ModelSize
from benchmarks.parity import Refused
from benchmarks.timers import models as timer
from mha_lib.model import ATTENTIONS

BLOCKS = "GPT-2's blocks"
SIZE = ModelSize(B=3, T=19, E=12, H=3, L=2, W=23)


@pytest.mark.parametrize("name", LEARNERS)
def test_everybody_learns_the_same(name):
    learner = LEARNERS[name]
    step, loss = models.learning(SIZE, learner)()  # refused, if it learns otherwise
    ours = models.first_step(SIZE.model(), SIZE.tokens(), False)["loss"].item()
    assert step == 0
    assert loss == pytest.approx(ours, rel=1e-2 if learner.bfloat16 else 1e-5)


def test_every_attention_is_timed():
    assert {*ATTENTIONS} < {*LEARNERS}


def spoiled(change):
    def build(model):
        change(model)
        return model

    return Learner("spoiled", build)


def without_grad(change):
    def inside(model):
        with torch.no_grad():
            change(model)

    return inside


class Shifted(nn.Module):
    """Every token learns from the one before it."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(tokens.roll(1, dims=1))


WRONG = {
    "a bias": without_grad(lambda model: model.blocks[1].feed_forward[2].bias.zero_()),
    "no places": without_grad(lambda model: model.place_embedding.weight.zero_()),
    "another norm": lambda model: setattr(model.norm, "eps", 0.1),
    "not tied": lambda model: setattr(
        model.output, "weight", nn.Parameter(model.output.weight.detach().clone())
    ),
    "frozen": lambda model: model.blocks[0].register_forward_hook(
        lambda _, __, result: (result[0].detach(), result[1])
    ),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG.keys())
def test_whoever_learns_something_else_is_refused(change):
    with pytest.raises(Refused, match="off by"):
        models.learning(SIZE, spoiled(change))


def test_whoever_sees_other_tokens_is_refused():
    with pytest.raises(Refused, match="logits: off by"):
        models.learning(SIZE, Learner("shifted", Shifted))


def test_whoever_writes_something_else_is_refused(monkeypatch):
    made = models.gpt2

    def spoiled(model):
        theirs = made(model)
        with torch.no_grad():
            theirs.transformer.h[1].mlp.c_proj.bias.mul_(-9)
        return theirs

    monkeypatch.setattr(models, "gpt2", spoiled)
    found = models.race_writing(list(SIZE), 0.0, threads=1, device="cpu")
    assert found["rows"] == {} and [*found["refused"]] == [models.BY_THEM]


def test_a_race_has_rows_for_all_and_the_table_names_them(tmp_path, monkeypatch):
    monkeypatch.setattr(timer, "QUICK", (SIZE,))
    monkeypatch.setattr(timer.plots, "TARGET", tmp_path)

    def here(setting, job):
        return jobs.BY_KIND[job.kind](**job.arguments, threads=1, device="cpu")

    monkeypatch.setattr(worker, "answer", here)
    monkeypatch.setattr(models, "LEARNERS", {x: LEARNERS[x] for x in ("fused", BLOCKS)})
    monkeypatch.setattr(models.timing, "LEAST_ROUNDS", 1)
    assert timer.main(["--quick"]) == 0
    content = results.load(tmp_path / "models.json")
    learned, wrote = content["entries"]
    assert {*learned["rows"]} == {"fused", BLOCKS}
    assert {*wrote["rows"]} == {models.BY_US, models.BY_THEM}
    text = timer.report(content)
    assert all(f"| {name} |" in text for name in [*learned["rows"], *wrote["rows"]])


def test_the_goal_is_judged_by_the_better_peer_and_our_best():
    times = {"fused": 1.0, "dropin": 0.8, "einsum": 3.0, models.BFLOAT16: 0.1}
    times |= {BLOCKS: 1.2, "nn.TransformerEncoder": 1.4}
    rows = {name: {"ratio": ratio, "ms": 30 * ratio} for name, ratio in times.items()}
    entry = {"kind": "learning", "size": list(SIZE), "rows": rows}
    assert models.best_against_peers(entry) == pytest.approx(1.2 / 0.8)
    # 3 · 19 tokens in 24 ms, a step; a text has 19 − 8 new ones
    assert models.tokens_a_second(entry, "dropin") == pytest.approx(57 / 0.024)
    wrote = {**entry, "kind": "writing"}
    assert models.tokens_a_second(wrote, "fused") == pytest.approx(11 / 0.030)
    goal = "(goal 1.0, resolution 3%: "
    assert f"1.500 {goal}reached)" in timer.goal([entry])
    rows["dropin"]["ratio"] = rows["fused"]["ratio"] = 1.2 / 0.975
    assert f"0.975 {goal}reached)" in timer.goal([entry])
    rows["dropin"]["ratio"] = rows["fused"]["ratio"] = 1.2 / 0.965
    assert f"0.965 {goal}MISSED)" in timer.goal([entry])
