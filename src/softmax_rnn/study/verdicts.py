"""Claims, decided by rules that are fixed before the runs.

    behind   reproduced if the interval of metric(what) − metric(than) lies above ``by``; not if it lies below
    equal    reproduced if the interval of metric(what) − metric(to) ends below ``within``; not if it begins above
    falls    reproduced if the last is better than the first, and no step of the list is significantly worse
    solves   reproduced if the interval of what's accuracy lies at or above ``reaches`` and that of every other at or
             below ``below``; not if what's lies below ``reaches`` or another's above ``below``
    exceeds  reproduced if the interval of the metric itself lies above ``limit``; not if it ends at or below it
    stays_within   the opposite of exceeds

Differences are taken so that lower is better; accuracies enter with the opposite sign. Where a learning rate varies,
each variant enters with the one that is best on average. Panels (data sets, sizes …) are decided one by one; the claim
is reproduced when all are, *not reproduced* when one is not, and *undecided* otherwise. One seed decides nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.console import plural
from softmax_rnn.report.elements import State
from softmax_rnn.study.definition import Claim
from softmax_rnn.study.intervals import Interval, interval, seeds_needed
from softmax_rnn.study.rule_words import rule_text
from softmax_rnn.study.rules import Behind, Bound, Equal, Falls, Solves

PAIRED = ("seed",)
SWEPT = ("learning_rate",)
"""Settings for which each variant takes its best value."""

_UNSAID = ("source", "config", "streaming", "test_fraction", "test_documents", "cache", "workers")


@dataclass(frozen=True)
class Measured:
    """A finished run: its varied settings, its metrics and the kind of processor that it ran on."""

    varied: Mapping[str, Any]
    metrics: Mapping[str, float]
    processor: str = ""


@dataclass(frozen=True)
class Decision:
    """A claim with its state and the numbers that it rests on."""

    claim: Claim
    state: State
    evidence: str
    rule: str
    needed: str = ""
    """What would decide it, where it is undecided."""


def panel_of(varied: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """What a run has apart from variant, seed and learning rate."""
    left = {name: value for name, value in varied.items() if name not in ("variant", *PAIRED, *SWEPT)}
    return tuple((name, panel_text(value)) for name, value in left.items())


def panel_text(value: Any) -> str:
    """A varied value in a few words; of data, its name and what makes it another task.

    >>> panel_text({"source": "mqar", "pairs": 8, "streaming": True})
    'mqar pairs 8'
    """
    if not isinstance(value, Mapping):
        return str(value)
    rest = [f"{name} {inner}" for name, inner in value.items() if name not in _UNSAID]
    return " ".join([str(value.get("source", "")), *rest]).strip()


def best_rate(runs: Sequence[Measured], variant: str, metric: str) -> dict[str, list[Measured]]:
    """The variant's runs of one panel by learning rate, the best on average first."""
    rates: dict[str, list[Measured]] = {}
    for run in runs:
        if str(run.varied.get("variant")) == variant and math.isfinite(run.metrics[metric]):
            rates.setdefault(str([run.varied.get(name) for name in SWEPT]), []).append(run)
    sign = -1.0 if metric == "test_accuracy" else 1.0
    mean = {rate: sum(sign * run.metrics[metric] for run in group) / len(group) for rate, group in rates.items()}
    return {rate: rates[rate] for rate in sorted(rates, key=mean.__getitem__)}


def by_seed(runs: Sequence[Measured], variant: str, metric: str) -> dict[Any, float]:
    """The metric of each seed and kind of processor, at the variant's best learning rate: what pairs are made of."""
    rates = best_rate(runs, variant, metric)
    if not rates:
        return {}
    return {(run.varied.get("seed"), run.processor): run.metrics[metric] for run in next(iter(rates.values()))}


def difference(runs: Sequence[Measured], what: str, than: str, metric: str) -> Interval | None:
    """The paired difference, positive where ``what`` is worse; None without a common seed."""
    first, second = by_seed(runs, what, metric), by_seed(runs, than, metric)
    sign = -1.0 if metric == "test_accuracy" else 1.0
    common = [seed for seed in first if seed in second]
    return interval([sign * (first[seed] - second[seed]) for seed in common]) if common else None


def decide(claim: Claim, runs: Sequence[Measured]) -> Decision:
    """The state of a claim, given the finished runs of its grid."""
    panels: dict[tuple[tuple[str, str], ...], list[Measured]] = {}
    for run in (_compared(run, claim.compares) for run in runs):
        panels.setdefault(panel_of(run.varied), []).append(run)
    decided = [(_name(panel), *_decide_panel(claim, group)) for panel, group in panels.items()]
    states = [state for _, state, _, _ in decided]
    if not states:
        return Decision(claim, "undecided", "no finished runs", rule_text(claim), "runs")
    if "not reproduced" in states:
        state: State = "not reproduced"
    else:
        state = "reproduced" if all(one == "reproduced" for one in states) else "undecided"
    evidence = "; ".join(f"{panel}{': ' if panel else ''}{text}" for panel, _, text, _ in decided)
    open_panels = [(panel, needed) for panel, one, _, needed in decided if one == "undecided"]
    needed = "; ".join(f"{panel}{': ' if panel else ''}{text}" for panel, text in open_panels)
    return Decision(claim, state, evidence, rule_text(claim), needed if state == "undecided" else "")


