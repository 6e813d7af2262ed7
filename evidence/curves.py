"""What a training loss shows of each mistake: a small language model for every one.

    python -m evidence.curves

trains them one after the other (a quarter of an hour on one core) and writes what
`mha_lib.widgets.BreakIt` draws, `mha_lib/widgets/break_it_curves.json`, with the sizes
and versions of the run in it. The layer and the masks are those of the catalogue's
reference, so a mistake is in the training what it is for `check`.

The text is the one of `mha_lib.model`, the Python manual, in characters. All runs see
the same batches from the same first weights; the right layer runs from others too,
which tells how far two losses may lie apart by chance.
"""

import json
import time
from dataclasses import asdict, dataclass
from importlib.resources import files

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_lib.model.text import Characters, read_text, windows
from mha_lib.widgets.break_it_catalogue import HOSTED, layer_with, mask_with

PATH = files("mha_lib.widgets") / "break_it_curves.json"


@dataclass(frozen=True)
class Run:
    """Sizes that all differ, and how long it is trained."""

    B: int = 12
    T: int = 20
    E: int = 32
    H: int = 4
    layers: int = 2
    shortest: int = 8  # sequences have from 8 to T characters, the rest is padding
    steps: int = 400
    every: int = 10  # steps whose mean is one point of a curve
    rate: float = 4e-3
    seeds: int = 3  # of the right layer's first weights

    @property
    def sizes(self) -> dict[str, int]:
        return {
            "B": self.B,
            "T": self.T,
            "S": self.T,
            "E": self.E,
            "H": self.H,
            "D": self.E // self.H,
        }


class Attention(nn.Module):
    def __init__(self, run: Run, name: str) -> None:
        super().__init__()
        self.name = name
        self.linear = nn.ModuleDict({r: nn.Linear(run.E, run.E) for r in "qkvo"})

    def forward(self, x: Tensor, mask: Tensor, sizes: dict[str, int]) -> Tensor:
        W = {f"W_{role}": one.weight for role, one in self.linear.items()}
        W |= {f"b_{role}": one.bias for role, one in self.linear.items()}
        return layer_with(self.name, sizes, (x, x, x), W, mask)["output"]


class Model(nn.Module):
    """Characters (B, T) -> logits (B, T, W); blocks with the norm before each part."""

    def __init__(self, run: Run, vocabulary: int, name: str) -> None:
        super().__init__()
        E = run.E
        self.run, self.name = run, name
        self.token, self.place = nn.Embedding(vocabulary, E), nn.Embedding(run.T, E)
        self.attentions = nn.ModuleList(Attention(run, name) for _ in range(run.layers))
        self.forwards = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(E), nn.Linear(E, 2 * E), nn.GELU(), nn.Linear(2 * E, E)
            )
            for _ in range(run.layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(E) for _ in range(run.layers))
        self.read = nn.Sequential(nn.LayerNorm(E), nn.Linear(E, vocabulary))

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        mask = mask_with(self.name, self.run.sizes, lengths)
        x = self.token(tokens) + self.place(torch.arange(tokens.shape[1]))
        for norm, attend, forward in zip(self.norms, self.attentions, self.forwards):
            x = x + attend(norm(x), mask, self.run.sizes)
            x = x + forward(x)
        return self.read(x)


def curve(run: Run, name: str, seed: int = 0) -> list[float | None]:
    """The training loss, nats a character, a mean for each `every` steps.

    None stands where it is no number; from there on nothing can change it.
    """
    text = read_text()
    characters = Characters.of(text)
    batch_at = windows(torch.tensor(characters.encode(text)), run.B, run.T)
    torch.manual_seed(seed)
    model = Model(run, characters.size, name)
    adam = torch.optim.Adam(model.parameters(), lr=run.rate)
    found, points = [], []
    for step in range(run.steps):
        tokens = batch_at(step)
        generator = torch.Generator().manual_seed(step)
        lengths = torch.randint(run.shortest, run.T + 1, (run.B,), generator=generator)
        real = torch.arange(run.T) < lengths[:, None]
        logits = model(tokens[:, :-1].masked_fill(~real, 0), lengths)
        loss = F.cross_entropy(logits[real], tokens[:, 1:][real])
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        found.append(loss.item())
        if len(found) == run.every:
            mean = sum(found) / run.every
            points.append(round(mean, 3) if mean == mean else None)
            found = []
            if points[-1] is None:
                return points
    return points


def main() -> None:
    torch.set_num_threads(1)
    run, start = Run(), time.perf_counter()
    right = [curve(run, "", seed) for seed in range(run.seeds)]
    print(f"right {[x[-1] for x in right]}")
    curves = {}
    for name in HOSTED:
        curves[name] = curve(run, name)
        print(f"{name:32} {curves[name][-1]}", flush=True)
    log = {
        "run": asdict(run),
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - start),
    }
    rows = [f'"log": {json.dumps(log)}', f'"right": {json.dumps(right)}']
    each = ",\n".join(f'  "{name}": {json.dumps(x)}' for name, x in curves.items())
    rows.append(f'"curves": {{\n{each}\n}}')
    PATH.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
