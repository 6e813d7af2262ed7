"""Every way to attend as a function of all inputs and parameters, to be measured."""

import torch
from torch import Tensor, nn

from evidence.strategies import Case, Subject

SMALL = Case(
    B=2, T=2, S=3, H=2, D=2, seed=1, dtype=torch.float64, size=1.0,
    memory="contiguous", mask=None,
)  # fmt: skip
EMPTY_ROW = torch.tensor([[True, False, True], [False, False, False]])


class Called(nn.Module):
    """A subject as a module, so that its parameters can be swapped for others."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject, self.module = subject, subject.build(SMALL.plain)

    def forward(self, *inputs: Tensor | None) -> tuple[Tensor, ...]:
        results = self.subject.call(self.module, *inputs)
        return tuple(x for x in results if x is not None)


def differentiable(subject: Subject, mask: Tensor | None):
    """A function of the three inputs and all parameters, and where to take it."""
    module = Called(subject)
    names, parameters = zip(*module.named_parameters())

    def run(query, key, value, *parameters):
        state = dict(zip(names, parameters))
        inputs = query, key, value, mask
        return torch.func.functional_call(module, state, inputs)

    tensors = (*SMALL.inputs, *parameters)
    return run, [x.detach().clone().requires_grad_() for x in tensors]
