"""How far attention cut after order N can be from softmax.

With |x| ≤ R the weights differ by at most δ = R^(N+1)/(N+1)! · e^R, relative to exp(x) (Lagrange's remainder,
worst at x = −R). Weights (1 + δ_j) exp(x_j) with |δ_j| ≤ δ < 1 give averages that differ from softmax by at most
2δ/(1 − δ) · max|v|.
"""

from __future__ import annotations

import math


def weight_error(order: int, radius: float) -> float:
    """δ: the largest relative difference of T_N(x) and exp(x) for |x| ≤ radius.

    >>> weight_error(1, 0.0)
    0.0
    """
    if radius == 0:
        return 0.0
    log = (order + 1) * math.log(radius) - math.lgamma(order + 2) + radius
    return math.exp(log) if log < 700 else math.inf


def output_error(order: int, radius: float) -> float:
    """The largest difference of the outputs, in units of the largest |v|; inf where the bound says nothing.

    >>> output_error(10, 1.0) < 1e-6 < output_error(4, 1.0)
    True
    """
    delta = weight_error(order, radius)
    return 2 * delta / (1 - delta) if delta < 1 else math.inf


def guaranteed_order(radius: float, error: float, most: int = 1000) -> int | None:
    """The smallest order whose outputs are within ``error`` of softmax for all scores in ±radius."""
    return next((order for order in range(most + 1) if output_error(order, radius) <= error), None)
