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
from functools import cache

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.contraction import Contraction, widen
from softmax_rnn.attention.parts import taylor_coefficients
from softmax_rnn.attention.ranges.bounds import Bounds
from softmax_rnn.attention.ranges.kinds import ExpOnRange, MeanPoint

SMALLEST_RADIUS = 0.5
"""A narrower range gains nothing, and t would be large just outside."""
NODES = 128


def chebyshev_coefficients(radius: Float[Tensor, "*rows"], degree: int, power: int = 1) -> Float[Tensor, "*rows O"]:
    """The Chebyshev series of exp(radius (t − 1) / power) on −1 ≤ t ≤ 1, cut after ``degree``.

    >>> c = chebyshev_coefficients(torch.tensor([2.0], dtype=torch.float64), 12)
    >>> from softmax_rnn.attention.scores import clenshaw
    >>> t = torch.tensor([[0.3]], dtype=torch.float64)
    >>> abs(float(clenshaw(c, t)) - math.exp(2 * (0.3 - 1))) < 1e-9
    True
    """
    nodes, series = _transform(degree)
    nodes, series = nodes.to(radius.device), series.to(radius.device)
    return torch.exp(radius[..., None] / power * (nodes - 1)) @ series


@cache
def _transform(degree: int) -> tuple[Float[Tensor, " M"], Float[Tensor, "M O"]]:
    """Chebyshev nodes, and the cosine transform from values there to coefficients."""
    count = max(NODES, 2 * degree + 2)
    angle = (torch.arange(count, dtype=torch.float64) + 0.5) * math.pi / count
    series = torch.cos(angle[:, None] * torch.arange(degree + 1, dtype=torch.float64)) * 2 / count
    series[:, 0] /= 2
    return torch.cos(angle), series


def _centre_and_radius(bounds: Bounds) -> tuple[Tensor, Tensor]:
    return (bounds.low + bounds.high) / 2, ((bounds.high - bounds.low) / 2).clamp(min=SMALLEST_RADIUS)


def for_keys(job: Contraction, bounds: Bounds) -> Contraction:
    """For forms that see keys: the dot product is t, the rows are Chebyshev coefficients."""
    score, job = job.score, widen(job)
    assert isinstance(score, ExpOnRange)
    centre, radius = _centre_and_radius(bounds)
    rows = None
    if isinstance(score.range, MeanPoint):
        q, log_scale = torch.cat([job.q, -centre[..., None]], -1), centre
    else:
        inverse = (1 / radius)[..., None]
        q = torch.cat([job.q * inverse, -(centre / radius)[..., None]], -1)
        rows = chebyshev_coefficients(radius, score.degree // score.power, score.power)
        log_scale = centre + radius
    k = torch.cat([job.k, torch.ones_like(job.k[..., :1])], -1)
    return replace(job, q=q, k=k, rows=rows, log_scale=log_scale)


def for_state(job: Contraction, bounds: Bounds) -> Contraction:
    """For forms that go through a state: the same polynomial in powers of the dot product, each row its own."""
    score, job = job.score, widen(job)
    assert isinstance(score, ExpOnRange) and score.finite_features is not None
    centre, radius = _centre_and_radius(bounds)
    steps = score.degree // score.power
    if isinstance(score.range, MeanPoint):
        radius, log_scale = torch.ones_like(radius), centre
        scaled = [c / score.power**n for n, c in enumerate(taylor_coefficients(steps))]
        rows = torch.tensor(scaled, dtype=torch.float64, device=centre.device).expand(*centre.shape, -1)
    else:
        log_scale = centre + radius
        monomials = torch.from_numpy(_monomials_of_chebyshev(steps)).to(centre.device)
        rows = chebyshev_coefficients(radius, steps, score.power) @ monomials
    rows = _shifted(_to_power(rows, score.power), centre / radius)
    q = job.q / radius[..., None]
    return replace(job, score=score.finite_features, q=q, rows=rows, log_scale=log_scale)


@cache
def _monomials_of_chebyshev(degree: int) -> np.ndarray:
    """Row n: the coefficients of T_n in powers of t."""
    table = np.zeros((degree + 1, degree + 1))
    for n in range(degree + 1):
        row = np.polynomial.chebyshev.cheb2poly([0.0] * n + [1.0])
        table[n, : len(row)] = row
    return table


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
