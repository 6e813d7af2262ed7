"""The training loop: AdamW, warm-up and cosine, clipped gradients."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Plan", "learning_rate", "make_optimizer", "next_token_loss", "train"]


@dataclass(frozen=True)
class Plan:
    """How a model is trained: steps, learning rates, seed."""

    steps: int
    batch: int = 32
    peak: float = 3e-3
    warm_up: int = 100
    floor: float = 0.1
    weight_decay: float = 0.1
    clip: float = 1.0
    seed: int = 0


def next_token_loss(logits: Tensor, tokens: Tensor) -> Tensor:
    """−mean ln p(tokens_{t+1} | tokens_≤t): logits (B, T, W), tokens (B, T + 1)."""
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def learning_rate(step: int, plan: Plan) -> float:
    """A straight line up to the peak, then half a cosine down to floor · peak."""
    if step < plan.warm_up:
        return plan.peak * (step + 1) / plan.warm_up
    done = (step - plan.warm_up) / max(1, plan.steps - plan.warm_up)
    low = plan.floor * plan.peak
    return low + (plan.peak - low) * (1 + math.cos(math.pi * done)) / 2


def make_optimizer(model: nn.Module, plan: Plan) -> torch.optim.AdamW:
    """AdamW; matrices decay, biases and norms do not."""
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [
        {"params": matrices, "weight_decay": plan.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=plan.peak, betas=(0.9, 0.99))


def train(
    model: nn.Module,
    batch_at: Callable[[int], Tensor],
    plan: Plan,
    *,
    first: int = 0,
    optimizer: torch.optim.Optimizer | None = None,
) -> Iterator[tuple[int, float]]:
    """Train, one step for each item: yields (step, loss before the step).

    ``batch_at(step)`` gives the tokens (B, T + 1) of a step. It depends on the step
    alone, so a run that goes on at ``first`` sees what an unbroken one would.
    """
    optimizer = make_optimizer(model, plan) if optimizer is None else optimizer
    model.train()
    for step in range(first, plan.steps):
        tokens = batch_at(step)
        loss = next_token_loss(model(tokens[:, :-1]), tokens)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, plan)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
        optimizer.step()
        yield step, loss.item()
