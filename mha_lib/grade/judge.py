"""The judge: has a submission run in the sandbox, compares, gives marks.

It alone holds the answers, and it executes nothing that a submission sent.
"""

import hashlib
import threading
from collections.abc import Iterable
from contextlib import nullcontext

import torch
from torch import Tensor

from mha_lib.check import ORDERS, TASKS, Diagnosis, Line, Report, conclude
from mha_lib.grade.assignments import Assignment, Question
from mha_lib.grade.inside.cells import OutOfTime, time_limit
from mha_lib.grade.sandbox import Reply, Sandbox
from mha_lib.grade.submission import Submission

__all__ = ["Judge"]

LARGEST_ANSWER = 1 << 20  # numbers; the largest right one has a few thousand
DIGITS = 2  # decimals of an output that its hash sees
STOOD_IN = (
    "It was judged beside our {}, because yours is not right yet: a mistake is paid "
    "for once."
)
HIT = "The cell that should define it did not run to its end: {}."
JUDGING = 30.0  # seconds of CPU time to find a name for a mistake; most need one


class Judge:
    """Grades the submissions of one assignment.

    Args:
        assignment: what is asked and what it is worth.
        seed: of the probes; a secret of this run.
        sandbox: one that somebody else keeps and closes; None for one of its own.
        limits: of its own sandbox, as `Sandbox` takes them.

    Example:
        >>> from mha_lib.grade.assignments import parse
        >>> from mha_lib.grade.judge import Judge
        >>> from mha_lib.grade.submission import Submission
        >>> question = {"name": "merge", "task": "merge_heads", "points": 2}
        >>> assignment = parse({"id": "a2", "title": "Heads", "questions": [question]})
        >>> code = b"def merge(x): return x.transpose(1, 2).flatten(2)"
        >>> with Judge(assignment, 1) as judge:
        ...     result = judge.grade(Submission(code, "py", digest=""))
        >>> result["points"], result["out_of"]
        (2.0, 2.0)
    """

    def __init__(
        self,
        assignment: Assignment,
        seed: int,
        sandbox: Sandbox | None = None,
        **limits: object,
    ):
        torch.set_num_threads(1)  # of this process: tiny tensors only wait for threads
        self.assignment = assignment
        self.sandbox, self.keeps = sandbox or Sandbox(**limits), sandbox is not None
        self.probes = {
            question.name: TASKS[question.task].probes(_mixed(seed, question.name))
            for question in assignment.questions
        }

    def __enter__(self) -> "Judge":
        self.sandbox.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.keeps:
            self.sandbox.close()

    def grade(self, submission: Submission) -> dict:
        """Run what was handed in and mark it: plain data, the report shows it."""
        reply = Reply(ending=submission.problem)
        if not submission.problem:
            reply = self._run(submission, self.assignment.questions)
        result = self._marked(reply)
        result["read"] = result["read"] and not submission.problem
        if not reply.ending:  # it ran to its end
            self._not_carried_forward(submission, result)
        told = {"digest": submission.digest, "unprotected": self.sandbox.warnings}
        return result | told

    def _run(
        self,
        submission: Submission,
        questions: Iterable[Question],
        stand_ins: Iterable[str] = (),
    ) -> Reply:
        """Have it answer some questions, with parts of the author's in place of its."""
        sources = {name: self.assignment.stand_ins[name] for name in stand_ins}
        asked = [
            {"name": q.name, "probes": self.probes[q.name], "stand_ins": sources}
            for q in questions
        ]
        content, kind = submission.content, submission.kind
        return self.sandbox.run(content, kind, asked, self.assignment.all_banned)

    def _not_carried_forward(self, submission: Submission, result: dict) -> None:
        """Ask again what builds on a wrong part, with the author's in its place.

        A new process is asked that one question alone. Its code can read the parts that
        stand in, and what these are for was marked before: it has nobody to tell.
        """
        parts = {part["name"]: part for part in result["questions"]}
        lost = {k for k, part in parts.items() if part["points"] < part["out_of"]}
        for place, question in enumerate(self.assignment.questions):
            names = [name for name in question.uses if name in lost]
            if question.name not in lost or not names:
                continue
            reply = self._run(submission, [question], names)
            again = self._question(question, *_Said(reply).of(question, self.probes))
            if again["points"] > parts[question.name]["points"]:
                said = STOOD_IN.format(" and ".join(names))
                again["lines"].append(Line(level=1, text=said, href=""))
                result["questions"][place] = again
            result["cpu"] = round(result["cpu"] + reply.cpu, 3)
        result["points"] = float(sum(x["points"] for x in result["questions"]))

    def _marked(self, reply: Reply) -> dict:
        said = _Said(reply)
        questions = [
            self._question(question, *said.of(question, self.probes))
            for question in self.assignment.questions
        ]
        return {
            "assignment": self.assignment.id,
            "title": self.assignment.title,
            "points": float(sum(question["points"] for question in questions)),
            "out_of": float(self.assignment.points),
            "problem": said.problem,
            "read": said.read,
            "notes": said.notes,
            "mentions": said.mentions,
            "questions": questions,
            "cpu": round(reply.cpu, 3),
            "memory": reply.memory,
        }

    def _question(
        self, question: Question, outcomes: list[dict], hit: str = ""
    ) -> dict:
        """Points and report; ``hit`` is what failed in the cell of the question."""
        task, probes = TASKS[question.task], self.probes[question.name]
        try:
            diagnosis = diagnosed(task.name, probes, outcomes, question.requires)
            report = Report(diagnosis, task)
            lines, shown = report.lines, report.picture()
            if hit:
                lines.insert(1, Line(level=1, text=HIT.format(hit), href=""))
        except Exception as error:  # a fault of ours must not stop the others
            text = f"this could not be judged, a fault of the grader: {error!r}"
            diagnosis = Diagnosis(task.name, "failed", error=text)
            lines, shown = [Line(level=0, text=text, href="")], None
        earned = question.earned(diagnosis.properties)
        unknown = diagnosis.verdict == "unknown"
        return {
            "name": question.name,
            "title": task.title,
            "points": sum(earned.values()),
            "out_of": float(question.points),
            "worth": question.properties,
            "earned": earned,
            "fingerprint": fingerprint(task.name, outcomes) if unknown else "",
            "diagnosis": diagnosis.to_dict(),
            "lines": lines,
            "picture": shown,
        }


