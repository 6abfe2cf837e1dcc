"""The runs of a study, summed up: for each variant in each setting, numbers over seeds with their 95 % intervals.

A setting is all that a run has apart from variant, seed and learning rate: the data set, the size, the number of
pairs. Where the learning rate varies, a variant enters with the one that is best on average, and the others are shown
beside it.

final      losses, the paired gap to softmax, accuracy, learning rates, speed, memory
curves     ln of the cross entropy, accuracy and the gap to softmax against the step; runs that did not finish are
           separate lines
positions  ln of the test loss against the position in the context
unstable   the variants that skipped steps, or ended without a test loss, and how often

>>> runs = [{"grid": "g", "varied": {"variant": v, "seed": s}, "state": "finished", "settings": {"context": 8},
...          "result": {"test_loss": loss + s, "test_accuracy": 0.5}, "by_position": [], "train_curve": [],
...          "test_curve": [], "accuracy_curve": []}
...         for v, loss in (("softmax", 1.0), ("linear_elu", 1.5)) for s in (0, 1)]
>>> [(row["variant"], row["test_loss"]["mean"], row["gap"] and row["gap"]["mean"]) for row in summary(runs)["final"]]
[('softmax', 1.5, None), ('linear_elu', 2.0, 0.5)]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.data.tasks.table import TASKS
from softmax_rnn.study.intervals import interval, values_of
from softmax_rnn.study.paired import Measured, best_rate, difference, measured_runs, panel_of
from softmax_rnn.validation import is_number

BASELINE = "softmax"
POINTS = 80
"""A training curve is given as the means of at most so many equal parts of the run."""

Entry = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """The runs of one setting of a grid."""

    grid: str
    setting: tuple[tuple[str, str], ...]
    entries: Sequence[Entry]

    @property
    def metric(self) -> str:
        """What ranks its runs: the accuracy of a recall task, the loss of a text."""
        source = self.entries[0]["settings"].get("data", {}).get("source")
        return "test_accuracy" if source in TASKS else "test_loss"

    @property
    def variants(self) -> list[str]:
        """In order of appearance."""
        return list(dict.fromkeys(str(entry["varied"]["variant"]) for entry in self.entries))

    @cached_property
    def measured(self) -> list[Measured]:
        """The finished runs whose metric is a number."""
        return measured_runs(self.entries, self.metric)

    def best(self, variant: str) -> list[Entry]:
        """The variant's finished runs at its best learning rate."""
        return self._best[variant]

    @cached_property
    def _best(self) -> dict[str, list[Entry]]:
        best = {}
        for variant in {*self.variants, BASELINE}:
            rates = best_rate(self.measured, variant, self.metric)
            chosen = {id(run.varied) for run in next(iter(rates.values()), [])}
            best[variant] = [entry for entry in self.entries if id(entry["varied"]) in chosen]
        return best

    def place(self, variant: str) -> dict[str, Any]:
        """The fields that say which runs a row is about."""
        name = VARIANTS.short(variant)
        return {"grid": self.grid, "setting": dict(self.setting), "variant": name, "metric": self.metric}


def summary(entries: Sequence[Entry]) -> dict[str, Any]:
    """Everything above, as plain values."""
    panels = list(_panels(entries))
    return {
        "baseline": BASELINE,
        "final": [final_row(panel, variant) for panel in panels for variant in panel.variants if panel.best(variant)],
        "curves": [row for panel in panels for row in curve_rows(panel)],
        "positions": [row for panel in panels for row in position_rows(panel)],
        "unstable": list(unstable_rows(entries)),
    }


def _panels(entries: Sequence[Entry]) -> Iterator[Panel]:
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Entry]] = {}
    for entry in entries:
        groups.setdefault((entry["grid"], panel_of(entry["varied"])), []).append(entry)
    for (grid, setting), group in groups.items():
        yield Panel(grid, setting, group)


def final_row(panel: Panel, variant: str) -> dict[str, Any]:
    """Where a variant ended in a setting."""
    chosen = panel.best(variant)
    row = panel.place(variant) | {"seeds": len(chosen)}
    row |= {name: _over(chosen, name) for name in ("test_loss", "train_loss", "test_accuracy", "tokens_per_second")}
    gap = difference(panel.measured, variant, BASELINE, panel.metric) if variant != BASELINE else None
    row["gap"] = values_of(gap)
    row["rates"] = [_rate(group, panel.metric) for group in best_rate(panel.measured, variant, panel.metric).values()]
    row["speed_ratio"] = _speed_ratio(panel, variant)
    row["seconds"] = _mean(entry.get("seconds") for entry in chosen)
    row["memory_bytes"] = max(_numbers(entry["result"].get("memory_bytes") for entry in chosen), default=None)
    row["parameters"] = chosen[0]["result"].get("parameters")
    row["state_bytes"] = chosen[0]["result"].get("state_bytes", chosen[0].get("state_bytes"))
    return row


def _rate(group: Sequence[Measured], metric: str) -> dict[str, Any]:
    over_seeds = values_of(interval([run.metrics[metric] for run in group]))
    return {"learning_rate": group[0].varied.get("learning_rate"), **(over_seeds or {})}


def _speed_ratio(panel: Panel, variant: str) -> dict[str, Any] | None:
    """Tokens per second, relative to the baseline's of the same seed."""
    ours, theirs = (
        {_pair(entry): entry["result"].get("tokens_per_second") for entry in panel.best(name)}
        for name in (variant, BASELINE)
    )
    ratios = [ours[seed] / theirs[seed] for seed in ours if ours[seed] and theirs.get(seed)]
    return values_of(interval(ratios)) if ratios and variant != BASELINE else None


