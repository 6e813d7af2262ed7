"""The rules of a course: what they say, and what is refused with its line."""

import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from mha_lib.grade import lines, plan, roster
from mha_lib.grade.assignments import parse
from mha_lib.grade.exports import Handed
from mha_lib.grade.plan import Plan
from mha_lib.grade.roster import moment
from tests.grade.course import ASSIGNMENT
from tests.grade.platforms_files import CANVAS, MOODLE, PLAIN

DUE = moment("2026-10-01T23:59+02:00")


@pytest.fixture
def read(tmp_path):
    def reading(text: str, people: str | None = PLAIN):
        (tmp_path / "plan.yaml").write_text(text)
        (tmp_path / "roster.csv").write_text(people or "")
        known = roster.read(tmp_path / "roster.csv") if people else None
        return plan.read(tmp_path / "plan.yaml", parse(ASSIGNMENT), known)

    return reading


def test_a_plan_with_everything(read):
    text = """
due: 2026-10-01T23:59+02:00   # with the zone
late: {per_day: 10, most: 5, grace: 0.25}
attempts: last
extensions:
  Ada Lovelace: 48
groups:
  - [S2, eve@uni.edu]
by_hand:
  essay: 4
"""
    assert read(text) == Plan(
        DUE + timedelta(seconds=59), 10.0, 5.0, timedelta(minutes=15), "last",
        {"S1": timedelta(days=2)},
        (frozenset({"S2", "S3"}),), {"essay": 4.0},
    )  # fmt: skip


def test_the_plan_of_the_docstring_is_one(read):
    text = plan.__doc__.partition("```yaml")[2].partition("```")[0]
    people = "id,Assignment 2 (1234)\nada,\nben,\ncleo,\n"
    found = read(text, people)
    assert found.column == "Assignment 2 (1234)" and found.by_hand == {"essay": 4.0}
    assert set(plan.READERS) == set(lines.parse(text, "").fields())


@pytest.mark.parametrize(
    "due, submitted, days",
    [
        ("2026-10-01T23:59+02:00", "2026-10-01T23:59:59+02:00", 0),
        ("2026-10-01T23:59+02:00", "2026-10-02T00:00:00+02:00", 1),
        ("2026-10-01 23:59 UTC", "2026-10-01 23:59:01 UTC", 0),
        ("2026-10-01 23:59 +0200", "2026-10-02T23:59:59+02:00", 1),
        ("2026-10-01T23:59:00+02:00", "2026-10-01T23:59:01+02:00", 1),
        ("2026-10-01T23:59 Europe/Berlin", "2026-10-01T21:59:59Z", 0),
        ("2026-10-01T23:59:00 Europe/Berlin", "2026-10-01T21:59:01Z", 1),
        # One day of the clocks has 25 hours there, and another 23.
        ("2026-10-24T23:59 Europe/Berlin", "2026-10-25T23:59:59+01:00", 1),
        ("2026-10-24T23:59 Europe/Berlin", "2026-10-25T23:00:00Z", 2),
        ("2026-10-24T23:59+02:00", "2026-10-25T23:59+01:00", 2),
        ("2026-03-28T23:59 Europe/Berlin", "2026-03-30T00:00:00+02:00", 2),
    ],
)
def test_a_minute_lasts_to_its_end_and_a_day_is_one_of_the_clocks(
    due, submitted, days, read, ada
):
    student = replace(ada(PLAIN), submitted=None)
    handed = Handed("x", (student,), submitted=moment(submitted))
    assert read(f"due: {due}").days_late(student, handed) == days


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_plan_that_is_no_utf8_is_told_so(encoding, tmp_path):
    (tmp_path / "plan.yaml").write_bytes("\nlate: # é\n".encode(encoding))
    with pytest.raises(ValueError, match="plan.yaml, line [12]: save it as UTF-8"):
        plan.read(tmp_path / "plan.yaml", parse(ASSIGNMENT), None)


def test_a_plan_of_a_windows_editor_is_read(tmp_path):
    text = "\ufefflate:\r\n  per_day: 10\r\n"
    (tmp_path / "plan.yaml").write_bytes(text.encode())
    found = plan.read(tmp_path / "plan.yaml", parse(ASSIGNMENT), None)
    assert found == Plan(per_day=10)


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}"])
def test_a_plan_may_be_empty(text, read):
    assert read(text, None) == Plan()