def diagnosed(
    task: str, probes: list[dict], outcomes: list[dict], requires: Iterable[str] = ()
) -> Diagnosis:
    """What `conclude` says; where the search takes too long, all but a name.

    Numbers out of all proportion make almost every mistake look possible at first.
    """
    # Signals reach the main thread alone; engines elsewhere may work in another.
    limited = threading.current_thread() is threading.main_thread()
    try:
        with time_limit(JUDGING) if limited else nullcontext():
            return conclude(task, probes, outcomes, requires=requires)
    except OutOfTime:
        pass
    found = conclude(task, probes, outcomes, search=False, requires=requires)
    if found.verdict != "right":
        gave_up = f"No known mistake was found in {JUDGING:g} s of searching."
        found.evidence.append(gave_up)
    return found


def fingerprint(task: str, outcomes: list[dict]) -> str:
    """A hash of outputs, rounded: the same unknown mistake mostly has the same."""
    state = hashlib.sha256(task.encode())
    for outcome in outcomes:
        for name, x in sorted(outcome.get("outputs", {}).items()):
            state.update(f"{name} {tuple(x.shape)}".encode())
            x = x.double().nan_to_num().clamp(-1e9, 1e9) * 10**DIGITS
            state.update(x.round().to(torch.int64).numpy().tobytes())
    return state.hexdigest()[:16]


def _mixed(seed: int, name: str) -> int:
    """A seed for each question."""
    mixed = hashlib.sha256(f"{seed} {name}".encode()).digest()
    return int.from_bytes(mixed[:7], "big")


# --- what a submission sent ---------------------------------------------------------

