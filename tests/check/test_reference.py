"""The reference is attention by the definition; probes are drawn for it."""

import pytest
import torch
import torch.nn as nn

from evidence.reference import attend
from mha_lib.check import TASKS
from mha_lib.check.equal import matches
from mha_lib.check.reference import Posed, Problem, compute


def test_a_task_without_a_reference_is_refused_by_its_name():
    probe = TASKS["merge_heads"].probes()[0] | {"call": "concat_heads"}
    with pytest.raises(ValueError, match="one of attention, .*; got 'concat_heads'"):
        compute(Problem.of(probe))
    for task in (x for x in TASKS.values() if not x.conclude):
        assert compute(Problem.of(task.probes()[0]))["output"].numel()


def test_a_problem_has_its_sizes_by_their_letters_and_no_others():
    problem = Problem.of(TASKS["attention"].probes()[0])
    assert problem.sizes["T"] == problem.T
    assert not hasattr(problem, "V")


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


def test_probes_are_drawn_from_their_seed_and_their_sizes_differ():
    for task in TASKS.values():
        first, again = task.probes(4), task.probes(4)
        for one, two in zip(first, again):
            for name, x in one["inputs"].items():
                same = two["inputs"][name]
                assert torch.equal(x, same) if torch.is_tensor(x) else x == same
    sizes = TASKS["mha"].probes(0)[0]["sizes"]
    assert len({*sizes.values()}) == len(sizes)
    names = [probe["name"] for probe in TASKS["mha"].probes(0)]
    assert {"plain", "B = H", "T = H", "empty row", "causal", "padding"} <= set(names)


def test_a_probe_is_posed_once_for_all_submissions_and_searched_anew():
    probe, *_ = TASKS["mha"].probes(4)
    kept = Posed(2)
    first, second = kept(probe), kept(probe)
    first.fronts["a"], first.policy = "kept with one submission", "zeros"
    assert second.fronts == {} and second.policy == "nan" and first.x is second.x
    compute(first)
    assert second.answers["nan"] is first.answers["nan"]
    other, turned = kept(probe, ["b_q"]), kept(probe, turned=True)
    assert not other.W["b_q"].any() and second.W["b_q"].any()
    assert torch.equal(turned.W["W_o"], second.W["W_o"].mT) and not turned.answers
    equal = dict(probe)  # another probe, though it looks the same
    assert kept(equal).answers == {} and len(kept.known) == 2
    kept(dict(probe))
    assert len(kept.known) == 2 and id(probe) not in kept.known


def test_numbers_are_compared_up_to_rounding_and_nan_with_nan():
    ours = torch.tensor([1.0, -2.0, 3.0]).double()
    assert matches(ours.float(), ours) and matches(ours[:0].float(), ours[:0])
    assert not matches(ours.float() + 0.01, ours)
    for number in (float("nan"), float("inf")):
        broken = ours.clone()
        broken[1] = number
        assert matches(broken.float(), broken)
        assert not matches(broken.float(), ours) and not matches(ours.float(), broken)
        assert not matches(broken.float() + 0.01, broken)
