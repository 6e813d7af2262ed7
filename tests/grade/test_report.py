"""Reports: lines, theirs beside what is expected, and no markup of a submission."""

import json
import re
from functools import cache

import pytest
import torch

from mha_lib.check import Example, beside, picture
from mha_lib.grade import judge, report
from mha_lib.grade.assignments import parse
from mha_lib.grade.judge import Judge
from tests.grade.course import text
from tests.grade.pages import Tables


def asked(task: str, **more) -> Judge:
    """A judge of one question; no process is started."""
    question = {"name": "answer", "task": task, "points": 2, **more}
    return Judge(parse({"id": "p", "title": "P", "questions": [question]}), seed=7)


def marked(task: str, submission, change=None, **more) -> dict:
    """The question as a report gets it."""
    judging = asked(task, **more)
    (question,), probes = judging.assignment.questions, judging.probes["answer"]
    outcomes = beside.run(submission, probes)
    if change is not None:
        change(probes, outcomes)
    kept = [judge._outcome(p, x) for p, x in zip(probes, outcomes)]
    return judging._question(question, kept)


def no_softmax(q, k, v, mask=None):
    return torch.sin(q @ k.mT) @ v


def split(x, num_heads):
    return x.unflatten(2, (num_heads, -1)).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).flatten(2)


def attention(q, k, v, mask=None):
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0) @ v


def causal(T, S):
    return torch.ones(T, S).tril().bool()


def padding(lengths, S):
    return (torch.arange(S) < lengths[:, None])[:, None]


def layer(change, first=False):
    """Multi-head attention as a function, with ``change`` of its output."""

    def mha(query, key, value, weights, num_heads, mask=None):
        inputs = {"q": query, "k": key, "v": value}
        if first:
            inputs = {role: x.transpose(0, 1) for role, x in inputs.items()}
            mask = None if mask is None else mask.permute(2, 0, 1)
        q, k, v = (
            split(x @ weights[f"W_{role}"].T + weights[f"b_{role}"], num_heads)
            for role, x in inputs.items()
        )
        heads = attention(q, k, v, None if mask is None else mask[:, None])
        output = change(merge(heads) @ weights["W_o"].T + weights["b_o"])
        return output.transpose(0, 1) if first else output

    return mha


RIGHT = {
    "attention": attention,
    "causal_mask": causal,
    "padding_mask": padding,
    "combine_masks": lambda causal, padding: causal & padding,
    "split_heads": split,
    "merge_heads": merge,
    "mha": layer(lambda x: x),
    "mha_sequence_first": layer(lambda x: x, first=True),
}
WRONG = {
    "attention": lambda q, k, v, mask=None: (
        (q @ k.mT / q.shape[-1] ** 0.5).softmax(-2) @ v
    ),
    "causal_mask": lambda T, S: torch.ones(T, S).tril(1).bool(),
    "padding_mask": lambda lengths, S: ~padding(lengths, S),
    "combine_masks": lambda causal, padding: causal | padding,
    "split_heads": lambda x, H: x.reshape(x.shape[0], H, x.shape[1], -1),
    "merge_heads": lambda x: x.flatten(2).reshape(x.shape[0], x.shape[2], -1),
    "mha": layer(lambda x: x + torch.arange(x.shape[-1]) % 2),
    "mha_sequence_first": layer(torch.sin, first=True),
}


@cache
def wrong(task: str) -> dict:
    return marked(task, WRONG[task])


@pytest.mark.parametrize("task", RIGHT)
def test_what_is_right_has_no_picture(task):
    part = marked(task, RIGHT[task])
    assert (part["points"], part["picture"]) == (2.0, None), text(part)
    assert Tables(report.question(part)).figures == 0


@pytest.mark.parametrize("task", WRONG)
def test_what_is_wrong_has_a_picture_with_stars_where_numbers_differ(task):
    part = wrong(task)
    page = Tables(report.question(part))
    assert page.figures == 1 and part["points"] == 0.0
    assert not {"img", "script", "svg"} & page.tags
    yours, expected = (table[1:] for table in page.tables)
    shown = part["picture"]
    assert len(yours) == len(expected) <= picture.ROWS
    stars = 0
    for row, ours in zip(yours, expected):
        assert len(row) == len(ours) <= picture.COLUMNS
        for a, b in zip(row, ours):
            assert a.endswith("*") == b.endswith("*")
            assert a == b or a.endswith("*") or abs(float(a) - float(b)) <= 0.011
            stars += a.endswith("*") and a != b
    assert stars == sum(map(sum, shown["differs"])) > 0
    # The number that the words speak of is in the picture, under its indices.
    found = re.search(r"(?:output|mask)\[([\d, ]+)\] is (\S+);", text(part))
    if found:
        *lead, row, column = map(int, found[1].split(","))
        if task == "mha_sequence_first":
            lead, row = [row], lead[0]
        assert shown["place"] == lead
        top, left = shown["first"]
        said = float({"True": "1", "False": "0"}.get(found[2], found[2]))
        assert shown["yours"][row - top][column - left] == pytest.approx(said, abs=0.01)
    else:
        place = re.search(r"sequence (\d+), head (\d+)", text(part))
        assert shown["place"] == [int(place[1]), int(place[2])]


