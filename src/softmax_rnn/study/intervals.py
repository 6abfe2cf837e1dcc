"""Honest statistics for few seeds: paired differences, mean and 95 % interval of Student's t.

    d_s = metric(a, seed s) − metric(b, seed s)        mean(d) ± t(n−1) · std(d)/√n

Runs of a seed share the order of their data, so their difference often varies less than between two seeds.

>>> interval([1.0, 2.0, 3.0])
Interval(mean=2, half=2.484, n=3)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

# The 97.5 % quantile of Student's t for 1 … 30 degrees of freedom.
_T = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


@dataclass(frozen=True)
class Interval:
    """A mean with half the width of its 95 % interval; one number alone has none, so its half is infinite."""

    mean: float
    half: float
    n: int

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half

    def __repr__(self) -> str:
        return f"Interval(mean={self.mean:.4g}, half={self.half:.4g}, n={self.n})"

    def __str__(self) -> str:
        return f"{self.mean:+.4f} ± {self.half:.4f}" if math.isfinite(self.half) else f"{self.mean:+.4f} (one seed)"


def quantile(freedom: int) -> float:
    """t for 95 %, both sides; beyond 30 degrees of freedom by the first terms of its expansion."""
    if freedom <= len(_T):
        return _T[freedom - 1]
    z = 1.959964
    return z + (z**3 + z) / (4 * freedom)


def interval(values: Sequence[float]) -> Interval:
    """Mean and interval of independent numbers."""
    n = len(values)
    half = quantile(n - 1) * stdev(values) / math.sqrt(n) if n > 1 else math.inf
    return Interval(fmean(values), half, n)


def seeds_needed(value: Interval, limit: float, most: int = 200) -> str:
    """How many fresh seeds would put the interval on one side of a limit, if mean and spread stay as they are.

    >>> seeds_needed(Interval(0.035, 0.026, 3), 0.05)
    'about 5 fresh seeds for an even chance'
    >>> seeds_needed(Interval(0.001, 0.025, 3), 0.0)
    'more than 200 seeds: it lies within 0.026 of the margin'
    """
    if value.n < 2:
        return "two seeds or more"
    if value.half == 0:
        return "another task: every seed has exactly the margin"
    deviation = value.half * math.sqrt(value.n) / quantile(value.n - 1)
    for n in range(value.n + 1, most + 1):
        if quantile(n - 1) * deviation / math.sqrt(n) < abs(value.mean - limit):
            return f"about {n} fresh seeds for an even chance"
    return f"more than {most} seeds: it lies within {abs(value.mean - limit) + value.half:.2g} of the margin"


def values_of(value: Interval | None) -> dict[str, Any] | None:
    """An interval as plain values; one seed has no ends.

    >>> values_of(interval([2.0]))
    {'mean': 2.0, 'half': None, 'low': None, 'high': None, 'n': 1}
    """
    if value is None:
        return None
    ends = (value.half, value.low, value.high) if value.n > 1 else (None, None, None)
    return dict(zip(("mean", "half", "low", "high", "n"), (value.mean, *ends, value.n), strict=True))
