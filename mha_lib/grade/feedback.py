"""What pages say beside the report: a student's mark, and who handed in what.

The names of a class stand where they have to be unfolded, so that its page can be shown
to it. Whatever a person wrote into a sheet is text here, never markup.
"""

import os
import zipfile
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from urllib.parse import quote

from mha_lib.grade.alike import Pair
from mha_lib.grade.marks import Mark

__all__ = ["archive", "class_html", "counts", "mark_html", "other_html"]

LONGEST = 4000  # characters of a name in the zip of pages
STATUSES = ("in time", "late", "missing")


# --- one student --------------------------------------------------------------------


def mark_html(
    mark: Mark, graded: Mapping[str, float], most: Mapping[str, float], who: str = ""
) -> str:
    """What a student gets, and how it comes about.

    Args:
        mark: of the student.
        graded: what the grader gave, by the question.
        most: what each question can bring, those marked by hand too.
        who: is named, where several hand in one file and get different marks.
    """
    by_hand = {name: x for name, x in mark.given.items() if x.points is not None}
    left = [name for name in graded if name not in by_hand]
    rows = []
    if left:
        got = sum(graded[name] for name in left)
        rows.append(("marked by the grader", _of(got, sum(map(most.get, left))), ""))
    for name, x in mark.given.items():
        instead = name in by_hand and name in graded
        what = f"{name}, instead of {graded[name]:g}" if instead else name
        points = "open" if x.points is None else _of(x.points, most[name])
        rows.append((f"{what}, by hand", points, x.comment))
    silent = [name for name in mark.open if name not in mark.given]
    rows += [(f"{name}, by hand", "open", "") for name in silent]
    if mark.days:
        late = f"{mark.days} day{'s' * (mark.days > 1)} late"
        rows.append((late, f"−{mark.taken:g}" if mark.taken else "costs nothing", ""))
    total = _of(mark.points or 0.0, sum(most.values()))
    total += " so far" * bool(mark.open)
    title = f"Mark of {who}" if who else "Mark"
    head = f'<h2>{escape(title)} <span class="points">{total}</span></h2>'
    lines = "".join(
        f'<tr><th scope="row">{escape(what)}</th><td class="n">{points}</td>'
        f"<td>{escape(comment)}</td></tr>"
        for what, points, comment in rows
    )
    return f'{head}<table class="mark">{lines}</table>'


def other_html(name: str) -> str:
    """For an attempt that does not count."""
    return f'<p class="note">Another file counts: <code>{escape(name)}</code>.</p>'


def archive(path: Path, pages: Mapping[str, Path]) -> None:
    """Pages as one zip, each under the name of what was handed in and ``.html``.

    Canvas and Moodle find the student by numbers in that name: see
    `generate_comments_from_files` (instructure/canvas-lms, `app/models/assignment.rb`)
    and moodle/moodle, `mod/assign/feedback/file/importziplib.php`.
    """
    part = path.with_name(f".{path.name}.part")
    with zipfile.ZipFile(part, "w") as packed:
        for name, page in sorted(pages.items()):
            info = zipfile.ZipInfo(
                f"{_packed(name)}.html"
            )  # of no date: always the same
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            packed.writestr(info, page.read_bytes())
    part.replace(path)


def _packed(name: str) -> str:
    """A name that a zip can hold, and that leads nowhere on another system."""
    known = os.fsencode(name).decode("utf-8", errors="replace")
    return known.replace("\\", "_")[:LONGEST]


def _of(points: float, most: float) -> str:
    return f"{round(points, 2):g} of {most:g}"


# --- the class ----------------------------------------------------------------------


def counts(found: Iterable[Mark]) -> dict[str, int]:
    """How many were in time, late or missing."""
    statuses = [mark.status for mark in found]
    return {status: statuses.count(status) for status in STATUSES}


def class_html(
    found: Iterable[Mark],
    called: Mapping[str, str],
    pairs: Iterable[Pair],
    places: Mapping[str, str],
) -> str:
    """Who was late, who is missing, and what is alike.

    Args:
        found: the marks; none, if there is no roster.
        called: students, by their ids.
        pairs: of submissions that are alike.
        places: of the pages of submissions, by their names.
    """
    found, pairs = list(found), list(pairs)
    parts = []
    if found:
        said = ", ".join(f"{count} {status}" for status, count in counts(found).items())
        parts.append(f"<h2>Handed in</h2><p>{len(found)} students: {said}.</p>")
    for status in STATUSES[1:]:
        names = [_late(x, called) for x in found if x.status == status]
        parts.append(_folded(f"Who is {status}", "".join(map(_item, names))))
    if pairs:
        parts.append(
            "<h2>Alike</h2><p>Pairs of submissions that are alike: "
            f"{len(pairs)}. This is a hint to read both, and never a verdict: two who "
            "learned from the same page write the same lines.</p>"
        )
        items = "".join(
            f"<li>{_link(x.one, places)} and {_link(x.other, places)}: "
            f"{escape(x.kind)}</li>"
            for x in pairs
        )
        parts.append(_folded("Which submissions", items))
    return "".join(parts)


def _late(mark: Mark, called: Mapping[str, str]) -> str:
    name = called[mark.student.id]
    return f"{name}: {mark.days} day{'s' * (mark.days > 1)}" if mark.days else name


def _item(text: str) -> str:
    return f"<li>{escape(text)}</li>"


def _folded(title: str, items: str) -> str:
    if not items:
        return ""
    return f"<details><summary>{title}</summary><ul>{items}</ul></details>"


def _link(name: str, places: Mapping[str, str]) -> str:
    address = quote(os.fsencode(f"{places[name]}.html"))
    return f'<a href="{address}"><code>{escape(name)}</code></a>'
