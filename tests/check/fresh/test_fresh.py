"""Layers in other people's styles: every fault is named or pinpointed, none misnamed.

They were written in one go, by somebody who had seen the catalogue's names, before any
of them was checked; what came out amiss was mended in `mha_lib.check`.
"""

import json

import pytest

from mha_lib.check import MISTAKES, check
from tests.check.fresh.right_layers import RIGHT
from tests.check.fresh.table import TABLE, kind_of
from tests.check.fresh.wrong_layers import WRONG

STORED = json.loads(TABLE.read_text(encoding="utf-8"))


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.sweep(5)
@pytest.mark.parametrize("row", WRONG, ids=lambda row: row[0].__name__)
def test_what_is_wrong_is_named_or_pinpointed(row, seed):
    layer, task, sets, says = row
    kind = kind_of(check(layer, task, seed=seed), sets, says)
    assert kind == ("named" if sets else "pinpointed")
    assert STORED["wrong"][layer.__name__]["kind"] == kind


@pytest.mark.long
@pytest.mark.sweep(3)
@pytest.mark.parametrize("layer, task", RIGHT, ids=lambda x: getattr(x, "__name__", ""))
def test_what_is_right_is_called_right(layer, task):
    assert check(layer, task)
    assert STORED["right"][layer.__name__] == "right"


def test_there_are_enough_and_the_table_holds_them_all():
    assert len(WRONG) >= 40 and len(RIGHT) >= 10
    assert STORED["wrong"].keys() == {layer.__name__ for layer, *_ in WRONG}
    assert STORED["right"].keys() == {layer.__name__ for layer, _ in RIGHT}
    assert {x for _, _, sets, _ in WRONG for x in set().union(*sets)} <= MISTAKES.keys()
    assert all(bool(sets) != bool(says) for _, _, sets, says in WRONG)
