"""The judge: has a submission run in the sandbox, compares, gives marks.

It alone holds the answers, and it executes nothing that a submission sent.
"""

import hashlib
import os
import threading
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor

from mha_lib.check import SPECIAL, Diagnosis
from mha_lib.check.beside import ORDERS
from mha_lib.check.diagnosis import conclude as judge
from mha_lib.check.reference import POLICIES, Problem, compute
from mha_lib.check.report import Report
from mha_lib.check.search import matches
from mha_lib.check.tasks import TASKS
from mha_lib.grade import picture
from mha_lib.grade.assignments import Assignment, Question
from mha_lib.grade.inside.cells import OutOfTime, time_limit
from mha_lib.grade.sandbox import Reply, Sandbox

__all__ = ["LARGEST", "Judge"]

LARGEST = 20 << 20  # bytes of a file
SUFFIXES = (".ipynb", ".py")
LARGEST_ANSWER = 1 << 20  # numbers; the largest right one has a few thousand
DIGITS = 2  # decimals of an output that its hash sees
JUDGING = 30.0  # seconds of CPU time to find a name for a mistake; most need one


class Judge:
    """Grades the submissions of one assignment.

    Args:
        assignment: what is asked and what it is worth.
        seed: of the probes; a secret of this run.
        limits: as `Sandbox` takes them.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from mha_lib.grade.assignments import parse
        >>> from mha_lib.grade.judge import Judge
        >>> question = {"name": "merge", "task": "merge_heads", "points": 2}
        >>> assignment = parse({"id": "a2", "title": "Heads", "questions": [question]})
        >>> with tempfile.TemporaryDirectory() as folder, Judge(assignment, 1) as judge:
        ...     path = Path(folder, "ada.py")
        ...     _ = path.write_text("def merge(x): return x.transpose(1, 2).flatten(2)")
        ...     result = judge.grade(path)
        >>> result["points"], result["out_of"]
        (2.0, 2.0)
    """

    def __init__(self, assignment: Assignment, seed: int, **limits: object):
        torch.set_num_threads(1)  # of this process: tiny tensors only wait for threads
        self.assignment = assignment
        self.sandbox = Sandbox(**limits)
        self.probes = {
            question.name: TASKS[question.task].probes(_mixed(seed, question.name))
            for question in assignment.questions
        }

    def __enter__(self) -> "Judge":
        self.sandbox.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.sandbox.close()

    def grade(self, path: os.PathLike | str) -> dict:
        """Run one file and mark it: plain data, see the report for what it holds."""
        path = Path(path)
        content, problem = read(path)
        reply = Reply(ending=problem)
        if not problem:
            kind = path.suffix.lower()[1:]
            probes = [{"name": k, "probes": v} for k, v in self.probes.items()]
            banned = self.assignment.all_banned
            reply = self.sandbox.run(content, kind, probes, banned)
        unprotected = self.sandbox.warnings
        return self._marked(reply) | {
            "digest": digest(path),
            "unprotected": unprotected,
        }

    def _marked(self, reply: Reply) -> dict:
        said = _Said(reply)
        questions = [
            self._question(question, said.outcomes(question.name, self.probes))
            for question in self.assignment.questions
        ]
        return {
            "assignment": self.assignment.id,
            "title": self.assignment.title,
            "points": float(sum(question["points"] for question in questions)),
            "out_of": float(self.assignment.points),
            "problem": said.problem,
            "notes": said.notes,
            "mentions": said.mentions,
            "questions": questions,
            "cpu": round(reply.cpu, 3),
            "memory": reply.memory,
        }

    def _question(self, question: Question, outcomes: list[dict]) -> dict:
        task, probes = TASKS[question.task], self.probes[question.name]
        try:
            diagnosis = diagnosed(task.name, probes, outcomes)
            shown = picture.of(diagnosis.example, task.name)
        except Exception as error:  # a fault of ours must not stop the others
            return self._unjudged(question, error)
        right = diagnosis.verdict == "right"
        properties = {k: bool(v) for k, v in diagnosis.properties.items()}
        if question.properties:
            holds = {k: properties.get(k, False) for k in question.properties}
            if not any(v for k, v in properties.items() if k.startswith("right")):
                holds = {}  # zeros have a shape and change no input, too
            points = sum(question.properties[k] for k, v in holds.items() if v)
        else:
            points = question.points if right else 0.0
        unknown = diagnosis.verdict == "unknown"
        return {
            "name": question.name,
            "title": task.title,
            "points": float(points),
            "out_of": float(question.points),
            "worth": question.properties,
            "fingerprint": fingerprint(task.name, outcomes) if unknown else "",
            "words": str(Report(diagnosis, task)),
            "diagnosis": diagnosis.to_dict(),
            "picture": shown,
        }

    def _unjudged(self, question: Question, error: Exception) -> dict:
        text = f"this could not be judged, a fault of the grader: {error!r}"
        return {
            "name": question.name,
            "title": TASKS[question.task].title,
            "points": 0.0,
            "out_of": float(question.points),
            "worth": question.properties,
            "fingerprint": "",
            "words": text,
            "diagnosis": Diagnosis(question.task, "failed", error=text).to_dict(),
            "picture": None,
        }


