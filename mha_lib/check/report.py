"""A diagnosis in words, as HTML and as a picture."""

import html
import io
from base64 import b64encode
from importlib.metadata import PackageNotFoundError, metadata

from mha_lib.check.catalogue import MISTAKES, Mistake
from mha_lib.check.diagnosis import Diagnosis
from mha_lib.check.tasks import Task
from mha_lib.check.words import in_words

__all__ = ["Report", "link", "section_title"]

HEADLINES = {
    "right": "Right: {title}.",
    "named": "One mistake in your {title}.",
    "stacked": "{count} mistakes at once in your {title}. Fix the first one first.",
    "ambiguous": "Your {title} is wrong in one of {count} ways, which give the same "
    "numbers.",
    "unknown": "Your {title} is wrong in a way that is in no catalogue.",
    "failed": "Your {title} gave no answer that could be compared.",
}
POLICY = {
    "nan": "a query that sees no key gets NaN",
    "zeros": "a query that sees no key gets zeros, as in this book",
    "uniform": "a query that sees no key gets equal weights",
    "unmasked": "a query that sees no key sees all of them",
    "other": "a query that sees no key gets numbers of no rule we know",
}


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
        return "\n".join("  " * indent + text for indent, text, _ in self._lines())

    def _repr_html_(self) -> str:
        body = []
        for indent, text, url in self._lines():
            words = html.escape(text if url is None else text.removesuffix(f" {url}"))
            if url:
                words = f'<a href="{html.escape(url)}">{words}</a>'
            weight = "bold" if indent == 0 else "normal"
            body.append(
                f'<p style="margin:.2em 0 .2em {indent * 1.5}em;'
                f'font-weight:{weight}">{words}</p>'
            )
        figure = self.picture()
        if figure is not None:
            png = io.BytesIO()
            figure.savefig(png, format="png", dpi=110, metadata={"Software": None})
            data = b64encode(png.getvalue()).decode()
            words = html.escape(self.diagnosis.example.words, quote=True)
            body.append(
                f'<img src="data:image/png;base64,{data}" alt="Yours beside what is '
                f'expected. {words}">'
            )
        return "<div>" + "".join(body) + "</div>"

    def picture(self):
        """Theirs beside what is expected, as a matplotlib figure; None if right."""
        example = self.diagnosis.example
        if example is None:
            return None
        from matplotlib.figure import Figure  # loaded when used

        panels = {"yours": example.theirs, "expected": example.expected}
        figure = Figure(figsize=(7, 3.2), layout="constrained")
        last = example.expected.double().nan_to_num(0.0)
        limits = {"vmin": min(0.0, last.min().item()), "vmax": last.max().item()}
        for axes, (title, tensor) in zip(figure.subplots(1, 2), panels.items()):
            while tensor.dim() > 2:  # sequence 0, head 0
                tensor = tensor[0]
            grid = axes.imshow(tensor.double().numpy(), cmap="Blues", **limits)
            across = "feature" if example.kind == "output" else "key"
            axes.set(title=title, xlabel=across, ylabel="query")
        figure.colorbar(grid, ax=axes)
        return figure

    def _lines(self) -> list[tuple[int, str, str | None]]:
        """Indent, words and, where the words are a link, its address."""
        d = self.diagnosis
        count = len(d.candidates or d.mistakes)
        title = self.task.title
        if d.verdict != "right":
            title = title.removeprefix("the ")  # "your causal mask"
        lines = [(0, HEADLINES[d.verdict].format(title=title, count=count), None)]
        if d.error is not None and d.verdict != "right":
            lines += [(1, d.error, None), (1, "Required: " + self.task.signature, None)]
        for place, name in enumerate(d.mistakes):
            number = f"{place + 1}. " if len(d.mistakes) > 1 else ""
            lines += self._mistake(MISTAKES[name], number)
        for place, names in enumerate(d.candidates):
            lines.append((1, "Either" if place == 0 else "or", None))
            for name in names:
                lines += self._mistake(MISTAKES[name], "")
        if d.example is not None:
            lines.append((1, d.example.words, None))
        if d.verdict == "unknown":
            kept = [name for name, holds in d.properties.items() if holds]
            lost = [name for name, holds in d.properties.items() if not holds]
            lines.append((1, "Holds: " + (", ".join(kept) or "nothing"), None))
            lines.append((1, "Fails: " + ", ".join(lost), None))
        lines += [(1, in_words(fact), None) for fact in d.evidence]
        for key, value in d.policy.items():
            said = in_words(value)
            text = POLICY.get(said, said) if key == "empty rows" else said
            lines.append((1, f"Not a mistake: {text}.", None))
        for name in d.advice:
            lines.append((1, f"Worth knowing: {MISTAKES[name].message}", None))
        return lines

    def _mistake(self, mistake: Mistake, number: str) -> list:
        url = link(mistake.section)
        where = f"Read: {section_title(mistake.section)}"
        lines = [
            (1, f"{number}{mistake.message} [{mistake.name}]", None),
            (2, f"{where} {url}".strip(), url or None),
        ]
        if mistake.source:
            lines.append((2, f"It happened in {mistake.source}.", None))
        return lines


TITLES = {  # where an anchor has lost more than blanks
    "before-the-softmax-not-after-it": "Before the softmax, not after it",
    "causality-relu-and-the-rest-of-the-block": "Causality, ReLU and the rest of the "
    "block",
    "is-true-true": "Is True True?",
    "masks-of-rank-2-3-and-4": "Masks of rank 2, 3 and 4",
    "self-attention-hides-cross-attention": "Self-attention hides cross-attention",
    "the-scale-forgotten-or-taken-from-the-wrong-size": "The scale forgotten, or taken "
    "from the wrong size",
    "the-softmax-over-the-last-axis-from-habit": "The softmax over the last axis, from "
    "habit",
    "the-way-there-the-way-back": "The way there, the way back",
    "tile-or-repeat-the-order-of-the-mask": "Tile or repeat: the order of the mask",
    "when-t-and-s-differ-which-corner": "When T and S differ, which corner?",
    "which-number-does-dropout-drop": "Which number does dropout drop?",
    "why-divide-by-d": "Why divide by √D",
}


def section_title(section: str) -> str:
    """01_attention#what-goes-wrong -> chapter 1, 'What goes wrong'."""
    page, anchor = section.split("#")
    title = TITLES.get(anchor, anchor.replace("-", " ").capitalize())
    return f"chapter {int(page[:2])}, '{title}'"


def link(section: str) -> str:
    """The address of a section of the published book; "" where it is not known."""
    try:
        urls = metadata("mha_lib").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    for url in urls:
        label, _, address = url.partition(", ")
        if label == "Repository" and "github.com/" in address:
            owner, _, name = address.split("github.com/")[1].partition("/")
            page, anchor = section.split("#")
            return f"https://{owner.lower()}.github.io/{name}/book/{page}.html#{anchor}"
    return ""
