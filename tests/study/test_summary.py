"""Means, intervals and gaps over seeds, against numbers computed here from the formulas."""

import math
import statistics

import pytest

from report.study_results import L2_NORM, LEVELS, SHORT, entry, language, recall
from softmax_rnn.study.summary import POINTS, summary

T2 = 4.302653  # the 97.5 % quantile of Student's t with two degrees of freedom
TOLERANCE = 1e-3  # of the table of quantiles, which has four digits


def losses(runs, variant, data):
    return {
        run["varied"]["seed"]: run["result"]["test_loss"]
        for run in runs
        if run["varied"]["variant"] == variant and run["varied"]["data"] == data
    }


@pytest.mark.parametrize("data", ["shakespeare", "kjv"])
@pytest.mark.parametrize("variant", [name for name in LEVELS if name != "softmax"])
def test_a_gap_is_the_mean_of_the_paired_differences(variant, data):
    runs = language()
    ours, theirs = losses(runs, variant, data), losses(runs, "softmax", data)
    differences = [ours[seed] - theirs[seed] for seed in (0, 1, 2)]
    rows = [row for row in summary(runs)["final"] if row["setting"] == {"data": data}]
    (row,) = (row for row in rows if row["variant"] == SHORT[variant])
    half = T2 * statistics.stdev(differences) / math.sqrt(3)
    assert row["seeds"] == row["gap"]["n"] == 3
    assert row["gap"]["mean"] == pytest.approx(statistics.fmean(differences), abs=1e-12)
    assert row["gap"]["half"] == pytest.approx(half, rel=TOLERANCE)
    assert row["gap"]["high"] - row["gap"]["low"] == pytest.approx(2 * half, rel=TOLERANCE)
    assert row["test_loss"]["mean"] == pytest.approx(statistics.fmean(ours.values()), abs=1e-12)
    assert row["test_loss"]["half"] == pytest.approx(T2 * statistics.stdev(ours.values()) / math.sqrt(3), rel=TOLERANCE)


def test_skipped_steps_and_lost_losses_are_counted_once_per_run():
    runs = language({"softmax": 1.8, "linear_elu": 2.4}, panels=["shakespeare"])
    assert summary(runs)["unstable"] == []
    for run in runs:
        run["folder"] = run["name"]
    elu = [run for run in runs if run["varied"]["variant"] == "linear_elu"]
    elu[0]["result"]["skipped_steps"], elu[1]["result"]["test_loss"] = 7, None
    again = [elu[0] | {"grid": "another"}]
    steps = sum(run["settings"]["steps"] for run in elu)
    row = {"variant": "linear_elu", "skipped": 7, "steps": steps, "lost": 1, "runs": len(elu)}
    assert summary([*runs, *again])["unstable"] == [row]


def test_only_seeds_that_both_have_are_paired():
    runs = [
        run for run in language(panels=["kjv"]) if run["varied"] != {"variant": "softmax", "seed": 1, "data": "kjv"}
    ]
    rows = {row["variant"]: row for row in summary(runs)["final"]}
    assert rows["softmax"]["seeds"] == 2
    assert rows["linear_elu"]["seeds"] == 3
    assert rows["linear_elu"]["gap"]["n"] == 2


def test_one_seed_has_no_interval():
    for row in summary(language(seeds=1))["final"]:
        assert (row["test_loss"]["half"], row["test_loss"]["low"], row["test_loss"]["n"]) == (None, None, 1)
        assert row["gap"] is None or row["gap"]["half"] is None


def test_recall_takes_the_learning_rate_with_the_highest_accuracy():
    rows = summary(recall())["final"]
    assert {row["metric"] for row in rows} == {"test_accuracy"}
    assert len(rows) == 3 * 3 * 2
    for row in rows:
        means = [rate["mean"] for rate in row["rates"]]
        assert len(means) == 3
        assert means == sorted(means, reverse=True)
        assert row["test_accuracy"]["mean"] == means[0]
    softmax = [row for row in rows if row["variant"] == "softmax"]
    assert all(row["rates"][-1]["learning_rate"] == 3e-3 for row in softmax)


