"""The right answer in float64, in stages that can be replaced one by one.

The stages of a whole layer, in the order of the computation; ``attention`` has those
from scores to mix::

    inputs    which tensor goes where        fill      hide what the mask hides
    project   the matrices of q, k, v        softmax   scores -> weights
    bias      their biases, a ReLU           mix       weights, v -> context
    split     into heads                     merge     the heads
    scores    q kᵀ                           out       the output projection
    scale     before and after the softmax
    mask      as it is read; or causal, padding and combine, which make it
    polarity  of the mask

A `Stage` is a function with a name of the mistake that it makes; the default stages
make none. A route says which stages are not the default ones. All stages work on the
last axes and let more axes stand in front, so that a search can try many at once.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_lib.check.beside import LAYERS
from mha_lib.check.tasks import TASKS

__all__ = ["POLICIES", "Problem", "Route", "Stage", "Undefined", "compute", "posed"]

POLICIES = ("nan", "zeros", "uniform", "unmasked")  # what an empty row of the map is


class Undefined(Exception):
    """A mistake has no answer here: its code would do anything."""


@dataclass(frozen=True, eq=False)
class Stage:
    """One way to do one step.

    Attributes:
        stage: which step.
        names: the mistakes that it makes; empty for the right way.
        do: the function.
        undo: how what follows finds its axes again, where the step leaves them
            in another order.
    """

    stage: str
    names: tuple[str, ...]
    do: Callable
    undo: Callable[[Tensor], Tensor] | None = None


Route = tuple[Stage, ...]


@dataclass
class Problem:
    """A probe in float64 and batch first, with what every stage may look at."""

    call: str
    sizes: dict[str, int]
    x: dict[str, object]
    W: dict[str, Tensor] = field(default_factory=dict)
    policy: str = "nan"
    answers: dict = field(default_factory=dict)  # the right ones, for each policy
    latest: dict = field(default_factory=dict)  # that of the last wrong route
    fronts: dict = field(default_factory=dict)  # what `front` made of each prefix
    tails: dict = field(default_factory=dict)  # and the search, of what comes last

    @classmethod
    def of(cls, probe: dict, missing: Iterable[str] = (), dtype=torch.float64):
        """The problem that a probe poses to a layer without some of its biases."""

        def cast(x):
            floating = isinstance(x, Tensor) and x.is_floating_point()
            return x.to(dtype) if floating else x

        x = {name: cast(value) for name, value in probe["inputs"].items()}
        if probe["call"] == "mha_sequence_first":
            for name in x:
                x[name] = x[name].permute((2, 0, 1) if name == "mask" else (1, 0, 2))
        if probe["call"] == "split_concat":
            x |= {"query": x["queries"], "key": x["keys"], "value": x["keys"]}
        W = {name: cast(value) for name, value in (probe["weights"] or {}).items()}
        W |= {name: torch.zeros_like(W[name]) for name in missing}
        return cls(probe["call"], probe["sizes"], x, W)

    def turned(self) -> "Problem":
        """The same where W_o lies the other way round."""
        W = self.W | {"W_o": self.W["W_o"].mT}
        return Problem(self.call, self.sizes, self.x, W)

    @property
    def masked(self) -> bool:
        """Whether anything is hidden."""
        hides = self.call == "split_concat" and (
            self.x.get("causality") or not (self.x["keys"] != 0).any(-1).all()
        )
        return bool(hides or "mask" in self.x)

    def __getattr__(self, name: str):
        if name in ("B", "T", "S", "H", "D", "E"):
            return self.sizes[name]
        raise AttributeError(name)


class Posed:
    """Problems of probes: what is right is computed once for all submissions.

    A grader asks the same probes of a whole class. What a search makes of a problem is
    kept with one submission alone, as it grows with every prefix.
    """

    def __init__(self, most: int) -> None:
        self.most, self.known = most, {}

    def __call__(
        self,
        probe: dict,
        missing: Iterable[str] = (),
        turned: bool = False,
        prepared: Callable[[dict], dict] | None = None,
    ) -> Problem:
        """The problem of a probe, which nobody may change from now on.

        Args:
            probe: as it was sent.
            missing: biases that the layer has not.
            turned: whether W_o lies the other way round.
            prepared: what is done to the probe first.
        """
        kept = self.known.get(id(probe))
        if kept is None or kept[0] is not probe:  # an id is used again
            kept = self.known[id(probe)] = (probe, {})
            while len(self.known) > self.most:
                del self.known[next(iter(self.known))]
        problems, key = kept[1], (*sorted(missing), turned, prepared)
        if key not in problems:
            found = Problem.of(prepared(probe) if prepared else probe, missing)
            problems[key] = found.turned() if turned else found
        return replace(problems[key], policy="nan", latest={}, fronts={}, tails={})


posed = Posed(512)  # probes; a dozen questions have no more


# --- the right stages ---------------------------------------------------------------


Layer = tuple[Tensor | None, Tensor]  # a matrix, or None for none, and a bias


def project(p: Problem) -> list[Layer]:
    return [(p.W[f"W_{role}"], p.W[f"b_{role}"]) for role in "qkv"]


def add_bias(p: Problem, projected: list[Tensor], biases: list[Tensor]) -> list[Tensor]:
    found = [x + b for x, b in zip(projected, biases)]
    return [x.relu() for x in found] if p.call == "split_concat" else found


def split(p: Problem, x: Tensor) -> Tensor:
    return x.unflatten(-1, (p.H, p.D)).transpose(-3, -2)


def read_mask(p: Problem) -> Tensor | None:
    if p.call == "attention":
        return p.x.get("mask")
    return p.x["mask"][:, None] if "mask" in p.x else None


def ones(T: int, S: int) -> Tensor:
    return torch.ones(T, S, dtype=torch.bool)


def real_keys(p: Problem) -> Tensor:
    """(B, S): which keys are no padding."""
    if p.call == "padding_mask":
        return torch.arange(p.S) < p.x["lengths"][:, None]
    return (p.x["keys"] != 0).any(-1)


def fill(scores: Tensor, allowed: Tensor, policy: str) -> Tensor:
    if policy == "uniform":
        return scores.masked_fill(~allowed, -1e9)
    if policy == "unmasked":
        allowed = allowed | ~allowed.any(-1, keepdim=True)
    return scores.masked_fill(~allowed, -math.inf)


def over_keys(do: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor], Tensor]:
    """Over the last axis; the short rows of many maps take less time side by side."""
    return lambda scores: do(scores.movedim(-1, 0), 0).movedim(0, -1)


def merge(context: Tensor) -> Tensor:
    return merge_plain(context.transpose(-3, -2))


def merge_plain(context: Tensor) -> Tensor:
    """(…, H, T, D) read as (…, T, E) without a transpose."""
    return context.flatten(-2).flatten(-2)  # cut again by the output's shape


def project_out(p: Problem, merged: Tensor, query: Tensor) -> Tensor:
    return F.linear(merged, p.W["W_o"], p.W["b_o"])


DEFAULT: dict[str, Stage] = {
    stage: Stage(stage, (), do)
    for stage, do in {
        "inputs": lambda p: (p.x["query"], p.x["key"], p.x["value"]),
        "project": project,
        "bias": add_bias,
        "split": split,
        "scores": lambda p, q, k: q @ k.mT,
        "scale": lambda p, width: (width**-0.5, 1.0),
        "mask": read_mask,
        "causal": lambda p: ones(p.T, p.S).tril(),
        "padding": lambda p: real_keys(p)[:, None, None],  # (B, 1, 1, S)
        "combine": lambda causal, padding: causal & padding,
        "polarity": lambda mask: mask,
        "fill": (fill, lambda weights, allowed: weights),
        "softmax": over_keys(torch.softmax),
        "mix": lambda weights, v: weights @ v,
        "merge": merge,
        "out": project_out,
        "layout": lambda output: output.transpose(0, 1),  # to sequence first
    }.items()
}


# --- the computation ----------------------------------------------------------------


def chosen(route: Route) -> dict[str, Stage]:
    return DEFAULT | {stage.stage: stage for stage in route}


def front(p: Problem, route: Route) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """q, k, v as (B, H, T or S, D), and the query that the output belongs to."""
    if p.call == "attention":
        return p.x["q"], p.x["k"], p.x["v"], None
    do = chosen(route)
    key = tuple(do[stage] for stage in ("inputs", "project", "bias", "split"))
    if key in p.fronts:
        return p.fronts[key]
    inputs = do["inputs"].do(p)
    matrices, biases = zip(*do["project"].do(p))
    projected = [x if W is None else x @ W.mT for x, W in zip(inputs, matrices)]
    q, k, v = (do["split"].do(p, x) for x in do["bias"].do(p, projected, biases))
    p.fronts[key] = q, k, v, inputs[0]
    return p.fronts[key]


def mask_of(p: Problem, route: Route) -> Tensor | None:
    do = chosen(route)
    if p.call != "split_concat":
        return do["polarity"].do(do["mask"].do(p)) if "mask" in p.x else None
    padding = do["padding"].do(p).expand(p.B, -1, p.T, p.S)
    if not p.x.get("causality"):
        return do["polarity"].do(padding)
    causal = do["causal"].do(p).expand_as(padding)
    return do["polarity"].do(do["combine"].do(causal, padding))


def maps(
    p: Problem, q: Tensor, k: Tensor, route: Route, allowed: Tensor | None = None
) -> Tensor:
    """The weights (B, H, T, S)."""
    do = chosen(route)
    scores = do["scores"].do(p, q, k)
    before, after = do["scale"].do(p, q.shape[-1])
    scores = scores * before
    if allowed is not None:
        if any(m not in (1, n) for m, n in zip(allowed.shape, scores.shape)):
            raise Undefined("the mask does not fit")
        scores = do["fill"].do[0](scores, allowed, p.policy)
    weights = do["softmax"].do(scores) * after
    if allowed is not None:
        weights = do["fill"].do[1](weights, allowed)
    if p.policy == "zeros":
        weights = weights.nan_to_num(0.0)
    return weights


def context_of(p: Problem, weights: Tensor, v: Tensor, route: Route) -> Tensor:
    do = chosen(route)
    context = do["mix"].do(weights, v)
    undo = do["split"].undo
    return context if undo is None else undo(context)


def back(p: Problem, context: Tensor, query: Tensor, route: Route) -> Tensor:
    """The output (…, B, T, E)."""
    do = chosen(route)
    merged = do["merge"].do(context).reshape(*context.shape[:-4], *query.shape[:2], -1)
    if merged.shape[-1] < p.E:  # heads that were averaged: as wide again
        merged = torch.cat([merged] * p.H, -1)
    output = do["out"].do(p, merged, query)
    undo = do["inputs"].undo
    return output if undo is None else undo(output)


def part_of(p: Problem, route: Route) -> Tensor:
    """The answer of a task that is one stage, or a few.

    Raises:
        ValueError: nobody has said how to compute this task.
    """
    do = chosen(route)
    if p.call == "split_heads":
        return do["split"].do(p, p.x["x"])
    if p.call == "merge_heads":
        return do["merge"].do(p.x["x"]).reshape(p.B, p.T, -1)
    if p.call == "causal_mask":
        return do["polarity"].do(do["causal"].do(p))
    if p.call == "padding_mask":
        return do["polarity"].do(do["padding"].do(p).squeeze(1))
    if p.call == "combine_masks":
        causal, padding = p.x["causal"].expand(p.B, -1, -1), p.x["padding"]
        return do["polarity"].do(do["combine"].do(causal, padding.expand_as(causal)))
    raise ValueError(f"call must be one of {', '.join(TASKS)}; got {p.call!r}")


def compute(
    p: Problem, route: Route = (), policy: str = "nan"
) -> dict[str, Tensor] | None:
    """Output and weights; empty where the code fails, None where it may do anything."""
    if not route:
        kept, key = p.answers, policy  # asked for many times
    else:
        kept, key = p.latest, (route, policy)  # what was found is looked at again
    if key not in kept:
        p.latest.clear()
        kept[key] = _computed(p, route, policy)
    return kept[key]


def _computed(p: Problem, route: Route, policy: str) -> dict[str, Tensor] | None:
    p.policy = policy
    try:
        if p.call not in ("attention", *LAYERS):
            return {"output": part_of(p, route)}
        q, k, v, query = front(p, route)
        weights = maps(p, q, k, route, mask_of(p, route))
        context = context_of(p, weights, v, route)
        if p.call == "attention":
            return {"output": context, "weights": weights}
        output = back(p, context, query, route)
    except Undefined:
        return None
    except (RuntimeError, IndexError):  # shapes that do not fit
        return {}
    if p.call == "mha_sequence_first":
        output = chosen(route)["layout"].do(output)
    return {"output": output, "weights": weights}
