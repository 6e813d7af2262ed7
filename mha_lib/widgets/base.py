"""What all widgets share: their module's text, a still picture, lists of numbers.

**The standard.** Every widget

- has a question as its title and one sentence below it that says what to do: with both
  it is understood without the text around it (`question` and `lead` in its `.js`);
- is at most 600 pixels high in a column of 688, the book's on a desk, and 844 on a
  phone of 390, one screen, in its first state and in each that *Try this* sets; what
  is seldom needed lies under *More*, which counts where a state to try lies there;
- has from the start the place of each line that comes and goes, and of each state that
  *Try this* sets: nothing moves below what was pressed (`keepRoom` of `common.js`);
- begins with something that surprises; *Try this* sets the states worth a look;
- has *reset*, and *undo* where the reader edits; *copy link* puts the state, the traits
  of `lesson`, into the address, and a page opened with it shows that state, over
  file:// too;
- says right and wrong by ✓ and ✗ and by a colour for each; what is chosen has a colour
  of its own (`--mha-right`, `--mha-wrong`, `--mha-accent` of `common.css`);
- is worked by mouse, keyboard and finger; a finger scrolls, and paints when told to;
- has a still with a caption, for pages without JavaScript, and is whole on paper.

`tests/widgets/test_standard.py` holds each of them to it.
"""

import base64
import contextlib
import io
import re
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

import anywidget
import numpy as np
import torch

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HERE = files(__package__)
IMPORT = re.compile(
    r'^import \{\s*\w+(?:,\s*\w+)*,?\s*\} from "\./(\w+)\.js";\n', re.MULTILINE
)
EXPORT = re.compile(r"^export (?!default)", re.MULTILINE)
TITLE = re.compile(r'^  question: "(.+)",$', re.MULTILINE)
NAME = re.compile(r"^(?:export )?(?:const|let|class|function) (\w+)", re.MULTILINE)
REM, OUR_REM = re.compile(r"(-?[\d.]+)rem\b"), r"calc(\1 * var(--mha-rem))"
VIEW = "application/vnd.jupyter.widget-view+json"
DIGITS = 7  # of a float32: more would only be longer


def module(name: str) -> str:
    """The JavaScript of a widget in one text, which needs no second file.

    A module from a Blob, as Jupyter and our pages load it, cannot import its neighbour;
    so each file stands once before all that import from it. They share one scope.

    Raises:
        ValueError: an import of another form, or a name that two files give.
    """
    texts: dict[str, str] = {}
    _gather(name, texts)
    text = "".join(texts.values())
    given = Counter(NAME.findall(text))
    if twice := [x for x, count in given.items() if count > 1]:
        raise ValueError(f"{', '.join(texts)} must not share a name; got {twice}")
    return EXPORT.sub("", text)


def _gather(name: str, texts: dict[str, str]) -> None:
    """Add the files that `name` imports from to `texts`, then itself."""
    text = _read(f"{name}.js")
    for neighbour in IMPORT.findall(text):
        _gather(neighbour, texts)  # once more, it keeps its place
    texts[name] = IMPORT.sub("", text)
    if other := re.search("^import.*", texts[name], re.MULTILINE):
        raise ValueError(
            f'{name}.js must import {{ a, b }} from "./x.js"; got {other[0]!r}'
        )


def style(name: str) -> str:
    """The rules of all widgets, then those of this one.

    Its own rules hold in its own class alone, whatever stands beside it on a page. A
    rem becomes ours: in the classic notebook the page's is 10 pixels.
    """
    own = f".mha-{name.replace('_', '-')} {{\n{_read(f'{name}.css')}}}\n"
    lines = (_read("common.css") + own).splitlines(keepends=True)
    return "".join(
        x if x.startswith("@media") or "--mha-rem:" in x else REM.sub(OUR_REM, x)
        for x in lines
    )


def _read(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


class Widget(anywidget.AnyWidget):
    """A widget that also lives in a static page, with a still for where nothing moves.

    A subclass sets `_esm = module("its_file")` and `_css = style("its_file")`, keeps
    all that the reader can change in synced traits, and writes `summary` and `still`.
    """

    _ipython_display_ = None  # ipywidgets 7 would show itself, without the still

    def summary(self) -> str:
        """What the widget holds, in a few words; the same on every run."""
        raise NotImplementedError

    def still(self) -> "Figure":
        """A picture of the first view, for pages without JavaScript and for GitHub."""
        raise NotImplementedError

    def caption(self) -> str:
        """What stands below the still: the question, and what the widget holds."""
        return caption(self._esm, repr(self))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.summary()})"

    def _repr_mimebundle_(self, **kwargs: object) -> tuple[dict, dict]:
        data = {"text/plain": repr(self)}
        with contextlib.suppress(ImportError):  # a live widget needs no matplotlib
            data["image/png"] = png(self.still())
        data[VIEW] = {
            "version_major": 2,
            "version_minor": 0,
            "model_id": self.model_id,
        }
        return data, {}


def caption(esm: str, shown: str) -> str:
    """Of the still of a widget with this module, whose repr is `Name(summary)`."""
    name, _, summary = shown.partition("(")
    found = TITLE.search(esm)
    question = found[1] if found else f"{name}."
    return f"{question} A still of the widget: {summary.removesuffix(')')}."


def png(figure: "Figure") -> str:
    """A figure as base64 text; the figure is closed."""
    import matplotlib.pyplot as plt

    stream = io.BytesIO()
    figure.savefig(
        stream, format="png", dpi=100, bbox_inches="tight", metadata={"Software": None}
    )
    plt.close(figure)
    return base64.b64encode(stream.getvalue()).decode()


def numbers(values: object, name: str, axes: str) -> np.ndarray:
    """Finite numbers as an array with one axis a letter.

    Args:
        values: a tensor (any device, any float dtype), an array or nested lists.
        name: what to call it in an error.
        axes: one letter an axis, such as ``"HTS"``.

    Returns:
        A float32 array of that many axes.

    Raises:
        TypeError: what is not an array of numbers.
        ValueError: another number of axes, an empty axis, NaN or infinity.
    """
    shape = "(" + ", ".join(axes) + ")"
    if isinstance(values, torch.Tensor):
        values = values.detach().to("cpu", torch.float32).numpy()
    try:
        array = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be numbers of shape {shape}; {error}") from None
    if array.ndim != len(axes) or array.size == 0:
        raise ValueError(f"{name} must be {shape}, none of them 0; got {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite; got NaN or infinity")
    return array


def lists(array: np.ndarray) -> list:
    """Nested lists for JavaScript, with as many digits as a float32 has."""
    if array.ndim > 1:
        return [lists(row) for row in array]
    return [float(f"{x:.{DIGITS}g}") for x in array]


def labels(given: Sequence[str] | None, count: int, name: str) -> list[str]:
    """As many labels as there are tokens; numbers where none are given.

    Raises:
        ValueError: another number of labels.
    """
    if given is None:
        return [str(i) for i in range(count)]
    if isinstance(given, str) or len(given) != count:
        raise ValueError(f"{name} must be {count} labels; got {given!r}")
    return [str(label) for label in given]
