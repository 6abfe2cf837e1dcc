"""The scores f as functions of tensors: values and slopes that neither overflow nor cancel."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.parts import Polynomial
from softmax_rnn.attention.polynomials import clenshaw, derivative_rows, horner, horner_rows, reduced_taylor, taylor


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
        return torch.exp(x)

    def derivative(self) -> Series:
        return self


@dataclass(frozen=True)
class Powers(Series):
    """Σ_n coefficients[n] x^n."""

    coefficients: tuple[float, ...]

    def value(self, x: Tensor) -> Tensor:
        return horner(self.coefficients, x)

    def derivative(self) -> Series:
        return Powers(tuple(n * c for n, c in enumerate(self.coefficients))[1:] or (0.0,))


@dataclass(frozen=True)
class Taylor(Series):
    """factor · T_N(x/divisor)."""

    order: int
    divisor: int = 1
    factor: float = 1.0

    def value(self, x: Tensor) -> Tensor:
        value = taylor(self.order, x if self.divisor == 1 else x / self.divisor)
        return value if self.factor == 1 else value * self.factor

    def derivative(self) -> Series:
        return replace(self, order=self.order - 1, factor=self.factor / self.divisor) if self.order else Powers((0.0,))


@dataclass(frozen=True, eq=False)
class ReducedTaylor(Series):
    """T_N(size · x) e^(−shift): each row of x has its own size and shift."""

    order: int
    size: Float[Tensor, "*rows 1"]
    shift: Float[Tensor, "*rows 1"]

    def value(self, x: Tensor) -> Tensor:
        return reduced_taylor(self.order, x * self.size, self.shift)

    def derivative(self) -> Series:
        if not self.order:
            return Powers((0.0,))
        return replace(self, order=self.order - 1, shift=self.shift - torch.log(self.size))


@dataclass(frozen=True, eq=False)
class RowPowers(Series):
    """Σ_n rows[…, n] x^n: each row of x has its own coefficients."""

    rows: Float[Tensor, "*rows O"]

    def value(self, x: Tensor) -> Tensor:
        return horner_rows(self.rows, x)

    def derivative(self) -> Series:
        if self.rows.shape[-1] == 1:
            return RowPowers(torch.zeros_like(self.rows))
        orders = torch.arange(1, self.rows.shape[-1], device=self.rows.device, dtype=self.rows.dtype)
        return RowPowers(self.rows[..., 1:] * orders)


@dataclass(frozen=True, eq=False)
class RowChebyshev(Series):
    """Σ_n rows[…, n] T_n(t), T_n Chebyshev's polynomials."""

    rows: Float[Tensor, "*rows O"]

    def value(self, x: Tensor) -> Tensor:
        return clenshaw(self.rows, x)

    def derivative(self) -> Series:
        return RowChebyshev(derivative_rows(self.rows))


@dataclass(frozen=True, eq=False)
class Raised(Series):
    """base(x)^power."""

    base: Series
    power: int

    def value(self, x: Tensor) -> Tensor:
        return self.base.value(x) ** self.power

    def derivative(self) -> Series:
        """It is a product; `slope` and `differentiable` have it."""
        raise NotImplementedError

    def slope(self, x: Tensor) -> Tensor:
        inner = self.base.slope(x)
        return inner if self.power == 1 else self.power * self.base.value(x) ** (self.power - 1) * inner

    def differentiable(self, x: Tensor) -> Tensor:
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
