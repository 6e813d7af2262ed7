"""How long a task of an assignment takes, and how hard it is: one formula for all.

A task is read at 100 words a minute. Each different operation of its solution (a call,
an operator, an index) takes two minutes, each value that is worked out on paper one,
each answer in words four. Who is quick needs that; who is not, two and a half times as
long. A task with up to three operations is easy, one with up to ten is medium. Hints
are not read, and lines that the text gives already, such as those of a patient, are not
written again.
"""

import ast
import re
import textwrap
from dataclasses import dataclass, field

from nbformat import NotebookNode

from tools import notebook

WORDS, OPERATION, VALUE, ANSWER, SLOW = 1 / 100, 2, 1, 4, 2.5  # minutes; and how often
EASY, MEDIUM = 3, 10  # operations at most
STEP = 5  # minutes
HEADING = re.compile(
    r"(?m)^## ((?:Task|Patient) \d+: .*?)(?: · \d+ to \d+ min · \w+)?$"
)
HINT = re.compile(r"<details>.*?</details>", re.DOTALL)
SOLUTION = re.compile(r"# BEGIN SOLUTION\n(.*?)# END SOLUTION", re.DOTALL)
TIME = re.compile(r"(\*\*Time:\*\*) [^·]*(?= · )")


@dataclass
class Effort:
    """What one task asks for."""

    words: int = 0
    values: int = 0
    answers: int = 0
    solutions: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)

    @property
    def operations(self) -> int:
        """Different ones in the lines that are new."""
        return len(set().union(*map(self._operations, self.solutions)))

    @property
    def minutes(self) -> tuple[int, int]:
        """For those who are quick, and for those who are not."""
        quick = WORDS * self.words + OPERATION * self.operations
        quick += VALUE * self.values + ANSWER * self.answers
        low = max(STEP, STEP * int(quick / STEP))
        return low, max(low + STEP, STEP * -int(-SLOW * quick // STEP))

    @property
    def difficulty(self) -> str:
        """In one word."""
        return (
            "easy" if self.operations <= EASY
            else "medium" if self.operations <= MEDIUM else "hard"
        )  # fmt: skip

    def __str__(self) -> str:
        low, high = self.minutes
        return f"{low} to {high} min · {self.difficulty}"

    def _operations(self, solution: str) -> set[str]:
        lines = solution.splitlines()
        found = set()
        for node in ast.walk(ast.parse(f"def f():\n{textwrap.indent(solution, ' ')}")):
            number = getattr(node, "lineno", 0) - 2
            if number < 0 or lines[number].strip() in self.given:
                continue
            if isinstance(node, ast.Call):
                found.add(ast.unparse(node.func).rpartition(".")[2])
            elif isinstance(node, (ast.BinOp, ast.UnaryOp)):
                found.add(type(node.op).__name__)
            elif isinstance(node, ast.Subscript):
                found.add(ast.unparse(node.slice))
        return found


def efforts(source: NotebookNode) -> dict[str, Effort]:
    """What each task asks for, by its heading without the minutes."""
    found: dict[str, Effort] = {}
    effort = Effort()  # of what stands before the first task
    for cell in source.cells:
        if "instructor" in notebook.tags(cell):
            continue
        if cell.cell_type == "code":
            effort.values += len(re.findall(r"(?m) = .*# SOLUTION$", cell.source))
            effort.solutions += map(textwrap.dedent, SOLUTION.findall(cell.source))
            effort.given |= {
                x.strip() for x in SOLUTION.sub("", cell.source).split("\n")
            }
        elif "answer" in notebook.tags(cell):
            effort.answers += 1
        else:
            for part in re.split(r"(?m)^(?=## )", cell.source):
                if heading := HEADING.match(part):
                    effort = found[heading[1]] = Effort()
                elif part.startswith("## "):
                    effort = Effort()
                text = re.sub(r"^## .*", "", part)
                effort.words += len(HINT.sub("", text).split())
    return found


def with_effort(source: NotebookNode) -> NotebookNode:
    """The source with minutes and difficulty in the headings, and their sum on top."""
    found = efforts(source)
    if not found:
        return source
    for cell in source.cells:
        if cell.cell_type == "markdown":
            cell.source = HEADING.sub(
                lambda match: f"## {match[1]} · {found[match[1]]}", cell.source
            )
    first = source.cells[0]
    first.source = TIME.sub(rf"\1 {hours(found)}, without reading", first.source)
    return source


def hours(found: dict[str, Effort]) -> str:
    """All tasks together: the sum of what their headings say."""
    pairs = [effort.minutes for effort in found.values()]
    low, high = (divmod(sum(minutes), 60) for minutes in zip(*pairs))
    return f"{low[0]}:{low[1]:02} to {high[0]}:{high[1]:02} hours"
