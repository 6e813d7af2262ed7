"""What the judge makes of answers: which it believes, and the points they get."""

import json
import socket
import sys
import time

import pytest
import torch

from mha_lib.check import TASKS, beside, conclude, judged
from mha_lib.grade import judge, report
from mha_lib.grade.assignments import Question, parse
from mha_lib.grade.inside import child, wire
from mha_lib.grade.submission import Submission
from tests.check.submissions_broken import BROKEN
from tests.check.submissions_right import FusedHeadByHead, functional
from tests.grade.attacks.table import RIGHT
from tests.grade.course import linux, new_run, table, text


@pytest.mark.parametrize("given", [None, "right", ["error"], 1])
def test_what_is_no_outcome_is_an_error_of_the_submission(given):
    said = judge._outcome({"options": {}}, given)
    assert said == {"error": "it sent what is no outcome"}


def test_only_biases_may_be_missing():
    probe = TASKS["mha"].probes(3)[0]
    answer = {"outputs": {"output": torch.zeros(2, 3)}}
    names = ["b_k", "W_q", "W_o", "b_q", "b_x", "x"]
    kept = judge._outcome(probe, {**answer, "missing": names})
    assert kept["missing"] == ["b_k", "b_q"]
    merge = TASKS["merge_heads"].probes(3)[0]
    assert judge._outcome(merge, {**answer, "missing": names})["missing"] == []


def test_only_dropout_can_be_skipped():
    skipped = {"skipped": "x" * 2000, "outputs": {"output": torch.ones(2)}}
    for name in ("mha", "attention", "causal_mask", "split_heads"):
        for probe in TASKS[name].probes(3):
            kept = judge._outcome(probe, skipped)
            train = bool(probe["options"].get("train"))
            assert ("skipped" in kept) == train
            assert not train or kept == {"skipped": "x" * 1000}


@pytest.mark.parametrize(
    "answer",
    [{"outputs": {}}, {"outputs": {"weights": torch.ones(2)}}, {"outputs": None}, {}],
    ids=["none", "weights alone", "no dictionary", "nothing"],
)
def test_one_probe_without_an_output_is_judged_as_an_error(answer):
    probes = TASKS["attention"].probes(3)
    outcomes = [{"outputs": {"output": torch.zeros(2, 3)}} for _ in probes]
    outcomes[3] = answer
    outcomes = [judge._outcome(p, x) for p, x in zip(probes, outcomes)]
    found = conclude("attention", probes, outcomes)
    assert outcomes[3] == {"error": "it sent no output, or too large a one"}
    assert found.properties["runs"] is found.properties["right"] is False


def test_an_error_stands_for_what_is_too_large_to_send(monkeypatch):
    monkeypatch.setattr(wire, "MOST", 2000)
    small, large = ({"outputs": {"output": torch.ones(n, 7)}} for n in (1, 90))
    odd = {"outputs": {"output": torch.ones(2).to_sparse()}}
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(child.packed({"question": "f"}, [large, odd, small]))
        said, not_dense, kept = wire.receive(ours, 2000)["outcomes"]
    assert "error" in not_dense
    assert torch.equal(kept["outputs"]["output"], torch.ones(1, 7))
    assert said == {"error": "it returned far too many numbers, of the shape (90, 7)"}


def test_a_giant_second_answer_is_not_hashed():
    probe = TASKS["attention"].probes(3)[0]
    small = {"output": torch.ones(2, 3)}
    giant = torch.zeros(1, dtype=torch.uint8).expand(judge.LARGEST_ANSWER + 1)
    kept = judge._outcome(probe, {"outputs": {**small, "weights": giant}})
    assert kept["outputs"].keys() == {"output"}
    assert judge.fingerprint("attention", [kept]) == judge.fingerprint(
        "attention", [{"outputs": small}]
    )
    kept = judge._outcome(probe, {"outputs": {"output": giant}})
    assert kept == {"error": "it sent no output, or too large a one"}


