"""A run of a second, for all tests that need one."""

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mha_lib.model import Plan, Run, Settings, Sizes
from mha_lib.model.run import Team

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]

DRAWN = random.Random(0)
TEXT = " ".join(
    f"{name} saw a {thing} and {name} took the {thing} home."
    for name, thing in (
        (DRAWN.choice(["ada", "ben", "ines"]), DRAWN.choice(["bell", "coin", "kite"]))
        for _ in range(400)
    )
)
SIZES = Sizes(vocabulary=0, context=13, embed_dim=12, num_heads=3, num_layers=2)
SETTINGS = Settings(
    replace(SIZES, dropout=0.1), Plan(6, batch=5, warm_up=2), pairs=0, every=2
)


def run(
    folder: Path,
    settings: Settings = SETTINGS,
    stop_after: int | None = None,
    device: str = "cpu",
) -> Run:
    """To the end, or broken off after so many evaluations."""
    said = []

    def show(line):
        said.append(line)
        if len(said) == stop_after:
            raise KeyboardInterrupt

    folder.mkdir(exist_ok=True)
    made = Run(settings, TEXT, folder, Team(device=torch.device(device)))
    if stop_after:
        with pytest.raises(KeyboardInterrupt):
            made.go(show)
    else:
        made.go(show)
    return made