@pytest.mark.parametrize(
    ("task", "down", "across"),
    [
        ("attention", "query", "key"),  # a map
        ("causal_mask", "query", "key"),
        ("split_heads", "token", "feature"),
        ("merge_heads", "token", "feature"),
        ("mha_sequence_first", "query", "feature"),
    ],
)
def test_rows_and_columns_have_the_words_of_the_task(task, down, across):
    shown = wrong(task)["picture"]
    assert (shown["down"], shown["across"]) == (down, across)
    words = f"a row for each {down}, a column for each {across}"
    assert words in picture.html(shown)


def test_a_map_has_its_keys_and_queries_named():
    text = report.question(marked("attention", WRONG["attention"]))
    assert "a row for each query, a column for each key" in text
    assert "<caption>yours</caption>" in text and 'scope="row">0<' in text
    text = report.question(marked("causal_mask", WRONG["causal_mask"]))
    assert "mask (1 = may attend)" in text


# --- what a submission can send -----------------------------------------------------


def example(theirs, expected, kind="output", place=(0, 0)):
    return Example("probe", kind, theirs, expected, "It is wrong.", place)


def test_a_large_map_is_cut_to_a_part_around_the_largest_difference():
    expected = torch.zeros(2000, 3000)
    theirs = expected.clone()
    theirs[1990, 1234] = 7.0
    shown = picture.of(example(theirs, expected), "attention")
    assert len(shown["yours"]) == picture.ROWS
    assert all(len(row) == picture.COLUMNS for row in shown["yours"])
    top, left = shown["first"]
    assert shown["yours"][1990 - top][1234 - left] == 7.0
    text = picture.html(shown)
    assert "there are 2000 rows and 3000 columns" in text
    assert 'scope="row">1990<' in text and 'scope="col">1234<' in text
    assert len(text) < 10_000


HOSTILE = {
    "NaN": torch.full((3, 5), float("nan")),
    "infinite": torch.full((3, 5), float("inf")),
    "minus infinite": torch.full((3, 5), float("-inf")),
    "huge": torch.full((3, 5), 1e300, dtype=torch.float64),
    "whole": torch.full((3, 5), 255, dtype=torch.uint8),
    "half": torch.full((3, 5), 60000.0, dtype=torch.float16),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_numbers_of_any_kind_can_be_shown(name):
    shown = picture.of(example(HOSTILE[name], torch.zeros(3, 5)), "attention")
    assert json.loads(json.dumps(shown, allow_nan=False)) == shown
    text = picture.html(shown)
    assert text.count("*</td>") == 30 and len(text) < 5000
    assert set(re.findall(r"--share:([^\"]*)", text)) <= {"0.00", "1.00"}


@pytest.mark.parametrize(
    "theirs",
    [torch.zeros(5, 3), torch.zeros(3, 5), torch.full((3, 5), 0.004)],
    ids=["another shape", "the same", "the third decimal"],
)
def test_where_there_is_nothing_to_see_there_is_no_picture(theirs):
    shown = picture.of(example(theirs, torch.zeros(3, 5)), "attention")
    assert shown is None and picture.html(shown) == ""
    assert picture.of(None, "attention") is None


def test_an_example_without_a_place_shows_nothing_that_needs_one():
    two, four = torch.zeros(3, 5), torch.zeros(2, 3, 4, 5)
    assert picture.of(example(two + 1, two, place=()), "attention")
    assert picture.of(example(four + 1, four, place=()), "attention") is None
    shown = picture.of(example(four + 1, four, place=(1, 2, 0)), "attention")
    assert shown["place"] == [1, 2]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e30, -1e30])
def test_a_submission_that_returns_such_numbers_gets_a_report(number):
    def answer(q, k, v, mask=None):
        return torch.full((*q.shape[:-1], v.shape[-1]), number)

    part = marked("attention", answer)
    assert part["points"] == 0.0
    assert json.loads(json.dumps(part, allow_nan=False)) == part
    assert Tables(report.question(part)).figures == 1


