"""Scores f: how a dot product becomes a weight.

>>> taylor_score(2).coefficients
(1.0, 1.0, 0.5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from softmax_rnn.attention.parts.base import Part
from softmax_rnn.errors import InputError

MAX_ORDER = 170
"""171! is no float."""


@dataclass(frozen=True)
class Score(Part):
    """The weight f(x) of a key, x = scale · φ(q)·φ(k), x cut at ``clamp`` from above.

    ``scale=None`` stands for 1/√d, d the dimension of queries and keys.
    """

    slot: ClassVar[str] = "score"
    scale: float | None = None
    clamp: float | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not (math.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"scale: expected a positive number or None (1/√d), got {self.scale!r}")
        if self.clamp is not None and not math.isfinite(self.clamp):
            raise InputError(f"clamp: expected a finite number or None, got {self.clamp!r}")

    @property
    def finite_features(self) -> Polynomial | None:
        """The polynomial whose features make a state of fixed size; None where there are infinitely many."""
        return None


@dataclass(frozen=True)
class Exp(Score):
    """f(x) = exp(x): the sum of all Taylor orders."""

    kind: ClassVar[str] = "exp"


@dataclass(frozen=True, kw_only=True)
class Polynomial(Score):
    """f(x) = Σ_n coefficients[n] · x^n: linear, a power, a Taylor polynomial of exp, or any other."""

    kind: ClassVar[str] = "polynomial"
    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "coefficients", tuple(float(c) for c in self.coefficients))
        if not self.coefficients:
            raise InputError("coefficients: expected at least one number, got none")
        if not all(math.isfinite(c) for c in self.coefficients):
            raise InputError(f"coefficients: expected finite numbers, got {self.coefficients}")
        if self.coefficients[-1] == 0:
            raise InputError("coefficients: the last one must not be 0, it sets the degree")

    @property
    def finite_features(self) -> Polynomial | None:
        """Itself; a clamped polynomial is none."""
        return self if self.clamp is None else None

    @property
    def degree(self) -> int:
        """The highest order n with a coefficient."""
        return len(self.coefficients) - 1

    @property
    def orders(self) -> tuple[int, ...]:
        """The orders whose coefficient is not 0; each has a state of its own."""
        return tuple(n for n, c in enumerate(self.coefficients) if c != 0)

    @property
    def is_taylor(self) -> bool:
        """Whether this is Σ_{n≤N} x^n/n!, the Taylor polynomial of exp."""
        return self.coefficients == taylor_coefficients(self.degree)

    @property
    def derivative(self) -> Polynomial | None:
        """f', or None for a constant."""
        slopes = [n * c for n, c in enumerate(self.coefficients)][1:]
        return Polynomial(coefficients=tuple(slopes)) if slopes else None


def taylor_coefficients(order: int) -> tuple[float, ...]:
    """1/n! for n = 0 … order."""
    return tuple(1.0 / math.factorial(n) for n in range(order + 1))


def taylor_score(order: int, scale: float | None = None) -> Polynomial:
    """The Taylor polynomial of exp up to ``order``."""
    if not 0 <= order <= MAX_ORDER:
        raise InputError(f"order: expected 0 to {MAX_ORDER}, got {order}")
    return Polynomial(coefficients=taylor_coefficients(order), scale=scale)


def power_score(power: int, scale: float | None = None) -> Polynomial:
    """f(x) = x^power."""
    if not 0 <= power <= MAX_ORDER:
        raise InputError(f"power: expected 0 to {MAX_ORDER}, got {power}")
    return Polynomial(coefficients=(0.0,) * power + (1.0,), scale=scale)
