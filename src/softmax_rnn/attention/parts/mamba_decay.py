"""Mamba-2's decay: a step of time that is forgetting and input gate at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Declaration, Parameter, Projection
from softmax_rnn.attention.parts.decays import NO_DECAY, Forgetting

if TYPE_CHECKING:
    from torch import Tensor


def softplus(raw: Tensor) -> Tensor:
    """log(1 + eʳ)."""
    import torch

    return torch.nn.functional.softplus(raw)


STEPS = (1e-3, 0.1)
RATES = (1.0, 16.0)


def first_step_biases(shape: tuple[int, ...]) -> Tensor:
    """softplus⁻¹(Δ), Δ log-uniform in 0.001 … 0.1."""
    import torch

    low, high = (math.log(step) for step in STEPS)
    step = torch.exp(low + (high - low) * torch.rand(shape))
    return step + torch.log(-torch.expm1(-step))


def first_log_rates(shape: tuple[int, ...]) -> Tensor:
    """log A, A uniform in 1 … 16."""
    import torch

    return torch.log(RATES[0] + (RATES[1] - RATES[0]) * torch.rand(shape))


ONE_STEP = math.log(math.expm1(1.0))
"""softplus⁻¹(1)."""


@dataclass(frozen=True)
class MambaDecay(Forgetting):
    """α = exp(−e^A Δ), Δ = softplus(r + b) a step of time; the value that enters is multiplied by the same Δ.

    Gated DeltaNet has the decay alone: ``gates_input=False``.
    """

    kind: ClassVar[str] = "mamba"
    gates_input: bool = True

    @property
    def tensors(self) -> tuple[Declaration, ...]:
        """time_step: Δ. log_rate: A, learned per head. A conversion starts at Δ = 1 with a rate of 0."""
        step = Projection(softplus, first_bias=first_step_biases, neutral_bias=ONE_STEP, typical=-3.0)
        return (
            Declaration("time_step", "B H T", step, multiplies="values" if self.gates_input else None),
            Declaration("log_rate", "H", Parameter(first_log_rates, neutral=-NO_DECAY)),
        )

    def log_decay(self, tensors: Mapping[str, Tensor], k: Tensor, heads: int) -> Tensor:
        return -tensors["log_rate"].exp()[:, None] * tensors["time_step"]

    def value_factor(self, tensors: Mapping[str, Tensor], lengths: Tensor) -> Tensor | None:
        return tensors["time_step"] if self.gates_input else None

    def text(self) -> str:
        return "exp(−e^A Δ)"

    def value_text(self) -> str:
        return "Δ " if self.gates_input else ""
