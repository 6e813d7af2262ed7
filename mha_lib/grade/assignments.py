"""An assignment as data: which names answer which task, and what each is worth.

It is kept in the metadata of its source notebook, under ``mha_assignment``::

    {"id": "a1", "title": "Attention and masks by hand",
     "banned": ["F.scaled_dot_product_attention"],
     "questions": [
       {"name": "attention", "task": "attention", "points": 4},
       {"name": "causal_mask", "task": "causal_mask",
        "properties": {"output_shape": 1, "output_dtype": 1, "right": 2}}]}

A question with ``points`` alone gives all of them for a right answer; one with
``properties`` gives the points of each that holds, and all of them to what is right
alone: otherwise the cheapest that holds is kept back, unless ``right`` has a price of
its own. What a task leaves open a question may require, by names of `property_names`::

    {"name": "attention", "task": "attention", "points": 4, "requires": ["weights"]}

The cell of the notebook says the same: ``check(attention, requires=["weights"])``.

A task may be one that a cell of the notebook registers (`mha_lib.check.own_task`), or a
file beside it that a cell imports. A question that builds on others names them under
``uses``: where one of these is wrong, the author's stands in for it, so that errors are
not carried forward.
"""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from mha_lib.check import BUILT_IN, TASKS, judged
from mha_lib.grade import author

__all__ = ["Assignment", "Question", "from_notebook", "load", "parse"]

KEY = "mha_assignment"
TUPLES = ("banned", "requires", "uses")  # of a question


@dataclass(frozen=True)
class Question:
    """One thing to implement.

    Attributes:
        name: of the function or class in the notebook.
        task: of `mha_lib.check.TASKS`.
        points: for a right answer.
        properties: points for each property that holds; or empty.
        banned: built-ins that must not be used.
        uses: earlier questions on which this one builds.
        requires: what is asked for beside what the task says; see `judged`.
    """

    name: str
    task: str
    points: float = 0.0
    properties: dict[str, float] = field(default_factory=dict)
    banned: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()

    def __post_init__(self):
        if self.task not in TASKS:
            known = ", ".join(TASKS)
            raise ValueError(f"a task must be one of {known}; got {self.task!r}")
        known = judged(self.task, self.requires)
        if unknown := sorted(self.properties.keys() - known):
            raise ValueError(
                f"the properties of {self.name} must be of {', '.join(sorted(known))}, "
                f"or what it requires; got {', '.join(unknown)}"
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

    @property
    def kept_back(self) -> bool:
        """Whether no property is the price of being right in everything."""
        return bool(self.properties) and "right" not in self.properties

    def earned(self, holds: dict[str, bool]) -> dict[str, float]:
        """Points by property; all of them are for what is right, and for nothing else.

        Args:
            holds: the properties of a submission.

        Example:
            >>> from mha_lib.grade.assignments import Question
            >>> worth = {"runs": 1, "right_without_mask": 3}
            >>> question = Question("f", "mha", properties=worth)
            >>> question.earned({"runs": True, "right_without_mask": True})
            {'runs': 0.0, 'right_without_mask': 3.0}
        """
        worth = self.properties or {"right": self.points}
        if holds.get("right"):
            return {name: float(points) for name, points in worth.items()}
        if not any(v for k, v in holds.items() if k.startswith("right")):
            holds = {}  # zeros have a shape and change no input, too
        points = {k: float(n) if holds.get(k) else 0.0 for k, n in worth.items()}
        if all(points.values()):
            points[min(points, key=points.__getitem__)] = 0.0
        return points


@dataclass(frozen=True)
class Assignment:
    """Questions, in order, and what is banned in all of them.

    Attributes:
        id: such as "a1".
        title: in words.
        questions: in order.
        banned: built-ins that no answer may use.
        tasks: Python that registers tasks of the author's own, each text by itself. It
            is run as it is: an assignment is a program of yours.
        stand_ins: Python that defines the right part, by its name, for each that
            another question uses.
    """

    id: str
    title: str
    questions: tuple[Question, ...]
    banned: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    stand_ins: dict[str, str] = field(default_factory=dict)

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

    def public(self) -> "Assignment":
        """Without what gives a solution away: questions of mha_lib's tasks alone."""
        kept = tuple(
            replace(question, uses=())
            for question in self.questions
            if question.task in BUILT_IN
        )
        return replace(self, questions=kept, tasks=(), stand_ins={})


def parse(data: dict) -> Assignment:
    """Read an assignment; raises ValueError for what it must not hold.

    Example:
        >>> from mha_lib.grade.assignments import parse
        >>> question = {"name": "split", "task": "split_heads", "points": 2}
        >>> data = {"id": "a2", "title": "Heads", "questions": [question]}
        >>> parse(data).points
        2
    """
    tasks, stand_ins = tuple(data.get("tasks", ())), data.get("stand_ins", {})
    for text in tasks:
        author.execute(text, f"the tasks of {data.get('id')}")
    try:
        questions = [
            Question(**{**q, **{k: tuple(q.get(k, ())) for k in TUPLES}})
            for q in data["questions"]
        ]
        banned = tuple(data.get("banned", ()))
        assignment = Assignment(
            data["id"], data["title"], tuple(questions), banned, tasks, stand_ins
        )
    except (KeyError, TypeError) as error:
        raise ValueError(
            "an assignment must have id, title and questions, each with name, task "
            f"and points or properties; got {error}"
        ) from None
    names = [question.name for question in questions]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the questions' names must differ; got {names}")
    for place, question in enumerate(questions):
        if unknown := sorted(set(question.uses) - set(names[:place])):
            raise ValueError(
                f"{question.name} must use questions before it; "
                f"got {', '.join(unknown)}"
            )
        for used in question.uses:
            _check_stand_in(used, stand_ins, question.name)
    return assignment


def _check_stand_in(name: str, stand_ins: dict[str, str], for_whom: str) -> None:
    """It has to be there, and must not answer the question that it helps."""
    if name not in stand_ins:
        raise ValueError(f"{for_whom} uses {name}, so stand_ins must define it")
    defined = author.bound(stand_ins[name])
    if name not in defined or for_whom in defined:
        raise ValueError(
            f"the stand-in for {name} must define it and not {for_whom}, which uses it"
        )


def from_notebook(notebook: dict, folder: Path | None = None) -> Assignment:
    """The assignment of a notebook with solutions: its metadata, and what cells say.

    Args:
        notebook: as its JSON is.
        folder: where it lies, if files beside it register tasks.

    Raises:
        ValueError: as `parse`; or a cell with a task does not run by itself.
    """
    data = notebook["metadata"][KEY]
    cells = [
        "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]
    used = {name for q in data.get("questions", ()) for name in q.get("uses", ())}
    stand_ins = {name: author.closure(cells, [name]) for name in sorted(used)}
    files = [] if folder is None else author.files(cells, folder)
    # A file has names of its own, and its tasks come first, as its import does.
    tasks = [*(author.tasks([text]) for text in files), author.tasks(cells)]
    texts = [text for text in tasks if text]
    return parse(data | {"tasks": texts, "stand_ins": stand_ins})


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
    if path.suffix == ".json":
        return parse(data)
    if KEY not in data["metadata"]:
        raise ValueError(f"the notebook's metadata must have {KEY}; {path} has not")
    return from_notebook(data, path.parent)
