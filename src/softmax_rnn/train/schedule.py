"""The learning rate as a function of the step.

    factor(s) = s / warmup                                    s < warmup
              = 1 − (s − warmup) / (end − warmup)             linear, to 0 at the end
              = (1 + cos(π (s − warmup) / (end − warmup)))/2  cosine

>>> settings = TrainSettings(steps=100, warmup_steps=10)
>>> [factor(settings, step) for step in (0, 5, 10, 55, 100)]
[0.0, 0.5, 1.0, 0.5, 0.0]
"""

from __future__ import annotations

import math

from softmax_rnn.train.settings import TrainSettings


def factor(settings: TrainSettings, step: int) -> float:
    """What the learning rate is multiplied with in step ``step``, counted from 0."""
    if step < settings.warmup_steps:
        return step / settings.warmup_steps
    length = settings.decay_end - settings.warmup_steps
    if settings.schedule == "constant":
        return 1.0
    done = min((step - settings.warmup_steps) / length, 1.0) if length > 0 else 1.0
    return 1.0 - done if settings.schedule == "linear" else (1.0 + math.cos(math.pi * done)) / 2
