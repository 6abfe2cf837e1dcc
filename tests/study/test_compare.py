"""The difference of two runs and of two specs."""

import json
from pathlib import Path

import pytest

from softmax_rnn.attention.variants import VARIANTS
from softmax_rnn.cli.report import compare as command
from softmax_rnn.errors import InputError
from softmax_rnn.files import write_json
from softmax_rnn.study.compare import compare
from softmax_rnn.study.folders import results_of


def test_two_runs(trained):
    actual = compare(str(trained / "softmax"), str(trained / "elu"))
    assert actual["settings"] == {"variant": ["softmax", "linear_elu"]}
    results = [json.loads((trained / name / "result.json").read_text()) for name in ("softmax", "elu")]
    for name in ("test_loss", "tokens_per_second", "parameters"):
        assert actual["metrics"][name] == [result[name] for result in results]
    assert actual["finished"] == [True, True]
    assert "feature_map" in actual["specs"]["parts"]


def test_a_run_that_is_not_finished_is_compared_as_far_as_it_went(trained):
    actual = compare(str(trained / "softmax"), str(trained / "half"))
    assert actual["finished"] == [True, False]
    assert actual["settings"] == {"seed": [0, 1]}
    assert actual["metrics"]["step"][1] < actual["metrics"]["step"][0]
    assert actual["specs"] is None


def test_settings_that_have_lost_a_label_are_not_those_of_the_recipe(runs):
    path = runs / "elu" / "config.yaml"
    path.write_text(path.read_text().replace("variant: linear_elu\n", ""))
    for use in (lambda: compare(str(path.parent), str(runs / "softmax")), lambda: results_of([path.parent])):
        with pytest.raises(InputError, match="is damaged: variant is missing"):
            use()


@pytest.mark.parametrize("use", [lambda path: compare(path, path), lambda path: results_of([Path(path)])])
@pytest.mark.parametrize(
    ("label", "said"),
    [({"variant": "taylor_2"}, "variant 'taylor_2'"), ({"layers": {"0": "taylor_2"}}, "layers {'0': 'taylor_2'}")],
)
def test_a_result_under_another_label_is_refused(runs, use, label, said):
    path = runs / "softmax" / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | label))
    with pytest.raises(InputError, match=f"belongs to another run: it says {said}, and config"):
        use(str(runs / "softmax"))


def test_a_run_without_measurements(runs):
    (runs / "half" / "metrics.jsonl").unlink()
    actual = compare(str(runs / "half"), str(runs / "half"))
    assert actual["settings"] == actual["metrics"] == {}


def test_two_names_of_one_function():
    actual = compare("softmax_divs", "gated_softmax_no_gate_no_norm")
    assert actual["same_function"] is True
    assert compare("taylor_2", "based")["parts"] == {}


def test_the_block_around_the_attention_counts():
    actual = compare("gated_softmax", "gated_softmax_plusplus")
    assert actual["parts"] == {}
    assert actual["same_function"] is False
    assert actual["block"]["conv_width"] == [None, 4]


def test_a_spec_in_a_file(tmp_path):
    path = tmp_path / "spec.json"
    path.write_text(VARIANTS["linear_elu"].to_json())
    assert compare(str(path), "linear_elu")["same_function"] is True
    path.write_text("{")
    with pytest.raises(InputError, match="is not valid JSON"):
        compare(str(path), "linear_elu")


def test_the_command_prints_settings_losses_and_formulas(trained, capsys):
    command(str(trained / "softmax"), str(trained / "elu"))
    shown = capsys.readouterr().out
    result = json.loads((trained / "elu" / "result.json").read_text())
    assert "linear_elu" in shown
    assert f"{result['test_loss']:.4f}" in shown
    assert "Different functions." in shown


def test_the_command_as_json(trained, capsys):
    command(str(trained / "softmax"), str(trained / "elu"), as_json=True)
    printed = json.loads(capsys.readouterr().out)
    assert printed == compare(str(trained / "softmax"), str(trained / "elu"))


def test_two_studies(trained, tmp_path, capsys):
    for name, runs in (("a", ["softmax", "elu"]), ("b", ["softmax"])):
        write_json(tmp_path / name / "results.json", results_of([trained / run for run in runs]))
    actual = compare(str(tmp_path / "a"), str(tmp_path / "b"))
    losses = {name: pair for name, pair in actual["metrics"].items() if name.startswith("linear_elu")}
    assert actual["kind"] == "studies" and len(losses) == 1
    assert next(iter(losses.values()))[1] is None
    command(str(tmp_path / "a"), str(tmp_path / "b"))
    assert "linear_elu" in capsys.readouterr().out
    with pytest.raises(InputError, match="expected two of the same kind"):
        compare(str(tmp_path / "a"), str(trained / "softmax"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("7", "line 1: expected measurements by name, got 7"),
        ('{"loss": 1.0}', "line 1: step is missing"),
        ('{"step": 1, "loss": "low"}', "line 1: loss: expected a finite number, got 'low'"),
        ('{"step": 1, "test_loss": 2.0}', "line 1: test_accuracy is missing"),
    ],
)
@pytest.mark.parametrize("use", [lambda path: compare(path, path), lambda path: results_of([Path(path)])])
def test_odd_metrics_are_one_line(runs, line, said, use):
    path = runs / "half" / "metrics.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError) as caught:
        use(str(runs / "half"))
    assert str(caught.value) == f"runs: {path}: {said}"
