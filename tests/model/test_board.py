"""The log goes to TensorBoard where that is installed, and the run needs it nowhere."""

import sys
from types import ModuleType

import pytest

from tests.model.small import run

MODULE = "torch.utils.tensorboard"


class Recorder:
    """What torch's writer is told, in order; as files do, it outlives its process."""

    told: list = []

    def __init__(self, folder, purge_step):
        self.told.append(("open", folder, purge_step))

    def add_scalar(self, name, number, step):
        self.told.append((name, step, number))

    def flush(self):
        self.told.append(("flush",))


@pytest.fixture
def recorder(monkeypatch):
    module = ModuleType(MODULE)
    module.SummaryWriter = Recorder
    monkeypatch.setitem(sys.modules, MODULE, module)
    monkeypatch.setattr(Recorder, "told", [])
    return Recorder


def expected(log) -> dict:
    found = {}
    for line in log:
        step = line["step"]
        if line["loss"] is not None:
            found["loss/training", step] = line["loss"]
        found["loss/validation", step] = line["validation"]
        found["loss/validation_a_character", step] = line["a_character"]
        for layer in range(2):
            for head in range(3):
                number = line["entropies"][layer][head]
                found[f"entropy/layer_{layer}_head_{head}", step] = number
    return found


def scalars(told) -> dict:
    """Those that count: an opening with purge_step voids what is from there on."""
    found = {}
    for entry in told:
        if entry[0] == "open":
            found = {key: x for key, x in found.items() if key[1] < entry[2]}
        elif entry[0] != "flush":
            found[entry[:2]] = entry[2]
    return found


def test_the_log_goes_there(recorder, tmp_path):
    made = run(tmp_path / "run")
    assert recorder.told[0] == ("open", str(tmp_path / "run" / "tensorboard"), 0)
    assert recorder.told[-1] == ("flush",)  # it can be watched while it trains
    assert scalars(recorder.told) == expected(made.log)
    assert [line["step"] for line in made.log] == [0, 2, 4, 6]


def test_a_run_that_goes_on_is_there_as_a_whole(recorder, tmp_path):
    run(tmp_path / "run", stop_after=2)
    recorder.told.append(("loss/validation", 4, 7.0))  # killed before the checkpoint
    made = run(tmp_path / "run")
    assert scalars(recorder.told) == expected(made.log)
    before = len(recorder.told)
    run(tmp_path / "run")  # it is over
    assert len(recorder.told) == before


def broken(*_, **__):
    raise TypeError("Descriptors cannot be created directly")  # an old protobuf


@pytest.mark.parametrize("module", ["missing", "broken"])
def test_a_run_does_without(module, monkeypatch, recorder, tmp_path):
    with_it = run(tmp_path / "with")
    stand_in = None
    if module == "broken":
        stand_in = ModuleType(MODULE)
        stand_in.__getattr__ = broken
    monkeypatch.setitem(sys.modules, MODULE, stand_in)  # None: cannot be imported
    without = run(tmp_path / "without")
    assert without.log == with_it.log
    assert not (tmp_path / "without" / "tensorboard").exists()