MARKUP = '"><script>alert(1)</script><a href=https://evil.example/x>'


def test_what_a_submission_writes_is_text_and_none_of_its_addresses_a_link():
    def change(probes, outcomes):
        outcomes[3] = {"error": f"{MARKUP}\n    Read: this https://evil.example/y"}
        outcomes[5]["notes"] = [MARKUP]

    part = marked("attention", WRONG["attention"], change)
    page = Tables(report.question(part))
    assert "script" not in page.tags
    assert not any("evil" in link for link in page.links)
    assert "&lt;script&gt;" in report.question(part)


def test_a_line_with_an_address_is_a_link_and_all_others_are_text():
    part = marked("attention", attention)
    part["lines"] = [
        {"level": 0, "text": "One mistake.", "href": ""},
        {"level": 2, "text": "Read: 'A & B'", "href": "https://book.example/x?a&b"},
        {"level": 1, "text": "https://evil.example/y", "href": ""},
    ]
    page = report.question(part)
    assert Tables(page).links == ["https://book.example/x?a&b"]
    assert "a&amp;b\">Read: 'A &amp; B'</a>" in page.replace("&#x27;", "'")
    assert "margin:.2em 0 .2em 3.0em;font-weight:normal" in page
    assert page.count("font-weight:bold") == 1


# --- what a picture gives away ------------------------------------------------------


def heads_of(shown, outcomes):
    """The heads of right outputs that a picture shows, rounded."""
    rows, lead = torch.tensor(shown["expected"]), tuple(shown["place"])
    outputs = [x["outputs"]["output"] for x in outcomes if "outputs" in x]
    inside = [x for x in outputs if all(i < n for i, n in zip(lead, x.shape))]
    alike = [x[lead] for x in inside if x[lead].shape == rows.shape]
    return [x for x in alike if (x - rows).abs().max() < 0.006]


def test_the_numbers_shown_are_too_coarse_for_an_answer():
    shown = marked("attention", no_softmax)["picture"]

    def coarse(probes, outcomes):
        (head,) = heads_of(shown, outcomes)
        head[:] = torch.tensor(shown["expected"])

    part = marked("attention", attention, coarse)
    assert part["points"] == 0.0 and not part["diagnosis"]["properties"]["right"]


def test_one_sequence_and_one_head_are_all_that_is_shown():
    part = marked("attention", no_softmax)
    text = json.dumps(part["picture"])
    size = [len(part["picture"]["expected"]), len(part["picture"]["expected"][0])]
    assert part["picture"]["size"] == size and len(text) < 2000

    def look(probes, outcomes):
        assert len(heads_of(part["picture"], outcomes)) == 1

    marked("attention", attention, look)


def test_points_are_shown_as_they_were_given():
    worth = {"right_without_mask": 3, "inputs_unchanged": 1}
    wrong = marked("attention", no_softmax, properties=worth, points=4)
    text = report.question(wrong)
    assert "<td>inputs unchanged</td><td>yes</td><td>0</td>" in text
    assert "There are points only where something is right." in text
    right = report.question(marked("attention", attention, properties=worth, points=4))
    assert "<td>inputs unchanged</td><td>yes</td><td>1</td>" in right
    assert "only where" not in right


def test_a_property_that_nobody_looked_at_was_not_seen():
    worth = {"inputs_unchanged": 1, "right": 3}
    blank = asked("attention", properties=worth, points=4)
    probes = blank.probes["answer"]
    outcomes = [{"error": "nothing is called answer"}] * len(probes)
    text = report.question(blank._question(blank.assignment.questions[0], outcomes))
    assert "<td>inputs unchanged</td><td>not seen</td><td>0</td>" in text
    assert "<td>no</td>" not in text
    wrong = report.question(
        marked("attention", WRONG["attention"], properties=worth, points=4)
    )
    assert "<td>right</td><td>no</td><td>0</td>" in wrong


# --- the class ---------------------------------------------------------------------


def test_the_summary_of_the_same_rows_is_the_same():
    counts = report._counted([list("hgfedcba"), ["c"]])
    assert "".join(counts) == "cabdefgh" and counts["c"] == 2


def test_verdicts_are_a_table_of_questions():
    counts = {"f<x>": {"named": 2, "right": 5}, "g": {"failed": 7}}
    text = report._verdicts(counts)
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t", text)
    assert cells[:4] == ["", "right", "named", "failed"]
    assert cells[4:] == ["f&lt;x&gt;", "5", "2", "0", "g", "0", "0", "7"]
