"""What a mistake is, and what several modules of the catalogue name."""

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from mha_lib.check.reference import LAYERS

MASKS = ("causal_mask", "padding_mask", "combine_masks")
WEIGHTED = ("attention", *LAYERS)
TORCH_LAYERS = ("mha", "mha_sequence_first")
GIVEN = ("attention", *TORCH_LAYERS)  # tasks that are given a mask

LEFT_OUT = "deeper/05_faults_that_no_shape_shows#a-bias-left-out"
WRONG_MASK = "04_masks#what-goes-wrong"
IS_TRUE_TRUE = "04_masks#is-true-true"


@dataclass(frozen=True)
class Mistake:
    """One mistake that people make.

    Attributes:
        name: stable, for tools.
        symptom: what is seen.
        cause: what the code does.
        section: page and anchor in the book.
        source: where it happened in public, as repository#number, or "".
        stages: the stages that it replaces; each of them alone is this mistake.
        tasks: where it can happen.
        undo: see `Stage`.
        elsewhere: symptom and cause for a task that has other axes, or other words.
    """

    name: str
    symptom: str
    cause: str
    section: str
    source: str = ""
    stages: dict[str, Callable] = field(default_factory=dict)
    tasks: tuple[str, ...] = WEIGHTED
    undo: Callable[[Tensor], Tensor] | None = None
    elsewhere: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def message(self) -> str:
        """Symptom and cause in one sentence."""
        return self.message_in("")

    def message_in(self, task: str) -> str:
        """The same for a task."""
        return ": ".join(self.elsewhere.get(task, (self.symptom, self.cause))) + "."
