"""Nobody is timed who does not compute the same.

A difference is measured as the root of its mean square, divided by the root of the
mean square of the right numbers. Rounding each intermediate result to float32 (by
2⁻²⁴ of it) or bfloat16 (2⁻⁹) a few times in a row gives about 1e-6 or 1e-2. Of the
77 wrong layers behind the chapters' warnings the least wrong one is off by 0.28. The
tolerances lie in between.
"""

import torch
from torch import Tensor, nn

from benchmarks.contestants import Contestant, Floor
from benchmarks.workload import Workload

TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 5e-2}
ROWS = 64  # weights are compared for so many queries, spread over the sequence


class Refused(Exception):
    """A contestant that computes something else."""


class Reference:
    """What is right: the floor's output and gradients, the weights by the formula."""

    def __init__(self, workload: Workload, *, training: bool) -> None:
        self.workload, self.training = workload, training
        self.tolerance = TOLERANCE[workload.x.dtype]
        floor = Floor(workload)
        with torch.no_grad():
            self.output = floor(workload.x)[0]
            q, k, v = floor.split(workload.x)
            # (q kᵀ) v = q (kᵀ v), and the right side needs no map
            self.products = floor.merge(q @ (k.transpose(-2, -1) @ v))
            T = workload.size.T
            self.rows = torch.linspace(0, T - 1, min(T, ROWS)).long()
            self.weights = self._weights(q, k)
            by_formula = floor.merge((self.weights @ v.float()).to(v.dtype))
        self._compare("output", self.output[:, self.rows], by_formula)
        if training:
            _, _, *self.gradients = forward_and_gradients(floor, workload)

    def check(self, contestant: Contestant, layer: nn.Module) -> None:
        """Raise :class:`Refused` unless the layer computes what the floor computes."""
        if self.training:
            output, weights, *came = forward_and_gradients(layer, self.workload)
            for what, a, b in zip(("of x", "of the parameters"), came, self.gradients):
                self._compare(f"gradient {what}", a, b)
        else:
            with torch.no_grad():
                output, weights = layer(self.workload.x)
        right = self.output if contestant.softmax else self.products
        self._compare("output", output, right)
        self._check_weights(contestant.weights, weights)

    def _weights(self, q: Tensor, k: Tensor) -> Tensor:
        """(B, H, rows, T) in float32; of some rows, for the whole may not fit."""
        q, k = q[:, :, self.rows].float(), k.float()
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        if self.workload.causal:
            scores = scores.masked_fill(~self.workload.mask[self.rows], float("-inf"))
        return scores.softmax(-1)

    def _check_weights(self, announced: str, weights: Tensor | None) -> None:
        if announced and weights is None:
            raise Refused("announced weights, and returns none")
        if weights is not None:
            if not announced:
                raise Refused("announced no weights, and returns some")
            right = self.weights if announced == "per head" else self.weights.mean(1)
            self._compare("weights", weights[..., self.rows, :], right)

    def _compare(self, what: str, came: Tensor, right: Tensor) -> None:
        if came.shape != right.shape:
            raise Refused(
                f"{what}: shape {tuple(came.shape)}, not {tuple(right.shape)}"
            )
        error = distance(came, right)
        if not error <= self.tolerance:  # a NaN is refused, too
            raise Refused(
                f"{what}: off by {error:.1e}, more than {self.tolerance:.0e}, "
                "of what the floor computes"
            )


def distance(came: Tensor, right: Tensor) -> float:
    """Root mean square of the difference, as a part of that of ``right``."""
    came, right = came.detach().float(), right.detach().float()
    return float((came - right).norm() / right.norm())


def forward_and_gradients(layer: nn.Module, workload: Workload) -> tuple:
    """Output, weights, gradient of x, and the length of the parameters' gradients.

    All of these as one vector have the same length, however a layer cuts and turns
    its matrices.
    """
    x = workload.x.clone().requires_grad_()
    output, weights = layer(x)
    output.backward(workload.gradient)
    squares = [
        p.grad.float().square().sum() for p in layer.parameters() if p.grad is not None
    ]
    layer.zero_grad(set_to_none=True)
    return output, weights, x.grad, torch.stack(squares).sum().sqrt()
