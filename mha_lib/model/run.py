"""A training run in a folder: evaluated, logged, and resumed exactly where it was.

model.safetensors, sizes.json, tokenizer.json    the best model so far: `load_model`
log.jsonl                                        a line for each evaluation
tensorboard                                      the same for TensorBoard, if installed
checkpoint.safetensors                           what is needed to go on
in_use.lock                                      while ``train`` works in the folder
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, distributed, nn

from mha_lib.model.board import Board
from mha_lib.model.files import (
    check_shapes,
    put,
    read_tensors,
    write_tensors,
    write_whole,
)
from mha_lib.model.heads import entropy
from mha_lib.model.kept import save_model
from mha_lib.model.text import (
    BytePairs,
    Characters,
    load_tokenizer,
    seed_of,
    split_text,
    windows,
)
from mha_lib.model.training import Plan, make_optimizer, next_token_loss, train
from mha_lib.model.transformer import LanguageModel, Sizes

__all__ = ["ALONE", "Run", "Settings", "Team", "digest", "evaluate", "team"]

CHECKPOINT = "checkpoint.safetensors"
TOKENIZER = "tokenizer.json"
MOMENTS = ("exp_avg", "exp_avg_sq")  # what AdamW remembers of a parameter
LINE = {  # of the log
    "step": int,
    "loss": float | None,
    "validation": float,
    "a_character": float,
    "entropies": list,
}
SAID = {"text": "the text's digest"}  # of the settings whose name is not enough
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Settings:
    """What fixes the numbers of a run.

    Args:
        sizes: of the model; the vocabulary is the tokenizer's.
        plan: steps, learning rate, seed and so on.
        style: what the blocks are made of, a name of `ATTENTIONS`.
        pairs: how many tokens to learn for `BytePairs`; 0 means `Characters`.
        every: evaluate, log and keep a checkpoint after so many steps.
        precision: float32, or bfloat16 for the products (autocast).
        text: the `digest` of the text.

    Raises:
        ValueError: a number that is too small, or an unknown precision.
    """

    sizes: Sizes
    plan: Plan
    style: str = "fused"
    pairs: int = 512
    every: int = 100
    precision: str = "float32"
    text: str = ""

    def __post_init__(self) -> None:
        given = self.flat()
        shapes = ("context", "embed_dim", "num_heads", "num_layers")
        for name in ("steps", "batch", "every", *shapes):
            if given[name] < 1:
                raise ValueError(f"{name} must be at least 1; got {given[name]}")
        for name in ("seed", "pairs", "warm_up", "peak", "weight_decay"):
            if not 0 <= given[name] < 1 << 31:
                raise ValueError(
                    f"{name} must be a number from 0 to {(1 << 31) - 1}; "
                    f"got {given[name]}"
                )
        if self.precision not in PRECISIONS:
            raise ValueError(
                f"precision must be one of {', '.join(PRECISIONS)}; "
                f"got {self.precision!r}"
            )

    def flat(self) -> dict:
        """All settings by name."""
        own = {k: v for k, v in asdict(self).items() if k not in ("sizes", "plan")}
        return {**asdict(self.sizes), **asdict(self.plan), **own}


def digest(text: str) -> str:
    """What tells one text from another: the beginning of its SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- several processes ----------------------------------------------------------------


