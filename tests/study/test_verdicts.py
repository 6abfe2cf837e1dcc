import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softmax_rnn.study.collect import decided
from softmax_rnn.study.definition import Claim
from softmax_rnn.study.intervals import interval, quantile
from softmax_rnn.study.paired import Measured
from softmax_rnn.study.verdicts import decide


def runs(values: dict[str, list[float]], metric: str = "test_loss", **more: object) -> list[Measured]:
    return [
        Measured({"variant": variant, "seed": seed, **more}, {metric: value})
        for variant, seeds in values.items()
        for seed, value in enumerate(seeds)
    ]


def claim(metric: str = "test_loss", **rule: object) -> Claim:
    return Claim.model_validate({"says": "x", "grid": "g", "metric": metric, "rule": rule})


BEHIND = claim(kind="behind", what="b", than="a")
EQUAL = claim(kind="equal", what="b", to="a", within=0.1)
NOT_WORSE = claim(kind="not_worse", what="b", than="a", by=0.1)


def test_runs_of_two_processors_are_not_paired():
    here = runs({"a": [1.0, 1.1, 0.9], "b": [1.5, 1.6, 1.4]})
    there = [Measured(run.varied, run.metrics, "other") for run in here]
    assert decide(BEHIND, [*here[:3], *there[3:]]).evidence == "runs are missing"
    assert decide(BEHIND, [*here[:3], *there[:3], *there[3:]]).evidence.endswith("3 seeds")


@pytest.mark.parametrize(
    ("rule", "a", "b", "state"),
    [
        (BEHIND, [1.0, 1.1, 0.9], [1.5, 1.61, 1.39], "reproduced"),
        (BEHIND, [1.5, 1.61, 1.39], [1.0, 1.1, 0.9], "not reproduced"),
        (BEHIND, [1.0, 1.5, 0.5], [1.1, 1.2, 0.9], "undecided"),
        (BEHIND, [1.0], [9.0], "undecided"),
        (EQUAL, [1.0, 1.1, 0.9], [1.01, 1.1, 0.91], "reproduced"),
        (EQUAL, [1.0, 1.1, 0.9], [0.2, 0.31, 0.1], "not reproduced"),
        (EQUAL, [1.0, 1.1, 0.9], [0.99, 1.1, 0.89], "reproduced"),
        (EQUAL, [1.0, 1.1, 0.9], [1.0, 0.9, 0.9], "undecided"),
        (NOT_WORSE, [1.0, 1.1, 0.9], [0.2, 0.31, 0.1], "reproduced"),
        (NOT_WORSE, [1.0, 1.1, 0.9], [1.5, 1.61, 1.39], "not reproduced"),
        (NOT_WORSE, [1.0, 1.1, 0.9], [1.0, 1.3, 0.9], "undecided"),
        (EQUAL, [1.0, 1.1, 0.9], [1.5, 1.61, 1.39], "not reproduced"),
        (EQUAL, [1.0, 1.1, 0.9], [1.0, 1.3, 0.9], "undecided"),
    ],
)
def test_rules_on_paired_differences(rule: Claim, a: list[float], b: list[float], state: str):
    assert decide(rule, runs({"a": a, "b": b})).state == state


@pytest.mark.parametrize(
    ("rule", "gap", "state"),
    [
        (EQUAL, 0.09, "reproduced"),
        (EQUAL, 0.11, "not reproduced"),
        (EQUAL, -0.09, "reproduced"),
        (EQUAL, -0.11, "not reproduced"),
        (NOT_WORSE, 0.09, "reproduced"),
        (NOT_WORSE, 0.11, "not reproduced"),
        (claim(kind="behind", what="b", than="a", by=0.1), 0.11, "reproduced"),
        (claim(kind="behind", what="b", than="a", by=0.1), 0.09, "not reproduced"),
    ],
)
def test_the_margin_is_the_one_that_the_claim_names(rule: Claim, gap: float, state: str):
    a = [1.0, 3.0, 5.0]
    b = [value + gap + wobble for value, wobble in zip(a, (0.0, 1e-4, -1e-4), strict=True)]
    assert decide(rule, runs({"a": a, "b": b})).state == state


