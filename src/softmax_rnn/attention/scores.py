"""The scores f as functions of tensors: values and slopes that neither overflow nor cancel.

The naive sum of a Taylor polynomial of exp loses all digits for negative x: its terms are as large as
exp(|x|), its value as small as exp(−|x|). With the remainder in closed form nothing cancels::

    T_N(x) = exp(x) − x^(N+1)/(N+1)! · M(1, N+2, x)      |x| < N;  M = 1 + x/b · M(1, b+1, x)  (Kummer)
    T_N(x) = x^N/N! · (1 + N/x · (1 + (N−1)/x · (…)))     |x| ≥ N

Low orders lose few digits, and those of float32 are made in float64 up to order 20: there the sum is taken as it is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.looking import may_look
from softmax_rnn.attention.parts import Polynomial, taylor_coefficients
from softmax_rnn.attention.parts.score import DIRECT_TAYLOR_ORDER

WIDE_TAYLOR_ORDER = 20
"""Up to this order the direct sum in float64 has all digits of a float32: it loses less than seven of sixteen."""


def horner(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """Σ_n coefficients[n] x^n, from the highest order down."""
    if len(coefficients) == 1:
        return torch.full_like(x, coefficients[0])
    value = x * coefficients[-1]
    for c in reversed(coefficients[1:-1]):
        if c:
            value.add_(c)
        value.mul_(x)
    return value.add_(coefficients[0]) if coefficients[0] else value


def horner_rows(rows: Float[Tensor, "*rows O"], x: Float[Tensor, "*rows T"]) -> Float[Tensor, "*rows T"]:
    """Σ_n rows[…, n] x^n: one set of coefficients for each row of x."""
    value = rows[..., -1:].expand_as(x).clone()
    for n in range(rows.shape[-1] - 2, -1, -1):
        value.mul_(x).add_(rows[..., n : n + 1])
    return value


def clenshaw(rows: Float[Tensor, "*rows O"], t: Float[Tensor, "*rows T"]) -> Float[Tensor, "*rows T"]:
    """Σ_n rows[…, n] T_n(t): each row of t has its own coefficients."""
    later, latest = torch.zeros_like(t), torch.zeros_like(t)
    for n in range(rows.shape[-1] - 1, 0, -1):
        later, latest = latest.neg_().addcmul_(t, later, value=2).add_(rows[..., n : n + 1]), later
    return torch.addcmul(rows[..., :1] - latest, t, later)


def derivative_rows(rows: Float[Tensor, "*rows O"]) -> Float[Tensor, "*rows O"]:
    """The Chebyshev coefficients of the derivative: d_{n−1} = d_{n+1} + 2n c_n, d_0 halved."""
    slopes = [torch.zeros_like(rows[..., 0])] * (rows.shape[-1] + 2)
    for n in range(rows.shape[-1] - 1, 0, -1):
        slopes[n - 1] = slopes[n + 1] + 2 * n * rows[..., n]
    slopes[0] = slopes[0] / 2
    return torch.stack(slopes[: max(rows.shape[-1] - 1, 1)], -1)


@cache
def exp_radius(order: int, eps: float) -> float:
    """The largest |x| for which T_N(x) and exp(x) round to the same number (relative difference below eps)."""
    low, high = 0.0, float(order + 1)
    for _ in range(60):
        middle = (low + high) / 2
        log_difference = (order + 1) * math.log(middle) - math.lgamma(order + 2) + middle
        low, high = (middle, high) if log_difference < math.log(eps) else (low, middle)
    return low


def taylor(order: int, x: Tensor) -> Tensor:
    """T_N(x) = Σ_{n≤N} x^n/n!, accurate for every x whose T_N(x) is a float.

    >>> value = taylor(80, torch.tensor([-15.0], dtype=torch.float64))
    >>> bool((value - math.exp(-15)).abs() < 1e-12 * math.exp(-15))
    True
    """
    if order <= DIRECT_TAYLOR_ORDER:
        return horner(taylor_coefficients(order), x)
    largest = math.inf
    if may_look(x):
        largest = float(x.abs().max()) if x.numel() else 0.0
    if largest <= exp_radius(order, torch.finfo(x.dtype).eps / 8):
        return torch.exp(x)
    wide = x.double()
    if order <= WIDE_TAYLOR_ORDER and x.dtype != torch.float64:
        return horner(taylor_coefficients(order), wide).to(x.dtype)
    value = _taylor_near(order, wide.clamp(-order, order))
    if largest >= order:
        value = torch.where(wide.abs() < order, value, _taylor_far(order, wide))
    return value.to(x.dtype)


def reduced_taylor(order: int, x: Tensor, shift: Tensor) -> Tensor:
    """T_N(x) e^(−shift), which is a float where T_N(x) need not be one."""
    wide, shift = x.double(), shift.double()
    near = _taylor_near(order, wide.clamp(-order, order), shift)
    return torch.where(wide.abs() < order, near, _taylor_far(order, wide, shift)).to(x.dtype)


def _taylor_near(order: int, x: Tensor, shift: Tensor | float = 0.0) -> Tensor:
    # The recurrence shrinks the error of its start by |x|/b at each step; start where nothing of it is left.
    start, shrink = order + 2, 1.0
    while shrink > 1e-18:
        shrink *= order / start
        start += 1
    kummer = torch.ones_like(x)
    for b in range(start, order + 1, -1):
        kummer.mul_(x).div_(b).add_(1.0)
    log_term = (order + 1) * torch.log(x.abs()) - math.lgamma(order + 2)
    sign = 1.0 if order % 2 else torch.sign(x)
    return torch.exp(x - shift) - sign * torch.exp(log_term - shift) * kummer


def _taylor_far(order: int, x: Tensor, shift: Tensor | float = 0.0) -> Tensor:
    inverse = 1.0 / torch.where(x.abs() < order, torch.ones_like(x), x)
    tail = torch.ones_like(x)
    for n in range(1, order + 1):
        tail.mul_(inverse).mul_(n).add_(1.0)
    magnitude = torch.exp(order * torch.log(x.abs()) - math.lgamma(order + 1) - shift)
    sign = torch.sign(x) if order % 2 else 1.0
    return sign * magnitude * tail


class Series(ABC):
    """A function of one number, applied to tensors, with its derivatives."""

    @abstractmethod
    def value(self, x: Tensor) -> Tensor:
        """f(x), without a graph."""

    @abstractmethod
    def derivative(self) -> Series:
        """f'."""

    def slope(self, x: Tensor) -> Tensor:
        """f'(x), without a graph."""
        return self.derivative().value(x)

    def differentiable(self, x: Tensor) -> Tensor:
        """f(x) for autograd, as often as one likes."""
        if not (torch.is_grad_enabled() and x.requires_grad):
            return self.value(x)
        out = _Value.apply(x, self)
        assert isinstance(out, Tensor)
        return out


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, series: Series) -> Tensor:  # type: ignore[override]
        return series.value(x)

    @staticmethod
    def setup_context(ctx, inputs, output) -> None:
        x, ctx.series = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grads[0] * ctx.series.derivative().differentiable(x), None


