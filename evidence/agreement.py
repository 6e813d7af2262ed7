"""Every way to attend against every other one, in all that they compute."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor, nn

from evidence.distance import distance
from evidence.helpers import B, D, H, S, T, random_mask
from evidence.strategies import SUBJECTS, Case, Subject, small_tiles
from mha_lib import BatchedMHA, causal_mask, convert, padding_mask


@dataclass(frozen=True)
class Agreement:
    """Two ways to attend, and how far apart they are in one quantity."""

    mask: str
    crossed: bool
    ways: tuple[str, str]
    quantity: str
    numbers: int
    distance: float


SELF = Case(
    B=B, T=T, S=T, H=H, D=D, seed=1, dtype=torch.float64, size=1.0,
    memory="contiguous", mask=None,
)  # fmt: skip
CROSS = replace(SELF, S=S)


def masks(keys: int) -> dict[str, Tensor | None]:
    """Masks for T queries; but for the last one, every query sees a key."""
    lengths = torch.tensor([2, keys, 4])
    found = {
        "none": None,
        "causal": causal_mask(T, keys),
        "padding": padding_mask(lengths, keys),
        "random": random_mask(T, keys, seed=3),
        "random, one for each sequence": random_mask(B, T, keys, seed=4),
        "random, one for each head": random_mask(B, H, T, keys, seed=5),
    }
    for name, mask in found.items():
        if name.startswith("random"):
            mask[..., 0] = True
    return found | {"some queries see nothing": random_mask(B, T, keys, seed=6)}


def everything(subject: Subject, case: Case) -> dict[str, Tensor]:
    """Output, weights if there are any, and all gradients, each as one long row."""
    module = subject.build(case.plain)
    leaves = [x.clone().requires_grad_() for x in case.inputs]
    if case.S == case.T:  # self-attention: one tensor, three times
        leaves = leaves[:1]
    inputs = leaves if len(leaves) == 3 else leaves * 3
    output, weights = subject.call(module, *inputs, case.mask)
    (output * case.upstream[0]).sum().backward()
    found = {"output": [output], "weights": [] if weights is None else [weights]}
    found["gradients of the inputs"] = [x.grad for x in leaves]
    found["gradients of the parameters"] = parameter_gradients(module)
    return {
        name: torch.cat([x.detach().flatten() for x in tensors])
        for name, tensors in found.items()
        if tensors
    }


def parameter_gradients(module: nn.Module) -> Iterable[Tensor]:
    """Gradients of the parameters, arranged as in BatchedMHA (chapter 9)."""
    twin = copy.deepcopy(module)
    for holder, parameter in zip(twin.parameters(), module.parameters()):
        holder.data = parameter.grad
    return convert(getattr(twin, "plain", twin), BatchedMHA).state_dict().values()


def agreements() -> list[Agreement]:
    """Every pair of ways, with every mask that both can take, in every quantity."""
    found = []
    for case in (SELF, CROSS):
        for name, mask in masks(case.S).items():
            able = [s for s in SUBJECTS if s.fit(mask) is mask]
            with small_tiles():
                results = {
                    s.name: everything(s, replace(case, mask=mask)) for s in able
                }
            for ways in combinations(results, 2):
                one, other = (results[way] for way in ways)
                found += [
                    Agreement(
                        name,
                        case is CROSS,
                        ways,
                        quantity,
                        one[quantity].numel(),
                        distance(one[quantity], other[quantity]),
                    )
                    for quantity in one.keys() & other.keys()
                ]
    return found
