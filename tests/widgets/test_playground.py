"""A playground calls Python when a control moves, and never shows a traceback."""

import base64

import ipywidgets
import matplotlib.pyplot as plt
import pytest
import torch

from mha_lib.widgets import AttentionExplorer, Playground
from mha_lib.widgets.base import VIEW


def double(x):
    if x == 5:
        raise ValueError("x must not be 5")
    return f"2 · {x} = {2 * x}"


def test_result_follows_the_control():
    ground = Playground(double, x=(1, 7))
    assert repr(ground) == "2 · 4 = 8"
    ground.controls["x"].value = 6
    assert repr(ground) == "2 · 6 = 12"
    assert "2 · 6 = 12" in ground.box.children[-1].value


def test_error_is_a_sentence():
    ground = Playground(double, x=ipywidgets.IntSlider(5, 1, 7))
    assert repr(ground) == "This cannot be computed: x must not be 5"
    ground.controls["x"].value = 2
    assert repr(ground) == "2 · 2 = 4"


def test_text_of_the_reader_is_not_markup():
    ground = Playground(lambda text: text, text="<b>")
    assert "&lt;b&gt;" in ground.box.children[-1].value


def test_shows_a_text_a_figure_or_a_widget():
    bundle = Playground(double, x=(1, 7))._repr_mimebundle_()
    assert set(bundle) == {"text/plain", VIEW}

    def figure(x):
        made, ax = plt.subplots()
        ax.plot([0, x])
        return made

    ground = Playground(figure, x=(1, 7))
    assert base64.b64decode(ground._repr_mimebundle_()["image/png"])[1:4] == b"PNG"
    assert isinstance(ground.box.children[-1], ipywidgets.Image)

    ground = Playground(lambda n: AttentionExplorer(torch.eye(n)[None]), n=(2, 4))
    assert repr(ground) == "AttentionExplorer(1 layer, 1 head, 3 queries, 3 keys)"
    assert base64.b64decode(ground._repr_mimebundle_()["image/png"])[1:4] == b"PNG"
    assert isinstance(ground.box.children[-1], AttentionExplorer)


def test_control_that_cannot_be_made():
    with pytest.raises(TypeError, match="x must be an ipywidget, a number"):
        Playground(double, x=object())
