"""One head's attention cut after an order, beside softmax: weights, and what each order gives to each key.

Weights come from `attend` itself: with the identity in place of the values, its output is the matrix of weights. What
order n gives to key j of one query is f_n(x_j) − f_(n−1)(x_j), f_n the method's polynomial of that degree, in units of
softmax's denominator; summed over all orders it is softmax's weight.

>>> torch.manual_seed(0)  # doctest: +ELLIPSIS
<torch._C.Generator object at ...>
>>> head = Head(*torch.randn(3, 6, 4, dtype=torch.float64))
>>> terms = order_terms("taylor", 30, head, query=5)
>>> bool(torch.allclose(terms.sum(0), softmax_weights(head)[5], atol=1e-10))
True
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.analysis.methods import HeadRanges, find_method, method_spec, nearest_order
from softmax_rnn.analysis.reading import Head
from softmax_rnn.attention.attend import attend
from softmax_rnn.attention.contraction import Contraction
from softmax_rnn.attention.ranges.kinds import ExpOnRange
from softmax_rnn.attention.ranges.series import FittedOnRange, chebyshev_coefficients
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.attention.visibility import Visibility
from softmax_rnn.errors import InputError


def head_spec(method: str, order: int, head: Head) -> AttentionSpec:
    """Softmax attention of this head with exp replaced; queries bring the scale of the scores with them."""
    spec = method_spec(method, order, _ranges(head))
    score: Any = spec.score
    return replace(spec, score=replace(score, scale=1.0))


def softmax_weights(head: Head) -> Float[Tensor, "T T"]:
    """Softmax's weights, 0 for keys that come later."""
    return head.scores.masked_fill(_later(head), -torch.inf).softmax(-1)


def cut_weights(method: str, order: int, head: Head) -> Float[Tensor, "T T"]:
    """The weights with the method's polynomial in place of exp, each row divided by its sum.

    A row sum that is 0 gives a row that is not finite.
    """
    one = torch.eye(len(head.k), dtype=torch.float64)
    return _attend(head_spec(method, order, head), head, one)


def output_error(method: str, order: int, head: Head) -> Float[Tensor, " T"]:
    """|o_N − o| / max|v| of every query."""
    difference = _attend(head_spec(method, order, head), head, head.v) - softmax_weights(head) @ head.v
    return difference.norm(dim=-1) / head.v.norm(dim=-1).max().clamp(min=1e-30)


def order_terms(method: str, order: int, head: Head, query: int) -> Float[Tensor, "O J"]:
    """What each order 0, step, 2·step … gives to each key of one query, in units of softmax's denominator."""
    if not 0 <= query < len(head.q):
        raise InputError(f"query: expected 0 to {len(head.q) - 1}, got {query}")
    scores = head.scores[query, : query + 1]
    chosen = find_method(method)
    steps = nearest_order(method, order) // chosen.step
    scale, terms = _series(method, steps, head, query, scores)
    sums = terms.cumsum(0) ** chosen.power
    each = torch.cat([sums[:1], sums[1:] - sums[:-1]]) if chosen.power > 1 else terms
    return each * torch.exp(scale - scores.logsumexp(0))


def distance_by_order(terms: Float[Tensor, "O J"], weights: Float[Tensor, " J"]) -> list[float]:
    """Half the sum of |difference| between the weights after each order and softmax's: 0 the same, 1 disjoint."""
    sums = terms.cumsum(0)
    cut = sums / sums.sum(1, keepdim=True)
    return ((cut - weights).abs().sum(1) / 2).tolist()


def _series(method: str, steps: int, head: Head, query: int, x: Tensor) -> tuple[Tensor | float, Tensor]:
    """The terms of P for the scores of one query, and the logarithm of what f = P^power is multiplied by."""
    chosen = find_method(method)
    if chosen.range is None:
        return 0.0, _powers(x, steps)
    score = head_spec(method, max(steps, 1) * chosen.step, head).score
    assert isinstance(score, ExpOnRange)
    one = (None, None)
    job = Contraction(score, head.q[None, None, None], head.k[one], head.v[one], None, Visibility(), False)
    fitted = FittedOnRange(job, score, None, False)
    centre, radius, scale = (y[0, 0, 0, query] for y in (fitted.centre, fitted.radius, fitted.log_scale))
    if fitted.at_a_point:
        return scale, _powers((x - centre) / chosen.power, steps)
    t = (x - centre) / radius
    return scale, chebyshev_coefficients(radius, steps, chosen.power)[:, None] * _chebyshev(t, steps)


def _powers(x: Tensor, steps: int) -> Tensor:
    """x^n/n!."""
    terms = [torch.ones_like(x)]
    for n in range(1, steps + 1):
        terms.append(terms[-1] * x / n)
    return torch.stack(terms)


def _chebyshev(t: Tensor, steps: int) -> Tensor:
    """T_n(t)."""
    terms = [torch.ones_like(t), t]
    while len(terms) <= steps:
        terms.append(2 * t * terms[-1] - terms[-2])
    return torch.stack(terms[: steps + 1])


def _attend(spec: AttentionSpec, head: Head, values: Tensor) -> Tensor:
    q, k, v = (x[None, None] for x in (head.q, head.k, values))
    return attend(spec, q, k, v, form="parallel", nonpositive="ignore")[0, 0]


def _ranges(head: Head) -> HeadRanges:
    seen = head.scores[~_later(head)]
    return (float(seen.min()),), (float(seen.max()),)


def _later(head: Head) -> Tensor:
    return torch.ones(len(head.q), len(head.q), dtype=torch.bool).triu(1)
