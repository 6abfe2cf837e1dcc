"""How close a guessed range of scores comes to the true one: widths, and rows that reach beyond it.

>>> import torch
>>> q, k = torch.randn(2, 16, 4), torch.randn(1, 16, 4)
>>> coverage = Coverage(); coverage.add(BoxRange(), q, k)
>>> coverage.result()["rows_outside"], coverage.result()["width_median"] >= 1
(0.0, True)
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from softmax_rnn.analysis.sketch import Sketch
from softmax_rnn.attention.ranges.bounds import running_bounds
from softmax_rnn.attention.ranges.kinds import BoxRange, Range, TrueRange
from softmax_rnn.attention.visibility import Visibility

__all__ = ["BoxRange", "Coverage"]

FIRST_ROW = 8
"""Earlier queries see so few keys that any range is trivial."""
TOLERANCE = 1e-9


class Coverage:
    """Guessed against true ranges, query by query, streamed over windows and layers."""

    def __init__(self) -> None:
        self.widths, self.above, self.below = Sketch(1), Sketch(1), Sketch(1)
        self.rows, self.outside = 0, 0

    def add(self, part: Range, q: Float[Tensor, "H T D"], k: Float[Tensor, "K T D"]) -> None:
        """The queries of a window; the scale of the scores is part of q."""
        grouped = q.unflatten(0, (k.shape[0], -1))[None]
        guess = running_bounds(part, grouped, k[None], Visibility(), None)
        truth = running_bounds(TrueRange(), grouped, k[None], Visibility(), None)
        late = (..., slice(FIRST_ROW, None))
        low, high, least, most = (x[late].flatten() for x in (guess.low, guess.high, truth.low, truth.high))
        self.widths.add(((high - low) / (most - least).clamp(min=1e-3))[None])
        self.above.add((high - most)[None])
        self.below.add((least - low)[None])
        self.rows += len(low)
        self.outside += int(((low > least + TOLERANCE) | (high < most - TOLERANCE)).sum())

    def result(self) -> dict[str, float]:
        """Ratios of the widths (guessed / true), how far the ends lie outside, and the part of rows not covered."""
        return {
            **{f"width_{name}": float(self.widths.quantile(part)) for name, part in _PARTS.items()},
            **{f"above_{name}": float(self.above.quantile(part)) for name, part in _PARTS.items()},
            **{f"below_{name}": float(self.below.quantile(part)) for name, part in _PARTS.items()},
            "rows_outside": self.outside / max(self.rows, 1),
            "rows": float(self.rows),
        }


_PARTS = {"5": 0.05, "median": 0.5, "95": 0.95}
