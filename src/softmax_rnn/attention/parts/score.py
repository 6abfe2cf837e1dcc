"""Scores f: how a dot product becomes a weight.

A score says all that the forms, the planner and the algebra ask about it; a new kind is one class.

>>> taylor_score(2).coefficients
(1.0, 1.0, 0.5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts.base import Part
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.contraction import Contraction
    from softmax_rnn.attention.fitting import Fitted, KeySummary
    from softmax_rnn.attention.scores import Series

MAX_ORDER = 170
"""171! is not a float."""
DIRECT_TAYLOR_ORDER = 6
"""Up to this order the direct sum loses less than two digits anywhere (T_6(2.4)/T_6(−2.4) < 100)."""


@dataclass(frozen=True)
class Score(Part):
    """The weight f(x) of a key, x = scale · φ(q)·φ(k), x cut at ``clamp`` from above.

    ``scale=None`` stands for 1/√d, d the dimension of queries and keys.
    """

    slot: ClassVar[str] = "score"
    scale: float | None = None
    clamp: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.scale is not None and not (math.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"scale: expected a positive number or None (1/√d), got {self.scale!r}")
        if self.clamp is not None and not math.isfinite(self.clamp):
            raise InputError(f"clamp: expected a finite number or None, got {self.clamp!r}")

    @property
    def ceiling(self) -> float | None:
        """No x that f gets is above it; None where all of them are as the products give them."""
        return self.clamp

    def cut(self, x: Tensor) -> Tensor:
        """x as f gets it."""
        return x if self.clamp is None else x.clamp(max=self.clamp)

    def cut_(self, x: Tensor) -> Tensor:
        """The same in place."""
        return x if self.clamp is None else x.clamp_(max=self.clamp)

    def cut_gradient_(self, grad: Tensor, x: Tensor) -> None:
        """The gradient of `cut` at x, in place: 0 where x is cut. One pass, while boolean masks cost five."""
        if self.clamp is None:
            return
        import torch

        above = math.nextafter(self.clamp, math.inf) if x.dtype == torch.float64 else _next_float32(self.clamp)
        torch.ops.aten.hardtanh_backward.grad_input(grad, x, -torch.inf, above, grad_input=grad)

    is_exponential: ClassVar[bool] = False
    """Whether f is exp: forms then work with logarithms of weights and subtract the largest of the row."""

    @property
    def as_polynomial(self) -> Polynomial | None:
        """f as one polynomial for all queries, before the clamp; None where it is none."""
        return None

    @property
    def finite_features(self) -> Polynomial | None:
        """The polynomial whose features make a state of fixed size; None where there are infinitely many."""
        return None

    @property
    def why_no_features(self) -> str:
        """The reason, where `finite_features` is None."""
        return f"{self.kind} has no finite features"

    @property
    def needs_wide_state(self) -> bool:
        """Whether sums over features need float64, whatever the inputs are."""
        return False

    @property
    def reads_key_norm(self) -> bool:
        """Whether the largest |k| decides how the weights stay inside the number range."""
        return False

    @property
    def work(self) -> tuple[float, float]:
        """Exponentials per weight, and other passes over a weight: what the planner counts."""
        return 0.0, 2.0

    def can_be_negative(self, lowest: float | None) -> bool:
        """Whether some f(x), x ≥ ``lowest`` (None: any x), is below 0."""
        return True

    def series(self, rows: Tensor | None = None) -> Series:
        """f as a function of tensors; ``rows`` gives each query its own coefficients."""
        raise NotImplementedError(f"the score {self.kind} has no series")

    def fit(self, job: Contraction, before: KeySummary, has_fixed_state: bool) -> Fitted:
        """The contraction with weights inside the number range; ``before`` is what the past knows of its keys."""
        from softmax_rnn.attention.fitting import Fitted

        return Fitted(job, has_fixed_state)

    def empty_extent(self, key_dim: int) -> Tensor | None:
        """What a state of fixed size remembers of its keys besides the sums, before the first; None for nothing."""
        return None

    def text(self, x: str) -> str:
        """f(x) in a formula."""
        return f"{self.kind}({x})"


@dataclass(frozen=True)
class Exp(Score):
    """f(x) = exp(x): the sum of all Taylor orders."""

    kind: ClassVar[str] = "exp"
    is_exponential: ClassVar[bool] = True

    @property
    def why_no_features(self) -> str:
        return "exp has infinitely many orders, so no finite features"

    @property
    def work(self) -> tuple[float, float]:
        """One exponential, and the largest of the row is found and subtracted."""
        return 1.0, 2.0

    def can_be_negative(self, lowest: float | None) -> bool:
        return False

    def series(self, rows: Tensor | None = None) -> Series:
        from softmax_rnn.attention.scores import Exponential

        return Exponential()


@dataclass(frozen=True, kw_only=True)
class Polynomial(Score):
    """f(x) = Σ_n coefficients[n] · x^n: linear, a power, a Taylor polynomial of exp, or any other."""

    kind: ClassVar[str] = "polynomial"
    coefficients: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.coefficients:
            raise InputError("coefficients: expected at least one number, got none")
        if not all(math.isfinite(c) for c in self.coefficients):
            raise InputError(f"coefficients: expected finite numbers, got {self.coefficients}")
        if self.coefficients[-1] == 0:
            raise InputError("coefficients: the last one must not be 0, it sets the degree")

    @property
    def as_polynomial(self) -> Polynomial | None:
        return self

    @property
    def has_all_orders(self) -> bool:
        """Whether no order up to the degree is left out."""
        return len(self.orders) > self.degree

    @property
    def finite_features(self) -> Polynomial | None:
        """Itself; a clamped one is not a polynomial."""
        return self if self.clamp is None else None

    def text(self, x: str) -> str:
        if self.is_taylor:
            return f"Σₙ₌₀…{self.degree} ({x})ⁿ/n!"
        if self.orders == (1,) and self.coefficients[1] == 1:
            return x
        if len(self.orders) == 1 and self.coefficients[-1] == 1:
            return f"({x})^{self.degree}"
        if self.degree > 4:
            return f"P{self.degree}({x})"
        return " + ".join(f"{self.coefficients[n]:g} ({x})^{n}" for n in self.orders)

    @property
    def why_no_features(self) -> str:
        return "a clamped score is not a polynomial, so it has no finite features"

    @property
    def needs_wide_state(self) -> bool:
        """Where orders 0 and 1 are absent, or the degree is high: a weight can then be far smaller than the products
        (|q||k|)^n that make it, and float32 would lose it.
        """
        return self.orders[0] >= 2 or self.degree >= 5

    @property
    def reads_key_norm(self) -> bool:
        """Powers above the first can leave the number range."""
        return self.degree >= 2

    @property
    def work(self) -> tuple[float, float]:
        """Two passes per order; Taylor polynomials of high order are evaluated in a way that does not cancel."""
        slow = self.is_taylor and self.degree > DIRECT_TAYLOR_ORDER
        return 0.0, 2.0 * self.degree * (2 if slow else 1)

    def can_be_negative(self, lowest: float | None) -> bool:
        """Whether the smallest f(x), x ≥ ``lowest`` (None: any x), is below 0; exact where it can be 0."""
        if lowest is not None and lowest >= 0 and min(self.coefficients) >= 0:
            return False
        if lowest is None and self.degree % 2:
            return True
        if self.is_taylor and self.degree % 2 == 0:
            return False  # an even Taylor polynomial of exp has no real root
        if self.coefficients[-1] < 0:
            return True
        import numpy as np

        polynomial = np.polynomial.Polynomial(self.coefficients)
        turning = [float(x.real) for x in polynomial.deriv().roots() if abs(x.imag) < 1e-9]
        points = turning if lowest is None else [lowest, *(x for x in turning if x >= lowest)]
        # Roots are known to about 1e-8; a double root (x² at 0) must not count as negative.
        return any(float(polynomial(x)) < -1e-12 for x in points)

    def series(self, rows: Tensor | None = None) -> Series:
        """Σ_n coefficients[n] · x^n, or the sum with the coefficients of each row.

        ``rows`` of a high Taylor polynomial may be a size and a shift instead: f(size · x) e^(−shift).
        """
        from softmax_rnn.attention import scores

        if rows is not None and rows.shape[-1] == 2 < len(self.coefficients):
            return scores.ReducedTaylor(self.degree, rows[..., :1], rows[..., 1:])
        if rows is not None:
            return scores.RowPowers(rows)
        return scores.Taylor(self.degree) if self.is_taylor else scores.Powers(self.coefficients)

    def fit(self, job: Contraction, before: KeySummary, has_fixed_state: bool) -> Fitted:
        """Powers are reduced where they would leave the number range."""
        from softmax_rnn.attention.fitting import FittedPolynomial

        if not self.reads_key_norm:
            return super().fit(job, before, has_fixed_state)
        return FittedPolynomial(job, self, before.key_norm, has_fixed_state)

    @property
    def degree(self) -> int:
        """The highest order n with a coefficient."""
        return len(self.coefficients) - 1

    @property
    def orders(self) -> tuple[int, ...]:
        """The orders whose coefficient is not 0; each has its own state."""
        return _orders(self.coefficients)

    @property
    def is_taylor(self) -> bool:
        """Whether this is Σ_{n≤N} x^n/n!, the Taylor polynomial of exp."""
        return self.degree < 171 and self.coefficients == taylor_coefficients(self.degree)  # 171! is not a float


@cache
def _orders(coefficients: tuple[float, ...]) -> tuple[int, ...]:
    return tuple(n for n, c in enumerate(coefficients) if c != 0)


@cache
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


@cache
def _next_float32(value: float) -> float:
    import numpy as np

    return float(np.nextafter(np.float32(value), np.float32(np.inf)))