def test_curves_are_means_of_logarithms():
    runs = language(panels=["kjv"])
    curves = [row for row in summary(runs)["curves"] if row["variant"] == "softmax_l2" and row["kind"] == "test"]
    curves_of_runs = [run["test_curve"] for run in runs if run["varied"]["variant"] == L2_NORM]
    for row, points in zip(curves, zip(*curves_of_runs, strict=True), strict=True):
        assert row["step"] == points[0][0]
        assert row["mean"] == pytest.approx(statistics.fmean(math.log(loss) for _, loss in points), abs=1e-12)
        assert row["low"] <= row["mean"] <= row["high"]


def test_a_long_training_curve_is_thinned_by_means():
    run = entry("g", {"variant": "softmax", "seed": 0}, 2.0, 0.3)
    run["train_curve"] = [[step, 2.0 if step % 2 else 4.0] for step in range(1, 10 * POINTS + 1)]
    points = [row for row in summary([run])["curves"] if row["kind"] == "train"]
    assert len(points) == POINTS
    assert [row["step"] for row in points[:2]] == [10, 20]
    assert all(row["mean"] == pytest.approx(math.log(3.0)) for row in points)


def test_unfinished_runs_are_lines_of_their_own_and_in_no_mean():
    runs = language(panels=["kjv"])
    varied = {"variant": "softmax", "seed": 7, "data": "kjv"}
    more = [entry("language", varied, 9.0, 0.1, state=state, data="kjv") for state in ("failed", "incomplete")]
    before, after = summary(runs), summary(runs + more)
    assert before["final"] == after["final"]
    lines = {row["line"] for row in after["curves"]} - {row["line"] for row in before["curves"]}
    assert lines == {"softmax, seed 7, failed", "softmax, seed 7, incomplete"}


def test_numbers_that_are_not_finite_are_left_out():
    run = entry("g", {"variant": "softmax", "seed": 0}, 2.0, 0.3)
    run["train_curve"][3][1] = None
    run["test_curve"][-1][1] = math.nan
    run["by_position"][0] = None
    broken = entry("g", {"variant": "softmax", "seed": 1}, math.nan, 0.3)
    actual = summary([run, broken])
    assert actual["final"][0]["seeds"] == 1
    assert all(math.isfinite(row["mean"]) for part in ("curves", "positions") for row in actual[part])


def test_positions_end_with_the_context():
    rows = [row for row in summary(language(seeds=2))["positions"] if row["variant"] == "softmax"]
    assert [row["position"] for row in rows][:2] == [8, 16]
    assert max(row["position"] for row in rows) == 256


def test_speeds_are_relative_to_softmax_of_the_same_seed():
    runs = language(panels=["kjv"])
    speed = {(run["varied"]["variant"], run["varied"]["seed"]): run["result"]["tokens_per_second"] for run in runs}
    expected = statistics.fmean(speed["taylor_2", seed] / speed["softmax", seed] for seed in range(3))
    rows = {row["variant"]: row for row in summary(runs)["final"]}
    assert rows["taylor_2"]["speed_ratio"]["mean"] == pytest.approx(expected, abs=1e-12)
    assert rows["softmax"]["speed_ratio"] is None


def test_scores_that_were_measured_become_curves_with_bands():
    runs = language(panels=("shakespeare",))
    for run in runs:
        seed = run["varied"]["seed"]
        run["score_curves"] = {"test_largest_score": [[0, 1.0], [50, 4.0 + seed]]}
    rows = [row for row in summary(runs)["curves"] if row["kind"] == "test_largest_score"]
    assert {row["step"] for row in rows} == {0, 50} and {row["variant"] for row in rows} == set(SHORT.values())
    last = next(row for row in rows if row["step"] == 50)
    assert last["mean"] == pytest.approx(5.0)
    assert last["high"] - last["mean"] == pytest.approx(T2 / math.sqrt(3), rel=TOLERANCE)
