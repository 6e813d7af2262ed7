"""A diagnosis as lines and a picture, which are data; those as text and as HTML."""

import re
from collections.abc import Iterable
from html import escape
from typing import TypedDict

from mha_lib.check import picture
from mha_lib.check.catalogue import MISTAKES, Mistake
from mha_lib.check.diagnosis import Diagnosis
from mha_lib.check.next_step import causes, next_step, where
from mha_lib.check.sections import link, section_title
from mha_lib.check.tasks import Task
from mha_lib.check.words import in_words

__all__ = ["Line", "Report", "link", "report_html", "section_title"]

HEADLINES = {
    "right": "Right: {title}.",
    "unmet": "Not right yet: your {title} does not do all that the task asks.",
    "named": "One mistake in your {title}.",
    "stacked": "{count} mistakes at once in your {title}. Fix the first one first.",
    "ambiguous": "Your {title} is wrong in one of {count} ways, which give the same "
    "numbers.",
    "unknown": "Your {title} is wrong, in a way that has no name here. What was seen, "
    "and what to do next:",
    "explained": "Your {title} is wrong. Look at this first:",
    "failed": "Your {title} gave no answer that could be compared.",
    "unfinished": "Your {title} is not finished yet.",
}
POLICY = {
    "nan": "a query that sees no key gets NaN",
    "zeros": "a query that sees no key gets zeros, as in this book",
    "uniform": "a query that sees no key gets equal weights",
    "unmasked": "a query that sees no key sees all of them",
    "other": "a query that sees no key gets numbers of no rule we know",
}
EXACT = {"weights-laid", "weights-are"}  # say which weights came: no section does
CODE = re.compile("`([^`]+)`")
BOX = (
    "padding:0 .25em;border:1px solid #8886;border-radius:.25em"  # or "..." is no code
)


class Line(TypedDict):
    """One line of a report, ready for JSON."""

    level: int  # 0 for the headline, 1 and 2 for what is below it
    text: str
    href: str  # where the text leads to; "" where it is no link


def _line(level: int, text: str, href: str = "") -> Line:
    """A line of a report."""
    return {"level": level, "text": text, "href": href}


class Report:
    """What `check` answers: read it as text, in a notebook with a picture.

    Attributes:
        diagnosis: the same as data.
        task: what was checked.
    """

    def __init__(self, diagnosis: Diagnosis, task: Task) -> None:
        self.diagnosis, self.task = diagnosis, task

    def __bool__(self) -> bool:
        return self.diagnosis.verdict == "right"

    def __repr__(self) -> str:
        return "\n".join(
            "  " * x["level"] + x["text"] + f" {x['href']}" * bool(x["href"])
            for x in self.lines
        )

    def _repr_html_(self) -> str:
        shown = self.picture()
        style = f"<style>{picture.STYLE}</style>" if shown else ""
        return f"<div>{style}{report_html(self.lines, shown)}</div>"

    def picture(self) -> dict | None:
        """Theirs beside what is expected, as plain data; None if there is nothing."""
        return picture.of(self.diagnosis.example, self.task.name)

    @property
    def lines(self) -> list[Line]:
        """What there is to say."""
        d = self.diagnosis
        count = len(d.candidates or d.mistakes)
        title = self.task.title
        if d.verdict != "right":
            title = title.removeprefix("the ")  # "your causal mask"
        known = causes(d) if d.verdict == "unknown" else []
        explained = bool(known) or (d.verdict == "unknown" and d.advised)
        headline = HEADLINES["explained" if explained else d.verdict]
        found = [_line(0, headline.format(title=title, count=count))]
        found += [_line(1, in_words(fact)) for fact in known]
        if d.error is not None and d.verdict != "right":
            found.append(_line(1, d.error))
            if not self._required_below:
                found.append(_line(1, f"Required: {self.task.signature}"))
        for place, name in enumerate(d.mistakes):
            number = f"{place + 1}. " if len(d.mistakes) > 1 else ""
            found += self._of(name, number)
        for place, names in enumerate(d.candidates):
            found.append(_line(1, "Either" if place == 0 else "or"))
            for name in names:
                found += self._of(name)
        if d.example is not None:
            found.append(_line(1, d.example.words))
        if d.verdict == "unknown":
            found += [_line(1, in_words(fact)) for fact in where(d)]
        found += [_line(1, in_words(fact)) for fact in d.unmet]
        if d.verdict == "unmet" and d.error is None:
            found.append(_line(1, "With that mended, the rest is right."))
        vague = {"masks-unknown"} if explained else set()
        found += [
            _line(1, in_words(fact))
            for fact in d.evidence
            if fact not in known and getattr(fact, "code", "") not in vague | EXACT
        ]
        for key, value in d.policy.items():
            if key == "weights" and any(fact.code == "weights" for fact in d.unmet):
                continue  # the task asks for other weights
            if key == "empty rows" and d.mistakes:
                continue  # how an empty row is answered is told when the rest is right
            said = in_words(value)
            text = POLICY.get(said, said) if key == "empty rows" else said
            found.append(_line(1, f"Not a mistake: {text}."))
        for name in d.advice:
            found.append(_line(1, f"Worth knowing: {MISTAKES[name].message}"))
        if d.verdict == "unknown":
            found += [_line(1, in_words(fact)) for fact in next_step(d)]
        if self._required_below:
            found.append(_line(1, f"Required: {self.task.signature}"))
        return found

    @property
    def _required_below(self) -> bool:
        """Whether what is required stands at the end; else it follows an error."""
        verdict = self.diagnosis.verdict
        of_own = self.task.conclude  # its signature says all that is asked
        return verdict == "unmet" or (verdict == "unknown" and bool(of_own))

    def _of(self, name: str, number: str = "") -> list[Line]:
        """What is said of a mistake: of the task itself, or of the catalogue."""
        if name in self.task.mistakes:
            return [_line(1, f"{number}{self.task.mistakes[name]} [{name}]")]
        lines = of_mistake(MISTAKES[name], number, self.task.name)
        exact = [x for x in self.diagnosis.evidence if getattr(x, "code", "") in EXACT]
        if name != "weights-returned-wrong" or not exact:
            return lines
        return [lines[0], *(_line(2, in_words(fact)) for fact in exact)]


def of_mistake(mistake: Mistake, number: str = "", task: str = "") -> list[Line]:
    """What it is, where to read about it, where it happened."""
    where = f"Read: {section_title(mistake.section)}"
    found = [_line(1, f"{number}{mistake.message_in(task)} [{mistake.name}]")]
    found.append(_line(2, where, link(mistake.section)))
    if mistake.source:
        found.append(_line(2, f"It happened in {mistake.source}."))
    return found


def report_html(lines: Iterable[Line], shown: dict | None) -> str:
    """Lines and a picture for any page; whatever a submission wrote is text there.

    A page that shows it needs `mha_lib.check.picture.STYLE`.
    """
    said = "".join(map(_paragraph, lines))
    return said + picture.html(shown)


def _paragraph(one: Line) -> str:
    words = CODE.sub(rf'<code style="{BOX}">\1</code>', escape(one["text"]))
    if one["href"]:
        words = f'<a href="{escape(one["href"])}">{words}</a>'
    weight = "normal" if one["level"] else "bold"
    style = f"margin:.2em 0 .2em {one['level'] * 1.5}em;font-weight:{weight}"
    return f'<p style="{style}">{words}</p>'
