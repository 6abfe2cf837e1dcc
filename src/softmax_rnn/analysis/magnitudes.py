"""How large the terms of the series are: the mean of |s^n/n!| over many scores, in logarithms.

With M the largest |s| of a block, Σ|s|^n = M^n Σ(|s|/M)^n: the powers of numbers up to 1 cannot overflow, and M^n/n! is
added as a logarithm. So N = 200 and |s| = 10⁴ are as good as small ones.

>>> magnitudes = Magnitudes(rows=1, orders=3)
>>> magnitudes.add(torch.tensor([[-2.0, 2.0]]))
>>> [round(x, 4) for x in magnitudes.log_means()[0].exp().tolist()]    # 1, 2, 2²/2!, 2³/3!
[1.0, 2.0, 2.0, 1.3333]
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor

NEGLIGIBLE = 1e-200
"""Powers below this are set to 0: they add nothing, and subnormal numbers are slow."""


class Magnitudes:
    """log mean |s^n/n!| for n = 0 … orders, and log mean e^|s|, of a stream of scores for each of R rows."""

    def __init__(self, rows: int, orders: int) -> None:
        self.orders = orders
        self.count = 0
        self.log_sums = torch.full((rows, orders + 1), -torch.inf, dtype=torch.float64)
        self.log_total = torch.full((rows,), -torch.inf, dtype=torch.float64)
        """log Σ e^|s|: all orders together."""

    def add(self, scores: Float[Tensor, "R N"]) -> None:
        """Take these scores in."""
        size = scores.abs().double()
        largest = size.amax(1).clamp(min=1e-300)
        log_largest = torch.log(largest)
        self.log_total = torch.logaddexp(self.log_total, torch.logsumexp(size, 1))
        ratio = size / largest[:, None]
        power = torch.ones_like(ratio)
        log_factorials = torch.lgamma(torch.arange(self.orders + 1, dtype=torch.float64) + 1)
        for n in range(self.orders + 1):
            if n:
                torch.threshold_(power.mul_(ratio), NEGLIGIBLE, 0.0)
            log_sum = torch.log(power.sum(1)) + n * log_largest - log_factorials[n]
            self.log_sums[:, n] = torch.logaddexp(self.log_sums[:, n], log_sum)
        self.count += scores.shape[1]

    def merge(self, other: Magnitudes) -> None:
        """Take the scores of another stream in."""
        self.log_sums = torch.logaddexp(self.log_sums, other.log_sums)
        self.log_total = torch.logaddexp(self.log_total, other.log_total)
        self.count += other.count

    def log_means(self) -> Float[Tensor, "R O"]:
        """log mean |s^n/n!|; −inf where all scores are 0 and n > 0."""
        return self.log_sums - math.log(max(self.count, 1))

    def dominant(self) -> list[int]:
        """The order with the largest term of each row."""
        return self.log_sums.argmax(1).tolist()

    def shares(self) -> Float[Tensor, "R O"]:
        """The part of Σ e^|s| that the orders up to n make: from the part of order 0 up to 1."""
        return torch.exp(torch.logcumsumexp(self.log_sums, 1) - self.log_total[:, None]).clamp(max=1.0)
