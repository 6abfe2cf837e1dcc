"""AdamW, and the learning-rate schedule as a function of the step.

    factor(s) = s / warmup                                    s < warmup
              = 1 − (s − warmup) / (end − warmup)             linear, to 0 at the end
              = (1 + cos(π (s − warmup) / (end − warmup)))/2  cosine

>>> settings = TrainSettings(steps=100, warmup_steps=10)
>>> [factor(settings, step) for step in (0, 5, 10, 55, 100)]
[0.0, 0.5, 1.0, 0.5, 0.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import nn

from softmax_rnn.train.settings import TrainSettings


def factor(settings: TrainSettings, step: int) -> float:
    """What the learning rate is multiplied by in step ``step``, counted from 0."""
    if step < settings.warmup_steps:
        return step / settings.warmup_steps
    length = settings.decay_end - settings.warmup_steps
    if settings.schedule == "constant":
        return 1.0
    done = min((step - settings.warmup_steps) / length, 1.0) if length > 0 else 1.0
    return 1.0 - done if settings.schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2


def adamw(
    network: nn.Module, settings: TrainSettings, rate: Callable[[str], float] = lambda name: 1.0
) -> torch.optim.AdamW:
    """AdamW; tensors of one dimension decay only when the settings say so. ``rate`` multiplies the learning rate."""
    groups: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for name, weight in network.named_parameters():
        if weight.requires_grad:
            groups.setdefault((rate(name), weight.ndim >= 2 or settings.decay_all), []).append(weight)
    # A fixed order, whatever comes first in the network.
    ordered = sorted(groups.items(), key=lambda one: (one[0][0], not one[0][1]))
    values = [
        {"params": weights, "weight_decay": settings.weight_decay if decays else 0.0, "rate": multiple}
        for (multiple, decays), weights in ordered
    ]
    betas = (settings.beta1, settings.beta2)
    return torch.optim.AdamW(values, lr=settings.learning_rate, betas=betas, eps=settings.epsilon)


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrainSettings, step: int) -> float:
    """Give the optimizer the learning rate of a step, counted from 0, and return it."""
    rate = settings.learning_rate * factor(settings, step)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate"]
    return rate
