"""Polynomials of tensors: by Horner's and Clenshaw's schemes, and Taylor polynomials of exp that do not cancel.

The naive sum of a Taylor polynomial of exp loses all digits for negative x: its terms are as large as
exp(|x|), its value as small as exp(−|x|). With the remainder in closed form nothing cancels::

    T_N(x) = exp(x) − x^(N+1)/(N+1)! · M(1, N+2, x)      |x| < N;  M = 1 + x/b · M(1, b+1, x)  (Kummer)
    T_N(x) = x^N/N! · (1 + N/x · (1 + (N−1)/x · (…)))     |x| ≥ N

Low orders lose few digits, and those of float32 are made in float64 up to order 20: there the sum is taken as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.host_sync import may_sync
from softmax_rnn.attention.parts import taylor_coefficients
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
    if may_sync(x):
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


def kummer_downwards(x: Tensor, order: int) -> Iterator[tuple[int, Tensor]]:
    """(n, M(1, n+2, x)) for n = ``order`` … 0, each for |x| ≤ n + 1: from M(1, b, x) = 1 + x/b · M(1, b+1, x)."""
    # The recurrence shrinks the error of its start by |x|/b at each step; start where nothing of it is left.
    start, shrink = order + 2, 1.0
    while shrink > 1e-18:
        shrink *= (order + 1) / start
        start += 1
    kummer = torch.ones_like(x)
    for b in range(start, order + 1, -1):
        kummer.mul_(x).div_(b).add_(1.0)
    yield order, kummer
    for b in range(order + 1, 1, -1):
        # Where |x| is larger it is not used: cut there, so that it stays finite.
        kummer = 1 + x.clamp(-b, b) / b * kummer
        yield b - 2, kummer


def _taylor_near(order: int, x: Tensor, shift: Tensor | float = 0.0) -> Tensor:
    _, kummer = next(kummer_downwards(x, order))
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
