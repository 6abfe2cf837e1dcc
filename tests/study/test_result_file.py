"""Saved results are small, lose no loss, and are judged by the rules as they stand."""

import json

import pytest

from report.study_results import L2_NORM, language, results
from softmax_rnn.errors import InputError
from softmax_rnn.files import write_json
from softmax_rnn.study.result_file import LARGEST, judged, read_results, save_results


def quick(gap):
    """Results of the quick study in which the L2 norm is so far behind softmax, the same for every seed."""
    found = results(language({"softmax": 1.8, L2_NORM: 1.8, "linear_elu": 2.4}, panels=["shakespeare"]))
    base = {run["varied"]["seed"]: run["result"]["test_loss"] for run in found["runs"][:3]}
    for run in found["runs"][3:6]:
        seed = run["varied"]["seed"]
        run["result"]["test_loss"] = base[seed] + gap + 0.001 * seed
    found["study"]["name"] = "quick"
    return found


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


def test_what_no_study_has_written_is_refused(tmp_path):
    path = write_json(tmp_path / "other.json", {"study": 1})
    with pytest.raises(InputError, match="was not written by a study: it lacks machine, runs, variants"):
        read_results(path)