def _compared(run: Measured, setting: str) -> Measured:
    """The run with the compared setting in the place of the variant, which becomes one of its settings."""
    if setting == "variant":
        return run
    varied = {"attention" if name == "variant" else name: run.varied[name] for name in run.varied if name != setting}
    return Measured({**varied, "variant": run.varied[setting]}, run.metrics, run.processor)


def _short(variant: str) -> str:
    return VARIANTS.short(variant)


def _name(panel: tuple[tuple[str, str], ...]) -> str:
    return ", ".join(f"{name} {value}" for name, value in panel)


PanelDecision = tuple[State, str, str]
"""State, the numbers, and what would decide it."""
MISSING: PanelDecision = ("undecided", "runs are missing", "runs")


def _decide_panel(claim: Claim, runs: Sequence[Measured]) -> PanelDecision:
    match claim.rule:
        case Behind(what=what, than=than, by=by):
            return _above(difference(runs, what, than, claim.metric), by, reached="reproduced", missed="not reproduced")
        case Equal(what=what, to=to, within=within):
            gap = difference(runs, what, to, claim.metric)
            return _above(gap, within, reached="not reproduced", missed="reproduced")
        case Falls(along=along):
            return _decide_falls(claim, along, runs)
        case Solves():
            return _decide_solves(claim.rule, claim.metric, runs)
        case Bound():
            return _decide_bound(claim.rule, claim.metric, runs)


def _above(gap: Interval | None, limit: float, *, reached: State, missed: State) -> PanelDecision:
    """One state when the whole interval is above the limit, another when it is below, undecided in between."""
    if gap is None:
        return MISSING
    text = f"{gap}, {plural(gap.n, 'seed')}"
    state: State = "undecided"
    if gap.n > 1:
        state = reached if gap.low > limit else missed if gap.high < limit else "undecided"
    return state, text, seeds_needed(gap, limit) if state == "undecided" else ""


def _decide_falls(claim: Claim, along: Sequence[str], runs: Sequence[Measured]) -> PanelDecision:
    whole = difference(runs, along[0], along[-1], claim.metric)
    state, text, needed = _above(whole, 0.0, reached="reproduced", missed="not reproduced")
    if whole is None:
        return MISSING
    for earlier, later in itertools.pairwise(along):
        step = difference(runs, later, earlier, claim.metric)
        if step is not None and step.n > 1 and step.low > 0:
            return "not reproduced", f"{_short(later)} is worse than {_short(earlier)} by {step}", ""
    return state, f"{_short(along[0])} − {_short(along[-1])}: {text}", needed


def _decide_solves(rule: Solves, metric: str, runs: Sequence[Measured]) -> PanelDecision:
    values = {name: by_seed(runs, name, metric) for name in (rule.what, *rule.others)}
    if not all(values.values()):
        return MISSING
    shares = {name: interval(list(seeds.values())) for name, seeds in values.items()}
    text = ", ".join(f"{_short(name)} {one.mean:.3f} ({plural(one.n, 'seed')})" for name, one in shares.items())
    if min(one.n for one in shares.values()) < 2:
        return "undecided", text, "two seeds or more"
    first, others = shares[rule.what], [shares[name] for name in rule.others]
    if first.low >= rule.reaches and all(one.high <= rule.below for one in others):
        return "reproduced", text, ""
    if first.high < rule.reaches or any(one.low > rule.below for one in others):
        return "not reproduced", text, ""
    limits = [(first, rule.reaches), *((one, rule.below) for one in others)]
    open_limits = [(one, limit) for one, limit in limits if one.low < limit < one.high]
    return "undecided", text, "; ".join(dict.fromkeys(seeds_needed(*one) for one in open_limits))


def _decide_bound(rule: Bound, metric: str, runs: Sequence[Measured]) -> PanelDecision:
    values = by_seed(runs, rule.what, metric)
    if not values:
        return MISSING
    one = interval(list(values.values()))
    text = f"{one.mean:.4g}{f' ± {one.half:.2g}' if one.n > 1 else ''}, {plural(one.n, 'seed')}"
    if one.n < 2:
        return "undecided", text, "two seeds or more"
    above: State = "reproduced" if rule.kind == "exceeds" else "not reproduced"
    below: State = "not reproduced" if rule.kind == "exceeds" else "reproduced"
    if one.low <= rule.limit < one.high:
        return "undecided", text, seeds_needed(one, rule.limit)
    return above if one.low > rule.limit else below, text, ""
