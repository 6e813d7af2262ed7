"""Who is in the course, from the files of several platforms."""

from datetime import datetime, timedelta, timezone

import pytest

from mha_lib.grade import roster
from mha_lib.grade.roster import moment
from tests.grade.platforms_files import (
    BLIND,
    CANVAS,
    FIRST_LAST,
    GITHUB,
    GRADED,
    GRADES,
    GRADESCOPE,
    MOODLE,
    PLAIN,
)


@pytest.fixture
def read(tmp_path):
    def reading(text: str):
        path = tmp_path / "roster.csv"
        path.write_text(text)
        return roster.read(path)

    return reading


@pytest.mark.parametrize(
    "text, form, ids",
    [
        (CANVAS, "canvas", ["101", "102", "103"]),
        (MOODLE, "moodle", ["901", "902", "903"]),
        (GITHUB, "plain", ["ada@uni.edu", "S2", "S3"]),
        (FIRST_LAST, "canvas", ["101", "102"]),
        (BLIND, "moodle", ["901", "902"]),
        (GRADES, "plain", ["ada@uni.edu", "love"]),
        (GRADED, "plain", ["S1", "sean@uni.edu"]),
        (PLAIN, "plain", ["S1", "S2", "S3"]),
        ("email\nada@uni.edu\n", "plain", ["ada@uni.edu"]),
        (GRADESCOPE, "plain", ["S1", "sean@uni.edu"]),
        ("student,name\n7,Ada\n", "plain", ["7"]),
    ],
)
def test_a_platform_is_known_by_its_headers(text, form, ids, read):
    found = read(text)
    assert (found.form, list(found.students)) == (form, ids)


@pytest.mark.parametrize("text", [CANVAS, MOODLE, GITHUB, PLAIN])
@pytest.mark.parametrize(
    "name", ["Ada Lovelace", "Lovelace, Ada", "lovelaceada", " ADA@uni.edu", "ada"]
)
def test_a_student_is_known_by_any_name(name, text, read):
    first = next(iter(read(text).students))
    assert read(text).one(name).id == first


def test_what_a_roster_says_beside_the_name(read):
    ada, sean, _ = read(MOODLE).students.values()
    assert ada.late == timedelta(hours=26) and sean.late is None
    assert ada.known == {
        "Full name": "Ada Lovelace", "ID number": "S1", "Email address": "ada@uni.edu"
    }  # fmt: skip
    assert (ada.name, ada.submitted) == ("Ada Lovelace", None)
    ada = read(PLAIN).students["S1"]
    assert ada.submitted == datetime(2026, 10, 1, 22, 59, tzinfo=timezone.utc)
    assert ada.name == "Ada Lovelace"
    assert [x.github for x in read(GITHUB).students.values()] == [
        "ada-love", "love", "",
    ]  # fmt: skip