def test_pairing_sees_what_means_alone_do_not():
    # The seeds differ by far more than the variants, but every seed agrees on the order.
    a = [1.0, 3.0, 5.0]
    assert decide(BEHIND, runs({"a": a, "b": [value + 0.1 for value in a]})).state == "reproduced"


def test_only_common_seeds_are_compared():
    measured = [*runs({"a": [1.0, 1.0, 1.0]}), *runs({"b": [2.0, 2.1]})]
    assert "2 seeds" in decide(BEHIND, measured).evidence


def test_one_bad_panel_refutes_and_one_open_panel_leaves_open():
    good = runs({"a": [1.0, 1.1], "b": [2.0, 2.1001]}, data="x")
    bad = runs({"a": [2.0, 2.1], "b": [1.0, 1.1001]}, data="y")
    open_ = runs({"a": [1.0], "b": [2.0]}, data="z")
    assert decide(BEHIND, good).state == "reproduced"
    assert decide(BEHIND, [*good, *open_]).state == "undecided"
    assert decide(BEHIND, [*good, *open_, *bad]).state == "not reproduced"
    assert "data y" in decide(BEHIND, [*good, *bad]).evidence


def test_each_variant_takes_its_best_learning_rate():
    slow = runs({"a": [5.0, 5.1], "b": [2.0, 2.1]}, learning_rate=1e-3)
    fast = runs({"a": [1.0, 1.1], "b": [9.0, 9.1]}, learning_rate=1e-2)
    assert decide(BEHIND, [*slow, *fast]).evidence.startswith("+1.0000")
    lucky = runs({"b": [0.5]}, learning_rate=3e-2)  # its other seed failed
    assert decide(BEHIND, [*slow, *fast, *lucky]).evidence.startswith("+1.0000")


def test_falls_needs_the_ends_and_no_significant_rise():
    rule = claim(kind="falls", along=["a", "b", "c"])
    assert decide(rule, runs({"a": [3.0, 3.1], "b": [2.0, 2.1001], "c": [1.0, 1.1002]})).state == "reproduced"
    assert decide(rule, runs({"a": [3.0, 3.1], "b": [1.0, 1.1001], "c": [2.0, 2.1002]})).state == "not reproduced"
    assert decide(rule, runs({"a": [1.0, 1.1], "b": [2.0, 2.1001], "c": [3.0, 3.1002]})).state == "not reproduced"
    assert decide(rule, runs({"a": [3.0, 3.1], "c": [1.0, 1.1002]})).evidence == "runs are missing"


def entry(variant: str, seed: int, loss: float | None, state: str = "finished", **varied: object) -> dict[str, Any]:
    return {
        "grid": "g",
        "state": state,
        "varied": {"variant": variant, "seed": seed, **varied},
        "result": None if loss is None else {"test_loss": loss},
    }


def test_a_claim_is_not_decided_by_the_runs_that_went_well():
    entries = [entry(name, seed, loss) for name, loss in (("a", 1.0), ("b", 2.0)) for seed in range(4)]
    assert decided(BEHIND, entries)["state"] == "reproduced"
    result = decided(BEHIND, [*entries[:6], entry("b", 2, None, "failed"), entry("b", 3, math.nan)])
    assert (result["state"], result["left"]) == ("undecided", 0)
    assert result["evidence"].startswith("without 2 of its 8 runs: +1.0000") and "2 seeds" in result["evidence"]
    assert result["needed"] == "a number from the 2 runs that failed or diverged"
    other = [entry("c", 0, None, "failed")]  # a variant that the claim does not name
    assert decided(BEHIND, [*entries, *other])["state"] == "reproduced"


def test_a_learning_rate_that_fails_is_not_the_best_one():
    entries = [
        entry(name, seed, loss, learning_rate=rate)
        for name, loss in (("a", 1.0), ("b", 2.0))
        for rate in (1e-3, 1e-2)
        for seed in range(3)
    ]
    entries[-1] = entry("b", 2, None, "failed", learning_rate=1e-2)
    entries[-2] = entry("b", 1, 0.1, learning_rate=1e-2)
    assert decided(BEHIND, entries)["state"] == "reproduced"
    entries[6] = entry("b", 0, None, "failed", learning_rate=1e-3)  # now no rate has all of its seeds
    assert decided(BEHIND, entries)["state"] == "undecided"