def unstable_rows(entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """The variants that skipped steps or ended without a test loss; a run of several grids counts once."""
    runs: dict[str, list[Entry]] = {}
    for entry in {entry.get("folder", id(entry)): entry for entry in entries if entry["result"]}.values():
        runs.setdefault(VARIANTS.short(str(entry["varied"]["variant"])), []).append(entry)
    for variant, group in runs.items():
        skipped = sum(entry["result"].get("skipped_steps") or 0 for entry in group)
        lost = sum(not is_number(entry["result"].get("test_loss")) for entry in group)
        if skipped or lost:
            steps = sum(entry["settings"].get("steps", 0) for entry in group)
            yield {"variant": variant, "skipped": skipped, "steps": steps, "lost": lost, "runs": len(group)}


def curve_rows(panel: Panel) -> Iterator[dict[str, Any]]:
    """Means over seeds at each step; a run that is not finished is a separate line, labelled with its state."""
    for variant in panel.variants:
        best = panel.best(variant)
        if best:
            place = panel.place(variant) | {"line": VARIANTS.short(variant), "state": "finished"}
            yield from _curves(place, best)
            yield from _gap_curve(place, best, panel.best(BASELINE) if variant != BASELINE else [])
        for entry in panel.entries:
            unfinished = entry["state"] in ("incomplete", "failed")
            if unfinished and str(entry["varied"]["variant"]) == variant:
                yield from _curves(panel.place(variant) | {"line": _line(entry), "state": entry["state"]}, [entry])


def _line(entry: Entry) -> str:
    varied = entry["varied"]
    rate = f", rate {varied['learning_rate']:g}" if "learning_rate" in varied else ""
    return f"{VARIANTS.short(str(varied['variant']))}, seed {varied.get('seed', 0)}{rate}, {entry['state']}"


def _curves(place: dict[str, Any], entries: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    kinds = {
        "train": [_logs(thinned(entry["train_curve"], POINTS)) for entry in entries],
        "test": [_logs(entry["test_curve"]) for entry in entries],
        "accuracy": [[(step, y) for step, y in entry["accuracy_curve"] if is_number(y)] for entry in entries],
    }
    for name in entries[0].get("score_curves", {}):
        curves = [entry.get("score_curves", {}).get(name, []) for entry in entries]
        kinds[name] = [[(step, y) for step, y in curve if is_number(y)] for curve in curves]
    for kind, curves in kinds.items():
        for step, values in _together(curves):
            yield place | {"kind": kind, "step": step, **values}


def _gap_curve(place: dict[str, Any], ours: Sequence[Entry], theirs: Sequence[Entry]) -> Iterator[dict[str, Any]]:
    """The paired difference in test loss to the baseline at each step at which both were tested."""
    reference = {_pair(entry): dict(entry["test_curve"]) for entry in theirs}
    curves = []
    for entry in ours:
        other = reference.get(_pair(entry), {})
        pairs = [(step, loss, other.get(step)) for step, loss in entry["test_curve"]]
        curves.append([(step, a - b) for step, a, b in pairs if is_number(a) and is_number(b)])
    for step, values in _together([curve for curve in curves if curve]):
        yield place | {"kind": "gap", "step": step, **values}


def _pair(entry: Entry) -> tuple[Any, str]:
    """Runs are paired by their seed, on one kind of processor."""
    return entry["varied"].get("seed"), entry.get("processor", "")


def position_rows(panel: Panel) -> Iterator[dict[str, Any]]:
    """The test loss against the last position of each part of the context, at the end of training."""
    for variant in panel.variants:
        chosen = panel.best(variant)
        curves = []
        for entry in chosen:
            parts, context = len(entry["by_position"]), entry["settings"]["context"]
            curves.append(_logs((round((i + 1) * context / parts), y) for i, y in enumerate(entry["by_position"])))
        for position, values in _together(curves):
            yield panel.place(variant) | {"position": position, **values}


def _together(curves: Sequence[Sequence[tuple[int, float]]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Mean and interval at each point that all curves have."""
    values = [dict(curve) for curve in curves]
    for place in values[0] if values else ():
        if all(place in curve for curve in values):
            yield place, values_of(interval([curve[place] for curve in values])) or {}


def thinned(curve: Sequence[Sequence[Any]], points: int) -> list[tuple[int, float]]:
    """At most so many points, each the mean of its part of the run, at the part's last step.

    >>> thinned([[1, 4.0], [2, 2.0], [3, 1.0]], 2)
    [(2, 3.0), (3, 1.0)]
    """
    size = max(1, math.ceil(len(curve) / points))
    parts = [curve[start : start + size] for start in range(0, len(curve), size)]
    means = [(part[-1][0], _mean(value for _, value in part)) for part in parts]
    return [(step, mean) for step, mean in means if mean is not None]


def _logs(curve: Iterable[Sequence[Any]]) -> list[tuple[int, float]]:
    return [(step, math.log(loss)) for step, loss in curve if is_number(loss) and loss > 0]


def _over(entries: Sequence[Entry], name: str) -> dict[str, Any] | None:
    numbers = _numbers(entry["result"].get(name) for entry in entries)
    return values_of(interval(numbers)) if numbers else None


def _mean(values: Iterable[Any]) -> float | None:
    numbers = _numbers(values)
    return fmean(numbers) if numbers else None


def _numbers(values: Iterable[Any]) -> list[float]:
    return [value for value in values if is_number(value)]
