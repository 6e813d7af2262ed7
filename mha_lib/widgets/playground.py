"""Controls that run the reader's own numbers through real Python code."""

import base64
from collections.abc import Callable
from html import escape

import ipywidgets

from mha_lib.widgets.base import VIEW, Widget, png

PRE = '<pre style="white-space: pre-wrap; margin: 0.5rem 0">{}</pre>'


class Playground:
    """Call a function whenever a control is moved, and show what it returns.

    It is an `ipywidgets.interact` for a book: an error of the function is a sentence,
    and where no kernel runs, the first result stands in its place.

    Args:
        function: takes the controls' values by name; returns a text, a matplotlib
            figure or a widget of this package.
        controls: for each name an ipywidget, or what `interact` takes: a number, a
            (min, max, step) tuple, a list of choices, a text, a bool.

    Raises:
        TypeError: a control from which no ipywidget can be made.

    Example:
        >>> from mha_lib.widgets import Playground
        >>> double = Playground(lambda x: f"2 · {x} = {2 * x}", x=(1, 5))
        >>> double
        2 · 3 = 6
        >>> double.controls["x"].value = 4
        >>> double
        2 · 4 = 8
    """

    def __init__(self, function: Callable, **controls: object) -> None:
        self.function = function
        self.controls = {name: _control(name, x) for name, x in controls.items()}
        self.box = ipywidgets.VBox()
        for control in self.controls.values():
            control.observe(lambda change: self.show(), names="value")
        self.show()

    def show(self) -> None:
        """Call the function and show its result below the controls."""
        values = {name: control.value for name, control in self.controls.items()}
        try:
            self.result = self.function(**values)
        except (TypeError, ValueError, RuntimeError) as error:
            self.result = f"This cannot be computed: {error}"
        self.box.children = (*self.controls.values(), _view(self.result))

    def __repr__(self) -> str:
        return self.result if isinstance(self.result, str) else repr(self.result)

    def _repr_mimebundle_(self, **kwargs: object) -> dict:
        data = {"text/plain": repr(self)}
        if isinstance(self.result, Widget):
            data["image/png"] = png(self.result.still())
        elif not isinstance(self.result, str):
            data["image/png"] = png(self.result)
        return data | {
            VIEW: {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.box.model_id,
            }
        }


def _control(name: str, given: object) -> ipywidgets.Widget:
    if isinstance(given, ipywidgets.Widget):
        return given
    control = ipywidgets.interactive.widget_from_abbrev(given)
    if control is None:
        raise TypeError(
            f"{name} must be an ipywidget, a number, a tuple, a list or a text; "
            f"got {given!r}"
        )
    control.description = name
    return control


def _view(result: object) -> ipywidgets.Widget:
    if isinstance(result, ipywidgets.Widget):
        return result
    if isinstance(result, str):
        return ipywidgets.HTML(PRE.format(escape(result)))
    return ipywidgets.Image(value=base64.b64decode(png(result)), format="png")
