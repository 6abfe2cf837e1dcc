"""What a factorial and a series of sizes say: effects and trends, one number per seed, with intervals over seeds.

    main effect of a level      mean over the other factors of metric(level) − metric(first level)
    interaction of two levels   mean over the others of (a, b) − (a, first) − (first, b) + (first, first)
    trend                       slope of the gap against log₂ of the size; its line continued to the size of the paper

>>> cells = {("off", "none"): 4.0, ("off", "l2"): 2.0, ("on", "none"): 3.0, ("on", "l2"): 1.5}
>>> contrast({"clamp": ["off", "on"], "norm": ["none", "l2"]}, {"clamp": "on"}, cells)
-0.75
>>> contrast({"clamp": ["off", "on"], "norm": ["none", "l2"]}, {"clamp": "on", "norm": "l2"}, cells)
0.5
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.study.definition import Factorial, Trend
from softmax_rnn.study.intervals import interval, values_of
from softmax_rnn.study.paired import Measured, by_seed

METRIC = "test_loss"


def contrast(factors: Mapping[str, Sequence[str]], levels: Mapping[str, str], cells: Mapping[Any, float]) -> float:
    """The main effect of a level, or the interaction of several, each against the first level of its factor."""
    total = 0.0
    for corner in itertools.product((True, False), repeat=len(levels)):
        pairs = zip(levels.items(), corner, strict=True)
        there = {name: level if taken else factors[name][0] for (name, level), taken in pairs}
        places = itertools.product(*([there[name]] if name in there else known for name, known in factors.items()))
        total += (-1) ** corner.count(False) * fmean(cells[place] for place in places)
    return total


def effects(factorial: Factorial, runs: Sequence[Measured]) -> Iterator[dict[str, Any]]:
    """Main effects, then interactions of two and more factors."""
    values = {name: by_seed(runs, name, METRIC) for name in factorial.cells}
    seeds = [seed for seed in next(iter(values.values())) if all(seed in one for one in values.values())]
    if not seeds:
        return
    places = list(itertools.product(*factorial.factors.values()))
    by_place = [
        {place: values[name][seed] for place, name in zip(places, factorial.cells, strict=True)} for seed in seeds
    ]
    for count in range(1, len(factorial.factors) + 1):
        for names in itertools.combinations(factorial.factors, count):
            for levels in itertools.product(*(factorial.factors[name][1:] for name in names)):
                chosen = dict(zip(names, levels, strict=True))
                numbers = [contrast(factorial.factors, chosen, cells) for cells in by_place]
                yield {
                    "grid": factorial.grid,
                    "effect": " × ".join(f"{name} {level}" for name, level in chosen.items()),
                    "kind": "main effect" if count == 1 else f"interaction of {count}",
                    **(values_of(interval(numbers)) or {}),
                }


def trend(asked: Trend, runs: Sequence[Measured]) -> dict[str, Any] | None:
    """The gap at each size, its slope per doubling, and the line at the paper's size; None while runs are missing."""
    runs = [run for run in runs if asked.along in run.varied]
    gaps: dict[float, dict[Any, float]] = {}
    for size in dict.fromkeys(run.varied[asked.along] for run in runs):
        there = [run for run in runs if run.varied[asked.along] == size]
        ours, theirs = (by_seed(there, name, METRIC) for name in (asked.what, asked.than))
        gaps[float(size)] = {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}
    seeds = [seed for seed in next(iter(gaps.values()), {}) if all(seed in one for one in gaps.values())]
    if len(gaps) < 2 or not seeds:
        return None
    lines = [_line([(math.log2(size), gap[seed]) for size, gap in gaps.items()]) for seed in seeds]
    predicted = [mean + slope * (math.log2(asked.paper) - centre) for centre, mean, slope in lines]
    means = {size: values_of(interval([gap[seed] for seed in seeds])) or {} for size, gap in gaps.items()}
    return {
        "grid": asked.grid,
        "along": asked.along,
        "what": VARIANTS.short(asked.what),
        "than": VARIANTS.short(asked.than),
        "points": [{"size": size, **means[size]} for size in sorted(means)],
        "slope": values_of(interval([slope for _, _, slope in lines])),
        "paper": asked.paper,
        "prediction": values_of(interval(predicted)),
    }


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float, float]:
    """Centre, mean and slope of the least-squares line."""
    centre, mean = (fmean(numbers) for numbers in zip(*points, strict=True))
    spread = sum((x - centre) ** 2 for x, _ in points)
    return centre, mean, sum((x - centre) * (y - mean) for x, y in points) / spread
