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


def adamw(network: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """AdamW; tensors of one dimension decay only when the settings say so."""
    weights = [p for p in network.parameters() if p.requires_grad]
    plain = [p for p in weights if p.ndim < 2 and not settings.decay_all]
    groups = [
        {"params": [p for p in weights if p.ndim >= 2 or settings.decay_all], "weight_decay": settings.weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
    betas = (settings.beta1, settings.beta2)
    groups = [group for group in groups if group["params"]]
    return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=betas, eps=settings.epsilon)


def set_learning_rate(optimizer: torch.optim.Optimizer, settings: TrainSettings, step: int) -> float:
    """Give the optimizer the learning rate of a step, counted from 0, and return it."""
    rate = settings.learning_rate * factor(settings, step)
    for group in optimizer.param_groups:
        group["lr"] = rate
    return rate
