"""Attention cut after every order n = 0 … N at once, beside softmax.

All T_n(x) of one x in two sweeps, none of which cancels: upwards the terms are added while they grow (n ≤ |x|), and
beyond it is exp minus the remainder, whose Kummer function M comes from a recurrence downwards in n:

    T_n(x) = e^x − x^(n+1)/(n+1)! · M_n(x)        M_n = 1 + x/(n+2) · M_{n+1}

>>> import math
>>> truncated = all_orders(torch.tensor([-20.0], dtype=torch.float64), 120, torch.zeros(1, dtype=torch.float64))
>>> abs(truncated[120].item() / math.exp(-20) - 1) < 1e-12
True
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.attention.polynomials import kummer_downwards
from softmax_rnn.errors import InputError

LARGEST_SCORE = 600.0
"""Beyond, e^−|x| is not a float64; trained models stay below 100."""
BLOCK_NUMBERS = 2**21
"""Weights of all orders that are in memory at once."""
LARGEST_ERROR = 2.0
"""Two averages of the same values differ by at most twice the largest |v|; worse errors count as this."""


def all_orders(x: Float[Tensor, "*shape"], orders: int, log_scale: Float[Tensor, "*shape"]) -> Tensor:
    """e^(−log_scale) T_n(x) for n = 0 … ``orders``, along a new first axis.

    A log_scale of |x| keeps all of them below 1 in size.
    """
    size = x.abs()
    values = x.new_empty(orders + 1, *x.shape)
    terms = [torch.exp(-log_scale)]
    total = torch.zeros_like(x)
    for n in range(orders + 1):
        total = total + terms[-1]
        values[n] = total
        terms.append(terms[-1] * x / (n + 1))
    limit = torch.exp(x - log_scale)
    for n, kummer in kummer_downwards(x.clamp(-orders - 2, orders + 2), orders):
        values[n] = torch.where(size < n + 1, limit - terms[n + 1] * kummer, values[n])
    return values


@dataclass(frozen=True)
class Truncated:
    """Of each query and order: how near attention cut after that order is to softmax."""

    errors: Float[Tensor, "O R"]
    """|o_n − o| / max|v|, at most `LARGEST_ERROR`."""
    mass: Float[Tensor, "O R"]
    """min(r, 1/r) of the ratio r of the row sums, 0 where it is not positive: 1 when all of the mass is reached."""
    numerator: Float[Tensor, "O R"]
    """The same of r = (y_n·y)/(y·y), y the numerator."""
    nonpositive: Float[Tensor, " O"]
    """Row sums that are not positive."""


def truncated_rows(scores: Float[Tensor, "R T"], seen: Tensor, values: Float[Tensor, "T E"], orders: int) -> Truncated:
    """Some queries of one head against all orders; ``seen`` says which keys each of them sees."""
    scores = scores.double().masked_fill(~seen, 0.0)
    values = values.double()
    largest = scores.abs().amax(1, keepdim=True)
    if float(largest.max()) > LARGEST_SCORE:
        raise InputError(f"scores: expected at most {LARGEST_SCORE:g} in size, got {float(largest.max()):g}")
    rows, time = scores.shape
    width = max(1, BLOCK_NUMBERS // ((orders + 2) * rows))
    u = torch.cat([values, torch.ones_like(values[:, :1])], 1)
    sums = scores.new_zeros(orders + 1, rows, u.shape[1])
    exact = scores.new_zeros(rows, u.shape[1])
    for start in range(0, time, width):
        keys = slice(start, start + width)
        x, inside = scores[:, keys], seen[:, keys]
        weights = all_orders(x, orders, largest.expand_as(x)).masked_fill_(~inside, 0.0)
        sums += weights @ u[keys]
        exact += torch.exp(x - largest).masked_fill(~inside, 0.0) @ u[keys]
    return _compare(sums, exact, float(values.norm(dim=-1).max()))


def _compare(sums: Tensor, exact: Tensor, largest_value: float) -> Truncated:
    outputs = sums[..., :-1] / sums[..., -1:]
    truth = exact[:, :-1] / exact[:, -1:]
    errors = (outputs - truth).norm(dim=-1) / max(largest_value, 1e-30)
    positive = sums[..., -1] > 0
    errors = torch.where(positive, errors.nan_to_num(nan=LARGEST_ERROR), LARGEST_ERROR).clamp(max=LARGEST_ERROR)
    mass = _reached(sums[..., -1] / exact[:, -1])
    numerator = _reached((sums[..., :-1] * exact[:, :-1]).sum(-1) / exact[:, :-1].square().sum(-1))
    return Truncated(errors, mass, numerator, (~positive).double().sum(1))


def _reached(ratio: Tensor) -> Tensor:
    return torch.where(ratio > 0, torch.minimum(ratio, 1 / ratio), 0.0)


def first_order_within(errors: list[float], epsilon: float) -> int | None:
    """The smallest order from which on all errors are at most epsilon; None where even the last is larger.

    >>> first_order_within([1.0, 0.2, 0.005, 0.02, 0.001], 0.01)
    4
    """
    lowest = None
    for n in range(len(errors) - 1, -1, -1):
        if not errors[n] <= epsilon:
            break
        lowest = n
    return lowest
