"""exp as a polynomial on the range in which a query's scores lie: same state, lower order than a Taylor series at 0.

A polynomial of degree N has the features of orders 0 … N whatever its coefficients are, and these stand on the query's
side. So every query i can have the polynomial that fits exp on its own range [low_i, high_i]:

    f_i(x) = P(t)^p,   t = (x − centre_i) / radius_i,   P the Chebyshev series of exp(radius_i · t / p), degree N/p

A factor that is the same for all keys of a query cancels in the row sum, so shifts change nothing. With an even
power p no weight is negative, inside the range or outside. A `Range` says how the range is found: known beforehand,
or from running values of the keys, which are a state of fixed size. Bounds are taken without gradient.

>>> spec = AttentionSpec(score=ExpOnRange(degree=10, range=ExtremeKeys()))
>>> AttentionSpec.from_json(spec.to_json()) == spec
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from softmax_rnn.attention.parts import MAX_ORDER, Part, Polynomial, Score
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

    from softmax_rnn.attention.contraction import Contraction
    from softmax_rnn.attention.fitting import Fitted, KeySummary
    from softmax_rnn.attention.scores import Series

__all__ = [
    "AttentionSpec",
    "BoxRange",
    "ExpOnRange",
    "ExtremeKeys",
    "FixedRange",
    "MeanPoint",
    "MomentRange",
    "NormRange",
    "Range",
    "TrueRange",
]


@dataclass(frozen=True)
class Range(Part):
    """How the lowest and the highest score of a query are found or guessed."""

    slot: ClassVar[str] = "range"
    causal_state: ClassVar[bool] = True
    """Whether running values of fixed size are enough; otherwise keys must be kept."""


@dataclass(frozen=True, kw_only=True)
class FixedRange(Range):
    """The same range for all queries of a head: one pair of numbers, or one pair per query head."""

    kind: ClassVar[str] = "fixed"
    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.low) != len(self.high) or not self.low:
            raise InputError(f"range: expected as many low as high ends, got {len(self.low)} and {len(self.high)}")
        if not all(math.isfinite(a) and math.isfinite(b) and a <= b for a, b in zip(self.low, self.high, strict=True)):
            raise InputError("range: expected finite numbers, low ≤ high")


@dataclass(frozen=True)
class NormRange(Range):
    """±|q| · max|k|: one running number. Never too narrow."""

    kind: ClassVar[str] = "norm"


@dataclass(frozen=True)
class BoxRange(Range):
    """Σ_d of the smaller and of the larger of q_d·min_d and q_d·max_d, the running ends of each coordinate of the keys.

    2D running numbers. Never too narrow.
    """

    kind: ClassVar[str] = "box"


@dataclass(frozen=True)
class MeanPoint(Range):
    """The point q·k̄, k̄ the running mean of the keys: a Taylor series there instead of at 0. D + 1 running numbers."""

    kind: ClassVar[str] = "mean"


def _check_margins(below: float, above: float) -> None:
    if not (math.isfinite(below) and math.isfinite(above)):
        raise InputError(f"range: expected finite margins, got {below!r} and {above!r}")


@dataclass(frozen=True)
class MomentRange(Range):
    """q·k̄ − below · σ to q·k̄ + above · σ, σ² = qᵀ Σ q with the running covariance Σ of the keys: D² + D + 1 numbers."""

    kind: ClassVar[str] = "moments"
    below: float = 3.0
    above: float = 2.5

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_margins(self.below, self.above)
        if self.below + self.above <= 0:
            raise InputError(f"range: expected below + above > 0, got {self.below} and {self.above}")


@dataclass(frozen=True)
class ExtremeKeys(Range):
    """The scores of 2D keys that are kept: for each coordinate the key where it is largest, and where it is smallest.

    The range of these scores is never too wide; ``below`` and ``above`` widen it, in units of its width. 2D² numbers.
    """

    kind: ClassVar[str] = "extreme_keys"
    below: float = 0.1
    above: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_margins(self.below, self.above)
        if self.below + self.above <= -1:
            raise InputError(f"range: expected below + above > -1, got {self.below} and {self.above}")


@dataclass(frozen=True)
class TrueRange(Range):
    """The lowest and the highest score of the row itself: needs all keys, so it is a reference, not a recurrence."""

    kind: ClassVar[str] = "row"
    causal_state: ClassVar[bool] = False


@dataclass(frozen=True, kw_only=True)
class ExpOnRange(Score):
    """f(x) = P(x)^power, P the polynomial of degree/power that fits exp(x/power) on the range of the query."""

    kind: ClassVar[str] = "exp_on_range"
    degree: int
    range: Range
    power: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clamp is not None:
            raise InputError(f"clamp: a polynomial on a range has none, got {self.clamp!r}")
        if self.power < 1:
            raise InputError(f"power: expected 1 or more, got {self.power}")
        if not 1 <= self.degree <= MAX_ORDER or self.degree % self.power:
            raise InputError(f"degree: expected 1 to {MAX_ORDER}, a multiple of power {self.power}, got {self.degree}")

    @property
    def finite_features(self) -> Polynomial | None:
        """The orders that a state of fixed size holds; their coefficients differ from query to query."""
        return Polynomial(coefficients=(1.0,) * (self.degree + 1)) if self.range.causal_state else None

    @property
    def why_no_features(self) -> str:
        """Only a range that cannot be known from running values takes them away."""
        return "the true range of a row needs all its keys"

    @property
    def needs_wide_state(self) -> bool:
        """On a range that is too wide all weights of a row are far smaller than those at the range's end."""
        return True

    @property
    def work(self) -> tuple[float, float]:
        return 0.0, 4.0 * self.degree

    def can_be_negative(self, lowest: float | None) -> bool:
        """Outside its range, unless the power is even."""
        return self.power % 2 == 1

    def series(self, rows: Tensor | None = None) -> Series:
        """P(t)^power; ``rows`` are Chebyshev coefficients, without them P is a Taylor polynomial of exp(t/power)."""
        from softmax_rnn.attention import scores

        base = scores.Taylor(self.degree // self.power, self.power) if rows is None else scores.RowChebyshev(rows)
        return scores.Raised(base, self.power)

    def fit(self, job: Contraction, before: KeySummary, has_fixed_state: bool) -> Fitted:
        from softmax_rnn.attention.ranges.series import FittedOnRange

        return FittedOnRange(job, self, before.extent, has_fixed_state)

    def empty_extent(self, key_dim: int) -> Tensor | None:
        """What the range remembers before the first key."""
        from softmax_rnn.attention.ranges.bounds import empty_extent

        return empty_extent(self.range, key_dim)

    def text(self, x: str) -> str:
        series = "Taylor" if isinstance(self.range, MeanPoint) else "Chebyshev"
        base = f"{series}{self.degree // self.power}[{self.range.kind.replace('_', ' ')}]"
        return f"{base}({x})" if self.power == 1 else f"{base}({x}/{self.power})^{self.power}"