@dataclass(frozen=True)
class Exponential(Series):
    """exp(x)."""

    def value(self, x: Tensor) -> Tensor:
        """exp(x)."""
        return torch.exp(x)

    def derivative(self) -> Series:
        """Itself."""
        return self


@dataclass(frozen=True)
class Powers(Series):
    """Σ_n coefficients[n] x^n."""

    coefficients: tuple[float, ...]

    def value(self, x: Tensor) -> Tensor:
        """By Horner's scheme."""
        return horner(self.coefficients, x)

    def derivative(self) -> Series:
        """Σ_n n · coefficients[n] x^(n−1)."""
        return Powers(tuple(n * c for n, c in enumerate(self.coefficients))[1:] or (0.0,))


@dataclass(frozen=True)
class Taylor(Series):
    """factor · T_N(x/divisor)."""

    order: int
    divisor: int = 1
    factor: float = 1.0

    def value(self, x: Tensor) -> Tensor:
        """Without cancellation."""
        value = taylor(self.order, x if self.divisor == 1 else x / self.divisor)
        return value if self.factor == 1 else value * self.factor

    def derivative(self) -> Series:
        """T_N' = T_(N−1)."""
        return replace(self, order=self.order - 1, factor=self.factor / self.divisor) if self.order else Powers((0.0,))


