"""The distribution of a stream of numbers in fixed memory: moments, ends, and a histogram for quantiles.

The bins have one width, so a quantile inside the histogram is off by at most half a bin (`QUANTILE_ERROR`). What lies
beyond ±`REACH` falls into the outermost bins; the smallest and the largest number are always exact. Two sketches of two
streams add up to the sketch of both.

>>> sketch = Sketch(1)
>>> sketch.add(torch.linspace(-1, 3, 4001, dtype=torch.float64)[None])
>>> round(sketch.mean[0].item(), 6), abs(sketch.quantile(0.25)[0].item()) <= 0.01
(1.0, True)
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

REACH = 128.0
BINS_PER_UNIT = 64
BINS = int(2 * REACH * BINS_PER_UNIT)
QUANTILE_ERROR = 0.5 / BINS_PER_UNIT


class Sketch:
    """A sketch for each of R rows; `add` takes any number of values, one row at a time."""

    def __init__(self, rows: int) -> None:
        self.count = 0
        self.mean = torch.zeros(rows, dtype=torch.float64)
        self.squares = torch.zeros(rows, dtype=torch.float64)
        """Σ (x − mean)²."""
        self.low = torch.full((rows,), torch.inf, dtype=torch.float64)
        self.high = torch.full((rows,), -torch.inf, dtype=torch.float64)
        self.bins = torch.zeros(rows, BINS, dtype=torch.int64)

    @property
    def deviation(self) -> Float[Tensor, " R"]:
        return (self.squares / max(self.count, 1)).sqrt()

    def add(self, values: Float[Tensor, "R N"]) -> None:
        """Take these values in."""
        if not values.shape[1]:
            return
        values = values.double()
        mean = values.mean(1)
        self._take_moments(values.shape[1], mean, (values - mean[:, None]).square().sum(1))
        self.low = torch.minimum(self.low, values.amin(1))
        self.high = torch.maximum(self.high, values.amax(1))
        places = ((values + REACH) * BINS_PER_UNIT).long().clamp_(0, BINS - 1)
        for row, bins in enumerate(places):
            self.bins[row] += torch.bincount(bins, minlength=BINS)

    def merge(self, other: Sketch) -> None:
        """Take the values of another sketch in."""
        if other.count:
            self._take_moments(other.count, other.mean, other.squares)
        self.low = torch.minimum(self.low, other.low)
        self.high = torch.maximum(self.high, other.high)
        self.bins += other.bins

    def _take_moments(self, count: int, mean: Tensor, squares: Tensor) -> None:
        total = self.count + count
        gap = mean - self.mean
        self.squares = self.squares + squares + gap.square() * (self.count * count / total)
        self.mean = self.mean + gap * (count / total)
        self.count = total

    def quantile(self, part: float) -> Float[Tensor, " R"]:
        """The value below which this part of the numbers lies, within `QUANTILE_ERROR`."""
        wanted = torch.full((len(self.bins), 1), part * self.count, dtype=torch.float64)
        place = torch.searchsorted(self.bins.cumsum(1).double(), wanted)[:, 0].clamp_(max=BINS - 1)
        middle = (place.double() + 0.5) / BINS_PER_UNIT - REACH
        return torch.minimum(torch.maximum(middle, self.low), self.high)
