"""Normalisers: what stands where softmax has its denominator."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from softmax_rnn.attention.parts.base import Part, check_eps
from softmax_rnn.errors import InputError


@dataclass(frozen=True)
class Normaliser(Part):
    """What the numerator is divided by."""

    slot: ClassVar[str] = "normaliser"
    reads_row_sum: ClassVar[bool] = False
    """Whether it looks at Σ_j w_ij, so that the values need a column of ones."""


@dataclass(frozen=True)
class RowSum(Normaliser):
    """÷ max(Σ_j w_ij + eps, minimum): the softmax denominator; ``detach`` stops its gradient."""

    kind: ClassVar[str] = "row_sum"
    reads_row_sum: ClassVar[bool] = True
    minimum: float | None = None
    eps: float = 0.0
    detach: bool = False

    def __post_init__(self) -> None:
        if self.minimum is not None and not (math.isfinite(self.minimum) and self.minimum > 0):
            raise InputError(f"minimum: expected a positive number or None, got {self.minimum!r}")
        check_eps(self.eps)


@dataclass(frozen=True)
class Length(Normaliser):
    """÷ n_i, the number of keys that query i sees."""

    kind: ClassVar[str] = "length"


@dataclass(frozen=True)
class LearnedLength(Normaliser):
    """÷ n^σ(c), c one number a head: n counted at the query (n_i), or at the key (n_j) as the reference does."""

    kind: ClassVar[str] = "learned_length"
    by_key: bool = False


@dataclass(frozen=True)
class CumulativeGate(Normaliser):
    """÷ max(Σ_{r≤i} exp(output_gate_r), minimum), with ``times_length`` also ÷ n_i; the gate is the raw projection."""

    kind: ClassVar[str] = "cumulative_gate"
    minimum: float | None = None
    times_length: bool = False

    def __post_init__(self) -> None:
        if self.minimum is not None and not (math.isfinite(self.minimum) and self.minimum > 0):
            raise InputError(f"minimum: expected a positive number or None, got {self.minimum!r}")
