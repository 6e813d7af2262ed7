"""Assignment 4 quotes the catalogue: names, causes, sources; and its examples bite."""

import math
import re

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from mha_lib.check import check_name, diagnose
from mha_lib.check.catalogue import MISTAKES
from mha_lib.grade import author
from tools import book, notebook

(CLINIC,) = (path for path in book.sources() if path.stem.startswith("a4_"))
CELLS = notebook.read(CLINIC).cells
PROSE = "\n".join(cell.source for cell in CELLS if cell.cell_type == "markdown")
CODE = "\n".join(cell.source for cell in CELLS if cell.cell_type == "code")
SUSPECTS = dict(
    re.findall(r"^\| `([\w-]+)` \| (.+) \|$", PROSE.partition("## Rubric")[0], re.M)
)
DIAGNOSES = dict(re.findall(r'^diagnosis_(\d) = "([\w-]+)"', CODE, re.MULTILINE))
EXAMPLE = re.compile(r"^(?:def mended_|class Mended)(\d).*# END SOLUTION\n(.*)", re.S)


def test_suspects_are_quoted_from_the_catalogue():
    assert len(SUSPECTS) >= 20
    assert {name: MISTAKES[name].cause for name in SUSPECTS} == SUSPECTS


def test_each_patient_has_another_mistake():
    assert sorted(DIAGNOSES) == list("12345678")
    assert len(set(DIAGNOSES.values())) == 8
    assert set(DIAGNOSES.values()) <= set(SUSPECTS)


def test_sources_are_those_of_the_catalogue():
    said = re.findall(r"^- patient (\d): \[(\S+)\]\((\S+)\)$", PROSE, re.MULTILINE)
    sources = {n: MISTAKES[name].source for n, name in DIAGNOSES.items()}
    assert {n: source for n, source, _ in said} == {
        n: s for n, s in sources.items() if s
    }
    for _, source, url in said:
        repository, number = source.split("#")
        assert re.fullmatch(
            rf"https://github\.com/{repository}/(issues|pull)/{number}", url
        )


@pytest.fixture(scope="module")
def clinic():
    """What the notebook defines, after the set-up and without checks and training."""
    names = {"math": math, "torch": torch, "nn": nn, "F": F}
    names |= {"diagnose": diagnose, "check_name": check_name}
    exec(author.closure([CELLS[1].source], ["same"]), names)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for cell in CELLS[2:]:
            left_out = re.match(r"check\(|def loss_after|classes = ", cell.source)
            if cell.cell_type == "code" and not left_out:
                exec(cell.source, names)
    return names


EXAMPLES = dict(
    found.groups() for cell in CELLS if (found := EXAMPLE.match(cell.source))
)


@pytest.mark.parametrize("number", "12345678")
def test_the_example_fails_for_the_patient(clinic, number):
    ill, well = next(
        pair
        for pair in ((f"patient_{number}", f"mended_{number}"),
                     (f"Patient{number}", f"Mended{number}"))
        if pair[0] in clinic
    )  # fmt: skip
    exec(EXAMPLES[number], dict(clinic))
    with pytest.raises(AssertionError):
        exec(EXAMPLES[number], clinic | {well: clinic[ill]})


def test_confirm_tells_a_slip_of_the_pen_from_a_wrong_name(clinic):
    confirm, patient = clinic["confirm"], clinic["patient_1"]
    name = DIAGNOSES["1"]
    confirm(patient, name, "attention")
    with pytest.raises(AssertionError, match="'residual' is not what it has"):
        confirm(patient, "residual", "attention")
    slip = name.replace("-", "_", 1)
    with pytest.raises(ValueError, match=rf"not in the list; near it: .*{name}"):
        confirm(patient, slip, "attention")
    with pytest.raises(ValueError, match=r"write a name of the list, .* got Ellipsis"):
        confirm(patient, ..., "attention")
