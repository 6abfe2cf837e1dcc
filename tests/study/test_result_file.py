"""Saved results are small, lose no loss, and are judged by the current rules."""

import json

import pytest

from report.study_results import L2_NORM, language, results
from softmax_rnn.errors import InputError
from softmax_rnn.files import write_json
from softmax_rnn.study.result_file import LARGEST, judged, read_results, save_results


def quick(gap):
    """Results of the quick study in which the L2 norm is so far behind softmax, the same for every seed."""
    actual = results(language({"softmax": 1.8, L2_NORM: 1.8, "linear_elu": 2.4}, panels=["shakespeare"]))
    base = {run["varied"]["seed"]: run["result"]["test_loss"] for run in actual["runs"][:3]}
    for run in actual["runs"][3:6]:
        seed = run["varied"]["seed"]
        run["result"]["test_loss"] = base[seed] + gap + 0.001 * seed
    actual["study"]["name"] = "quick"
    return actual


@pytest.mark.parametrize(("gap", "state"), [(0.04, "reproduced"), (0.08, "not reproduced")])
def test_verdicts_follow_the_rules_of_the_studys_file(gap, state, tmp_path):
    path = write_json(tmp_path / "quick.json", quick(gap) | {"claims": [{"claim": "of an older file"}]})
    claim = read_results(path)["claims"][0]
    assert (claim["state"], claim["margin"]) == (state, "margin 0.05")


def test_the_rules_of_a_users_study_travel_with_its_results():
    mine = quick(0.08)
    mine["claims"] = judged(mine)["claims"]
    mine["study"]["name"] = "mine"
    mine["claims"][0]["definition"]["rule"]["within"] = 0.1
    assert judged(mine)["claims"][0]["state"] == "reproduced"


def test_a_saved_file_is_small_and_keeps_the_losses(tmp_path):
    whole = quick(0.04)
    for run in whole["runs"]:
        run["train_curve"] = [[step, 2 + 1 / step] for step in range(1, 6001)]
    path = save_results(judged(whole), tmp_path / "saved.json")
    again = read_results(path)
    assert path.stat().st_size < LARGEST < len(json.dumps(whole))
    assert [run["result"]["test_loss"] for run in again["runs"]] == [
        run["result"]["test_loss"] for run in whole["runs"]
    ]
    assert again["summary"]["final"] == judged(whole)["summary"]["final"]
    assert {row["kind"] for row in again["summary"]["curves"]} == {"train", "test", "accuracy", "gap"}


def test_settings_are_said_once_for_all_runs_or_once_per_grid_and_read_back(tmp_path):
    whole = judged(quick(0.04))
    for number, run in enumerate(whole["runs"]):
        run["grid"] = "far" if number % 2 else "near"
        run["settings"] = run["settings"] | {"clip": 1.0, "context": 64 if run["grid"] == "near" else 128}
    path = save_results(whole, tmp_path / "saved.json")
    saved = json.loads(path.read_text())
    assert saved["common_settings"]["clip"] == 1.0
    assert saved["grid_settings"] == {"near": {"context": 64}, "far": {"context": 128}}
    assert not {"clip", "context"} & set(saved["runs"][0]["settings"])
    assert [run["settings"] for run in read_results(path)["runs"]] == [run["settings"] for run in whole["runs"]]
    write_json(path, saved | {"grid_settings": []})
    with pytest.raises(InputError, match="settings: expected an object"):
        read_results(path)


def test_a_run_of_two_grids_is_saved_once(tmp_path):
    whole = quick(0.04)
    again = [run | {"grid": "again", "name": f"again-{run['name']}"} for run in whole["runs"][:2]]
    whole = judged(whole | {"runs": [*whole["runs"], *again]})
    path = save_results(whole, tmp_path / "twice.json")
    saved = json.loads(path.read_text())
    assert set(saved["runs"][-1]) == {"name", "grid", "varied", "same_as"}
    read = read_results(path)["runs"]
    assert [run["result"] for run in read[-2:]] == [run["result"] for run in read[:2]]
    assert [(run["name"], run["grid"]) for run in read] == [(run["name"], run["grid"]) for run in whole["runs"]]
    saved["runs"][-1]["same_as"] = "none"
    with pytest.raises(InputError, match="same_as: expected the name of a run, got 'none'"):
        read_results(write_json(path, saved))


def test_what_no_study_has_written_is_refused(tmp_path):
    path = write_json(tmp_path / "other.json", {"study": 1})
    with pytest.raises(InputError, match="was not written by a study: it lacks machine, runs, variants"):
        read_results(path)


def set_(value, *place):
    def harm(results):
        for part in place[:-1]:
            results = results[part]
        results[place[-1]] = value

    return harm


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (set_([], "study"), "study: expected an object, got []"),
        (set_(7, "study", "title"), "study: title: expected text, got 7"),
        (set_({"date": []}, "machine"), "machine: expected an object of texts and numbers, got {'date': []}"),
        (
            set_("done", "runs", 1, "state"),
            "runs.1: state: expected one of finished, failed, incomplete, planned",
        ),
        (set_(None, "runs", 1, "result"), "runs.1: result: expected an object for a finished run and null for others"),
        (set_("low", "runs", 0, "result", "test_loss"), "runs.0: result: test_loss: expected a finite number or null"),
        (set_("elu", "runs", 0, "result", "variant"), "runs.0: result: variant: expected 'softmax' as in the settings"),
        (set_([[1]], "runs", 0, "test_curve"), "runs.0: test_curve: expected a list of pairs of a step and a number"),
        (set_(None, "runs", 0, "settings", "context"), "runs.0: settings: context: expected a whole number, got None"),
        (set_({}, "runs", 0, "varied"), "runs.0: variant is missing"),
        (set_("linear_elu", "runs", 0, "varied", "variant"), "runs.0: varied: variant: expected 'softmax' as in the"),
        (set_(9, "runs", 0, "varied", "seed"), "runs.0: varied: seed: expected 0 as in the settings, got 9"),
        (lambda damaged: damaged["runs"].append(damaged["runs"][0]), "runs.9: varied: expected runs that differ"),
        (set_({"softmax": 1}, "variants"), "variants.softmax: facts: expected an object, got 1"),
        (set_([1], "claims"), "claims.0: claim: expected an object, got 1"),
    ],
)
def test_damaged_results_are_one_line(harm, said, tmp_path):
    damaged = quick(0.04)
    harm(damaged)
    path = write_json(tmp_path / "quick.json", damaged)
    with pytest.raises(InputError) as caught:
        read_results(path)
    assert str(caught.value).startswith(f"runs: {path}: {said}")
