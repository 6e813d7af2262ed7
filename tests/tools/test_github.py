"""Forms that GitHub accepts, and a workflow that runs what the Makefile promises."""

import re

import pytest
import yaml

from tools import book

GITHUB = book.ROOT / ".github"
FORMS = sorted(
    path for path in (GITHUB / "ISSUE_TEMPLATE").glob("*.yml") if path.stem != "config"
)
FIELDS = {"input", "textarea", "dropdown"}


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_named_questions(path):
    form = read(path)
    assert form.keys() == {"name", "description", "labels", "body"}
    questions = [part for part in form["body"] if part["type"] != "markdown"]
    assert {part["type"] for part in questions} <= FIELDS
    assert len({part["id"] for part in questions}) == len(questions) >= 3
    for part in questions:
        assert part["attributes"]["label"]
        assert bool(part["attributes"].get("options")) == (part["type"] == "dropdown")


def test_there_is_a_form_for_each_kind_of_issue():
    assert [path.stem for path in FORMS] == [
        "bug",
        "idea",
        "wrong_fact",
        "wrong_verdict",
    ]


def test_the_workflow_runs_every_python_that_the_makefile_takes():
    makefile = (book.ROOT / "Makefile").read_text(encoding="utf-8")
    first, last = map(
        int, re.search(r"\(3, (\d+)\) <= .* < \(3, (\d+)\)", makefile).groups()
    )
    job = read(GITHUB / "workflows" / "book.yml")["jobs"]["test"]
    versions = job["strategy"]["matrix"]["python"]
    assert versions == [f"3.{minor}" for minor in range(first, last)]
    (upload,) = (step for step in job["steps"] if "upload" in step.get("uses", ""))
    assert upload["if"].split("'")[1] in versions  # pages of one of them are published


@pytest.mark.parametrize("name", ["book", "nightly"])
def test_workflows_run_targets_that_exist(name):
    makefile = (book.ROOT / "Makefile").read_text(encoding="utf-8")
    text = (GITHUB / "workflows" / f"{name}.yml").read_text(encoding="utf-8")
    targets = [target or "test" for target in re.findall(r"\.ci/run ?(\w*)\n", text)]
    assert len(targets) == 1
    assert re.search(rf"^{targets[0]}:.*## ", makefile, re.MULTILINE)
