"""Whose is it? Names as Canvas, Moodle, Gradescope and GitHub Classroom write them."""

from datetime import datetime, timezone

import pytest

from mha_lib.grade import exports, roster
from mha_lib.grade.exports import Handed, counting, sort
from tests.grade.platforms_files import (
    CANVAS,
    GITHUB,
    GRADES,
    METADATA,
    MOODLE,
    PLAIN,
)

ROSTERS = {"canvas": CANVAS, "moodle": MOODLE, "github": GITHUB, "plain": PLAIN}


@pytest.fixture
def whose(tmp_path):
    """For each name the places in the roster of those whose it is, and what else."""

    def sorting(form: str, *names: str, others=False, **files) -> dict:
        path = tmp_path / "roster.csv"
        path.write_text(ROSTERS[form])
        known = roster.read(path)
        order = list(known.students)
        found = sort(dict.fromkeys(names) | files, known, others)
        return {x.name: ([order.index(s.id) for s in x.students], x) for x in found}

    return sorting


FLAT = {  # Canvas' zip: a name, LATE, its own numbers of the student and of the file
    "lovelaceada_101_9001_a2_heads.ipynb": (0, False, 9001),
    "lovelaceada_LATE_101_9002_a2_heads-1.ipynb": (0, True, 9002),
    "obrienseán_102_9003_b_1_2_c.ipynb": (1, False, 9003),
    "evileve_103_9004_lovelaceada_101_9005_a2.ipynb": (2, False, 9004),
    "lovelaceada_101_text.html": (0, False, 0),
}


@pytest.mark.parametrize("form", ["canvas", "plain", "moodle"])
def test_canvas(form, whose):
    """Its numbers are known to its own roster alone; elsewhere the name decides."""
    found = whose(form, *FLAT)
    got = {n: (who[0], x.flagged, x.number) for n, (who, x) in found.items()}
    late = {"lovelaceada_LATE_101_9002_a2_heads-1.ipynb"}
    if form == "canvas":
        assert got == FLAT
    else:
        # Names of students as Canvas writes them are those of the roster turned round.
        assert {n: x[0] for n, x in got.items()} == {n: x[0] for n, x in FLAT.items()}
        assert {n for n, x in got.items() if x[1]} == late


@pytest.mark.parametrize("end", ["9001_a2.py", "assignsubmission_file_a2.py"])
def test_the_number_of_a_platform_means_nothing_in_another_roster(end, tmp_path):
    (tmp_path / "r.csv").write_text("id,name\n101,Eve Evil\n7,Ada Lovelace\n")
    known = roster.read(tmp_path / "r.csv")
    (found,) = sort({f"lovelaceada_101_{end}": None}, known)
    assert [student.id for student in found.students] == ["7"]


@pytest.mark.parametrize("form", ["moodle", "canvas"])
def test_moodle(form, whose):
    folder = "Ada Lovelace_901_assignsubmission_file_"
    flat = "Eve Evil_903_assignsubmission_file_"
    names = [
        f"{folder}/a2.ipynb",
        f"{folder}/src/Eve Evil_903_assignsubmission_file_x.py",
    ]
    forged = [f"{folder}/evileve_103_9004_a2.ipynb", f"{folder}/Eve Evil/a2.ipynb"]
    found = whose(form, *names, *forged, f"{flat}a2.ipynb", f"{folder}{flat}")
    assert [who for who, _ in found.values()] == [[0], [0], [0], [0], [2], [0]]


def test_github_classroom(whose):
    names = ["a2-ada-love/a2.ipynb", "a2-love/a2.ipynb", "a2-submissions/love/x.py"]
    forged = ["a2-love/a2-ada-love/a2.ipynb"]
    found = whose("github", *names, *forged)
    assert [who for who, _ in found.values()] == [[0], [1], [1], [1]]


def test_the_repository_of_a_group_is_of_all_its_members(tmp_path):
    row = "Heads,u,s,ben,ben@uni.edu,uni/a2-pairs,r,,0,10,pairs\n"
    (tmp_path / "grades.csv").write_text(GRADES + row)
    known = roster.read(tmp_path / "grades.csv")
    found = sort({"a2-pairs/a2.ipynb": None, "a2-ada-love/a2.ipynb": None}, known)
    assert [[x.id for x in one.students] for one in found] == [
        ["love", "ben@uni.edu"], ["ada@uni.edu"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        "S2/a2.ipynb", "week 3/S2/a2.ipynb", "s2.py", "a2_S2.ipynb", "Seán O'Brien.py",
        "sean@uni.edu/x.py", "O'Brien, Seán/deep/er/S1.py", "sean - a2.py",
    ],
)  # fmt: skip
def test_anything_else_is_known_by_one_part_of_its_path(name, whose):
    assert whose("plain", name)[name][0] == [1]