@dataclass(frozen=True)
class Team:
    """The processes of a run: which one this is, of how many, and its device.

    One that ``torchrun`` started alone is joined with itself: one GPU is enough to see
    that the way to several works.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")
    joined: bool = False

    def share(self, batch: Tensor) -> Tensor:
        """The rows of a batch that this process works on."""
        return batch[self.rank :: self.size].to(self.device)

    def mean(self, number: float) -> float:
        """Over all processes."""
        if not self.joined:
            return number
        total = torch.tensor(number, device=self.device, dtype=torch.float64)
        distributed.all_reduce(total)
        return total.item() / self.size


ALONE = Team()


@contextmanager
def team(device: str) -> Iterator[Team]:
    """The processes that ``torchrun`` started; without it, this one alone.

    Raises:
        ValueError: a device that torch does not know or that is not here.
    """
    torchrun = "LOCAL_RANK" in os.environ
    if torchrun and device == "cuda":
        device = f"cuda:{os.environ['LOCAL_RANK']}"  # one for each process
    try:
        torch.zeros(1, device=device).item()  # "meta" makes it and has no number
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ValueError(f"the device {device!r} cannot be used: {reason}") from None
    if not torchrun:
        yield Team(device=torch.device(device))
        return
    if "cuda" in device:
        torch.cuda.set_device(device)
    distributed.init_process_group("nccl" if "cuda" in device else "gloo")
    try:
        rank, size = distributed.get_rank(), distributed.get_world_size()
        yield Team(rank, size, torch.device(device), joined=True)
    finally:
        distributed.destroy_process_group()


# --- what is measured -----------------------------------------------------------------


@torch.no_grad()
def evaluate(
    model: LanguageModel, tokens: Tensor, most: int = 128
) -> tuple[float, Tensor]:
    """The loss on a text, and how evenly each head looks around.

    Args:
        model: in either mode; dropout is off for the time of the call.
        tokens: (N,), on any device, cut into pieces of the model's context that do
            not overlap.
        most: of more pieces, this many are read, evenly spread.

    Returns:
        The mean of −ln p(next token), and the mean entropy −Σ_s a_ts ln a_ts of the
        rows of each head's weights, (L, H), in nats: 0 where a head looks at one
        token, the mean of ln(t + 1) where it looks at all of them alike.

    Raises:
        ValueError: fewer than two tokens.
    """
    if len(tokens) < 2:
        raise ValueError(f"validation needs at least 2 tokens; got {len(tokens)}")
    T = min(model.sizes.context, len(tokens) - 1)
    pieces = torch.arange(0, len(tokens) - T, T)
    if len(pieces) > most:
        pieces = pieces[torch.linspace(0, len(pieces) - 1, most).long()]
    places = (pieces[:, None] + torch.arange(T + 1)).to(tokens.device)
    batches = tokens[places].to(next(model.parameters()).device).split(32)
    losses, entropies, was_training = 0.0, 0.0, model.training
    model.eval()
    for batch in batches:
        logits, weights = model.maps(batch[:, :-1])
        share = len(batch) / len(pieces)
        losses += share * next_token_loss(logits, batch).item()
        entropies += share * entropy(weights)
    model.train(was_training)
    return losses, entropies


# --- the run --------------------------------------------------------------------------


class Run:
    """A training run: begun anew, or where the folder's checkpoint was written.

    What a step draws, dropout included, depends on the seed and the step alone, so a
    run that was killed and goes on gives the numbers of one that was not.

    Args:
        settings: of the run; those of a checkpoint must be the same.
        text: what is learned from; its last tenth is kept for validation.
        folder: made if need be.
        team: the processes that share each batch.

    Raises:
        ValueError: the folder holds a run with other settings, or files that are
            damaged; the settings do not fit together or not to the text.
    """

    def __init__(
        self, settings: Settings, text: str, folder: Path, team: Team = ALONE
    ) -> None:
        self.settings, self.folder, self.team = settings, folder, team
        plan = settings.plan
        if plan.batch % team.size:
            raise ValueError(
                f"batch must be a multiple of the {team.size} processes; "
                f"got {plan.batch}"
            )
        self.path = folder / CHECKPOINT
        self.step, self.best, self.log = 0, math.inf, []
        self.board: Board | None = None  # made at the first evaluation
        learned, validation = split_text(text)
        tensors = self._checkpoint() if self.path.exists() else None
        if tensors is None and (folder / "model.safetensors").exists():
            raise ValueError(
                f"{folder} holds a model, and no {CHECKPOINT} of a run to go on with: "
                "give another folder, so that the model is not lost"
            )
        if tensors is None:
            self.tokenizer = tokenizer_for(learned, settings.pairs)
        else:
            self.tokenizer = load_tokenizer(folder / TOKENIZER)
            if self._tokens() != self._began_with:
                raise ValueError(f"{folder / TOKENIZER} is not that of the run")
        self.validation = self._numbers(validation)
        self.characters = len(validation) / len(self.validation)  # a token, on average
        context = settings.sizes.context
        learned = self._numbers(learned)
        self._windows = windows(learned, plan.batch, context, plan.seed)

        torch.manual_seed(plan.seed)
        sizes = replace(settings.sizes, vocabulary=self.tokenizer.size)
        self.model = LanguageModel(sizes, settings.style).to(team.device)
        self.optimizer = make_optimizer(self.model, plan)
        if tensors is not None:
            self._put(tensors)
        if team.joined:
            distributed.barrier()  # all have read before the first one writes

    def go(self, show: Callable[[str], None] = print) -> None:
        """Train to the end; ``show`` gets a line for each evaluation."""
        from tqdm import tqdm

        plan, every = self.settings.plan, self.settings.every
        if self.step == plan.steps and self.team.rank == 0:
            show(f"all {plan.steps} steps are done; for more, give another folder")
        if not self.log:
            if self.team.rank == 0:
                self.tokenizer.save(self.folder / TOKENIZER)
                self._keep()  # before the model: what is there without it is another's
            self._evaluated(None, show)
        with tqdm(
            total=plan.steps,
            initial=self.step,
            unit="step",
            disable=self.team.rank > 0 or not sys.stderr.isatty(),
        ) as bar:
            losses = []
            for step, loss in self._steps():
                if not math.isfinite(loss):
                    raise ValueError(
                        f"the loss is {loss} at step {step}: begin again, elsewhere, "
                        f"with a peak below {plan.peak:g}"
                    )
                losses.append(loss)
                self.step = step + 1
                bar.update()
                if self.step % every == 0 or self.step == plan.steps:
                    self._evaluated(self.team.mean(sum(losses) / len(losses)), show)
                    losses.clear()

    def _steps(self) -> Iterator[tuple[int, float]]:
        model, plan = self.model, self.settings.plan
        if self.team.joined:
            model = nn.parallel.DistributedDataParallel(model)
        options = {"first": self.step, "optimizer": self.optimizer}
        bfloat16 = self.settings.precision == "bfloat16"
        return train(model, self._batch_at, plan, bfloat16=bfloat16, **options)

    def _batch_at(self, step: int) -> Tensor:
        batch = self._windows(step)
        drawn = step * self.team.size + self.team.rank  # for dropout: another each time
        torch.manual_seed(seed_of(self.settings.plan.seed, drawn))
        return self.team.share(batch)

    def _tokens(self) -> str:
        return digest(json.dumps(self.tokenizer.tokens))

    def _numbers(self, text: str) -> Tensor:
        return torch.tensor(self.tokenizer.encode(text))

    # --- what is written --------------------------------------------------------------

    def _evaluated(self, loss: float | None, show: Callable[[str], None]) -> None:
        """Measure; write the log, a checkpoint, and the model if it is the best."""
        if self.team.rank > 0:
            return
        validation, entropies = evaluate(self.model, self.validation)
        a_character = validation / self.characters
        line = {"step": self.step, "loss": loss, "validation": validation}
        line |= {"a_character": a_character, "entropies": entropies.tolist()}
        if self.board is None:
            self.board = Board(self.folder, self.log)
        self.log.append(line)
        if validation < self.best:
            self.best = validation
            save_model(self.model, self.tokenizer, self.folder)
        lines = "".join(f"{json.dumps(rounded(line))}\n" for line in self.log)
        write_whole(self.folder / "log.jsonl", lines.encode())
        self.board.add(line)
        self._keep()
        before = "" if loss is None else f"loss {loss:.3f}, "
        show(
            f"step {self.step}: {before}validation {validation:.3f} "
            f"({a_character:.3f} a character)"
        )

    def _fixed(self) -> dict:
        """What must not change on the way; each process draws a dropout of its own."""
        return {**self.settings.flat(), "processes": self.team.size}

    def _keep(self) -> None:
        tensors = {}
        for name, parameter in self.model.named_parameters():
            tensors[f"parameter.{name}"] = parameter.detach()
            state = self.optimizer.state.get(parameter, {})
            for moment in MOMENTS:
                zeros = torch.zeros_like(parameter)
                tensors[f"{moment}.{name}"] = state.get(moment, zeros).detach()
        words = {"settings": self._fixed(), "step": self.step}
        words |= {"log": self.log, "tokenizer": self._tokens()}
        write_tensors(self.path, tensors, words)

    # --- what is read -----------------------------------------------------------------

    def _checkpoint(self) -> dict[str, Tensor]:
        """The checkpoint's tensors; its words are checked and taken over."""
        tensors, words = read_tensors(self.path)
        mine, theirs = self._fixed(), words.get("settings")
        if not isinstance(theirs, dict) or mine.keys() != theirs.keys():
            raise ValueError(f"{self.path} was not written by this program")
        if changed := [name for name in mine if mine[name] != theirs[name]]:
            differences = "; ".join(
                f"{SAID.get(name, name)} was {theirs[name]!r} and is now {mine[name]!r}"
                for name in changed
            )
            raise ValueError(
                f"{self.folder} holds a run with other settings: {differences}. Give "
                f"the same to go on, or another folder to begin anew"
            )
        self.step, self.log = words.get("step"), words.get("log")
        self._began_with = words.get("tokenizer")
        if (
            type(self.step) is not int
            or not 0 <= self.step <= self.settings.plan.steps
            or not isinstance(self.log, list)
            or not all(is_line(line) for line in self.log)
        ):
            raise ValueError(f"{self.path} was not written by this program")
        found = (line["validation"] for line in self.log)
        self.best = min(filter(math.isfinite, found), default=math.inf)
        return tensors

    def _put(self, tensors: dict[str, Tensor]) -> None:
        """Parameters and moments, each of the shape that it must have."""
        parts = {kind: {} for kind in ("parameter", *MOMENTS)}
        for name, tensor in tensors.items():
            kind, _, rest = name.partition(".")
            parts.get(kind, parts["parameter"])[rest or name] = tensor
        for moment in MOMENTS:
            check_shapes(self.model, parts[moment], self.path)
        put(self.model, parts["parameter"], self.path)
        if self.step == 0:  # AdamW makes its own zeros, and counts from there
            return
        for name, parameter in self.model.named_parameters():
            moments = {x: parts[x][name].to(parameter) for x in MOMENTS}
            mean, square = moments.values()
            if not (mean.isfinite().all() and (square.sqrt() >= 0).all()):
                raise ValueError(f"{self.path}: moments of {name} cannot be AdamW's")
            step = torch.tensor(float(self.step))
            self.optimizer.state[parameter] = {"step": step, **moments}


def is_line(value: object) -> bool:
    """Whether it is a line of the log."""
    return (
        isinstance(value, dict)
        and value.keys() == LINE.keys()
        and all(isinstance(value[name], kind) for name, kind in LINE.items())
        and all(isinstance(layer, list) for layer in value["entropies"])
        and all(isinstance(x, float) for layer in value["entropies"] for x in layer)
    )


def rounded(value: object) -> object:
    """The same with five digits behind the point: a log is read by people."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 5) if isinstance(value, float) else value


def tokenizer_for(text: str, pairs: int) -> Characters | BytePairs:
    """That many byte pairs; at 0, characters."""
    return BytePairs.of(text, pairs) if pairs else Characters.of(text)
