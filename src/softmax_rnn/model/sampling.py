"""How the next token is chosen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from softmax_rnn.errors import InputError


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen: the likeliest at temperature 0, otherwise drawn."""

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise InputError(f"temperature: expected 0 (the likeliest token) or more, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"top_k: expected 1 or more, got {self.top_k}")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise InputError(f"top_p: expected a number above 0 and up to 1, got {self.top_p}")

    def warpers(self) -> LogitsProcessorList:
        """transformers' own steps from logits to the distribution that is drawn from."""
        found = LogitsProcessorList()
        if self.temperature:
            found.append(TemperatureLogitsWarper(float(self.temperature)))
        if self.top_k is not None:
            found.append(TopKLogitsWarper(self.top_k))
        if self.top_p is not None:
            found.append(TopPLogitsWarper(self.top_p))
        return found


class Chooser:
    """Logits → token."""

    def __init__(self, sampling: Sampling, device: torch.device) -> None:
        self.greedy = sampling.temperature == 0
        self.warpers = sampling.warpers()
        self.generator = torch.Generator(device=device)
        if sampling.seed is not None:
            self.generator.manual_seed(sampling.seed)
        else:
            self.generator.seed()

    def __call__(self, ids: Int[Tensor, "1 T"], logits: Float[Tensor, "1 V"]) -> int:
        """The next token after ``ids``."""
        if self.greedy:
            return int(logits.argmax(-1))
        scores: Any = self.warpers(ids, logits.float())  # pyright: ignore[reportArgumentType]
        return int(torch.multinomial(scores.softmax(-1), 1, generator=self.generator))
