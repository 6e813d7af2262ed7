"""The made-up class: graded as a real one is, by what a platform writes."""

import json
import random
import subprocess
import sys

import pytest

from mha_lib.grade import exports, handed_in, roster
from mha_lib.grade.alike import Alike
from tools import practice


def test_all_that_is_handed_in_belongs_to_somebody(tmp_path, monkeypatch):
    options = [str(tmp_path), "--students", "155"]
    command = [sys.executable, "-m", "tools.practice", *options]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert said == f"155 students: {tmp_path}\n"
    people = roster.read(tmp_path / "roster.csv")
    files = handed_in.submissions([tmp_path / "export.zip"])
    handed = exports.sort(files, people)
    assert (people.form, len(people.students), len(handed)) == ("canvas", 155, 150)
    assert len({x.name for x in people.students.values()}) == 155
    ids = [x.students[0].id for x in handed]
    assert len(set(ids)) == 150 and 5 < sum(x.flagged for x in handed) < 30
    before = {name: handed_in.read(file) for name, file in files.items()}
    monkeypatch.setattr(sys, "argv", ["practice", *options])
    with pytest.raises(SystemExit, match="export.zip is there already; give"):
        practice.main()
    (tmp_path / "export.zip").unlink()
    (tmp_path / "roster.csv").unlink()
    (tmp_path / "plan.yaml").unlink()
    practice.write(tmp_path, 155)
    assert before == {name: handed_in.read(file) for name, file in files.items()}

    template = handed_in.read(practice.NOTEBOOK)
    looking = Alike(template)
    for name, one in before.items():
        looking.add(name, one)
    pairs = looking.pairs()
    assert len(pairs) == 5, "copies, and no others"
    renamed = [x for x in pairs if x.kind == "the same code with other names"]
    assert [x for x in renamed if {"values_of_keys"} & words(before, x)]


def words(contents, pair) -> set[str]:
    """Names in one of two submissions and not in the other."""
    texts = (contents[name].content.decode() for name in (pair.one, pair.other))
    one, other = (set(text.replace("\\n", " ").split()) for text in texts)
    return one ^ other


def test_an_answer_takes_the_place_of_what_is_to_be_written():
    for number in range(20):
        cells = json.loads(practice.written(random.Random(number)))["cells"]
        texts = ["".join(x["source"]) for x in cells if x["cell_type"] == "code"]
        for text in texts:
            compile(text.replace("%pip", "pass  # %pip"), "cell", "exec")
    blank = json.loads(practice.NOTEBOOK.read_text())["cells"]
    named = [x for x in practice.ANSWERS if f"def {x}(" in str(blank)]
    assert named == list(practice.ANSWERS) == list(practice.RIGHT)
