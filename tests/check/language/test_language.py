"""A language model's parts: right is never called wrong, wrong has its name."""

from itertools import combinations

import pytest
import torch

from mha_lib.check import LANGUAGE, beside, check, diagnose
from mha_lib.check.language import FAIL, TOLERANCES, VERSIONS
from mha_lib.check.own import check_told_apart, own_task
from tests.check.language.right import RIGHT
from tests.check.language.wrong import WRONG, changed

exhaustive = pytest.mark.exhaustive
RIGHT_ONES = [(task, program) for task, found in RIGHT.items() for program in found]


@pytest.mark.long
@pytest.mark.sweep(11)
@pytest.mark.parametrize("seed", [0, 7, 20261124])
@pytest.mark.parametrize(
    ("task", "program"), RIGHT_ONES, ids=[x.__name__ for _, x in RIGHT_ONES]
)
def test_no_right_program_is_called_wrong(task, program, seed):
    report = check(program, task, seed=seed)
    assert repr(report) == f"Right: {LANGUAGE[task].title}."


@pytest.mark.long
@pytest.mark.sweep(19)
@pytest.mark.parametrize(
    ("row", "wrong"),
    enumerate(WRONG),
    ids=[f"{row} {wrong[-1]}" for row, wrong in enumerate(WRONG)],
)
def test_a_wrong_program_has_its_name_and_no_other(row, wrong):
    task, program, old, new, name = wrong
    found = diagnose(changed(program, old, new), task, seed=row)
    assert (found.verdict, found.mistakes) == ("named", [name])
    assert not found.properties["right"]


def test_nearly_every_mistake_is_tried_by_a_program_of_another_hand():
    known = {name for task in LANGUAGE.values() for name in task.mistakes}
    tried = {name for *_, name in WRONG}
    assert tried <= known and len(tried) >= 100


def test_every_right_program_that_is_changed_is_right_before():
    programs = {x.__name__ for _, x in RIGHT_ONES} | {"OwnNorm"}  # a part of ByHand
    assert {program for _, program, *_ in WRONG} <= programs


@pytest.mark.long
@pytest.mark.parametrize("task", LANGUAGE)
@pytest.mark.parametrize(
    ("seed", "every"),
    [(0, 3), *(pytest.param(x, 1, marks=exhaustive) for x in (0, 5, 2**40 + 1))],
)
def test_cases_tell_all_versions_apart(task, seed, every):
    tolerance, fail = TOLERANCES.get(task, 0.0), FAIL.get(task, ())
    versions = dict([*VERSIONS[task].items()][::every])
    check_told_apart(LANGUAGE[task], versions, seed, tolerance, fail)
    right = VERSIONS[task]["the reference"]
    with pytest.raises(ValueError, match="must tell one and its twin apart"):
        twins = {"one": right, "its twin": right}
        check_told_apart(LANGUAGE[task], twins, seed, tolerance)


def wrongly_called(task, every):
    """Of every nth version, those that are not called by their name."""
    found = []
    for seed, (name, version) in [*enumerate(VERSIONS[task].items())][::every]:
        expected = [name] * (name != "the reference")
        if diagnose(version, task, seed=seed).mistakes != expected:
            found.append(name)
    return found


@pytest.mark.long
@pytest.mark.parametrize("task", LANGUAGE)
def test_a_version_is_called_by_its_name(task):
    assert wrongly_called(task, every=17) == []


@exhaustive
@pytest.mark.parametrize("task", LANGUAGE)
def test_every_version_is_called_by_its_name(task):
    assert wrongly_called(task, every=1) == []


@pytest.mark.parametrize("task", LANGUAGE)
def test_sizes_are_drawn_anew(task):
    shapes = [
        [tuple(x.shape) for p in LANGUAGE[task].probes(seed) for x in tensors(p)]
        for seed in range(6)
    ]
    assert all(one != two for one, two in combinations(shapes, 2))


def tensors(probe):
    return [x for x in probe["inputs"].values() if torch.is_tensor(x)]


@pytest.mark.parametrize("task", LANGUAGE)
def test_what_raises_says_where_and_what_is_required(task):
    def fails(*given, **more):
        raise KeyError("not yet")

    said = repr(check(fails, task))
    assert 'raise KeyError("not yet")' in said
    assert f"Required: {LANGUAGE[task].signature}" in said


def test_what_is_required_is_said_once_where_some_calls_fail():
    def generate(model, tokens, new, context, temperature=1.0, top_k=None):
        if top_k == 3:
            raise KeyError("not yet")
        return tokens

    report = check(generate)
    assert report.diagnosis.verdict == "unknown" and report.diagnosis.error
    assert repr(report).count("Required: ") == 1


def test_a_loss_without_an_answer_is_unfinished():
    def next_token_loss(logits, tokens, padding=0): ...

    found = diagnose(next_token_loss, "next_token_loss")
    assert found.verdict == "failed"


def test_what_has_no_name_is_told_with_a_next_step():
    squared = changed("one_hot", "cost * counts", "cost**2 * counts")
    report = check(squared, "next_token_loss")
    assert report.diagnosis.verdict == "unknown" and "no name here" in repr(report)
    assert "Next: call it yourself with the smallest case" in repr(report)


def test_a_name_of_ours_is_taken():
    with pytest.raises(ValueError, match="generate is a task of mha_lib"):
        own_task("generate", abs, lambda generator: {"one": {"x": 1}})


def test_shares_may_differ_as_far_as_the_task_allows():
    def half(n):
        return [0.5, 0.5]

    def draw(generator):
        return {"one": {"n": 2}}

    task = own_task("own.shares", half, draw, tolerance=0.02)
    probes = task.probes()
    for share, right in ((0.515, True), (0.53, False)):
        given = beside.run(lambda n, x=share: [x, 1 - x], probes)
        assert task.conclude(probes, given).properties["right"] is right
