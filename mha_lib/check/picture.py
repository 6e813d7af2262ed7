"""Theirs beside what is expected, as two small tables with shaded cells.

A picture is plain data: one sequence, one head, a window of at most `ROWS` by
`COLUMNS`. Its numbers have two decimals, too few to pass for an answer to a probe that
somebody else, or the same student again, is still to be given.
"""

import math
from html import escape

import torch
from torch import Tensor

from mha_lib.check.example import Example
from mha_lib.check.tasks import TASKS

__all__ = ["COLUMNS", "ROWS", "STYLE", "html", "of"]

ROWS, COLUMNS = 8, 8
DIGITS = 2
STYLE = """
.maps { margin: 1rem 0 }
.maps div { display: flex; flex-wrap: wrap; gap: 1rem 2rem; overflow-x: auto }
.maps table { width: auto; font: .75rem/1.7 ui-monospace, monospace }
.maps caption { font-weight: bold; text-align: left }
.maps figcaption { font-size: .9rem; margin-top: .5rem }
.maps th { font-weight: normal; opacity: .75 }
.maps th, .maps td, .maps td:last-child { width: auto; text-align: right;
  white-space: nowrap; padding: 0 calc(.2rem + 1ch) 0 .2rem }
.maps td { background: rgb(59 110 168 / calc(var(--share, 0) * 45%)) }
.maps td.off, .maps td.off:last-child { font-weight: bold; padding-right: .2rem;
  box-shadow: inset 0 0 0 1px }
@media (prefers-color-scheme: dark) {
  .maps td { background: rgb(120 170 230 / calc(var(--share, 0) * 50%)) }
}
"""


def of(example: Example | None, task: str) -> dict | None:
    """What differs, as plain data; None where there is nothing to show.

    Args:
        example: of a diagnosis; one tensor in it is a submission's.
        task: its name.
    """
    if example is None or example.theirs.shape != example.expected.shape:
        return None
    if example.theirs.dim() < 2:  # the words say it all
        return None
    place = list(example.place)
    both = [example.theirs, example.expected]
    if task == "mha_sequence_first" and example.kind == "output":  # (T, B, E)
        both = [x.transpose(0, 1) for x in both]
        place[:2] = place[1::-1]
    lead = tuple(place[: both[0].dim() - 2])
    if len(lead) < both[0].dim() - 2:
        return None
    yours, expected = (x[lead].double() for x in both)
    off = _differs(yours, expected)
    if not off.any():
        return None  # in the third decimal, which the words give
    rows, columns = _window(yours, expected)
    yours, expected, off = (x[rows, columns] for x in (yours, expected, off))
    down, across = ("query", "key") if example.kind == "map" else TASKS[task].axes
    return {
        "kind": example.kind,
        "place": list(lead),
        "down": down,
        "across": across,
        "size": list(both[0].shape[-2:]),
        "first": [rows.start, columns.start],
        "yours": _numbers(yours),
        "expected": _numbers(expected),
        "differs": off.tolist(),
    }


def html(picture: dict | None) -> str:
    """A picture as tables: numbers to read, shades to see, a star on what differs."""
    if picture is None:
        return ""
    flat = [x for row in picture["expected"] for x in row if isinstance(x, float)]
    low, high = min([0.0, *flat]), max([0.0, *flat])
    tables = "".join(_table(picture, which, low, high) for which in KINDS)
    words = escape(_words(picture))
    return (
        '<figure class="maps"><div tabindex="0" role="group" '
        f'aria-label="yours beside what is expected">{tables}</div>'
        f"<figcaption>{words}</figcaption></figure>"
    )


# --- to data ------------------------------------------------------------------------

KINDS = ("yours", "expected")


def _differs(yours: Tensor, expected: Tensor) -> Tensor:
    """Where the numbers as they are shown differ, but for how they are rounded."""
    near = (yours - expected).abs() <= 0.5 * 10**-DIGITS
    near |= yours.round(decimals=DIGITS) == expected.round(decimals=DIGITS)
    both_nan = yours.isnan() & expected.isnan()
    return ~(near | (yours == expected) | both_nan)


def _window(yours: Tensor, expected: Tensor) -> tuple[slice, slice]:
    """Rows and columns around the largest difference."""
    gap = (yours - expected).nan_to_num(nan=math.inf).abs().argmax()
    centre = (int(i) for i in torch.unravel_index(gap, yours.shape))
    slices = []
    for middle, count, most in zip(centre, yours.shape, (ROWS, COLUMNS)):
        start = max(0, min(middle - most // 2, count - most))
        slices.append(slice(start, min(count, start + most)))
    return slices[0], slices[1]


def _numbers(x: Tensor) -> list[list[float | str]]:
    """Rounded, and as words where JSON has no number."""
    return [
        [round(n, DIGITS) + 0.0 if math.isfinite(n) else str(n) for n in row]
        for row in x.tolist()
    ]


# --- to HTML ------------------------------------------------------------------------


def _table(picture: dict, which: str, low: float, high: float) -> str:
    top, left = picture["first"]
    numbers, differs = picture[which], picture["differs"]
    heads = "".join(f'<th scope="col">{left + i}</th>' for i in range(len(numbers[0])))
    lines = [f"<tr><td></td>{heads}</tr>"]
    for place, (row, off) in enumerate(zip(numbers, differs)):
        cells = "".join(
            _cell(x, star, low, high, picture["kind"]) for x, star in zip(row, off)
        )
        lines.append(f'<tr><th scope="row">{top + place}</th>{cells}</tr>')
    return f"<table><caption>{which}</caption>{''.join(lines)}</table>"


def _cell(x: float | str, off: bool, low: float, high: float, kind: str) -> str:
    share = 0.0
    if isinstance(x, float) and high > low:
        share = min(max((x - low) / (high - low), 0.0), 1.0)
    attributes = f' style="--share:{share:.2f}"' + ' class="off"' * off
    return f"<td{attributes}>{escape(_text(x, kind))}{'*' * off}</td>"


def _text(x: float | str, kind: str) -> str:
    if isinstance(x, str):
        return x
    if kind == "mask":
        return f"{x:.0f}"
    return f"{x:.{DIGITS}f}" if abs(x) < 1e4 else f"{x:.0e}"


def _words(picture: dict) -> str:
    """What the two tables are."""
    names = ("sequence", "head")[: len(picture["place"])]
    where = ", ".join(f"{a} {b}" for a, b in zip(names, picture["place"]))
    what = {"map": "weights", "mask": "mask (1 = may attend)"}.get(
        picture["kind"], "output"
    )
    said = f"The {what}{' of ' * bool(where)}{where}"
    if picture["down"]:  # a task of an author may leave it open
        said += f": a row for each {picture['down']}, "
        said += f"a column for each {picture['across']}"
    said += ". A star marks what differs."
    shown = [len(picture["yours"]), len(picture["yours"][0])]
    if shown != picture["size"]:
        rows, columns = picture["size"]
        said += f" This is a part: there are {rows} rows and {columns} columns."
    return said
