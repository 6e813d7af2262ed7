"""Measure the road: what a reader meets in a chapter, and how long it takes.

    python -m tools.road                            # a line for each page
    python -m tools.road book/01_attention.ipynb    # and what is too much on it
    python -m tools.road --write                    # the minutes, into all pages

Counted is what stands open on the page: not the set-up, folded cells and solutions.
A word is what stands between blanks, a formula is one. The minutes are

    words / 100 + visible code cells,  and 8 for each exercise,

both rounded up to five: nobody reads new mathematics at 200 words a minute, and a
cell is understood, not only read.
"""

import argparse
import ast
import math
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from IPython.core.inputtransformer2 import TransformerManager
from nbformat import NotebookNode

from tools import book, notebook

MOST_WORDS, MOST_CELLS, MOST_LINES = 2800, 20, 15
MOST_OF_A_CLASS = 30  # lines, once a page: to be copied as it stands
MEDIAN_LINES = 3, 6
LEAST_SHOWN = 7, 10  # of the visible code cells
MOST_WIDTH = 480  # pixels of a picture: at 10 points its text has 9 on a phone
WORDS_A_MINUTE, MINUTES_A_CELL, MINUTES_AN_EXERCISE = 100, 1, 8
FOLDED = {"setup", "hide-input", "solution"}
TIME = re.compile(r"(?<=\*\*Time:\*\* )[^\\\n]+")  # up to a line break
FIRST_LESSON = 4  # chapters
OF_THE_LESSON = re.compile(r"(?<=Chapters 1 to 4 are the first lesson: )[^.]+")
SOLUTION = re.compile(r"```\{solution-start\}.*?```\{solution-end\}\n```", re.DOTALL)
EXERCISE = re.compile(r"\{exercise-start\}")
SYNTAX = (  # what a reader does not see, sees as one word or as a drawing
    (re.compile(r"^Where we are: .*$", re.MULTILINE), " "),
    (re.compile(r"^```python$.*?^```$", re.MULTILINE | re.DOTALL), " "),
    (re.compile(r"^(```|:::|:[\w-]+:).*$|<!--.*?-->|<[^>\n]+>", re.MULTILINE), " "),
    (re.compile(r"\$\$.*?\$\$|\$[^$]*\$", re.DOTALL), " formula "),
    (re.compile(r"\{[\w:]+\}`[^`]*`"), " reference "),
    (re.compile(r"\]\([^)]*\)"), "] "),
)


@dataclass(frozen=True)
class Road:
    """What stands open in a chapter."""

    words: int
    lines: list[int]  # of each visible code cell
    shown: int  # visible code cells with an output
    early: list[str]  # first lines of cells that assert before they show
    widths: list[int]  # of pictures, in pixels
    exercises: int
    whole: int = 0  # lines of the longest cell that is a class and nothing else

    @property
    def others(self) -> list[int]:
        """Lines of the visible cells, without that one."""
        without = sorted(self.lines)
        if self.whole:
            without.remove(self.whole)
        return without

    @property
    def reading(self) -> int:
        """Minutes without the exercises."""
        cells = MINUTES_A_CELL * len(self.lines)
        return _fives(self.words / WORDS_A_MINUTE + cells)

    @property
    def practice(self) -> int:
        """Minutes of the exercises."""
        return _fives(MINUTES_AN_EXERCISE * self.exercises)

    @property
    def time(self) -> str:
        """The minutes, as the first cell has them."""
        return _told(self.reading, self.practice)

    @property
    def faults(self) -> list[str]:
        """What is too much, or too little, a line each."""
        low, high = MEDIAN_LINES
        share, of = LEAST_SHOWN
        middle, longest = median(self.lines or [low]), max(self.others, default=0)
        cells, widest = len(self.lines), max(self.widths, default=0)
        rules = (
            (self.words <= MOST_WORDS, f"{self.words} words: at most {MOST_WORDS}"),
            (cells <= MOST_CELLS, f"{cells} visible cells: at most {MOST_CELLS}"),
            (low <= middle <= high, f"median of {middle} lines: {low} to {high}"),
            (longest <= MOST_LINES, f"a cell of {longest} lines: at most {MOST_LINES}"),
            (
                self.whole <= MOST_OF_A_CLASS,
                f"a class of {self.whole} lines: at most {MOST_OF_A_CLASS}",
            ),
            (
                self.shown * of >= share * cells,
                f"{self.shown} of {cells} cells show something: {share} of {of} should",
            ),
            (widest <= MOST_WIDTH, f"a picture {widest} px wide: at most {MOST_WIDTH}"),
            *((False, f"asserts before it shows: {line}") for line in self.early),
        )
        return [fault for holds, fault in rules if not holds]


