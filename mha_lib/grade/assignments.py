"""An assignment as data: which names answer which task, and what each is worth.

It is kept in the metadata of its source notebook, under ``mha_assignment``::

    {"id": "a1", "title": "Attention and masks by hand",
     "banned": ["F.scaled_dot_product_attention"],
     "questions": [
       {"name": "attention", "task": "attention", "points": 4},
       {"name": "causal_mask", "task": "causal_mask",
        "properties": {"output_shape": 1, "output_dtype": 1, "right": 2}}]}

A question with ``points`` alone gives all of them for a right answer; one with
``properties`` gives the points of each that holds.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from mha_lib.check import TASKS, property_names

__all__ = ["Assignment", "Question", "load", "parse"]

KEY = "mha_assignment"


@dataclass(frozen=True)
class Question:
    """One thing to implement.

    Attributes:
        name: of the function or class in the notebook.
        task: of `mha_lib.check.TASKS`.
        points: for a right answer.
        properties: points for each property that holds; or empty.
        banned: built-ins that must not be used.
    """

    name: str
    task: str
    points: float = 0.0
    properties: dict[str, float] = field(default_factory=dict)
    banned: tuple[str, ...] = ()

    def __post_init__(self):
        if self.task not in TASKS:
            known = ", ".join(TASKS)
            raise ValueError(f"a task must be one of {known}; got {self.task!r}")
        known = property_names(self.task)
        if unknown := sorted(self.properties.keys() - known):
            raise ValueError(
                f"the properties of {self.name} must be of {', '.join(sorted(known))}; "
                f"got {', '.join(unknown)}"
            )
        if self.properties:
            total = float(sum(self.properties.values()))
            if self.points not in (0.0, total):
                raise ValueError(
                    f"the points of {self.name} must be the sum of its properties, "
                    f"{total:g}; got {self.points:g}"
                )
            object.__setattr__(self, "points", total)
        if self.points <= 0:
            raise ValueError(f"{self.name} must be worth points; got {self.points:g}")


@dataclass(frozen=True)
class Assignment:
    """Questions, in order, and what is banned in all of them."""

    id: str
    title: str
    questions: tuple[Question, ...]
    banned: tuple[str, ...] = ()

    @property
    def all_banned(self) -> list[str]:
        """Banned anywhere: a child answers all questions of a submission."""
        lists = (self.banned, *(question.banned for question in self.questions))
        return sorted({name for names in lists for name in names})

    @property
    def points(self) -> float:
        """What a right submission is worth."""
        return sum(question.points for question in self.questions)

    def to_dict(self) -> dict:
        """As `parse` reads it."""
        return asdict(self)


def parse(data: dict) -> Assignment:
    """Read an assignment; raises ValueError for what it must not hold.

    Example:
        >>> from mha_lib.grade.assignments import parse
        >>> question = {"name": "split", "task": "split_heads", "points": 2}
        >>> data = {"id": "a2", "title": "Heads", "questions": [question]}
        >>> parse(data).points
        2
    """
    try:
        questions = [
            Question(**{**question, "banned": tuple(question.get("banned", ()))})
            for question in data["questions"]
        ]
        banned = tuple(data.get("banned", ()))
        assignment = Assignment(data["id"], data["title"], tuple(questions), banned)
    except (KeyError, TypeError) as error:
        raise ValueError(
            "an assignment must have id, title and questions, each with name, task "
            f"and points or properties; got {error}"
        ) from None
    names = [question.name for question in questions]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the questions' names must differ; got {names}")
    return assignment


def load(name: str, folder: Path) -> Assignment:
    """The assignment of a notebook or JSON file, or that of an id in a folder.

    Args:
        name: a path, or an id such as "a1".
        folder: where an id is looked for: the notebook a1_….ipynb.

    Raises:
        ValueError: there is no such notebook, or it holds no assignment.
    """
    path = Path(name)
    if path.suffix not in (".ipynb", ".json"):
        found = sorted(folder.glob(f"{name}_*.ipynb"))
        if len(found) != 1:
            known = sorted({p.name.partition("_")[0] for p in folder.glob("*_*.ipynb")})
            raise ValueError(
                f"an assignment must be one of {', '.join(known) or '(none here)'}, a "
                f"notebook or a JSON file; got {name!r}"
            )
        (path,) = found
    data = json.loads(path.read_text(encoding="utf-8"))
    if path.suffix == ".ipynb":
        data = data["metadata"].get(KEY)
        if data is None:
            raise ValueError(f"the notebook's metadata must have {KEY}; {path} has not")
    return parse(data)
