"""The search names what is wrong, alone or with others, and finds what is right."""

from itertools import combinations

import pytest
import torch

from mha_lib.check import TASKS, check
from mha_lib.check.catalogue import MISTAKES, SAME_FUNCTION, stages_for
from mha_lib.check.diagnosis import conclude
from mha_lib.check.equal import matches
from mha_lib.check.reference import Problem, compute
from tests.check.executed import SEARCHED, executed, one_name, said

EVERY = [
    (task, stage)
    for task in SEARCHED
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


def test_every_mistake_that_has_a_stage_is_tried():
    tried = {name for _, stage in TRIED for name in stage.names}
    assert tried == {name for name, mistake in MISTAKES.items() if mistake.stages}


def check_that_it_is_named(task, stage, seed):
    found = conclude(task, *executed(task, (stage,), seed))
    assert said(found) == {frozenset(map(one_name, stage.names))}, (stage.names, seed)
    if found.verdict == "ambiguous":
        same = {frozenset(names) for names in SAME_FUNCTION}
        assert {n for c in found.candidates for n in c} in same
    else:
        assert found.verdict == "named"
        assert not found.properties["right"]


@pytest.mark.sweep(8)
@pytest.mark.parametrize(
    ("seed", "tried"),
    enumerate(TRIED),
    ids=[f"{task}: {', '.join(stage.names)}" for task, stage in TRIED],
)
def test_every_mistake_is_named_by_its_own_name(seed, tried):
    check_that_it_is_named(*tried, seed)  # float32, and another seed for each


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(1000, 1020))
@pytest.mark.parametrize("task", SEARCHED)
def test_every_mistake_is_named_on_every_seed(task, seed):
    for task_, stage in EVERY:
        if task_ == task:
            check_that_it_is_named(task, stage, seed)


def answers(task, seed):
    """What each mistake gives on each probe, in float32; and what is right."""
    found = {}
    for place, probe in enumerate(TASKS[task].probes(seed)):
        problem = Problem.of(probe)
        for name, stage in [("right", None), *stages_by_name(task)]:
            computed = compute(problem, (stage,) if stage else ())
            answer = None  # their code would do anything
            if computed is not None:
                answer = computed["output"].float() if computed else torch.zeros(0)
            found.setdefault(name, {})[place] = answer
    return found


def stages_by_name(task):
    """Once each: a mistake in two stages is one name for two functions."""
    options = stages_for(task).values()
    return [
        ((one_name(stage.names[0]), stage.stage), stage)
        for stages in options
        for stage in stages
        if stage.names and stage.names[0] == one_name(stage.names[0])
    ]


def together(task, seed):
    """Pairs of mistakes, or of one and what is right, that no probe tells apart."""
    every = answers(task, seed)
    return [
        (a, b)
        for a, b in combinations(every, 2)
        if a[0] != b[0] and not any(map(differ, every[a].values(), every[b].values()))
    ]


def differ(one, two):
    """By so much that no dtype but bfloat16 lets it pass for rounding."""
    if one is None or two is None:
        return False
    return not matches(one, two.double(), slack=60)


@pytest.mark.long
@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", [3, 2**59 + 1])
@pytest.mark.parametrize("task", SEARCHED)
def test_every_seed_tells_every_mistake_from_every_other(task, seed):
    assert together(task, seed) == []


@pytest.mark.exhaustive
@pytest.mark.parametrize("task", SEARCHED)
def test_many_seeds_tell_every_mistake_from_every_other(task):
    assert [(s, found) for s in range(200) if (found := together(task, s))] == []


@pytest.mark.parametrize("task", SEARCHED)
def test_the_right_answer_is_right_for_several_seeds_and_policies(task):
    for seed in range(4):
        policy = ("nan", "zeros", "uniform", "unmasked")[seed]
        found = conclude(task, *executed(task, (), seed, policy=policy))
        assert (found.verdict, found.mistakes) == ("right", [])
        if task in ("attention", "mha", "mha_sequence_first", "split_concat"):
            assert found.policy["empty rows"] == policy
        assert found.properties["right"]


@pytest.mark.long
@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "names",
    [
        (
            "no-bias-q",
            "cosine-scores",
            "scale-hard-coded",
            "softmax-twice",
            "merge-interleaved",
            "residual",
        ),
        ("wq-wk-swapped", "scale-num-heads", "merge-reversed", "no-bias-out"),
        ("split-interleaved", "no-scale", "mask-inverted"),
    ],
    ids=len,
)
def test_stacks_of_up_to_six_are_named_and_the_first_is_to_be_mended_first(names):
    stages = stages_for("mha")
    by_name = {n: s for options in stages.values() for s in options for n in s.names}
    path = tuple(by_name[name] for name in names)
    found = conclude("mha", *executed("mha", path))
    assert found.verdict == "stacked"
    assert found.mistakes == list(names)


def test_where_three_mistakes_together_may_be_others_none_is_named():
    def attend(q, k, v, mask=None):
        scores = q @ k.mT
        if mask is not None:
            scores = scores.masked_fill(mask, 0.0)
        return scores.softmax(-1) @ v

    report = check(attend, "attention")
    found = report.diagnosis
    assert (found.verdict, found.mistakes, found.candidates) == ("unknown", [], [])
    said = "Its scores are 2.646 times the right ones: they are divided by 1, where"
    assert said in repr(report)  # and not "(here B/2)", which is 1 by chance