@pytest.mark.parametrize(
    "text, said",
    [
        (
            "due: 2026-10-01T23:59Z\nlatte: 3",
            "line 2: the key must be one of due, late,",
        ),
        ("late:\n  per_day: 1\n  pre_day: 2", "line 3: the key must be one of per_day"),
        ("late: 10", "line 1: names and values are required"),
        ("late:\n  per_day: -1", "line 2: a number from 0 up is required; got '-1'"),
        ("late: {most: .nan}", "line 1: a number from 0 up"),
        ("late: {grace: nan}", "line 1: a number from 0 up"),
        ("\ndue: 2026-10-01 23:59", "line 2: a time must have a zone"),
        ("\ndue: 2026-10-01 23:59 Europe/Bonn", "line 2: there is no zone 'Europe/Bo"),
        ("due: soon Europe/Berlin", "line 1: a time must have a zone, such as"),
        ("due: [1]", "line 1: one value is required; got several"),
        ("attempts: first", "line 1: attempts must be best or last; got 'first'"),
        ("extensions:\n  S1: 2\n  S7: 3", "line 3: 'S7' is nobody in"),
        ("extensions:\n  S1: 2\n  ada: 3", "line 3: 'S1' has an extension already"),
        ("by_hand:\n  essay: 1\n  points: 4", "line 3: the marks have a column 'poin"),
        ("by_hand: {email: 4}", "line 1: the marks have a column 'email'"),
        ('by_hand: {"": 4}', "line 1: the marks have a column ''"),
        ("groups: S1", "line 1: a list is required"),
        ("groups:\n- [S1, S2]\n- [S3, S2]", "line 3: 'S2' is in two groups"),
        ("groups:\n- [S1, ada]", "line 2: 'S1' is in two groups, or twice in one"),
        ("by_hand:\n  merge_heads: 3", "line 2: merge_heads is a question that the gr"),
        ("column: Heads", "line 1: .* has no column 'Heads', but id, first name"),
        ("due: 2026-10-01T23:59Z\ndue: 1", "line 2: 'due' was there before"),
        ("due: [1", r"line [12]: .*expected ',' or '\]'"),
        ("due: \x00", "plan.yaml: "),
        ("[" * 5000, "plan.yaml"),
        ("due: &a [*a]", "plan.yaml: it is nested too deeply"),
        ("- due", "line 1: names and values are required"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text, said, read):
    with pytest.raises(ValueError, match=said):
        read(text)


def test_students_need_a_roster(read):
    with pytest.raises(
        ValueError, match="line 1: students can only be named with --ro"
    ):
        read("extensions: {S1: 2}", None)


def test_without_yaml_it_says_what_to_install(read, monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ValueError, match="needs PyYAML: pip install pyyaml"):
        read("")


# --- how late ----------------------------------------------------------------------


@pytest.fixture
def ada(tmp_path):
    def known(text: str):
        (tmp_path / "roster.csv").write_text(text)
        return next(iter(roster.read(tmp_path / "roster.csv").students.values()))

    return known


@pytest.mark.parametrize(
    "hours, changes, days",
    [
        (-1, {}, 0), (0, {}, 0), (0.1, {}, 1), (24, {}, 1), (24.1, {}, 2),
        (24.1, {"grace": timedelta(hours=1)}, 1), (1, {"grace": timedelta(hours=1)}, 0),
        (50, {"extensions": {"S1": timedelta(hours=48)}}, 1),
        (50, {"extensions": {"S2": timedelta(hours=48)}}, 3),
    ],
)  # fmt: skip
def test_days_that_have_begun(hours, changes, days, ada):
    student = replace(ada(PLAIN), submitted=None)
    handed = Handed("x", (student,), submitted=DUE + timedelta(hours=hours))
    assert Plan(DUE, **changes).days_late(student, handed) == days


def test_lateness_from_the_roster(ada):
    student = ada(PLAIN)  # an hour late
    handed = Handed("x", (student,))
    assert Plan(DUE).days_late(student, handed) == 1
    assert Plan().days_late(student, handed) == 0, "nothing was due"
    other = replace(student, id="S2", submitted=None)
    assert Plan(DUE).days_late(other, handed) == 1, "in a group, whose it is"
    student = ada(MOODLE)  # 26 hours late, as Moodle says
    handed = Handed("x", (student,))
    assert Plan().days_late(student, handed) == 2
    extended = Plan(extensions={"901": timedelta(hours=3)})
    assert extended.days_late(student, handed) == 1


def test_where_the_platform_says_late_and_no_more_it_is_a_day(ada):
    student = ada(CANVAS)
    assert Plan(DUE).days_late(student, Handed("x", (student,), True)) == 1
    assert Plan(DUE).days_late(student, Handed("x", (student,))) == 0
    extended = Plan(extensions={"101": timedelta(hours=1)})
    assert extended.days_late(student, Handed("x", (student,), True)) == 0


def test_what_is_kept_never_gets_negative():
    assert [Plan(per_day=40).kept(days) for days in (0, 1, 3)] == [1.0, 0.6, 0.0]
