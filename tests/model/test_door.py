"""What lies behind the door of ``mha_lib.model``, and what it costs to open it."""

import subprocess
import sys
from pathlib import Path

import mha_lib.model

LOADED_WHEN_USED = ["tokenizers", "safetensors", "tensorboard", "matplotlib"]


def test_every_name_is_there_once():
    names = mha_lib.model.__all__
    assert sorted(set(names)) == sorted(names)
    assert all(hasattr(mha_lib.model, name) for name in names)


def test_no_name_hides_a_module():
    modules = {path.stem for path in Path(mha_lib.model.__file__).parent.glob("*.py")}
    assert not modules & {*mha_lib.model.__all__}


def test_opening_it_loads_nothing_that_is_not_needed():
    loaded = f"[name for name in {LOADED_WHEN_USED} if name in sys.modules]"
    script = f"import sys, mha_lib.model; print({loaded})"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_model_can_be_read_in_one_go():
    path = Path(mha_lib.model.__file__).with_name("transformer.py")
    assert len(path.read_text("utf-8").splitlines()) <= 150
