"""What was seen: probes and outcomes, with the questions that are asked of them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from mha_lib.check.beside import (
    CHOSEN_DROPOUT,
    MAKES_LAYERS,
    NO_MASK,
    REMEMBERS,
    RESHAPED,
    RETURNED,
    UNFINISHED,
)
from mha_lib.check.catalogue import MASKS
from mha_lib.check.reference import Problem, compute, posed
from mha_lib.check.search import Case

__all__ = ["SPECIAL", "Loading", "Seen", "changed_inputs", "shape_fits"]

# Options of probes whose numbers name no mistake.
SPECIAL = {"grad", "dtype", "device", "train", "conduct"}


@dataclass(frozen=True)
class Loading:
    """One way in which the weights of a layer may lie.

    Attributes:
        name: of the alternative; "" for the first way.
        turned: whether W_o lies the other way round than the rest.
    """

    name: str = ""
    turned: bool = False

    def of(self, outcome: dict) -> dict:
        """What came out of it; nothing where the call failed."""
        if not self.name:
            return outcome
        return outcome.get("alternatives", {}).get(self.name, {})


def changed_inputs(pairs: list) -> dict[str, tuple]:
    """Which inputs a call changed: their shapes before and after, () if the same.

    Args:
        pairs: probes and outcomes. Where several inputs are one tensor, all of them
            change with one: those calls count only if no other tells.
    """
    apart = [o for p, o in pairs if "same" not in p["options"]]
    for outcomes in apart, [o for _, o in pairs]:
        names = sorted({n for o in outcomes for n in o.get("changed_inputs", ())})
        if names:
            notes = [n for o in outcomes for n in o.get("notes", ())]
            shapes = {
                n["name"]: (n["before"], n["after"])
                for n in reversed(notes)
                if n.get("code") == RESHAPED
            }
            return {name: shapes.get(name, ()) for name in names}
    return {}


class Seen:
    """Probes and outcomes, with the questions that are asked more than once."""

    def __init__(self, task: str, pairs: list, compared: list) -> None:
        self.task, self.compared = task, compared
        self.pairs = [(p, o) for p, o in pairs if "skipped" not in o]
        self.skipped = [(p, o) for p, o in pairs if "skipped" in o]
        answered = [o for _, o in compared if "outputs" in o]
        self.missing = answered[0].get("missing", [])
        self.unnamed = answered[0].get("unnamed", [])
        self.beside = answered[0].get("beside", [])
        self.fused = answered[0].get("fused", "")
        self.maps = ["weights" in o["outputs"] for o in answered]  # returned, or not
        self.notes = [n for _, o in compared for n in o.get("notes", ())]
        others = [n for _, o in pairs for n in o.get("notes", ())]
        self.chosen_dropout = any(n.get("code") == CHOSEN_DROPOUT for n in others)
        self.no_pair = next((n["got"] for n in others if n.get("code") == RETURNED), "")
        self.remembers = any(n.get("code") == REMEMBERS for n in self.notes)
        self.varies = any(o.get("repeat_differs") for o in answered) or self.remembers
        self.makes_layers = any(n.get("code") == MAKES_LAYERS for n in self.notes)
        self.takes_no_mask = any(o.get("code") == NO_MASK for _, o in compared)
        left = [n["line"] for n in self.notes if n.get("code") == UNFINISHED]
        self.dots = next(iter(left), "")  # where `...` stands
        self.changed = changed_inputs(self.pairs)
        self.numbers = False  # a mask that holds numbers
        self.additive = task in MASKS and any(map(_additive, answered))
        self.needless: dict = {}  # shapes, where a mask has axes of size 1 too many
        self._problems = self._turned = self._posed(False)
        self._cases: dict[Loading, list[Case]] = {}  # with what was computed for them
        self.dtypes = {o["outputs"]["output"].dtype for o in answered}
        self.dtype = _dtype(compared[0][0])
        alternatives = answered[0].get("alternatives", ())
        self.loadings = [Loading(name) for name in ("", *alternatives)]
        if "transposed" in alternatives:  # nothing says how a bare matrix is kept
            self.loadings += [Loading(x.name, True) for x in self.loadings]
            self._turned = self._posed(True)

    def loadings_of(self, tier: int) -> list[Loading]:
        """Those that are worth their time, the less the more is wrong."""
        if tier == 3:
            return self.loadings[:1]
        rare = tier * ["feature by feature", "heads last"]
        return [
            x
            for x in self.loadings
            if x.name not in rare and (tier < 2 or not x.turned)
        ]

    def cases(self, loading: Loading) -> list[Case]:
        """What each probe that compares numbers asked, and what it got."""
        if loading not in self._cases:
            self._cases[loading] = [
                self._case(probe, loading.of(outcome), problem)
                for (probe, outcome), problem in zip(
                    self.compared, self._turned if loading.turned else self._problems
                )
            ]
        return self._cases[loading]

    def _posed(self, turned: bool) -> list[Problem]:
        return [posed(probe, self.missing, turned) for probe, _ in self.compared]

    def _case(self, probe: dict, outcome: dict, problem: Problem) -> Case:
        output = outcome.get("outputs", {}).get("output")
        if output is not None and self.task in MASKS:
            output = self.boolean(output, compute(problem)["output"], problem.sizes)
        elif output is not None and self.dtype is not None:
            output = self.cast(output)
        weights = outcome.get("outputs", {}).get("weights")
        return Case(problem, output, probe["name"], weights)

    def cast(self, x: Tensor) -> Tensor:
        """What came, in the dtype of what went in; of complex numbers the real part."""
        return (x.real if x.is_complex() else x).to(self.dtype)

    def boolean(self, mask: Tensor, expected: Tensor, sizes: dict[str, int]) -> Tensor:
        """A mask of numbers as the boolean one it stands for; needless axes removed."""
        if mask.dtype != torch.bool:
            self.numbers = True
            mask = mask.real if mask.is_complex() else mask
            mask = mask == 0 if self.additive else mask != 0
        if mask.dim() > expected.dim() and mask.numel() == expected.numel():
            self.needless = {"required": expected.shape, "got": mask.shape}
            self.needless = {key: tuple(x) for key, x in self.needless.items()}
            self.needless["sizes"] = sizes
            return mask.reshape(expected.shape)
        return mask

    def probe(self, name: str) -> tuple[dict, dict] | None:
        """A probe and its outcome; None where there is none or it was skipped."""
        return next(((p, o) for p, o in self.pairs if p["name"] == name), None)


def _additive(outcome: dict) -> bool:
    """Whether a mask holds numbers below 0, which are to be added to scores."""
    mask = outcome["outputs"]["output"]
    mask = mask.real if mask.is_complex() else mask
    return mask.dtype != torch.bool and bool((mask < 0).any())


def _dtype(probe: dict) -> torch.dtype | None:
    tensors = [x for x in probe["inputs"].values() if isinstance(x, Tensor)]
    floating = [x.dtype for x in tensors if x.is_floating_point()]
    return floating[0] if floating else None


def shape_fits(case: Case) -> bool:
    """Whether what came has the right shape; nothing has any."""
    return (
        case.output is None
        or case.output.shape == compute(case.problem)["output"].shape
    )
