"""The rules that decide claims, as values of a study's file. A rule knows the variants that it names, its margin, its
words, and what it says about the finished runs of one panel.

    behind   reproduced if the interval of metric(what) − metric(than) lies above ``by``; not if it lies below
    not_worse   the opposite of behind: what may be better by any amount
    equal    reproduced if the interval of metric(what) − metric(to) lies inside ± ``within``; not if it lies outside
    falls    reproduced if the last is better than the first, and no step of the list is significantly worse
    solves   reproduced if the interval of what's accuracy lies at or above ``reaches`` and that of every other at or
             below ``below``; not if what's lies below ``reaches`` or another's above ``below``
    exceeds  reproduced if the interval of the metric itself lies above ``limit``; not if it ends at or below it
    stays_within   the opposite of exceeds
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, model_validator

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.console import plural
from softmax_rnn.errors import unknown_name
from softmax_rnn.report.elements import State
from softmax_rnn.study.intervals import Interval, interval, seeds_needed
from softmax_rnn.study.paired import Measured, by_seed, difference

SCORES = ("test_largest_score", "test_dominant_order", "test_order_within")
"""What a run with ``measure_scores`` measures with each test."""

PanelDecision = tuple[State, str, str]
"""State, the numbers, and what would decide it."""
MISSING: PanelDecision = ("undecided", "runs are missing", "runs")


class Part(BaseModel):
    """A part of a study's file; names that it does not know are refused with the nearest one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, values: Any) -> Any:
        for name in values if isinstance(values, dict) else ():
            if name not in cls.model_fields:
                raise unknown_name("key", name, cls.model_fields)
        return values


class Behind(Part):
    """``behind``: the first value is worse than the second by more than ``by``. ``not_worse``: it is not."""

    kind: Literal["behind", "not_worse"]
    what: str
    than: str
    by: float = 0.0

    def named(self) -> list[str]:
        return [self.what, self.than]

    def margin(self) -> str:
        return f"margin {self.by:g}"

    def words(self, metric: str, measured: str) -> str:
        margin = f" by more than {self.by:g}" if self.by else ""
        has, is_ = ("has", "is") if self.kind == "behind" else ("does not have", "is not")
        more = f"{has} more than" if metric in SCORES else f"{is_} worse than"
        worse = f"{_short(self.what)} {more} {_short(self.than)}{margin}"
        return f"the 95 % interval of the paired difference in {measured} says that {worse}"

    def decide(self, runs: Sequence[Measured], metric: str) -> PanelDecision:
        gap = difference(runs, self.what, self.than, metric)
        if self.kind == "behind":
            return _above(gap, self.by, reached="reproduced", missed="not reproduced")
        return _above(gap, self.by, reached="not reproduced", missed="reproduced")


class Equal(Part):
    """The two values differ by less than ``within`` in either direction."""

    kind: Literal["equal"] = "equal"
    what: str
    to: str
    within: PositiveFloat

    def named(self) -> list[str]:
        return [self.what, self.to]

    def margin(self) -> str:
        return f"margin {self.within:g}"

    def words(self, metric: str, measured: str) -> str:
        gap = f"{_short(self.what)} − {_short(self.to)}"
        return f"the 95 % interval of the paired difference in {measured}, {gap}, lies inside ± {self.within:g}"

    def decide(self, runs: Sequence[Measured], metric: str) -> PanelDecision:
        gap = difference(runs, self.what, self.to, metric)
        if gap is not None and gap.mean < 0:  # an interval that is clear of the nearer limit is clear of both
            return _above(gap, -self.within, reached="reproduced", missed="not reproduced")
        return _above(gap, self.within, reached="not reproduced", missed="reproduced")