FLAGS = ("repeat_differs", "weights_detached", "draws")
MESSAGES = ("error", "line", "called", "got", "raised_by", "code")
LISTS = ("changed_inputs", "without_gradient", "missing", "unnamed", "beside")


class _Said:
    """What the messages of a reply say, whatever somebody put into them."""

    def __init__(self, reply: Reply):
        self.problem, self.notes, self.mentions, self.answers = reply.ending, [], [], {}
        self.read = True  # what came is a notebook or Python
        for place, message in enumerate(reply.messages):
            if place == 0 and isinstance(message.get("unreadable"), str):
                self.problem, self.read = message["unreadable"], False
            elif place == 0:
                self.mentions = _strings(message.get("mentions"))
            elif "notes" in message and not self.notes:
                self.notes = _strings(message["notes"])
            elif isinstance(message.get("question"), str):
                self.answers.setdefault(message["question"], message)

    def of(
        self, question: Question, probes: dict[str, list[dict]]
    ) -> tuple[list[dict], str]:
        """The outcomes of a question, and what failed in its cell."""
        hit = self.answers.get(question.name, {}).get("hit")
        hit = hit[:500] if isinstance(hit, str) else ""
        return self.outcomes(question.name, probes), hit

    def outcomes(self, name: str, probes: dict[str, list[dict]]) -> list[dict]:
        """An outcome for each probe, of the form that the adapter gives it."""
        asked, answer = probes[name], self.answers.get(name, {})
        given = answer.get("outcomes")
        if not isinstance(given, list) or len(given) != len(asked):
            failed = answer.get("failed")
            why = failed if isinstance(failed, str) else self.problem
            given = [{"error": why or "it did not answer"}] * len(asked)
        return [_outcome(probe, x) for probe, x in zip(asked, given)]


def _outcome(probe: dict, given: object) -> dict:
    """Only what an outcome may hold; a probe is skipped only where that costs nothing.

    A layer need not have dropout, and then `train` asks for no points.
    """
    if not isinstance(given, dict):
        return {"error": "it sent what is no outcome"}
    kept: dict[str, object] = {}
    skips = isinstance(given.get("skipped"), str)
    if skips and probe["options"].get("train"):
        return {"skipped": given["skipped"][:1000]}
    for key, value in given.items():
        if key in MESSAGES and isinstance(value, str):
            kept[key] = value[:1000]
        elif key in FLAGS and isinstance(value, bool):
            kept[key] = value
        elif key in LISTS and isinstance(value, list):
            kept[key] = _strings(value)
            if key == "missing":  # a layer may lack biases, never a matrix
                known = {name for name in probe["weights"] or () if name[0] == "b"}
                kept[key] = sorted(known.intersection(kept[key]))
        elif key == "notes" and isinstance(value, list):
            kept[key] = [_note(x) for x in value[:20] if isinstance(x, dict)]
        elif key in ("outputs", "gradients") and isinstance(value, dict):
            names = ("output", "weights") if key == "outputs" else probe["inputs"]
            kept[key] = {
                k: x for k, x in value.items()
                if k in names and isinstance(x, Tensor)
                and x.numel() <= LARGEST_ANSWER
            }  # fmt: skip
        elif key == "alternatives" and isinstance(value, dict) and probe["weights"]:
            kept[key] = {
                k: _outcome(probe, {**x, "alternatives": None})
                for k, x in value.items()
                if k in (*ORDERS, "transposed") and isinstance(x, dict)
            }  # fmt: skip
    if "output" not in kept.get("outputs", {}):
        kept.pop("outputs", None)  # weights alone are no answer
        if not probe["options"].get("device"):
            kept.setdefault("error", "it sent no output, or too large a one")
    return kept


def _note(given: dict) -> dict:
    """Of what was noted, strings and flags."""
    flags = {key: x for key, x in given.items() if isinstance(x, bool)}
    return flags | {k: x[:500] for k, x in given.items() if isinstance(x, str)}


def _strings(value: object) -> list[str]:
    texts = value if isinstance(value, list) else []
    return [text[:500] for text in texts if isinstance(text, str)][:20]
