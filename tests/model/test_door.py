"""What lies behind the door of ``mha_lib.model``."""

from pathlib import Path

import mha_lib.model


def test_every_name_is_there_once():
    names = mha_lib.model.__all__
    assert sorted(set(names)) == sorted(names)
    assert all(hasattr(mha_lib.model, name) for name in names)


def test_no_name_hides_a_module():
    modules = {path.stem for path in Path(mha_lib.model.__file__).parent.glob("*.py")}
    assert not modules & {*mha_lib.model.__all__}


def test_the_model_can_be_read_in_one_go():
    path = Path(mha_lib.model.__file__).with_name("transformer.py")
    assert len(path.read_text("utf-8").splitlines()) <= 150
