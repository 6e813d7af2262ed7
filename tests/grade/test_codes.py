"""Names kept apart: one code each, for good."""

import pytest

from mha_lib.grade import codes, roster
from mha_lib.grade.codes import Codes
from mha_lib.grade.exports import Handed
from tests.grade.platforms_files import PLAIN


@pytest.fixture
def people(tmp_path):
    (tmp_path / "roster.csv").write_text(PLAIN)
    return roster.read(tmp_path / "roster.csv")


def test_nobody_is_ever_called_anew(people, tmp_path):
    ada, sean, _ = people.students.values()
    key = tmp_path / "names" / "key.csv"
    first = Codes(key, people)
    handed = [Handed("S2/=1.ipynb", (sean,)), Handed("S1/a\n.py", (ada, sean))]
    names = dict(first.rename([*handed, Handed("zoe.PY")]))
    first.save()
    assert len(set(first.students.values())) == 3
    assert names == {
        "S2/=1.ipynb": f"{first.students['S2']}/1.ipynb",
        "S1/a\n.py": f"{first.students['S1']}/1.py",
        "zoe.PY": "others/1.PY",
    }
    assert not any("S1" in code or "ada" in code for code in names.values())

    again = Codes(key, people)
    more = Handed("S2/0.ipynb", (sean,))
    later = again.rename([more, *handed])
    again.save()
    assert again.students == first.students
    assert later == names | {"S2/0.ipynb": f"{first.students['S2']}/2.ipynb"}
    assert len(key.read_text().splitlines()) == 1 + 3 + 4
    assert f'"{first.students["S1"]}/1.py","S1; S2"' in key.read_text()
    assert key.stat().st_mode & 0o077 == 0


def test_codes_differ(people, tmp_path, monkeypatch):
    drawn = iter(["aa", "aa", "bb", "aa", "cc"])
    monkeypatch.setattr(codes.secrets, "token_hex", lambda n: next(drawn))
    found = Codes(tmp_path / "key.csv", people).students
    assert list(found.values()) == ["saa", "sbb", "scc"]


@pytest.mark.parametrize(
    "text, said",
    [
        ("code,name\n", "line 1: code, student, file are required; got code, name"),
        ("code,student,file\nx,S1,\nx,S2,\n", "line 3: 'x' or 'S2' was there before"),
        ("code,student,file\nx,S1,\ny,S1,\n", "line 3: 'y' or 'S1' was there before"),
        ("code,student,file\nx,S1,a\nx,S1,b\n", "line 3: 'x' or 'b' was there before"),
    ],
)
def test_what_is_no_key_is_refused(text, said, people, tmp_path):
    (tmp_path / "key.csv").write_text(text)
    with pytest.raises(ValueError, match=said):
        Codes(tmp_path / "key.csv", people)