@dataclass(frozen=True, eq=False)
class ReducedTaylor(Series):
    """T_N(size · x) e^(−shift): each row of x has a size and a shift of its own."""

    order: int
    size: Float[Tensor, "*rows 1"]
    shift: Float[Tensor, "*rows 1"]

    def value(self, x: Tensor) -> Tensor:
        """Without cancellation."""
        return reduced_taylor(self.order, x * self.size, self.shift)

    def derivative(self) -> Series:
        """size · T_(N−1)."""
        if not self.order:
            return Powers((0.0,))
        return replace(self, order=self.order - 1, shift=self.shift - torch.log(self.size))


@dataclass(frozen=True, eq=False)
class RowPowers(Series):
    """Σ_n rows[…, n] x^n: each row of x has its own coefficients."""

    rows: Float[Tensor, "*rows O"]

    def value(self, x: Tensor) -> Tensor:
        """By Horner's scheme."""
        return horner_rows(self.rows, x)

    def derivative(self) -> Series:
        """Coefficients n · rows[…, n]."""
        if self.rows.shape[-1] == 1:
            return RowPowers(torch.zeros_like(self.rows))
        orders = torch.arange(1, self.rows.shape[-1], device=self.rows.device, dtype=self.rows.dtype)
        return RowPowers(self.rows[..., 1:] * orders)


@dataclass(frozen=True, eq=False)
class RowChebyshev(Series):
    """Σ_n rows[…, n] T_n(t), T_n Chebyshev's polynomials."""

    rows: Float[Tensor, "*rows O"]

    def value(self, x: Tensor) -> Tensor:
        """By Clenshaw's scheme."""
        return clenshaw(self.rows, x)

    def derivative(self) -> Series:
        """A Chebyshev series again."""
        return RowChebyshev(derivative_rows(self.rows))


@dataclass(frozen=True, eq=False)
class Raised(Series):
    """base(x)^power."""

    base: Series
    power: int

    def value(self, x: Tensor) -> Tensor:
        """The power of the base."""
        return self.base.value(x) ** self.power

    def derivative(self) -> Series:
        """It is a product; `slope` and `differentiable` have it."""
        raise NotImplementedError

    def slope(self, x: Tensor) -> Tensor:
        """power · base^(power−1) · base'."""
        inner = self.base.slope(x)
        return inner if self.power == 1 else self.power * self.base.value(x) ** (self.power - 1) * inner

    def differentiable(self, x: Tensor) -> Tensor:
        """Autograd knows powers."""
        return self.base.differentiable(x) ** self.power


def log_bound(score: Polynomial, size: Tensor) -> Tensor:
    """log Σ_n |c_n| size^n: no weight of a row with |x| ≤ size is larger."""
    log_size = torch.log(size)
    terms = [
        math.log(abs(score.coefficients[n])) + (n * log_size if n else torch.zeros_like(log_size)) for n in score.orders
    ]
    return torch.logsumexp(torch.stack(terms), dim=0)


def log_bound_of(score: Polynomial, size: float) -> float:
    """The same for one number, without tensors: it is asked for at every step of decoding."""
    log_size = math.log(size)
    terms = [math.log(abs(score.coefficients[n])) + n * log_size for n in score.orders]
    largest = max(terms)
    return largest + math.log(sum(math.exp(term - largest) for term in terms))