def test_solves_by_accuracy():
    rule = claim("test_accuracy", kind="solves", what="a", reaches=0.9, others=["b"], below=0.5)
    solved, failed = [0.99, 0.995, 0.99], [0.2, 0.21, 0.2]
    assert decide(rule, runs({"a": solved, "b": failed}, "test_accuracy")).state == "reproduced"
    assert decide(rule, runs({"a": failed, "b": failed}, "test_accuracy")).state == "not reproduced"
    assert decide(rule, runs({"a": solved, "b": solved}, "test_accuracy")).state == "not reproduced"
    assert decide(rule, runs({"a": [0.9, 1.0, 0.7], "b": failed}, "test_accuracy")).state == "undecided"


def test_no_runs_decide_nothing():
    assert decide(BEHIND, []).state == "undecided"
    assert decide(BEHIND, runs({"a": [1.0, 2.0]})).evidence == "runs are missing"


def test_intervals_cover_the_mean_as_often_as_they_say():
    draw = random.Random(0)
    for n in (2, 3, 5, 40):
        covered = sum(abs(result.mean) <= result.half for result in (interval(_normal(draw, n)) for _ in range(4000)))
        # Four standard errors of a share of 4000 at 95 %.
        assert abs(covered / 4000 - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 4000)


def _normal(draw: random.Random, n: int) -> list[float]:
    return [draw.gauss(0, 1) for _ in range(n)]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=40), st.floats(-1e6, 1e6))
def test_intervals_move_with_the_data(values: list[float], shift: float):
    one, other = interval(values), interval([value + shift for value in values])
    assert other.mean == pytest.approx(one.mean + shift, abs=1e-6 * (1 + abs(shift) + max(map(abs, values))))
    assert other.half == pytest.approx(one.half, rel=1e-6, abs=1e-8 * (1 + abs(shift) + max(map(abs, values))))


def test_the_quantile_falls_towards_the_normal_one():
    values = [quantile(freedom) for freedom in range(1, 200)]
    assert values == sorted(values, reverse=True)
    assert values[-1] == pytest.approx(1.972, abs=0.001)


@pytest.mark.parametrize(
    ("kind", "values", "state"),
    [
        ("exceeds", [3.0, 4.0, 3.5], "reproduced"),
        ("exceeds", [1.0, 1.0, 1.0], "not reproduced"),
        ("exceeds", [2.0, 2.0, 2.0], "not reproduced"),
        ("exceeds", [1.0, 3.0, 2.5], "undecided"),
        ("exceeds", [9.0], "undecided"),
        ("stays_within", [2.0, 2.0, 2.0], "reproduced"),
        ("stays_within", [3.0, 4.0, 3.5], "not reproduced"),
        ("stays_within", [1.0, 3.0, 2.5], "undecided"),
    ],
)
def test_a_limit_on_the_metric_itself(kind: str, values: list[float], state: str):
    rule = claim("test_order_within", kind=kind, what="a", limit=2)
    assert decide(rule, runs({"a": values}, "test_order_within")).state == state


def test_values_of_another_setting_are_compared_within_each_variant():
    rule = Claim.model_validate(
        {
            "says": "x", "grid": "g", "metric": "test_largest_score", "compares": "weight_decay",
            "rule": {"kind": "behind", "what": "0.0", "than": "1.0"},
        }
    )  # fmt: skip
    scores = {0.0: 9.0, 1.0: 5.0}
    result = [
        Measured({"variant": variant, "weight_decay": decay, "seed": seed}, {"test_largest_score": score + seed / 10})
        for variant in ("softmax", "qk_norm")
        for decay, score in scores.items()
        for seed in range(3)
    ]
    decision = decide(rule, result)
    assert decision.state == "reproduced"
    assert decision.evidence.count("+4.0000") == 2 and "attention qk_norm" in decision.evidence
    assert "largest score says that 0.0 has more than 1.0" in rule.rule_text()
