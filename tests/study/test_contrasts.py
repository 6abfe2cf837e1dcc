"""Effects of a factorial and trends against a size, on numbers whose effects are known."""

import itertools
import math
from pathlib import Path

import pytest

from softmax_rnn.errors import InputError
from softmax_rnn.study.contrasts import effects, trend
from softmax_rnn.study.definition import Factorial, Trend, load_study
from softmax_rnn.study.paired import Measured
from softmax_rnn.study.runs import planned_runs

FACTORS = {"clamp": ["without", "with"], "norm": ["none", "l2", "rms"]}
NIGHT = ("sec4.1-denominator", "sec4.2-scaling", "sec4.3-linear", "sec4.4-orders", "sec4.5-ablation")


def test_effects_are_those_that_were_put_in():
    cells = {place: "_".join(place) for place in itertools.product(*FACTORS.values())}
    norm, clamp = {"none": 0.0, "l2": -0.3, "rms": -0.2}, {"without": 0.0, "with": 0.1}
    runs = [
        Measured(
            {"variant": name, "seed": seed},
            {"test_loss": 2 + seed + clamp[c] + norm[n] + (0.4 if (c, n) == ("with", "rms") else 0.0)},
        )
        for (c, n), name in cells.items()
        for seed in range(3)
    ]
    result = {
        row["effect"]: row for row in effects(Factorial(grid="g", factors=FACTORS, cells=list(cells.values())), runs)
    }
    assert result["norm l2"]["mean"] == pytest.approx(-0.3)
    assert result["norm rms"]["mean"] == pytest.approx(-0.2 + 0.4 / 2)
    assert result["clamp with"]["mean"] == pytest.approx(0.1 + 0.4 / 3)
    assert result["clamp with × norm rms"]["mean"] == pytest.approx(0.4)
    assert result["clamp with × norm l2"]["mean"] == pytest.approx(0.0)
    assert result["norm l2"]["half"] == pytest.approx(0.0, abs=1e-12) and result["norm l2"]["n"] == 3


def test_a_trend_is_a_line_per_seed_continued_to_the_size_of_the_paper():
    runs = []
    for size, seed in itertools.product((64, 128, 256), range(4)):
        gap = 0.2 - 0.03 * math.log2(size / 64) * (1 + 0.1 * (seed - 1.5))
        for variant, loss in (("softmax", 2.0 + seed), ("linear_elu", 2.0 + seed + gap)):
            runs.append(Measured({"variant": variant, "seed": seed, "model.hidden_size": size}, {"test_loss": loss}))
    asked = Trend(grid="g", along="model.hidden_size", what="linear_elu", paper=1024)
    result = trend(asked, runs)
    assert result is not None
    assert result["slope"]["mean"] == pytest.approx(-0.03)
    assert result["prediction"]["mean"] == pytest.approx(0.2 - 0.03 * 4)
    assert result["slope"]["low"] < -0.03 < result["slope"]["high"]
    assert [point["size"] for point in result["points"]] == [64.0, 128.0, 256.0]
    assert trend(asked, runs[:8]) is None  # one size is no trend


def test_a_factorial_needs_a_cell_for_every_combination(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "title: t\nasks: a\nscales: {cpu: {minutes: 1, grids: {g: {vary: {variant: [softmax, linear_elu]}}}}}\n"
        "factorials: [{grid: g, factors: {a: [x, y], b: [x, y]}, cells: [softmax, linear_elu]}]\n"
    )
    with pytest.raises(InputError, match="factorials: expected 4 cells, one per combination, got 2"):
        load_study(str(path))


def test_a_factorial_and_a_trend_refuse_a_grid_of_several_settings(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(
        "title: t\nasks: a\nscales: {cpu: {minutes: 1, grids: {g: {vary: "
        "{variant: [softmax, linear_elu], data: [kjv, shakespeare], model.hidden_size: [32, 64]}}}}}\n"
        "trends: [{grid: g, along: model.hidden_size, what: linear_elu, paper: 1024}]\n"
    )
    with pytest.raises(InputError, match=r"grids\.g: data varies too; a factorial or trend needs a grid without it"):
        load_study(str(path))


def test_equal_tuning_compares_with_seeds_that_had_no_part_in_the_choice_of_the_rate():
    grids = load_study("sec4.5-ablation")[1].scale("overnight").grids
    assert set(grids["tuned"].vary["seed"]).isdisjoint(grids["rates"].vary["seed"])
    assert set(grids["tuned"].vary["variant"]) <= set(grids["rates"].vary["variant"])
    chosen = {one["learning_rate"] for one in grids["tuned"].settings_for["variant"].values()}
    assert chosen <= set(grids["rates"].vary["learning_rate"])


def test_all_sections_overnight_take_at_most_eight_hours_when_they_share_their_runs():
    known: set[str] = set()
    minutes = 0.0
    for name in NIGHT:
        study = load_study(name)[1]
        runs = {run.config.content_hash(): run for run in planned_runs(study, "overnight", Path("out"))}
        minutes += study.scale("overnight").minutes * len(runs.keys() - known) / len(runs)
        known |= runs.keys()
        fresh = {run.config.seed for run in runs.values() if run.grid == "fresh_seeds"}
        first = {run.config.seed for run in runs.values() if run.grid not in ("fresh_seeds", "tuned")}
        assert first == set(range(8))
        assert fresh.isdisjoint(first)  # a second test has no seed of the first
        assert all(run.config.steps >= 1000 and run.config.eval_every == 100 for run in runs.values())
    assert minutes <= 8 * 60
