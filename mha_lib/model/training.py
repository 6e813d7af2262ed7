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
    """How a model is trained.

    Args:
        steps: how many there are.
        batch: B, how many sequences a step learns from.
        peak: the largest learning rate.
        warm_up: steps on the way up to it.
        floor: the last learning rate, as a part of the peak.
        weight_decay: of the matrices.
        clip: the largest norm of all gradients together.
        seed: of all that is drawn.
    """

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
    bfloat16: bool = False,
) -> Iterator[tuple[int, float]]:
    """Train, one step for each item.

    Args:
        model: tokens (B, T) → logits (B, T, W).
        batch_at: gives the tokens (B, T + 1) of a step. It depends on the step alone,
            so a run that goes on at ``first`` sees what an unbroken one would.
        plan: steps, learning rates, clipping.
        first: the step to begin at.
        optimizer: of `make_optimizer`; None makes a new one.
        bfloat16: take the products in 16 bits (autocast); the weights stay as they
            are.

    Yields:
        (step, the loss before the step).

    Example:
        >>> from mha_lib.model import LanguageModel, Sizes
        >>> _ = torch.manual_seed(0)
        >>> model = LanguageModel(Sizes(vocabulary=5, context=4))
        >>> plan = Plan(30, warm_up=5)
        >>> always = torch.tensor([[1, 2, 3, 4, 0]]).expand(8, -1)
        >>> losses = [loss for _, loss in train(model, lambda step: always, plan)]
        >>> losses[0] > 1.5 > 0.1 > losses[-1]
        True

    Source:
        Loshchilov and Hutter (2019) for AdamW; the schedule is Loshchilov and
        Hutter's (2017) cosine after a warm-up as in Vaswani et al. (2017).
    """
    optimizer = make_optimizer(model, plan) if optimizer is None else optimizer
    model.train()
    for step in range(first, plan.steps):
        tokens = batch_at(step)
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=bfloat16):
            logits = model(tokens[:, :-1])
        loss = next_token_loss(logits.float() if bfloat16 else logits, tokens)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, plan)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
        optimizer.step()
        yield step, loss.item()
