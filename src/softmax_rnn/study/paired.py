"""Finished runs in pairs: a variant's runs at its best learning rate, and the difference of two variants seed by seed.

Differences are taken so that lower is better; accuracies enter with the opposite sign. Runs of two kinds of processor
are never paired: they round differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from softmax_rnn.study.intervals import Interval, interval
from softmax_rnn.validation import is_number

PAIRED = ("seed",)
SWEPT = ("learning_rate",)
"""Settings for which each variant takes its best value."""
_CURVES = {"test_loss": "test_curve", "test_accuracy": "accuracy_curve"}
_UNSAID = ("source", "config", "streaming", "test_fraction", "test_documents", "cache", "workers")

Panel = tuple[tuple[str, str], ...]
"""What runs have in common: names of settings and their values as text."""


@dataclass(frozen=True)
class Measured:
    """A finished run: its varied settings, its metrics and the kind of processor that it ran on."""

    varied: Mapping[str, Any]
    metrics: Mapping[str, float]
    processor: str = ""


def measured_runs(entries: Iterable[Mapping[str, Any]], metric: str, step: int | None = None) -> list[Measured]:
    """The finished runs whose metric is a number, at the end or at the test of a step."""
    finished = [entry for entry in entries if entry["result"]]
    pairs = [(entry, entry["result"] if step is None else _at(entry, metric, step)) for entry in finished]
    return [
        Measured(entry["varied"], metrics, entry.get("processor", ""))
        for entry, metrics in pairs
        if is_number(metrics.get(metric))
    ]


def _at(entry: Mapping[str, Any], metric: str, step: int) -> dict[str, Any]:
    """The metric at the test of this step; None where there was none."""
    curve = entry[_CURVES[metric]] if metric in _CURVES else entry.get("score_curves", {}).get(metric, [])
    return {metric: dict(curve).get(step)}


def panel_of(varied: Mapping[str, Any]) -> Panel:
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
    """The variant's runs of one panel by learning rate, the best on average first.

    A rate at which seeds are missing, because they failed or have not run, comes after those that have them all.
    """
    rates: dict[str, list[Measured]] = {}
    for run in runs:
        if str(run.varied.get("variant")) == variant and math.isfinite(run.metrics[metric]):
            rates.setdefault(str([run.varied.get(name) for name in SWEPT]), []).append(run)
    sign = _sign(metric)
    mean = {rate: sum(sign * run.metrics[metric] for run in group) / len(group) for rate, group in rates.items()}
    return {rate: rates[rate] for rate in sorted(rates, key=lambda rate: (-len(rates[rate]), mean[rate]))}


def by_seed(runs: Sequence[Measured], variant: str, metric: str) -> dict[Any, float]:
    """The metric of each seed and kind of processor, at the variant's best learning rate: what pairs are made of."""
    best = next(iter(best_rate(runs, variant, metric).values()), [])
    return {(run.varied.get("seed"), run.processor): run.metrics[metric] for run in best}


def difference(runs: Sequence[Measured], what: str, than: str, metric: str) -> Interval | None:
    """The paired difference, positive where ``what`` is worse; None without a common seed."""
    first, second = by_seed(runs, what, metric), by_seed(runs, than, metric)
    common = [seed for seed in first if seed in second]
    return interval([_sign(metric) * (first[seed] - second[seed]) for seed in common]) if common else None


def _sign(metric: str) -> float:
    return -1.0 if metric == "test_accuracy" else 1.0
