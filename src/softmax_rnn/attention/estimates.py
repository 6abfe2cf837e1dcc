"""exp with a state of fixed size, in two ways: cut after an order, or estimated by as many random features.

>>> for line in side_by_side(order=2, features=2145, count=2145): print(line)
exp(x) by Taylor order 2 (2,145 features) and by 2,145 random features, relative error where scores reach ±r:
  r = 1    x = r: 8.0 % and 15.8 %    x = 0: 0.0 % and 5.5 %    x = −r: 35.9 % and 0.0 %
  r = 2    x = r: 32.3 % and 118 %    x = 0: 0.0 % and 15.8 %    x = −r: 639 % and 0.0 %
  r = 4    x = r: 76.2 % and 6436 %    x = 0: 0.0 % and 118 %    x = −r: 27199 % and 0.0 %
"""

from __future__ import annotations

import math

from softmax_rnn.attention.algebra import fixed_state_score, n_features
from softmax_rnn.attention.parts import RandomFeatures, taylor_coefficients, taylor_score
from softmax_rnn.attention.parts.random_features import relative_deviation
from softmax_rnn.attention.spec import AttentionSpec

REACHES = (1.0, 2.0, 4.0)


def estimates(spec: AttentionSpec, dim: int) -> list[str]:
    """Both ways at the size of this spec's state, or the nearest; nothing for a spec that does neither."""
    if isinstance(spec.feature_map, RandomFeatures):
        count, order = spec.feature_map.count, 0
        sizes = [1]
        while sizes[-1] < count:
            order += 1
            sizes.append(n_features(taylor_score(order), dim))
        if order and count**2 < sizes[-1] * sizes[-2]:  # the one before is nearer, as a ratio
            order -= 1
        return side_by_side(order, sizes[order], count)
    score = spec.score.as_polynomial
    if spec.feature_map is not None or score is None or not score.is_taylor or not score.degree:
        return []
    if fixed_state_score(spec, dim) is None:
        return []
    count = n_features(score, dim)
    return side_by_side(score.degree, count, count)


def side_by_side(order: int, features: int, count: int) -> list[str]:
    """|q| and |k| are equal, and such that their score is r where they are parallel."""
    said = [
        f"exp(x) by Taylor order {order} ({features:,} features) and by {count:,} random features,"
        " relative error where scores reach ±r:"
    ]
    for reach in REACHES:
        at = {"x = r": reach, "x = 0": 0.0, "x = −r": -reach}
        pairs = (
            f"{name}: {_percent(_taylor_error(order, x))} and {_percent(relative_deviation(count, reach, x))}"
            for name, x in at.items()
        )
        said.append(f"  r = {reach:g}    " + "    ".join(pairs))
    return said


def _taylor_error(order: int, x: float) -> float:
    return abs(math.fsum(c * x**n for n, c in enumerate(taylor_coefficients(order))) / math.exp(x) - 1)


def _percent(error: float) -> str:
    return f"{100 * error:.1f} %" if error < 1 else f"{100 * error:.0f} %"