def diagnosed(task: str, probes: list[dict], outcomes: list[dict]) -> Diagnosis:
    """What `judge` says; where the search takes too long, all but a name.

    Numbers out of all proportion make almost every mistake look possible at first.
    """
    # Signals reach the main thread alone; engines elsewhere may work in another.
    limited = threading.current_thread() is threading.main_thread()
    try:
        with time_limit(JUDGING) if limited else nullcontext():
            return judge(task, probes, outcomes)
    except OutOfTime:
        pass
    missing = next((o.get("missing", []) for o in outcomes if "outputs" in o), [])
    emptied = [_emptied(p, o, missing) for p, o in zip(probes, outcomes)]
    found = judge(task, probes, emptied)
    if found.verdict != "right":
        found.verdict, found.mistakes, found.candidates = "unknown", [], []
        found.example = None
        found.evidence = [f"No known mistake was found in {JUDGING:g} s of searching."]
    return found


def _emptied(probe: dict, outcome: dict, missing: list[str]) -> dict:
    """NaN for outputs that are wrong: there is nothing to look for, points stay."""
    if SPECIAL & probe["options"].keys() or "outputs" not in outcome:
        return outcome
    output = outcome["outputs"]["output"]
    problem = Problem.of(probe, missing)
    if not any(
        matches(output.to(torch.float32), compute(problem, (), policy)["output"])
        for policy in POLICIES
    ):
        dtype = output.dtype if output.is_floating_point() else torch.float64
        output = torch.full(output.shape, float("nan"), dtype=dtype)
    kept = {**outcome, "outputs": {**outcome["outputs"], "output": output}}
    others = outcome.get("alternatives", {})
    kept["alternatives"] = {
        name: _emptied(probe, other, missing) for name, other in others.items()
    }
    return kept


def read(path: Path) -> tuple[bytes, str]:
    """The content of a submission, or why it cannot be one."""
    if path.suffix.lower() not in SUFFIXES:
        return b"", "a notebook (.ipynb) or a .py file is required"
    if path.is_symlink() or not path.is_file():
        return b"", "it is no file, but a link or a folder"
    size = path.stat().st_size
    if size > LARGEST:
        most, came = LARGEST >> 20, size / (1 << 20)
        return b"", (
            f"a file may have {most} MB; this one has {came:.0f}: clear the outputs "
            "of the notebook and hand it in again"
        )
    try:
        return path.read_bytes(), ""
    except OSError as error:
        return b"", f"it cannot be read: {error.strerror}"


def digest(path: Path) -> str:
    """Tells contents apart; of a file that is too large, its size and time do."""
    content, problem = read(path)
    if problem and path.exists():
        status = path.stat()
        content = f"{status.st_size} {status.st_mtime_ns}".encode()
    return hashlib.sha256(content).hexdigest()


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

FLAGS = ("repeat_differs",)
LISTS = ("changed_inputs", "without_gradient", "missing")


class _Said:
    """What the messages of a reply say, whatever somebody put into them."""

    def __init__(self, reply: Reply):
        self.problem, self.notes, self.mentions, self.answers = reply.ending, [], [], {}
        for place, message in enumerate(reply.messages):
            if place == 0 and isinstance(message.get("unreadable"), str):
                self.problem = message["unreadable"]
            elif place == 0:
                self.mentions = _strings(message.get("mentions"))
            elif "notes" in message and not self.notes:
                self.notes = _strings(message["notes"])
            elif isinstance(message.get("question"), str):
                self.answers.setdefault(message["question"], message)

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
        if key in ("error", "code") and isinstance(value, str):
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
        elif key == "outputs" and isinstance(value, dict):
            kept[key] = {
                k: x for k, x in value.items()
                if k in ("output", "weights") and isinstance(x, Tensor)
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