def test_gradescope(whose, tmp_path):
    (tmp_path / "m.yml").write_text(METADATA)
    top = "assignment_5_export/"
    names = [f"{top}submission_1/x/a2.ipynb", f"{top}submission_2/S1.ipynb"]
    metadata = {top + exports.METADATA: tmp_path / "m.yml"}
    found = whose("plain", *names, **metadata)
    assert [who for who, _ in found.values()] == [[0], [1, 2]]
    first, second = (x.submitted for _, x in found.values())
    assert first == datetime(2026, 10, 2, 21, 13, 47, tzinfo=timezone.utc)
    assert second is None


def test_metadata_of_a_student_are_a_file_like_others(whose, tmp_path):
    text = METADATA.replace("submission_1", "a2.ipynb")
    (tmp_path / "m.yml").write_text(text)
    forged = f"a2-love/{exports.METADATA}"
    names = ["a2-love/a2.ipynb", "a2-ada-love/a2.ipynb"]
    found = whose("github", *names, **{forged: tmp_path / "m.yml"})
    assert {n: who for n, (who, _) in found.items()} == {
        names[0]: [1], names[1]: [0], forged: [1],
    }  # fmt: skip


@pytest.mark.parametrize(
    "old, new, said",
    [
        ("S3", "S9", "nobody in .* handed in submission_2/a.py:"),
        (":sid: S3", ":sid:", "submission_2/a.py"),
        ("00 Z", "00", r"submission_metadata.yml, line 6: a time must have a zone"),
        ("Ada Lovelace", "[", "submission_metadata.yml, line "),
        ("Ada Lovelace", "\udcff", "m.yml, line 3: save it as UTF-8"),
    ],
)
def test_metadata_that_are_wrong_are_refused(old, new, said, whose, tmp_path):
    text = METADATA.replace("Eve Evil", "Who").replace(old, new)
    (tmp_path / "m.yml").write_text(text, errors="surrogateescape")
    metadata = {exports.METADATA: tmp_path / "m.yml"}
    with pytest.raises(ValueError, match=said):
        whose("plain", "submission_1/a.py", "submission_2/a.py", **metadata)


def test_what_belongs_to_nobody_is_refused_unless_asked_for(whose):
    names = [f"zoe{n}/a2.ipynb" for n in range(12)]
    with pytest.raises(ValueError) as error:
        whose("plain", "S1/a2.ipynb", *names)
    said = str(error.value)
    assert "handed in zoe0/a2.ipynb, " in said and "zoe9/a2.ipynb and 2 more" in said
    assert "move the file away, or grade it with --others" in said
    found = whose("plain", "S1/a2.ipynb", *names, others=True)
    assert found["S1/a2.ipynb"][0] == [0] and found["zoe3/a2.ipynb"][0] == []


def test_a_name_that_would_turn_the_screen_round_is_written_out(whose):
    with pytest.raises(ValueError, match=r"handed in zoe\\x1b\[2J\\u202e.py: add"):
        whose("plain", "zoe\x1b[2J\u202e.py")


def test_what_may_be_of_two_is_refused(tmp_path):
    rows = ("id,name,email", "7,Ada Lovelace,a@x", "8,Ada Lovelace,b@x", "")
    (tmp_path / "r.csv").write_text("\n".join(rows))
    known = roster.read(tmp_path / "r.csv")
    name = "Ada Lovelace_901_assignsubmission_file_/x.py"
    with pytest.raises(
        ValueError, match=r"may be of 7 \(.*line 2\) or of 8 \(.*line 3"
    ):
        sort({name: None}, known)
    with pytest.raises(ValueError, match="7_8.py may be of 7"):
        sort({"7_8.py": None}, known)


def test_only_notebooks_count_else_python_files_else_all(whose):
    names = ["S1/a.ipynb", "S1/b.IPYNB", "S1/c.py", "S2/d.py", "S2/e.csv", "S3/f.pdf"]
    names += ["z/g.py", "z/h.csv"]
    found = [x for _, x in whose("plain", *names, others=True).values()]
    kept = [x.name for x in counting(found)]
    assert kept == [x for x in names if x not in ("S1/c.py", "S2/e.csv")]


def test_attempts_have_an_order():
    early = datetime(2026, 10, 1, tzinfo=timezone.utc)
    attempts = [
        Handed("a-2.py"), Handed("a-10.py"), Handed("a-1.py", number=5),
        Handed("a-0.py", submitted=early),
    ]  # fmt: skip
    assert sorted(reversed(attempts), key=lambda x: x.order) == attempts
