"""Each wrong answer to the assignments' own tasks loses its points, in one place."""

import pytest

from mha_lib.check import LANGUAGE, TASKS, diagnose
from tests.tools.wrong_answers import TRAINED, WRONG, answer, own, tasks


@pytest.mark.sweep(17)
@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_answer_is_not_right(case):
    id, name = case.partition(",")[0].split()
    found = diagnose(answer(id, name, *WRONG[case]), tasks(id)[name], seed=11)
    assert found.verdict in ("unknown", "failed", "named"), case
    assert found.verdict == "named" or tasks(id)[name] not in LANGUAGE, case
    assert not found.properties.get("right")


def test_every_task_of_the_assignments_has_a_wrong_answer():
    ours = {f"{id} {name}" for id in ("a1", "a2", "a3", "a5", "a6") for name in own(id)}
    assert ours == {case.partition(",")[0] for case in WRONG}


@pytest.mark.sweep(6)  # each of the five once, with a seed of its own
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("id", ["a1", "a2", "a3", "a5", "a6"])
def test_solutions_are_right_for_every_seed(id, seed):
    for name, task in own(id).items():
        if f"{id} {name}" not in TRAINED:
            assert diagnose(answer(id, name), task, seed=seed).verdict == "right", name


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", range(5))
def test_a_model_of_the_language_is_right_for_every_seed(seed):
    assert diagnose(answer("a5", "perfect"), "a5.trained", seed=seed).verdict == "right"


@pytest.mark.parametrize("id", ["a5", "a6"])
def test_five_wrong_answers_to_each_new_task(id):
    asked = [case.partition(",")[0] for case in WRONG]
    for name in own(id):
        assert asked.count(f"{id} {name}") >= 3 + 2 * (f"{id} {name}" not in TRAINED)


@pytest.mark.parametrize("seed", [3, pytest.param(4, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("id", ["a5", "a6"])
def test_every_mistake_of_an_author_gets_its_name(id, seed):
    named = []
    for task in own(id).values():
        versions = {} if task in LANGUAGE else TASKS[task].conclude.args[2]
        for name, version in versions.items():
            found = diagnose(version, task, seed=seed)
            assert (found.verdict, found.mistakes) == ("named", [name])
            named.append(name)
    assert len(named) >= 5


def test_a_layer_may_be_changed_without_no_grad_as_in_the_notebook():
    plain = answer("a6", "silenced", "with torch.no_grad():", "if True:")
    assert diagnose(plain, tasks("a6")["silenced"], seed=11).verdict == "right"