def _told(reading: int, practice: int) -> str:
    more = f", and {practice} for the exercises" if practice else ""
    return f"{reading} minutes{more}"


def _fives(minutes: float) -> int:
    return 5 * math.ceil(minutes / 5)


def measure(page: NotebookNode) -> Road:
    """Count what stands open on a page."""
    prose = "\n\n".join(c.source for c in page.cells if c.cell_type == "markdown")
    cells = [cell for cell in page.cells if cell.cell_type == "code"]
    visible = [cell for cell in cells if not FOLDED & set(notebook.tags(cell))]
    classes = [cell for cell in visible if is_class(cell.source)]
    return Road(
        words=count_words(SOLUTION.sub("", prose)),
        lines=[len(cell.source.splitlines()) for cell in visible],
        shown=sum(bool(cell.outputs) for cell in visible),
        early=[c.source.splitlines()[0] for c in visible if asserts_early(c.source)],
        widths=list(picture_widths(cells)),
        exercises=len(EXERCISE.findall(prose)),
        whole=max((len(c.source.splitlines()) for c in classes), default=0),
    )


def count_words(prose: str) -> int:
    for pattern, instead in SYNTAX:
        prose = pattern.sub(instead, prose)
    return len(re.findall(r"\S*\w\S*", prose))


def is_class(source: str) -> bool:
    """Whether a cell is one class and nothing else."""
    body = ast.parse(TransformerManager().transform_cell(source)).body
    return len(body) == 1 and isinstance(body[0], ast.ClassDef)


def asserts_early(source: str) -> bool:
    """Whether an assertion of a cell stands before something that it shows."""
    asserted = False
    for statement in ast.parse(TransformerManager().transform_cell(source)).body:
        asserts = any(map(_asserts, ast.walk(statement)))
        if asserted and not asserts and isinstance(statement, ast.Expr):
            return True
        asserted |= asserts
    return False


def _asserts(node: ast.AST) -> bool:
    """`assert …`, or a call of `assert_close` and its like."""
    function = getattr(node, "func", None)
    name = getattr(function, "attr", getattr(function, "id", ""))
    return isinstance(node, ast.Assert) or name.startswith("assert_")


def picture_widths(cells: list[NotebookNode]) -> Iterator[int]:
    """How wide the page draws each picture; the still of a widget is no picture."""
    for cell in cells:
        for output in cell.outputs:
            if output.output_type == "display_data":
                yield output.metadata.get("image/png", {}).get("width", 0)


def with_time(page: NotebookNode) -> NotebookNode:
    """The page with its minutes in the first cell; nothing else changes."""
    page.cells[0].source = TIME.sub(measure(page).time, page.cells[0].source)
    return page


def with_lesson(intro: str, chapters: list[Road]) -> str:
    """The text of the first page with the minutes of the first lesson."""
    lesson = chapters[:FIRST_LESSON]
    reading, practice = (
        sum(getattr(chapter, kind) for chapter in lesson)
        for kind in ("reading", "practice")
    )
    return OF_THE_LESSON.sub(_told(reading, practice), intro)


def table(paths: list[Path]) -> str:
    rows = ["words cells median longest shown minutes  page"]
    for path in paths:
        road = measure(notebook.read(path))
        rows.append(
            f"{road.words:5} {len(road.lines):5} {median(road.lines or [0]):6} "
            f"{max(road.lines, default=0):7} {road.shown:5} "
            f"{road.time.split()[0]:>7}  {path.relative_to(book.ROOT)}"
        )
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.road",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", type=Path, help="none means all")
    parser.add_argument("--write", action="store_true", help="write the minutes")
    options = parser.parse_args(arguments)
    paths = [path.resolve() for path in options.files] or book.lessons()
    if options.write:
        for path in paths:
            notebook.write(with_time(notebook.read(path)), path)
        if not options.files:
            chapters = [measure(notebook.read(path)) for path in book.chapters()]
            intro = book.INTRO.read_text(encoding="utf-8")
            book.INTRO.write_text(with_lesson(intro, chapters), encoding="utf-8")
    print(table(paths))
    for path in options.files:
        if path.resolve().parent != book.DEEPER:  # whose depth has no measure
            print(*measure(notebook.read(path)).faults, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
