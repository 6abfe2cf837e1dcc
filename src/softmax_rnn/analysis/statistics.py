"""What the scores of attention are like, and what its Taylor orders do, head by head, over a text of any length.

The scores of a window are looked at block by block and forgotten: memory is a block, and a few numbers for each head
and order. Queries for which attention itself is compared, order by order, are a sample of each window's queries,
evenly spaced.

>>> statistics = TermStatistics(heads=2, orders=4)
>>> statistics.add(torch.randn(2, 8, 4), torch.randn(1, 8, 4), torch.randn(1, 8, 4))
>>> heads = statistics.heads(epsilon=0.01)
>>> len(heads), heads[0].pairs, len(heads[0].log_terms)
(2, 36, 5)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from softmax_rnn.analysis.magnitudes import Magnitudes
from softmax_rnn.analysis.remainder import guaranteed_order
from softmax_rnn.analysis.sketch import Sketch
from softmax_rnn.analysis.truncated_rows import Truncated, first_order_within, truncated_rows
from softmax_rnn.errors import InputError

QUANTILES = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
BLOCK = 256
SAMPLED_ROWS = 32
MOST_ORDERS = 1000


@dataclass(frozen=True)
class HeadTerms:
    """One head (or one layer: all its heads together); lists over orders begin with order 0."""

    pairs: int
    mean: float
    deviation: float
    low: float
    high: float
    quantiles: dict[str, float]
    log_terms: list[float]
    """log mean |s^n/n!|."""
    dominant_order: int
    term_share: list[float]
    """The part of mean e^|s| that the orders up to n make."""
    numerator_reached: list[float]
    mass_reached: list[float]
    """Means over queries of min(r, 1/r), r the numerator's, or the row sum's, ratio to softmax."""
    error: list[float]
    worst_error: list[float]
    """Mean and largest |o_n − o|/max|v| over queries, at most 2."""
    nonpositive: list[int]
    """Queries, of those compared, whose row sum is not positive."""
    queries: int
    order_within: int | None
    """From this order on the mean error is at most ε; None: not by the last order."""
    order_within_all: int | None
    """The same for the worst query."""
    order_guaranteed: int | None
    """What the remainder's bound promises for all scores up to the largest |s|; None: not by order 1000."""


