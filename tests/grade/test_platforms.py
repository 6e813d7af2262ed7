"""What is written for Gradescope and for a workflow grades there as it does here."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from mha_lib.grade import platforms
from mha_lib.grade.__main__ import main
from mha_lib.grade.assignments import load, parse
from tests.grade.attacks.table import MERGE
from tests.grade.course import ASSIGNMENT, MARKUP, linux


@linux
def test_gradescope(tmp_path):
    (tmp_path / "a9.json").write_text(json.dumps(ASSIGNMENT))
    output = tmp_path / "autograder.zip"
    main(["gradescope", "-a", str(tmp_path / "a9.json"), "-o", str(output)])
    with zipfile.ZipFile(output) as archive:
        names = archive.namelist()
        assert {"setup.sh", "run_autograder", "mha_lib/grade/inside/warm.py"} <= {
            *names
        }
        assert not any("__pycache__" in name for name in names)
        modes = [archive.getinfo(n).external_attr >> 16 for n in names if "." not in n]
        assert modes == [0o755]
        archive.extractall(tmp_path / "source")
    for script in ("setup.sh", "run_autograder"):
        subprocess.run(["bash", "-n", str(tmp_path / "source" / script)], check=True)

    (tmp_path / "submission").mkdir()
    (tmp_path / "submission" / "ada.py").write_text(MERGE + MARKUP)
    script = (tmp_path / "source" / "run_autograder").read_text()
    command = script.splitlines()[2:]
    words = " ".join(command).replace("\\", "").split()[3:]
    words = [str(tmp_path / Path(w).name) if w[0] == "/" else w for w in words]
    subprocess.run(
        [sys.executable, "-m", "mha_lib.grade", *words],
        cwd=tmp_path / "source",
        check=True,
    )
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["score"] == 2.0
    first, second = results["tests"]
    assert (first["score"], first["max_score"], first["status"]) == (2, 2, "passed")
    assert (second["score"], second["max_score"], second["status"]) == (0, 3, "failed")
    assert "&lt;script&gt;" in second["output"] and second["output_format"] == "html"


def test_gradescope_wants_one_file(tmp_path):
    with pytest.raises(ValueError, match="must be handed in; got neither"):
        platforms.only(tmp_path)
    for name in ("a.py", "b.ipynb"):
        (tmp_path / name).touch()
    assert platforms.only(tmp_path).name == "b.ipynb"
    (tmp_path / "c.ipynb").touch()
    with pytest.raises(ValueError, match="exactly one .* got b.ipynb, c.ipynb"):
        platforms.only(tmp_path)


def test_gradescope_does_not_count_what_other_programs_leave(tmp_path):
    places = ["hw.ipynb", ".ipynb_checkpoints/hw-checkpoint.ipynb", "._hw.ipynb"]
    places += ["__MACOSX/._hw.ipynb", "__MACOSX/hw.ipynb", "__pycache__/hw.py"]
    for place in places:
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).touch()
    assert platforms.only(tmp_path) == tmp_path / "hw.ipynb"
    (tmp_path / "hw.ipynb").rename(tmp_path / "HW.IPYNB")
    assert platforms.only(tmp_path).name == "HW.IPYNB"
    (tmp_path / "HW.IPYNB").unlink()
    with zipfile.ZipFile(tmp_path / "work.zip", "w") as archive:
        archive.writestr("a2/hw.ipynb", "{}")
    assert str(platforms.only(tmp_path)) == f"a2/hw.ipynb in {tmp_path / 'work.zip'}"


def test_workflow(tmp_path, capsys):
    (tmp_path / "a9.json").write_text(json.dumps(ASSIGNMENT))
    main(["actions", "-a", str(tmp_path / "a9.json"), "-o", str(tmp_path)])
    text = (tmp_path / ".github" / "workflows" / "grade.yml").read_text()
    (job,) = yaml.safe_load(text)["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert "git+https://" in commands[0]
    words = commands[1].split()
    assert words[0] == "mha-grade"
    written = tmp_path / words[words.index("-a") + 1]
    assert load(str(written), tmp_path) == parse(ASSIGNMENT)


def test_gradescope_says_once_that_nothing_could_be_graded(tmp_path):
    source = tmp_path / "handed_in"
    source.mkdir()
    (source / "a1.ipynb").write_text("this is no notebook")
    out, given = tmp_path / "results.json", tmp_path / "a9.json"
    given.write_text(json.dumps(ASSIGNMENT))
    main(["results", str(source), "-a", str(given), "-o", str(out)])
    found = json.loads(out.read_text())
    said = {test["output"] for test in found["tests"]}
    assert found["score"] == 0 and "notebook" in found["output"]
    assert said == {"<p>Not graded: the reason stands on top.</p>"}
