"""A machine is described so that two of one name can be told apart."""

import platform

import pytest

from benchmarks import machine

LINUX = """processor : 0
vendor_id : GenuineIntel
cpu family : 6
model : 143
model name : Intel(R) Xeon(R) Processor

processor : 1
model : 207
"""


@pytest.fixture
def described(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "cpuinfo")
    machine.CPUINFO.write_text(LINUX)
    return machine.describe("cpu")


def test_the_processor_has_a_family_and_a_model(described):
    assert described["processor"] == "Intel(R) Xeon(R) Processor"
    assert (
        described["processor_family"] == "6" and described["processor_model"] == "143"
    )
    started = "Intel(R) Xeon(R) Processor (family 6, model 143), "
    assert machine.sentence(described).startswith(started)


def test_numbers_from_before_that_keep_their_sentence(described):
    del described["processor_family"], described["processor_model"]
    assert machine.sentence(described).startswith("Intel(R) Xeon(R) Processor, ")
    described["gpu"] = "A GPU"
    assert machine.sentence(described).startswith("A GPU, ")


def test_a_system_without_cpuinfo_is_described(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "CPUINFO", tmp_path / "missing")
    monkeypatch.setattr(platform, "processor", lambda: "arm")
    assert machine.processor() == {"processor": "arm"}
