"""A polynomial of a score that is expanded at a point m: f(x − m) as a polynomial in x whose coefficients depend on m.

    f(x − m) = Σ_p x^p Σ_{n≥p} c_n C(n, p) (−m)^(n−p)

A state of bare monomials serves any coefficients on the query's side, so m may differ from query to query.
"""

from __future__ import annotations

from math import comb

import torch
from torch import Tensor

from softmax_rnn.attention.parts import Polynomial


def moved_coefficients(score: Polynomial, m: Tensor) -> Tensor:
    """The coefficients of x^0 … x^degree as a last axis.

    >>> from softmax_rnn.attention.parts import taylor_score
    >>> moved_coefficients(taylor_score(2), torch.tensor(2.0)).tolist()      # 1 + (x − 2) + (x − 2)²/2
    [1.0, -1.0, 0.5]
    """
    powers = [torch.ones_like(m)]
    for _ in range(score.degree):
        powers.append(powers[-1] * -m)
    c, orders = score.coefficients, range(score.degree + 1)
    rows = [torch.stack([c[n] * comb(n, p) * powers[n - p] for n in orders if n >= p]).sum(0) for p in orders]
    return torch.stack(rows, dim=-1)
