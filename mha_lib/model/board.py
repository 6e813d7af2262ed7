"""A run's log for TensorBoard, where that is installed; without it, nothing."""

from pathlib import Path

__all__ = ["Board"]

FOLDER = "tensorboard"


class Board:
    """Scalars of each evaluation, in a folder of the run: ``tensorboard --logdir``.

    Args:
        folder: of the run.
        log: its lines so far. They are written again, and what an earlier process
            wrote is declared void: that one may have been killed before it kept a
            checkpoint, or TensorBoard may have been installed since.
    """

    def __init__(self, folder: Path, log: list[dict]) -> None:
        self._writer = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except (
            Exception
        ):  # a broken installation raises anything, and we can do without
            return
        self._writer = SummaryWriter(str(folder / FOLDER), purge_step=0)
        for line in log:
            self.add(line)

    def add(self, line: dict) -> None:
        """The losses of a line of the log, and every head's entropy."""
        if self._writer is None:
            return
        for name, number in scalars(line).items():
            self._writer.add_scalar(name, number, line["step"])
        self._writer.flush()


def scalars(line: dict) -> dict[str, float]:
    """The numbers of a line by the names that TensorBoard groups at the slash.

    Example:
        >>> line = {"step": 0, "loss": None, "validation": 2.5, "a_character": 1.25}
        >>> scalars({**line, "entropies": [[0.5, 0.75]]})["entropy/layer_0_head_1"]
        0.75
    """
    names = {"loss": "training", "validation": "validation"}
    names["a_character"] = "validation_a_character"
    found = {f"loss/{names[x]}": line[x] for x in names if line[x] is not None}
    for layer, heads in enumerate(line["entropies"]):
        for head, number in enumerate(heads):
            found[f"entropy/layer_{layer}_head_{head}"] = number
    return found
