"""Results as pages: one for each student, one for the class. No file beside them.

Whatever a submission wrote is text here, never markup.
"""

import statistics
from collections import Counter
from collections.abc import Iterable
from html import escape

from mha_lib.check import HEADLINES, PICTURE_STYLE, report_html
from mha_lib.grade import tables
from mha_lib.grade.alike import Pair
from mha_lib.grade.assignments import Assignment

__all__ = ["alike_table", "page", "question", "row", "summary", "summary_page", "table"]

BINS = 10
KEPT = ("submission", "digest", "points", "out_of", "problem", "mentions")
STYLE = """
:root { color-scheme: light dark }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 50rem; margin: 2rem auto;
  padding: 0 1rem }
h1, h2, p, li, td { overflow-wrap: anywhere } p { white-space: pre-line }
.chart td { overflow-wrap: break-word }
h2 { margin-top: 2.5rem } h2::after { content: ""; display: block; clear: both }
code { font-family: ui-monospace, monospace }
.points { float: right; font-weight: normal; padding-left: 1rem }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .2rem .6rem .2rem 0; vertical-align: top }
.n { text-align: right } .chart td:last-child { width: 50% }
.worth { width: auto; margin-top: 1rem } .worth th, .worth td { padding-right: 2rem }
.mark { width: auto } .mark th { font-weight: normal; padding-right: 1rem }
.mark th, .mark td { border-top: 1px solid #8886; padding: .3rem 1rem .3rem 0 }
.mark .n { white-space: nowrap } summary { cursor: pointer }
.verdicts { width: auto } .verdicts th { font-weight: normal; padding-right: 1rem }
.verdicts td { padding-right: 1rem } .wide { overflow-x: auto }
.bar { background: #3b6ea8; height: 1rem; min-width: 1px }
.note { border-left: .3rem solid #b8860b; padding-left: .8rem }
"""
PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title}</title><style>{style}</style></head>
<body><main>
{body}
</main></body></html>
"""


def _page(title: str, parts: Iterable[str]) -> str:
    body = "\n".join(part for part in parts if part)
    return PAGE.format(title=escape(title), style=STYLE + PICTURE_STYLE, body=body)


def _list(items: Iterable[str]) -> str:
    rows = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{rows}</ul>" if rows else ""


# --- one student --------------------------------------------------------------------


def page(result: dict, mark: str = "") -> str:
    """The report of one submission; in a course, below the mark of its student."""
    marks = f"{result['points']:g} of {result['out_of']:g} points"
    problem, notes = result["problem"], result["notes"]
    return _page(
        f"{result['title']}: {result['submission']}",
        [
            f"<h1>{escape(result['title'])}</h1>",
            f"<p><code>{escape(result['submission'])}</code>: <b>{marks}</b>"
            f"{' from the grader' * bool(mark)}</p>",
            mark,
            problem and f'<p class="note">About the file: {escape(problem)}.</p>',
            *map(question, _judged(result)),
            notes and "<h2>Cells that failed</h2>" + _list(notes),
        ],
    )


def question(part: dict) -> str:
    """One question: its points, what went wrong and why, a picture, what holds."""
    marks = f"{part['points']:g} of {part['out_of']:g}"
    head = f"<code>{escape(part['name'])}</code>: {escape(part['title'])}"
    title = f'<h2>{head} <span class="points">{marks}</span></h2>'
    return title + report_html(part["lines"], part["picture"]) + _worth(part)


def _worth(part: dict) -> str:
    """The points of each property, where a question has them."""
    if not part["worth"]:
        return ""
    properties, rows = part["diagnosis"]["properties"], []
    for name in part["worth"]:
        holds = properties.get(name, False)
        seen = ("yes" if holds else "no") if name in properties else "not seen"
        cells = escape(name.replace("_", " ")), seen, f"{part['earned'][name]:g}"
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f'<th scope="col">{x}</th>' for x in ("what", "holds", "points"))
    table = f'<table class="worth"><tr>{head}</tr>{"".join(rows)}</table>'
    lost = [x for x in part["worth"] if properties.get(x) and not part["earned"][x]]
    if not lost:
        return table
    why = "There are points only where something is right."
    if part["points"]:
        why = "All points are for an answer that is right in all that is asked."
    return f"{table}<p>{why}</p>"


def _judged(result: dict) -> list[dict]:
    """Its questions; none where nobody could read what was handed in."""
    return result["questions"] if result["read"] else []


def row(result: dict) -> dict:
    """What the table and the summary need of a result.

    There are no verdicts on what nobody could read: its problem says all.
    """
    questions, judged = result["questions"], _judged(result)
    return {
        **{name: result[name] for name in KEPT},
        "by_question": {q["name"]: q["points"] for q in questions},
        "verdicts": {q["name"]: q["diagnosis"]["verdict"] for q in judged},
        "mistakes": [
            f"{q['name']}: {mistake}"
            for q in questions
            for mistake in q["diagnosis"]["mistakes"]
        ],
        "fingerprints": [
            f"{q['name']} {q['fingerprint']}" for q in questions if q["fingerprint"]
        ],
    }


# --- the class ----------------------------------------------------------------------


def summary(rows: list[dict], assignment: Assignment) -> dict:
    """Counts over all submissions, without a name."""
    points = [row["points"] for row in rows]
    shares = Counter(
        min(int(BINS * x / assignment.points), BINS - 1) if x else 0 for x in points
    )
    verdicts = {
        question.name: Counter(
            row["verdicts"][question.name] for row in rows if row["verdicts"]
        )
        for question in assignment.questions
    }
    return {
        "assignment": assignment.id,
        "title": assignment.title,
        "submissions": len(rows),
        "out_of": assignment.points,
        "mean": round(statistics.fmean(points), 2) if points else None,
        "median": statistics.median(points) if points else None,
        "histogram": [shares[place] for place in range(BINS)],
        "full_marks": sum(x == assignment.points for x in points),
        "verdicts": {name: dict(counts) for name, counts in verdicts.items()},
        "mistakes": _counted(row["mistakes"] for row in rows),
        "problems": _counted([row["problem"]] for row in rows if row["problem"]),
        "unmatched": _counted(row["fingerprints"] for row in rows),
    }


def table(
    rows: Iterable[dict], assignment: Assignment, owners: dict[str, str] | None = None
) -> str:
    """The table of all submissions as CSV; with whose they are, where that is known."""
    names = [question.name for question in assignment.questions]
    student = [] if owners is None else ["student"]
    headers = ["submission", *student, "points", "out_of", *names]
    lines = []
    for row in rows:
        name = row["submission"]
        points = [row["points"], row["out_of"], *map(row["by_question"].get, names)]
        wrong = {x: y for x, y in row["verdicts"].items() if y != "right"}
        verdicts = [f"{question}: {verdict}" for question, verdict in wrong.items()]
        texts = verdicts, row["mistakes"], [row["problem"]], row["mentions"]
        whose = [] if owners is None else [owners[name]]
        marks = [f"{x:g}" for x in points]
        lines.append([name, *whose, *marks, *map("; ".join, texts)])
    last = ["not right", "mistakes", "problem", "look at"]
    return tables.text([*headers, *last], lines)


def alike_table(pairs: Iterable[Pair], owners: dict[str, str]) -> str:
    """The table of submissions that are alike, as CSV."""
    headers = ["submission", "student", "other submission", "other student", "alike"]
    return tables.text(
        [*headers, "this is a hint, never a verdict"],
        [
            [x.one, owners.get(x.one, ""), x.other, owners.get(x.other, "")]
            + [f"{x.share:.0%}", x.kind]
            for x in pairs
        ],
    )


def _counted(lists: Iterable[list[str]]) -> dict[str, int]:
    """How many lists hold each text, most first; the same for the same rows."""
    counts = Counter(text for texts in lists for text in set(texts))
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def summary_page(counts: dict, more: str = "") -> str:
    """The summary of a class, with charts that are tables too.

    Args:
        counts: as `summary` says.
        more: who handed in what, as `feedback.class_html` writes it.
    """
    edges = [counts["out_of"] * place / BINS for place in range(BINS + 1)]
    marks = {
        f"{low:g} to {high:g}": count
        for low, high, count in zip(edges, edges[1:], counts["histogram"])
    }
    n, full = counts["submissions"], counts["full_marks"]
    facts = f"{n} submissions, {full} with full marks"
    if n:
        facts += f"; mean {counts['mean']:g} of {counts['out_of']:g}, "
        facts += f"median {counts['median']:g}"
    unknown = {k: count for k, count in counts["unmatched"].items() if count > 1}
    return _page(
        f"{counts['title']}: the class",
        [
            f"<h1>{escape(counts['title'])}</h1><p>{facts}.</p>",
            _chart("Points", marks),
            more,
            _chart("Which mistakes, and in how many submissions", counts["mistakes"]),
            _verdicts(counts["verdicts"]),
            _chart("Unknown mistakes that recur, by the hash of their output", unknown),
            _chart("Files that did not run to the end", counts["problems"]),
        ],
    )


def _verdicts(by_question: dict[str, dict[str, int]]) -> str:
    """How often each verdict was given on each question."""
    found = [
        x for x in HEADLINES if any(x in counts for counts in by_question.values())
    ]
    heads = "".join(f'<th scope="col" class="n">{verdict}</th>' for verdict in found)
    rows = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(f'<td class="n">{counts.get(x, 0)}</td>' for x in found)
        + "</tr>"
        for name, counts in by_question.items()
    )
    table = f'<table class="verdicts"><tr><td></td>{heads}</tr>{rows}</table>'
    return f'<h2>Verdicts</h2><div class="wide" tabindex="0">{table}</div>'


def _chart(title: str, counts: dict[str, int]) -> str:
    if not counts:
        return ""
    most = max(*counts.values(), 1)
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{count}</td>'
        f'<td><div class="bar" style="width:{100 * count / most:.0f}%"></div></td></tr>'
        for name, count in counts.items()
    )
    return f'<h2>{escape(title)}</h2><table class="chart">{rows}</table>'