def test_names_in_two_columns_and_times_are_read_where_a_platform_writes_them(read):
    found = read(FIRST_LAST)
    assert found.one("Ada Lovelace").id == "101" and found.one("ada").id == "101"
    assert found.students["102"].name == "Teller"  # who has one name
    ada, love = read(GRADES).students.values()
    assert (ada.repository, love.repository) == ("a2-ada-love", "a2-pairs")
    assert ada.submitted == datetime(2026, 10, 1, 21, 59, tzinfo=timezone.utc)
    assert love.submitted is None
    ada, _ = read(GRADED).students.values()
    assert ada.submitted == datetime(2026, 10, 1, 21, 59, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    "text, said",
    [
        (
            "id,name\n7,Ada\n8,Ben\n7,Cleo\n",
            "line 4: '7' was there before, in .*line 2",
        ),
        (
            "id,name\nADA,Ada\nx,Ben\nada,Cleo\n",
            "line 4: 'ada' was there before as 'ADA', in .*line 2",
        ),
        (
            "id,name\nM\u00fcller,Ada\nMu\u0308ller,Ben\n",
            "line 3: 'Mu\u0308ller' was there before as 'M\u00fcller', in .*line 2",
        ),
        ("id,name\n7,Ada\n,Ben\n", "line 3: the id is missing"),
        (
            "name,group\nAda,1\n",
            "line 1: a column id or email is required; got name, group",
        ),
        ("id,name\n", "there is nobody in it"),
        ("id,submitted\n7,2026-10-01\n", "line 2: a time must have a zone.* got '2026"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text, said, read):
    with pytest.raises(ValueError, match=said):
        read(text)


@pytest.mark.parametrize(
    "text, said",
    [
        (
            "id,login,name\n7,ada,Ada\n8,ben,Ben\n9,ADA,Cleo\n",
            "line 4: 'ADA', the login of '9', is that of '7', too, in .*line 2; it can",
        ),
        ("id,email\n7,a@x\n8,a@x\n", "line 3: 'a@x', the email of '8', .* in .*line 2"),
        (
            "identifier,github_username\n7,love\n8,Love\n",
            "line 3: 'Love', the github_username of '8', is that of '7', too",
        ),
        (
            CANVAS.replace("S2,sean@", "S1,sean@"),
            "line 5: 'S1', the SIS User ID of '102', is that of '101', too, .*line 4",
        ),
        (
            "id,name\n7,Ada Lovelace\n8,Ben\n9,ADA  Lovelace\n",
            "line 4: 'ADA  Lovelace' is '9' here and '7', 'Ada .*line 2: of",
        ),
        (
            "id,name,email\n7,Ada,a@x\n8,Ada,\n",
            "line 3: 'Ada' is '8' here and '7', 'Ada', in .*line 2: .* or add their em",
        ),
        (
            'id,name\n7,Ada King Lovelace\n8,"Lovelace, Ada King"\n',
            "line 3: 'Lovelace, Ada King' is '8' here and '7', 'Ada King.* line 2:",
        ),
        (
            'id,name\n7,"Lovelace, Ada"\n8,Ben\n9,ada lovelace\n',
            "line 4: 'ada lovelace' is '9' here and '7', 'Love.*line 2: of",
        ),
    ],
)
def test_what_two_ids_share_is_refused_with_both_lines(text, said, read):
    with pytest.raises(ValueError, match=said):
        read(text)


def test_what_two_people_may_share_is_not_refused(read):
    found = read("id,name,login,email\n7,Ada,,a@x\n8,Ada,,b@x\n9,,-,\n10,,-,\n")
    assert list(found.students) == ["7", "8", "9", "10"]
    found = read('id,name,email\n7,Ada Lovelace,a@x\n8,"Lovelace, Ada",b@x\n')
    assert list(found.students) == ["7", "8"]
    found = read("identifier,github_username,student_repository_name\n7,a,g\n8,b,g\n")
    assert [x.repository for x in found.students.values()] == ["g", "g"]


def test_nobody_and_several_are_told_apart(read):
    found = read("id,name,email\n7,Ada Lovelace,a@x\n8,Ada Lovelace,b@x\n")
    with pytest.raises(ValueError, match="'Ben' is nobody in .*roster.csv"):
        found.one("Ben")
    with pytest.raises(ValueError, match="is more than one student .*: 7 and 8; write"):
        found.one("ada lovelace")
    assert found.one("8").id == "8"


@pytest.mark.parametrize(
    "text",
    [
        "2026-10-01T23:59+02:00",
        "2026-10-01 21:59 UTC",
        "2026-10-01 21:59:00 Z",
        "2026-10-01 16:59:00.123456789 -0500",
    ],
)
def test_times_of_every_platform(text):
    assert moment(text) == datetime(2026, 10, 1, 21, 59, tzinfo=timezone.utc)


@pytest.mark.parametrize("text", ["2026-10-01 23:59", "tomorrow", ""])
def test_a_time_without_a_zone_is_none(text):
    with pytest.raises(ValueError, match="must have a zone, such as"):
        moment(text)
