"""A contraction whose polynomial differs from query to query, written in terms that the forms know.

With t = (x − centre)/radius and the range's upper end taken out of the weights (the row's log_scale), the Chebyshev
series of exp(radius (t − 1)/p) has coefficients between 0 and 1, whatever the scores are.

Forms that see keys get t itself as a dot product, q' = [q/radius, −centre/radius] and k' = [k, 1], and evaluate the
series in t. Forms that go through a state get the same polynomial in powers of q·k/radius. With a `MeanPoint` there is
no radius: the polynomial is the Taylor polynomial of exp in t = x − centre. All of it is float64: where a range is
wider than the scores, every weight of a row is far smaller than the polynomial's own size.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.constants import constant
from softmax_rnn.attention.contraction import Contraction
from softmax_rnn.attention.fitting import Fitted, KeySummary
from softmax_rnn.attention.parts import taylor_coefficients
from softmax_rnn.attention.ranges.bounds import Bounds, running_bounds
from softmax_rnn.attention.ranges.kinds import ExpOnRange, MeanPoint

SMALLEST_RADIUS = 0.5
"""A narrower range gains nothing, and t would be large just outside."""
NODES = 128


def chebyshev_coefficients(radius: Float[Tensor, "*rows"], degree: int, power: int = 1) -> Float[Tensor, "*rows O"]:
    """The Chebyshev series of exp(radius (t − 1) / power) on −1 ≤ t ≤ 1, cut after ``degree``.

    >>> c = chebyshev_coefficients(torch.tensor([2.0], dtype=torch.float64), 12)
    >>> from softmax_rnn.attention.polynomials import clenshaw
    >>> t = torch.tensor([[0.3]], dtype=torch.float64)
    >>> abs(float(clenshaw(c, t)) - math.exp(2 * (0.3 - 1))) < 1e-9
    True
    """
    nodes, series = _transform(degree, radius.device)
    return torch.exp(radius[..., None] / power * (nodes - 1)) @ series


@constant
def _transform(degree: int, device: torch.device) -> tuple[Float[Tensor, " M"], Float[Tensor, "M O"]]:
    """Chebyshev nodes, and the cosine transform from values there to coefficients."""
    count = max(NODES, 2 * degree + 2)
    angle = (torch.arange(count, dtype=torch.float64) + 0.5) * math.pi / count
    series = torch.cos(angle[:, None] * torch.arange(degree + 1, dtype=torch.float64)) * 2 / count
    series[:, 0] /= 2
    return torch.cos(angle).to(device), series.to(device)


class FittedOnRange(Fitted):
    """The contraction in terms of each row's range."""

    def __init__(
        self, job: Contraction, score: ExpOnRange, before: Float[Tensor, "B K S"] | None, has_fixed_state: bool
    ) -> None:
        super().__init__(job, has_fixed_state)
        self.score = score
        self.bounds: Bounds = running_bounds(score.range, job.q, job.k, job.visibility, before)
        self.at_a_point = isinstance(score.range, MeanPoint)
        self.centre = (self.bounds.low + self.bounds.high) / 2
        self.radius = ((self.bounds.high - self.bounds.low) / 2).clamp(min=SMALLEST_RADIUS)
        if self.at_a_point:
            self.radius = torch.ones_like(self.radius)
        self.log_scale = self.centre if self.at_a_point else self.centre + self.radius

    @property
    def summary(self) -> KeySummary:
        return KeySummary(extent=self.bounds.extent)

    def for_keys(self) -> Contraction:
        """The dot product is t, the rows are Chebyshev coefficients."""
        job, steps = self.job.widened(), self.score.degree // self.score.power
        q = torch.cat([job.q / self.radius[..., None], -(self.centre / self.radius)[..., None]], -1)
        k = torch.cat([job.k, torch.ones_like(job.k[..., :1])], -1)
        rows = None if self.at_a_point else chebyshev_coefficients(self.radius, steps, self.score.power)
        return replace(job, q=q, k=k, rows=rows, log_scale=self.log_scale)

    def for_state(self) -> Contraction:
        """The same polynomial in powers of the dot product, each row its own."""
        job, power, polynomial = self.job.widened(), self.score.power, self.score.finite_features
        assert polynomial is not None
        steps = self.score.degree // power
        if self.at_a_point:
            scaled = [c / power**n for n, c in enumerate(taylor_coefficients(steps))]
            rows = torch.stack([torch.full_like(self.centre, c) for c in scaled], -1)
        else:
            monomials = _monomials_of_chebyshev(steps, self.centre.device)
            rows = chebyshev_coefficients(self.radius, steps, power) @ monomials
        rows = _shifted(_to_power(rows, power), self.centre / self.radius)
        q = job.q / self.radius[..., None]
        return replace(job, score=polynomial, q=q, rows=rows, log_scale=self.log_scale)


@constant
def _monomials_of_chebyshev(degree: int, device: torch.device) -> Float[Tensor, "O O"]:
    """Row n: the coefficients of T_n in powers of t."""
    table = np.zeros((degree + 1, degree + 1))
    for n in range(degree + 1):
        row = np.polynomial.chebyshev.cheb2poly([0.0] * n + [1.0])
        table[n, : len(row)] = row
    return torch.from_numpy(table).to(device)


def _to_power(rows: Float[Tensor, "*rows O"], power: int) -> Float[Tensor, "*rows N"]:
    """The coefficients of the polynomial raised to a power."""
    total = rows
    for _ in range(power - 1):
        longer = rows.new_zeros(*rows.shape[:-1], total.shape[-1] + rows.shape[-1] - 1)
        for n in range(rows.shape[-1]):
            longer[..., n : n + total.shape[-1]] += rows[..., n : n + 1] * total
        total = longer
    return total


def _shifted(rows: Float[Tensor, "*rows O"], shift: Float[Tensor, "*rows"]) -> Float[Tensor, "*rows O"]:
    """The coefficients in x of a polynomial in t = x − shift, by Horner's scheme on polynomials."""
    total = torch.zeros_like(rows)
    for n in range(rows.shape[-1] - 1, -1, -1):
        moved = torch.nn.functional.pad(total[..., :-1], (1, 0))
        total = moved - shift[..., None] * total
        total[..., 0] += rows[..., n]
    return total