class TermStatistics:
    """The statistics of one layer, filled window by window."""

    def __init__(self, heads: int, orders: int, sampled_rows: int = SAMPLED_ROWS) -> None:
        if not 1 <= orders <= MOST_ORDERS:
            raise InputError(f"orders: expected 1 to {MOST_ORDERS}, got {orders}")
        if sampled_rows < 1:
            raise InputError(f"sampled_rows: expected 1 or more, got {sampled_rows}")
        self.orders, self.sampled_rows = orders, sampled_rows
        self.sketch, self.magnitudes = Sketch(heads), Magnitudes(heads, orders)
        shape = (heads, orders + 1)
        self.queries = 0
        self.error = torch.zeros(shape, dtype=torch.float64)
        self.worst = torch.zeros(shape, dtype=torch.float64)
        self.mass = torch.zeros(shape, dtype=torch.float64)
        self.numerator = torch.zeros(shape, dtype=torch.float64)
        self.nonpositive = torch.zeros(shape, dtype=torch.float64)

    @torch.no_grad()
    def add(self, q: Float[Tensor, "H T D"], k: Float[Tensor, "K T D"], v: Float[Tensor, "K T E"]) -> None:
        """A window: causal attention of T positions; the scale of the scores is part of q."""
        heads, time, _ = q.shape
        q, k, v = (x.detach().cpu() for x in (q, k, v))
        k, v = (x.repeat_interleave(heads // x.shape[0], 0) for x in (k, v))
        for start in range(0, time, BLOCK):
            stop = min(start + BLOCK, time)
            for first in range(0, stop, BLOCK):
                last = min(first + BLOCK, stop)
                scores = (q[:, start:stop] @ k[:, first:last].mT).double()
                self._add_scores(scores, torch.arange(start, stop)[:, None] >= torch.arange(first, last))
        self._compare(q.double(), k.double(), v.double())

    def _add_scores(self, scores: Float[Tensor, "H Q J"], seen: Tensor) -> None:
        flat = scores.flatten(1) if bool(seen.all()) else scores[:, seen]
        self.sketch.add(flat)
        self.magnitudes.add(flat)

    def _compare(self, q: Tensor, k: Tensor, v: Tensor) -> None:
        time = q.shape[1]
        rows = torch.linspace(0, time - 1, min(self.sampled_rows, time)).round().long()
        seen = rows[:, None] >= torch.arange(time)
        for head in range(q.shape[0]):
            scores = q[head, rows] @ k[head].mT
            self._take(head, truncated_rows(scores, seen, v[head], self.orders))
        self.queries += len(rows)

    def _take(self, head: int, rows: Truncated) -> None:
        self.error[head] += rows.errors.sum(1)
        self.worst[head] = torch.maximum(self.worst[head], rows.errors.amax(1))
        self.mass[head] += rows.mass.sum(1)
        self.numerator[head] += rows.numerator.sum(1)
        self.nonpositive[head] += rows.nonpositive

    def heads(self, epsilon: float) -> list[HeadTerms]:
        """The measurements, head by head; ``epsilon`` is the error to find orders for."""
        if not self.sketch.count:
            raise InputError("scores: expected at least one window, got none")
        logs, shares, dominant = self.magnitudes.log_means(), self.magnitudes.shares(), self.magnitudes.dominant()
        return [self._head(h, epsilon, logs[h], shares[h], dominant[h]) for h in range(len(dominant))]

    def layer(self, epsilon: float) -> HeadTerms:
        """All heads together."""
        heads = len(self.sketch.mean)
        one = TermStatistics(1, self.orders, self.sampled_rows)
        for h in range(heads):
            one.sketch.merge(_row(self.sketch, h))
            one.magnitudes.merge(_magnitudes_row(self.magnitudes, h))
        one.queries = self.queries * heads
        for name in ("error", "mass", "numerator", "nonpositive"):
            getattr(one, name).copy_(getattr(self, name).sum(0, keepdim=True))
        one.worst.copy_(self.worst.amax(0, keepdim=True))
        return one.heads(epsilon)[0]

    def _head(self, h: int, epsilon: float, logs: Tensor, shares: Tensor, dominant: int) -> HeadTerms:
        sketch, count = self.sketch, max(self.queries, 1)
        radius = max(-float(sketch.low[h]), float(sketch.high[h]), 0.0)
        error, worst = (self.error[h] / count).tolist(), self.worst[h].tolist()
        return HeadTerms(
            pairs=sketch.count,
            mean=float(sketch.mean[h]),
            deviation=float(sketch.deviation[h]),
            low=float(sketch.low[h]),
            high=float(sketch.high[h]),
            quantiles={f"{part:g}": float(sketch.quantile(part)[h]) for part in QUANTILES},
            log_terms=logs.tolist(),
            dominant_order=dominant,
            term_share=shares.tolist(),
            numerator_reached=(self.numerator[h] / count).tolist(),
            mass_reached=(self.mass[h] / count).tolist(),
            error=error,
            worst_error=worst,
            nonpositive=self.nonpositive[h].long().tolist(),
            queries=self.queries,
            order_within=first_order_within(error, epsilon),
            order_within_all=first_order_within(worst, epsilon),
            order_guaranteed=guaranteed_order(radius, epsilon, MOST_ORDERS),
        )


def _row(sketch: Sketch, h: int) -> Sketch:
    one = Sketch(1)
    one.count = sketch.count
    for name in ("mean", "squares", "low", "high", "bins"):
        setattr(one, name, getattr(sketch, name)[h : h + 1].clone())
    return one


def _magnitudes_row(magnitudes: Magnitudes, h: int) -> Magnitudes:
    one = Magnitudes(1, magnitudes.orders)
    one.count = magnitudes.count
    one.log_sums, one.log_total = magnitudes.log_sums[h : h + 1].clone(), magnitudes.log_total[h : h + 1].clone()
    return one
