"""Reports from folders: which runs there are, in which state, what varies among them, and the files that come out."""

import csv
import json

import pytest

from softmax_rnn.cli.report import report
from softmax_rnn.experiment.config import resolve
from softmax_rnn.files import write_json
from softmax_rnn.study.entries import run_entry
from softmax_rnn.study.folders import results_of, varied_settings
from softmax_rnn.study.result_file import judged
from softmax_rnn.study.runs import PlannedRun
from softmax_rnn.study.summary import summary


def test_runs_are_found_in_their_state(trained):
    results = results_of([trained])
    assert {run["name"]: run["state"] for run in results["runs"]} == {
        "softmax": "finished",
        "elu": "finished",
        "half": "incomplete",
    }
    result = json.loads((trained / "elu" / "result.json").read_text())
    (row,) = (row for row in results["summary"]["final"] if row["variant"] == "linear_elu")
    other = json.loads((trained / "softmax" / "result.json").read_text())
    assert row["test_accuracy"]["mean"] == result["test_accuracy"]
    assert row["gap"]["mean"] == pytest.approx(other["test_accuracy"] - result["test_accuracy"], abs=1e-12)
    assert {"softmax", "linear_elu"} == set(results["variants"])


def test_the_report_of_runs_is_written_with_its_files(trained, tmp_path, capsys):
    report([trained / "softmax", trained / "half"], output=tmp_path / "out")
    assert capsys.readouterr().out == f"report: {tmp_path / 'out' / 'report.html'}\n"
    page = (tmp_path / "out" / "report.html").read_text()
    assert "1 of 2 finished, 1 incomplete" in page
    assert "softmax, seed 1, incomplete" in page
    with (tmp_path / "out" / "tables" / "runs-table.csv").open() as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    result = json.loads((trained / "softmax" / "result.json").read_text())
    assert float(rows["softmax"]["test loss"]) == result["test_loss"]
    assert rows["half"]["state"] == "incomplete"
    figures = {path.name for path in (tmp_path / "out" / "figures").iterdir()}
    assert {f"recall-chart.{ending}" for ending in ("svg", "png", "pdf")} <= figures
    assert json.loads((tmp_path / "out" / "results.json").read_text())["runs"][0]["name"] == "softmax"


def test_a_study_is_read_with_its_claims_and_what_its_runs_measured_since(runs, tmp_path):
    study = tmp_path / "study"
    study.mkdir()
    runs.rename(study / "runs")
    claim = {"claim": "c", "paper": "", "state": "undecided", "evidence": "e", "rule": "r"}
    results = results_of([study]) | {"claims": [claim]}
    for entry in results["runs"]:
        entry["folder"] = f"elsewhere/{entry['name']}"
        if entry["name"] == "half":
            entry |= {"state": "planned", "train_curve": [], "test_curve": [], "accuracy_curve": []}
    write_json(study / "results.json", results)
    actual = results_of([study])
    assert actual["claims"] == [claim]
    states = {run["name"]: run["state"] for run in actual["runs"]}
    assert states == {"softmax": "finished", "elu": "finished", "half": "incomplete"}
    (half,) = (run for run in actual["runs"] if run["name"] == "half")
    assert half["train_curve"]
    assert any(row["line"] == "softmax, seed 1, incomplete" for row in actual["summary"]["curves"])


def test_runs_with_other_settings_are_not_compared():
    settings = [{"variant": "softmax", "learning_rate": 1e-3}, {"variant": "gated_softmax", "learning_rate": 2e-3}]
    runs = [resolve(one) for one in settings]
    assert varied_settings(runs) == [
        {"variant": "softmax", "seed": 0, "data": "shakespeare", "learning_rate": 1e-3},
        {"variant": "gated_softmax", "seed": 0, "data": "shakespeare", "learning_rate": 2e-3},
    ]
    runs.append(resolve({"data": {"source": "mqar", "pairs": 4}}))
    runs.append(resolve({"data": {"source": "mqar", "pairs": 8}}))
    assert varied_settings(runs)[0] == {
        "variant": "softmax",
        "seed": 0,
        "data": "shakespeare",
        "learning_rate": 1e-3,
    }
    assert varied_settings(runs)[3] == {"variant": "softmax", "seed": 0, "data": "mqar", "data.pairs": 8}


def test_a_hybrid_is_never_called_by_its_variant_alone(tmp_path):
    layers = {"0": "taylor_2"}
    config = resolve({"layers": layers, "variant": "softmax"})
    assert varied_settings([config])[0]["layers.0"] == "taylor_2"
    (tmp_path / "hybrid").mkdir()
    (tmp_path / "hybrid" / "config.yaml").write_text(config.to_yaml())
    (run,) = results_of([tmp_path / "hybrid"])["runs"]
    assert run["label"] == "softmax (0: taylor_2)" and run["varied"]["layers.0"] == "taylor_2"
    # A grid whose runs all have these layers does not vary them; its tables name them all the same.
    entry = run_entry(PlannedRun("a", "grid", {"variant": "softmax", "seed": 0}, config, tmp_path / "hybrid"))
    assert entry["varied"]["layers"] == layers
    # Nor need the variant vary: a study of seeds, or of layers, has tables too.
    alone = run_entry(PlannedRun("a", "grid", {"seed": 0}, config, tmp_path / "hybrid"))
    assert [row["variant"] for row in summary([entry | {"result": {"test_loss": 1.0}}])["final"]] == ["softmax"]
    assert alone["varied"]["variant"] == "softmax"
    assert judged({"study": {}, "runs": [entry]})["runs"][0]["label"] == "softmax (0: taylor_2)"