class Falls(Part):
    """The metric gets better along the list, from the first to the last."""

    kind: Literal["falls"] = "falls"
    along: Annotated[list[str], Field(min_length=2)]

    def named(self) -> list[str]:
        return self.along

    def margin(self) -> str:
        return "margin 0"

    def words(self, metric: str, measured: str) -> str:
        better = f"{_short(self.along[-1])} better than {_short(self.along[0])} at 95 %"
        return f"{measured}: {better}, and no step of the list worse at 95 %"

    def decide(self, runs: Sequence[Measured], metric: str) -> PanelDecision:
        first, last = self.along[0], self.along[-1]
        whole = difference(runs, first, last, metric)
        if whole is None:
            return MISSING
        state, text, needed = _above(whole, 0.0, reached="reproduced", missed="not reproduced")
        steps = []
        for earlier, later in itertools.pairwise(self.along):
            step = difference(runs, later, earlier, metric)
            if step is None:
                return MISSING
            if step.n > 1 and step.low > 0:
                return "not reproduced", f"{_short(later)} is worse than {_short(earlier)} by {step}", ""
            steps.append(f"{step.mean:+.4f}")
        each = f"; step by step {', '.join(steps)}" if len(steps) > 1 else ""
        return state, f"{_short(first)} − {_short(last)}: {text}{each}", needed


class Solves(Part):
    """The accuracy of the first value is at least ``reaches``, that of the others at most ``below``."""

    kind: Literal["solves"] = "solves"
    what: str
    reaches: float = 0.9
    others: Annotated[list[str], Field(min_length=1)]
    below: float = 0.5

    def named(self) -> list[str]:
        return [self.what, *self.others]

    def margin(self) -> str:
        return f"at least {self.reaches:g}, others at most {self.below:g}"

    def words(self, metric: str, measured: str) -> str:
        others = f"{', '.join(map(_short, self.others))} at most {self.below:g}"
        return f"95 % intervals of the accuracy: {_short(self.what)} at least {self.reaches:g}, {others}"

    def decide(self, runs: Sequence[Measured], metric: str) -> PanelDecision:
        values = {name: by_seed(runs, name, metric) for name in self.named()}
        if not all(values.values()):
            return MISSING
        shares = {name: interval(list(seeds.values())) for name, seeds in values.items()}
        text = ", ".join(f"{_short(name)} {one.mean:.3f} ({plural(one.n, 'seed')})" for name, one in shares.items())
        if min(one.n for one in shares.values()) < 2:
            return "undecided", text, "two seeds or more"
        first, others = shares[self.what], [shares[name] for name in self.others]
        if first.low >= self.reaches and all(one.high <= self.below for one in others):
            return "reproduced", text, ""
        if first.high < self.reaches or any(one.low > self.below for one in others):
            return "not reproduced", text, ""
        limits = [(first, self.reaches), *((one, self.below) for one in others)]
        open_limits = [(one, limit) for one, limit in limits if one.low < limit < one.high]
        return "undecided", text, "; ".join(dict.fromkeys(seeds_needed(*one) for one in open_limits))


class Bound(Part):
    """The metric itself: ``exceeds`` says that its interval lies above the limit, ``stays_within`` that it does not."""

    kind: Literal["exceeds", "stays_within"]
    what: str
    limit: float

    def named(self) -> list[str]:
        return [self.what]

    def margin(self) -> str:
        return f"limit {self.limit:g}"

    def words(self, metric: str, measured: str) -> str:
        side = "lies above" if self.kind == "exceeds" else "ends at or below"
        return f"the 95 % interval of the {measured} of {_short(self.what)} {side} {self.limit:g}"

    def decide(self, runs: Sequence[Measured], metric: str) -> PanelDecision:
        values = by_seed(runs, self.what, metric)
        if not values:
            return MISSING
        one = interval(list(values.values()))
        text = f"{one.mean:.4g}{f' ± {one.half:.2g}' if one.n > 1 else ''}, {plural(one.n, 'seed')}"
        if one.n < 2 or one.low <= self.limit < one.high:
            return "undecided", text, seeds_needed(one, self.limit)
        holds = (one.low > self.limit) == (self.kind == "exceeds")
        return "reproduced" if holds else "not reproduced", text, ""


Rule = Behind | Equal | Falls | Solves | Bound


def _short(variant: str) -> str:
    return VARIANTS.short(variant)


def _above(gap: Interval | None, limit: float, *, reached: State, missed: State) -> PanelDecision:
    """One state when the whole interval is above the limit, another when it is below, undecided in between."""
    if gap is None:
        return MISSING
    state: State = "undecided"
    if gap.n > 1:
        state = reached if gap.low > limit else missed if gap.high < limit else "undecided"
    return state, f"{gap}, {plural(gap.n, 'seed')}", seeds_needed(gap, limit) if state == "undecided" else ""
