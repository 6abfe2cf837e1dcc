"""Polynomials in place of exp, by name: the degree is the state's, the method only chooses the coefficients.

>>> spec = method_spec("extreme_keys_squared", 10)
>>> spec.score.degree, spec.score.power
(10, 2)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from softmax_rnn.attention.parts import taylor_score
from softmax_rnn.attention.ranges.kinds import (
    BoxRange,
    ExpOnRange,
    ExtremeKeys,
    FixedRange,
    MeanPoint,
    MomentRange,
    NormRange,
    Range,
    TrueRange,
)
from softmax_rnn.attention.spec import AttentionSpec
from softmax_rnn.errors import InputError, unknown_name

HeadRanges = tuple[tuple[float, ...], tuple[float, ...]]
"""The lowest and the highest score of each query head."""


@dataclass(frozen=True)
class Method:
    """How the coefficients of a degree are chosen."""

    title: str
    extra_state: str
    """What a head must remember besides the matrices of the orders."""
    power: int
    range: Callable[[HeadRanges | None], Range] | None
    """None: the Taylor polynomial at 0."""
    causal: bool = True

    @property
    def step(self) -> int:
        """Degrees go in steps of this size."""
        return self.power


def _measured(ranges: HeadRanges | None) -> Range:
    if ranges is None:
        raise InputError("ranges: this method needs the measured score range of each head")
    return FixedRange(low=ranges[0], high=ranges[1])


def _both(name: str, title: str, extra: str, part: Callable[[HeadRanges | None], Range], causal: bool = True):
    series = "Taylor" if name == "mean" else "Chebyshev"
    yield name, Method(f"{series}, {title}", extra, 1, part, causal)
    yield f"{name}_squared", Method(f"{series}², {title}", extra, 2, part, causal)


METHODS: dict[str, Method] = {
    "taylor": Method("Taylor at 0", "none", 1, None),
    **dict(_both("mean", "at the running mean of the scores", "D + 1", lambda r: MeanPoint())),
    **dict(_both("norm", "on ±|q|·max|k|", "1", lambda r: NormRange())),
    **dict(_both("box", "on the box of the keys", "2D", lambda r: BoxRange())),
    **dict(_both("head", "on the measured range of the head", "none", _measured)),
    **dict(_both("moments", "on mean − 3σ … mean + 2.5σ", "D² + D + 1", lambda r: MomentRange())),
    **dict(_both("extreme_keys", "on the range of 2D kept keys", "2D²", lambda r: ExtremeKeys())),
    **dict(_both("row", "on the true range of the row", "all keys", lambda r: TrueRange(), causal=False)),
}
"""Name → method. ``…_squared`` is the square of a polynomial of half the degree: its weights are never negative."""

MOST_ORDERS = 40
"""Orders that are looked at one by one."""


def find_method(name: str) -> Method:
    """The method of that name."""
    if name not in METHODS:
        raise unknown_name("method", name, METHODS)
    return METHODS[name]


def nearest_order(method: str, order: int) -> int:
    """The largest order up to this one that the method has: a square has even ones, a fit on a range at least 1.

    >>> nearest_order("taylor", 0), nearest_order("row", 0), nearest_order("row_squared", 7)
    (0, 1, 6)
    """
    if not 0 <= order <= MOST_ORDERS:
        raise InputError(f"order: expected 0 to {MOST_ORDERS}, got {order}")
    chosen = find_method(method)
    return order if chosen.range is None else max(chosen.step, order // chosen.step * chosen.step)


def method_spec(name: str, order: int, ranges: HeadRanges | None = None) -> AttentionSpec:
    """Softmax attention with exp replaced by the method's polynomial of this degree."""
    method = find_method(name)
    if method.range is None:
        return AttentionSpec(score=taylor_score(order))
    return AttentionSpec(score=ExpOnRange(degree=order, power=method.power, range=method.range(ranges)))


def needs_wide_state(name: str, order: int) -> bool:
    """Whether the sums of this degree are float64: on a range always, at 0 from degree 5 on."""
    return find_method(name).range is not None or taylor_score(order).needs_wide_state