def test_every_way_to_load_weights_reaches_the_judge():
    probes = TASKS["mha"].probes(3)[:1]
    (outcome,) = beside.run(FusedHeadByHead, probes)
    kept = judge._outcome(probes[0], outcome)
    assert len(outcome["alternatives"]) > 1
    assert kept["alternatives"].keys() == outcome["alternatives"].keys()


# --- points ------------------------------------------------------------------------


def test_where_no_room_is_left_errors_are_sent_and_the_largest_answer_is_not(
    monkeypatch,
):
    """An error after an answer that filled the message ended the whole reply."""
    sent = [{"outputs": {"output": torch.ones(n, 7)}} for n in (60, 2, 30)]
    sent.append({"error": "ValueError: sizes do not fit"})
    monkeypatch.setattr(wire, "MOST", len(wire.pack(sent[0])) + 20)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(child.packed({"question": "f"}, sent))
        large, *others = wire.receive(ours, wire.MOST)["outcomes"]
    assert large == {"error": "it returned far too many numbers, of the shape (60, 7)"}
    assert [len(x["outputs"]["output"]) for x in others[:2]] == [2, 30]
    assert others[2] == sent[3]


@pytest.mark.parametrize("learns", ["other names", "more"])
def test_names_and_what_a_layer_learns_beside_reach_the_judge(learns):
    class Layer(torch.nn.Module):
        def __init__(self, embed_dim, num_heads):
            super().__init__()
            self.num_heads, self.q = num_heads, "W_q" if learns != "more" else "q_proj"
            for name in (self.q, "k_proj", "v_proj", "out_proj"):
                setattr(self, name, torch.nn.Linear(embed_dim, embed_dim))
            if learns == "more":
                self.gain = torch.nn.Parameter(torch.ones(embed_dim))

        def forward(self, query, key, value, mask=None):
            layers = getattr(self, self.q), self.k_proj, self.v_proj
            q, k, v = (
                f(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
                for f, x in zip(layers, (query, key, value))
            )
            scores = q @ k.mT / q.shape[-1] ** 0.5
            if mask is not None:
                scores = scores.masked_fill(~mask[..., None, :, :], float("-inf"))
            weights = scores.softmax(dim=-1)
            return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights

    probes = TASKS["mha"].probes(3)
    sent = beside.run(Layer, probes)
    outcomes = [judge._outcome(probe, x) for probe, x in zip(probes, sent)]
    assert judge.diagnosed("mha", probes, outcomes).verdict == "right"
    found = judge.diagnosed("mha", probes, outcomes, ["projection_names"])
    assert (found.verdict, found.properties["projection_names"]) == ("unmet", False)


FULL_ROWS = b"""
import torch
def padding_mask(lengths, S):
    mask = torch.arange(S) < lengths[:, None]
    return mask[:, None].expand(-1, S, -1)
def merge_heads(x):
    return x.transpose(1, 2).flatten(2)
"""


@linux
def test_an_answer_too_large_to_send_costs_no_other_question(warm):
    questions = [
        {"name": name, "task": name, "points": 2}
        for name in ("padding_mask", "merge_heads")
    ]
    asked = parse({"id": "a9", "title": "Masks", "questions": questions})
    with judge.Judge(asked, 1, warm) as it:
        result = it.grade(Submission(FULL_ROWS, "py", digest=""))
    assert [part["points"] for part in result["questions"]] == [0.0, 2.0]
    assert not result["problem"] and "the output must have the shape (B, 1, S)" in text(
        result["questions"][0]
    )


def test_zeros_are_not_right_where_every_matrix_is_said_to_be_missing():
    probes = TASKS["mha"].probes(3)
    names = [f"{letter}_{role}" for letter in "Wb" for role in "qkvo"]
    outcomes = [
        judge._outcome(
            probe,
            {
                "outputs": {"output": torch.zeros_like(probe["inputs"]["query"])},
                "missing": names,
            },
        )
        for probe in probes
    ]
    found = conclude("mha", probes, outcomes)
    assert found.verdict != "right"
    assert not any(v for k, v in found.properties.items() if k.startswith("right"))


@linux
def test_properties_count_only_where_something_is_right(place):
    properties = {"right_without_mask": 3, "inputs_unchanged": 1}
    question = {"name": "attention", "task": "attention", "properties": properties}
    assignment = parse({"id": "p", "title": "P", "questions": [question]})
    texts = {
        "right.py": RIGHT,
        "zeros.py": "def attention(q, k, v, mask=None): return 0 * q @ k.mT @ v\n",
    }
    texts["changes.py"] = RIGHT.replace(
        "    return scores", "    v0 = v.clone(); v.zero_()\n    return scores"
    ).replace("@ v\n", "@ v0\n")
    (place / "p").mkdir()
    for name, source in texts.items():
        (place / "p" / name).write_text(source)
    new_run(place / "p", assignment=assignment, output=place / "q" / "p.csv")()
    points = {name: row["points"] for name, row in table(place / "q" / "p.csv").items()}
    assert points == {"right.py": "4", "changes.py": "3", "zeros.py": "0"}


@pytest.mark.sweep(4)
@pytest.mark.parametrize(
    ("submission", "task", "requires", "name"),
    BROKEN,
    ids=[x.__name__ for x, *_ in BROKEN],
)
def test_all_points_are_for_what_check_calls_right(submission, task, requires, name):
    """The grader's verdict is that of `check`, and what is not right lacks a point."""
    owed = judged(task, requires) & {"runs", "right_with_mask", "right_without_mask"}
    question = {"name": "f", "task": task, "requires": [*requires]}
    priced = {**question, "properties": dict.fromkeys(owed, 2) | {"output_shape": 1}}
    for asked in ({**question, "points": 5}, priced):
        assignment = parse({"id": "c", "title": "C", "questions": [asked]})
        judging = judge.Judge(assignment, seed=7)
        probes = judging.probes["f"]
        answers = beside.run(submission, probes)
        outcomes = [judge._outcome(*pair) for pair in zip(probes, answers)]
        part = judging._question(assignment.questions[0], outcomes)
        assert part["diagnosis"]["verdict"] == "unmet", text(part)
        assert part["points"] == sum(part["earned"].values()) < part["out_of"]
        assert ("points" in asked) == (part["points"] == 0) or "properties" in asked
        assert json.loads(json.dumps(part)) == part


def test_points_that_are_kept_back_are_told():
    worth = {"inputs_unchanged": 1, "right_with_mask": 5, "right_without_mask": 5}
    question = Question("f", "attention", properties=worth, requires=("weights",))
    holds = dict.fromkeys([*worth, "right"], True)
    assert question.earned(holds) == worth and question.kept_back
    part = {
        "name": "f",
        "title": "t",
        "points": 10,
        "out_of": 11,
        "worth": worth,
        "earned": question.earned(holds | {"right": False}),
        "lines": [],
        "picture": None,
        "diagnosis": {"properties": holds | {"right": False}},
    }
    assert part["earned"] == worth | {"inputs_unchanged": 0}
    page = report.question(part)
    assert "<td>inputs unchanged</td><td>yes</td><td>0</td>" in page
    assert "All points are for an answer that is right in all that is asked." in page
    assert not Question("f", "mha", properties={"right": 2, "runs": 1}).kept_back


def test_what_is_priced_is_judged():
    question = {"name": "f", "task": "mha", "properties": {"weights": 1, "right": 2}}
    data = {"id": "a", "title": "b", "questions": [question]}
    with pytest.raises(ValueError, match="or what it requires; got weights"):
        parse(data)
    data["questions"] = [question | {"requires": ["weights"]}]
    assert parse(parse(data).to_dict()).questions[0].requires == ("weights",)
    data["questions"] = [question | {"requires": ["wings"]}]
    with pytest.raises(ValueError, match="mha may require any_device.*got wings"):
        parse(data)


def test_gradients_of_inputs_alone_reach_the_judge():
    probe = TASKS["mha"].probes(3)[0]
    gradients = {"query": torch.ones(2), "W_q": torch.ones(2), "key": 3}
    answer = {"outputs": {"output": torch.ones(2)}, "weights_detached": True}
    kept = judge._outcome(probe, answer | {"gradients": gradients})
    assert kept["gradients"].keys() == {"query"} and kept["weights_detached"] is True


# --- a search that takes too long ----------------------------------------------------

LAST = torch.tensor([-1])
SHARES = {"right_with_mask": 3, "right_without_mask": 2, "output_dtype": 1}


def layer_with(plain: float | None, masked: float | None) -> tuple[judge.Judge, list]:
    """A judge, and right outcomes in which a number replaces some of the output."""
    question = {"name": "mha", "task": "mha", "properties": SHARES}
    assignment = parse({"id": "s", "title": "S", "questions": [question]})
    judging = judge.Judge(assignment, seed=7)

    def layer(query, key, value, weights, num_heads, mask=None):
        right = functional(query, key, value, weights, num_heads, mask).nan_to_num(0.0)
        number = plain if mask is None else masked
        if number is None:
            return right
        return torch.cat([right[:-1], right[-1:].clone().index_fill(1, LAST, number)])

    probes = judging.probes["mha"]
    answers = beside.run(layer, probes)
    outcomes = [judge._outcome(*pair) for pair in zip(probes, answers)]
    return judging, outcomes


NUMBERS = [(1e30, 1e30, 0), (1e30, None, 4), (None, 1e4, 3), (None, None, 6)]
NUMBERS += [(float("inf"), None, 4), (float("nan"), float("-inf"), 0)]


# The alarm may fall into a callback of weak references, which Python cannot leave.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("plain", "masked", "points"), NUMBERS)
def test_no_numbers_make_the_judge_search_without_end(
    plain, masked, points, monkeypatch
):
    monkeypatch.setattr(judge, "JUDGING", 0.3)
    judging, outcomes = layer_with(plain, masked)
    start = time.process_time()
    part = judging._question(judging.assignment.questions[0], outcomes)
    assert time.process_time() - start < 15
    assert part["points"] == points, text(part)
    assert "a fault of" not in text(part) and json.loads(json.dumps(part)) == part


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize(("plain", "masked", "points"), NUMBERS)
def test_a_search_that_was_given_up_costs_a_name_and_no_points(
    plain, masked, points, monkeypatch
):
    def slow(task, probes, outcomes, search=True, requires=()):
        calls.append(search)
        while search:
            time.sleep(0)
        return conclude(task, probes, outcomes, search, requires)

    calls = []
    monkeypatch.setattr(judge, "conclude", slow)
    monkeypatch.setattr(judge, "JUDGING", 0.1)
    judging, outcomes = layer_with(plain, masked)
    part = judging._question(judging.assignment.questions[0], outcomes)
    assert (part["points"], calls) == (points, [True, False]), text(part)
    found = part["diagnosis"]
    assert found["verdict"] == ("right" if points == 6 else "unknown")
    assert not found["mistakes"] and not found["candidates"]
    gave_up = "No known mistake was found in 0.1 s of searching." in text(part)
    assert gave_up == (points < 6)


def test_notes_of_an_outcome_are_plain_and_short():
    probe = TASKS["attention"].probes(3)[0]
    note = {"code": "ran-with", "folded": True, "mask": [1], "error": "x" * 999}
    given = {"error": "a", "code": "square-mask", "notes": [note, "no note", note] * 20}
    kept = judge._outcome(probe, given)
    assert kept["code"] == "square-mask" and len(kept["notes"]) == 13
    assert kept["notes"][0] == {"code": "ran-with", "folded": True, "error": "x" * 500}
