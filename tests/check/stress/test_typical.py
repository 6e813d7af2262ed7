"""Each typical mistake is one, and the table says what `diagnose` answers today."""

import json
from types import SimpleNamespace

import pytest

from mha_lib.check import MISTAKES, Diagnosis, Fact, diagnose
from tests.check.stress import plain
from tests.check.stress import table as tables
from tests.check.stress.bases import BASES
from tests.check.stress.typical import TYPICAL, Typical, made

pytestmark = pytest.mark.long

STORED = json.loads(tables.TABLE.read_text("utf-8"))
CALLS = [  # one of them shows each mistake
    *(dict(), dict(D=7), dict(random=True)),
    *(dict(balanced=[(0, 2)]), dict(zeros=[(0, 2)], causality=True)),
    *(dict(mask="random"), dict(mask="random", times=30.0), dict(times=30.0)),
    *(dict(B=5, T=5, S=5, H=5), dict(B=5, T=5, S=5, H=5, mask="random")),
    *(dict(sees="gradient"), dict(sees="inputs"), dict(sees="parameters")),
]
OF_ATTENTION = [dict(V=7), dict(mask=(4, 5))]
GOOD = ("named", "pinpointed", "next step")


def wrong_somewhere(program, task):
    calls = CALLS + OF_ATTENTION * (task == "attention")
    return any(plain.wrong_on(program, task, [call]) for call in calls)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", TYPICAL)
def test_it_is_a_mistake(name):
    row = TYPICAL[name]
    assert wrong_somewhere(made(name, row.source), row.task)


@pytest.mark.parametrize("base", BASES)
def test_what_the_mistakes_are_made_of_is_right(base):
    task, source = BASES[base]
    right = made(base, source)
    assert not wrong_somewhere(right, task)
    assert diagnose(right, task).verdict == "right"


def test_there_are_enough_and_their_names_are_of_the_catalogue():
    assert len(TYPICAL) >= 150
    assert set().union(*(row.true for row in TYPICAL.values())) <= MISTAKES.keys()
    assert {row.says for row in TYPICAL.values()} == {"named", "line", "unknown"}


ROW = Typical("x", "causal_mask", "", "named", "line 3", frozenset({"no-scale"}))
LIAR = Typical(
    "x",
    "attention",
    "def attention(q, k, v, mask=None):\n"
    "    s = q @ k.mT\n"
    "    s = s if mask is None else s.masked_fill(~mask, -torch.inf)\n"
    "    weights = torch.softmax(s, -1)\n"
    "    return weights @ k, weights\n",
    "unknown",
    "",
    frozenset(),
)
FAILS = Fact("training", {"error": "NameError: x", "line": "3: x"})
SUMS = Fact("map-sums", {"low": 0.2, "high": 3.0})


def found(verdict="unknown", **known):
    return Diagnosis("attention", verdict, **known)


@pytest.mark.parametrize(
    "row, diagnosis, kind",
    [
        (ROW, found("right"), "passed"),
        (ROW, found("named", mistakes=["no-scale"]), "named"),
        (ROW, found("named", mistakes=["residual"]), "misleading"),
        (ROW, found("stacked", mistakes=["no-scale", "residual"]), "misleading"),
        (ROW, found("ambiguous", candidates=[["residual"], ["no-scale"]]), "named"),
        (ROW, found("ambiguous", candidates=[["residual"], ["log"]]), "misleading"),
        (ROW, found("failed", error="NameError (your line 3: x)"), "pinpointed"),
        (ROW, found("failed", error="NameError (your line 4: x)"), "next step"),
        (ROW, found("unmet", unmet=[FAILS]), "pinpointed"),
        (LIAR, found("unmet", unmet=[FAILS]), "next step"),
        (ROW, found(evidence=[SUMS]), "next step"),
        (LIAR, found(evidence=[SUMS]), "misleading"),
        (LIAR, found(evidence=[Fact("map-sums", {"low": 1.0, "high": 1.0})]), "vague"),
        (ROW, found(evidence=["words of somebody else"]), "vague"),
        (ROW, found(evidence=[Fact("reproduced", {})]), "vague"),
        (ROW, found(evidence=[Fact("it-varies")]), "next step"),
        (ROW, found(example=SimpleNamespace(fact=Fact("other-shape"))), "next step"),
        (ROW, found(properties={"right: a": True, "right: b": False}), "next step"),
        (ROW, found(properties={"right": False, "right: b": False}), "vague"),
    ],
)
def test_the_rules_of_the_table(row, diagnosis, kind):
    assert tables.kind_of(row, diagnosis) == kind


def test_an_error_of_diagnose_itself_is_counted(monkeypatch):
    def breaks(*_, **__):
        raise KeyError("weights")

    monkeypatch.setattr(tables, "diagnose", breaks)
    got = tables.row_of(LIAR)
    assert got["kind"] == "misleading" and "KeyError" in got["words"]


def test_the_command_writes_the_table(monkeypatch, tmp_path, capsys):
    name = "causal: turned"
    wrong = Typical("x", "causal_mask", TYPICAL[name].source, "named", "", frozenset())
    monkeypatch.setattr(tables, "TYPICAL", {name: TYPICAL[name], "x": wrong})
    monkeypatch.setattr(tables, "TABLE", tmp_path / "table.json")
    tables.main()
    written = json.loads(tables.TABLE.read_text("utf-8"))
    assert written["totals"]["named"] == written["totals"]["misleading"] == 1
    assert written["rows"][name]["kind"] == "named"
    assert capsys.readouterr().out.startswith("x\n  named: ['causal-transposed']")


def test_the_table_has_all_rows_and_their_totals():
    assert list(STORED["rows"]) == list(TYPICAL)
    kinds = [row["kind"] for row in STORED["rows"].values()]
    counted = {kind: kinds.count(kind) for kind in tables.KINDS}
    assert STORED["totals"] == counted | {"all": len(TYPICAL)}


@pytest.mark.sweep(35)
@pytest.mark.parametrize("name", TYPICAL)
def test_each_row_of_the_table_is_that_of_today(name):
    assert tables.row_of(TYPICAL[name])["kind"] == STORED["rows"][name]["kind"]


def test_no_answer_misleads():
    assert STORED["totals"]["misleading"] == 0


def test_nearly_all_are_named_pinpointed_or_have_a_next_step():
    assert sum(STORED["totals"][kind] for kind in GOOD) >= 0.95 * len(TYPICAL)
