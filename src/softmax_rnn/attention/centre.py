"""A polynomial of a score that is expanded at a point m: f(x − m) as a polynomial in x whose coefficients depend on m.

    f(x − m) = Σ_p x^p Σ_{n≥p} c_n C(n, p) (−m)^(n−p)

A state of bare monomials serves any coefficients on the query's side, so m and c may differ from query to query.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, factorial

import torch
from torch import Tensor

REACH = 20.0
"""The largest variance that is assumed, chosen on SmolLM2, whose loss exceeds 10 without a bound."""


def moved_coefficients(c: Sequence[float | Tensor], m: Tensor) -> Tensor:
    """The coefficients of x^0 … x^degree as a last axis.

    >>> moved_coefficients([1.0, 1.0, 0.5], torch.tensor(2.0)).tolist()      # 1 + (x − 2) + (x − 2)²/2
    [1.0, -1.0, 0.5]
    """
    orders = range(len(c))
    powers = [torch.ones_like(m)]
    for _ in orders[1:]:
        powers.append(powers[-1] * -m)
    rows = [torch.stack([c[n] * comb(n, p) * powers[n - p] for n in orders if n >= p]).sum(0) for p in orders]
    return torch.stack(rows, dim=-1)


def assumed_variance(measured: Tensor) -> Tensor:
    """s = σ²/(1 + σ²/20)."""
    return measured / (1 + measured / REACH)


def hermite_coefficients(degree: int, s: Tensor) -> list[Tensor]:
    """c_0 … c_degree with which e^(s/2) Σ_p c_p x^p is closest to e^x over x ~ N(0, s), in least squares.

    e^x = e^(s/2) Σ_n He_n(x; s)/n!, cut after the degree: c_p = 1/p! Σ_{k≤(degree−p)/2} (−s/2)^k/k!

    >>> [float(c) for c in hermite_coefficients(2, torch.tensor(0.5))]      # e^(1/4) (1 + x + (x² − 1/2)/2)
    [0.75, 1.0, 0.5]
    """
    series = [(-s / 2) ** k / factorial(k) for k in range(degree // 2 + 1)]
    return [torch.stack(series[: (degree - p) // 2 + 1]).sum(0) / factorial(p) for p in range(degree + 1)]
